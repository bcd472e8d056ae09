package examples

import (
	"fmt"
	"net"
	"path"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/control"
)

// TestTheThreeReplicasFindEachOther holds the configuration of several control
// services to the StatefulSet that runs them.
func TestTheThreeReplicasFindEachOther(t *testing.T) {
	docs := documents(t, "kubernetes/control-replicas.yaml")
	set := docs["StatefulSet"]
	name, service := at(t, set, "metadata", "name").(string), at(t, set, "spec", "serviceName").(string)
	container := at(t, set, "spec", "template", "spec", "containers", 0)
	mounts := map[string]string{}
	for _, m := range at(t, container, "volumeMounts").([]any) {
		mounts[at(t, m, "name").(string)] = at(t, m, "mountPath").(string)
	}
	text := at(t, docs["ConfigMap"], "data", "control.yaml").(string)
	cfg, err := control.ParseConfig("control.yaml", []byte(strings.Replace(text, "token_file: "+path.Join(mounts["token"], "token"), "token: x", 1)))
	if err != nil {
		t.Fatal(err)
	}
	nats := cfg.NATS.WithDefaults()
	if err := nats.Validate(); err != nil {
		t.Fatal(err)
	}
	ports := map[string]any{}
	for _, p := range at(t, container, "ports").([]any) {
		ports[at(t, p, "name").(string)] = at(t, p, "containerPort")
	}
	if n := at(t, set, "spec", "replicas"); n != len(nats.Embedded.Routes) {
		t.Errorf("%v replicas, %d routes", n, len(nats.Embedded.Routes))
	}
	for i, r := range nats.Embedded.Routes {
		host, port, err := net.SplitHostPort(r)
		if err != nil || host != fmt.Sprintf("%s-%d.%s", name, i, service) || port != fmt.Sprint(ports["nats"]) {
			t.Errorf("route %s of replica %d of %s in %s, port %v", r, i, name, service, ports["nats"])
		}
	}
	if dir := path.Dir(nats.Embedded.StoreDir); dir != mounts["state"] || path.Dir(cfg.StateFile) != dir {
		t.Errorf("store in %s, state in %s, the claim is at %s", dir, cfg.StateFile, mounts["state"])
	}
	if dir := path.Dir(nats.TLS.CA); dir != mounts["nats"] {
		t.Errorf("certificates in %s, mounted at %s", dir, mounts["nats"])
	}
}
