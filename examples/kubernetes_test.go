package examples

import (
	"bytes"
	"errors"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	yamlv4 "go.yaml.in/yaml/v4"
	"sigs.k8s.io/yaml"

	"github.com/warmpath/warmpath/control"
	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/shared/policy"
)

// documents reads the objects of a manifest by kind.
func documents(t *testing.T, file string) map[string]object {
	t.Helper()
	out := map[string]object{}
	decoder := yamlv4.NewDecoder(bytes.NewReader(readFile(t, file)))
	for {
		var o object
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out[o["kind"].(string)] = o
	}
}

// at walks down an object by keys and list positions.
func at(t *testing.T, node any, keys ...any) any {
	t.Helper()
	for _, key := range keys {
		switch n := node.(type) {
		case object:
			node = n[key.(string)]
		case []any:
			node = n[key.(int)]
		default:
			t.Fatalf("nothing at %v of %v", key, keys)
		}
	}
	return node
}

// TestTheKubernetesManifestsFitTogether holds configuration, Deployment, rights
// and the Istio example to each other; make kube-test asks a real API server.
func TestTheKubernetesManifestsFitTogether(t *testing.T) {
	docs, rights := documents(t, "kubernetes/control.yaml"), documents(t, "kubernetes/rbac.yaml")
	data := at(t, docs["ConfigMap"], "data")
	pod := at(t, docs["Deployment"], "spec", "template", "spec")
	container := at(t, pod, "containers", 0)

	mounts := map[string]string{} // path of each mount
	for _, m := range at(t, container, "volumeMounts").([]any) {
		mounts[at(t, m, "name").(string)] = at(t, m, "mountPath").(string)
	}
	if args := at(t, container, "args"); at(t, args, 2) != path.Join(mounts["config"], "control.yaml") {
		t.Errorf("args %v, the ConfigMap is at %s", args, mounts["config"])
	}
	text := at(t, data, "control.yaml").(string)
	tokenFile := path.Join(mounts["token"], "token")
	if !strings.Contains(text, "token_file: "+tokenFile) {
		t.Errorf("the token is at %s", tokenFile)
	}
	cfg, err := control.ParseConfig("control.yaml", []byte(strings.Replace(text, "token_file: "+tokenFile, "token: x", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if cfg.PolicyFile != path.Join(mounts["config"], "policy.yaml") || filepath.Dir(cfg.StateFile) != mounts["state"] {
		t.Errorf("policy at %s, state at %s", cfg.PolicyFile, cfg.StateFile)
	}
	port := at(t, container, "ports", 0, "containerPort")
	if service := at(t, docs["Service"], "spec", "ports", 0, "port"); port != service || !strings.HasSuffix(cfg.Listen, ":8780") || port != 8780 {
		t.Errorf("listens on %s, container port %v, Service port %v", cfg.Listen, port, service)
	}

	policyText, err := yaml.YAMLToJSON([]byte(at(t, data, "policy.yaml").(string)))
	if err != nil {
		t.Fatal(err)
	}
	set, err := policy.Parse(policyText)
	if err != nil {
		t.Fatal(err)
	}
	istio := string(readFile(t, "istio/gateway.yaml"))
	for _, p := range set.Pools {
		if !strings.Contains(istio, "warmpath.dev/pool: "+p.Name) || !strings.Contains(istio, "name: "+p.Cluster+",") {
			t.Errorf("pool %s with cluster %s is not that of the Istio example", p.Name, p.Cluster)
		}
	}

	account := at(t, pod, "serviceAccountName")
	if at(t, rights["ServiceAccount"], "metadata", "name") != account || at(t, rights["RoleBinding"], "subjects", 0, "name") != account {
		t.Errorf("the Deployment runs as %v", account)
	}
	var resources []string
	for _, rule := range at(t, rights["Role"], "rules").([]any) {
		resources = append(resources, at(t, rule, "resources", 0).(string))
	}
	entries := commentedOut(t, text)
	if len(cfg.Discovery.Kubernetes) != 1 || len(entries) != 2 {
		t.Fatalf("%d entries, %d more in comments", len(cfg.Discovery.Kubernetes), len(entries))
	}
	for _, entry := range append(entries, cfg.Discovery.Kubernetes...) {
		if err := entry.Check(); err != nil {
			t.Error(err)
		}
		if entry.Namespace != at(t, rights["Role"], "metadata", "namespace") {
			t.Errorf("no rights in %s", entry.Namespace)
		}
		needed := map[bool]string{true: "pods", false: "endpointslices"}[entry.Service == ""]
		if !slices.Contains(resources, needed) || entry.InferencePool != "" && !slices.Contains(resources, "inferencepools") {
			t.Errorf("%v needs rights that rbac.yaml lacks", entry)
		}
	}
}

// commentedOut reads the sources that the example shows in comments.
func commentedOut(t *testing.T, text string) (out []discovery.Kubernetes) {
	t.Helper()
	for line := range strings.Lines(text) {
		entry, ok := strings.CutPrefix(strings.TrimSpace(line), "# - {")
		if !ok {
			continue
		}
		cfg, err := control.ParseConfig("comment", []byte("discovery: {kubernetes: [{"+strings.TrimSpace(entry)+"]}"))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, cfg.Discovery.Kubernetes...)
	}
	return out
}
