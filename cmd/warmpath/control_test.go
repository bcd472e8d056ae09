package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/control"
	"github.com/warmpath/warmpath/control/api"
)

func TestTheStatusNamesTheVersionOfTheProgram(t *testing.T) {
	_, version, _ := warmpath("version")
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	root := rootCommand()
	root.SetOut(in)
	root.SetArgs([]string{"control", "--listen", "127.0.0.1:0"})
	ended := make(chan error, 1)
	go func() {
		err := root.ExecuteContext(ctx)
		_ = in.CloseWithError(err)
		ended <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get(strings.TrimPrefix(strings.TrimSpace(line), "control service at ") + "/v1/status")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var status api.Status
	if err := json.NewDecoder(resp.Body).Decode(&status); err != nil {
		t.Fatal(err)
	}
	if status.Version == "" || status.Version == "unknown" || !strings.HasPrefix(version, "warmpath "+status.Version+",") {
		t.Errorf("%q in the status of %q", status.Version, version)
	}
}

func TestSourcesAreMadeOfTheConfigurationInOrder(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://10.0.0.1:6443'}}]\nusers: [{name: u, user: {token: t}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\ncurrent-context: c\n"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	parse := func(text string) control.Config {
		t.Helper()
		cfg, err := control.ParseConfig("control.yaml", []byte(strings.ReplaceAll(text, "KUBECONFIG", kubeconfig)))
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	cfg := parse(`
discovery:
  dns: [{srv: _http._tcp.w.test, server: "10.0.0.53:53"}, {name: w.test, port: 8000, server: "10.0.0.53:53"}]
  kubernetes: [{namespace: llm, pods: app=vllm, ports: [8000], kubeconfig: KUBECONFIG}, {namespace: a, service: vllm, port: http, kubeconfig: KUBECONFIG}]
`)
	found, err := sources(&cfg.Discovery)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, source := range found {
		names = append(names, source.Name())
	}
	if got, want := strings.Join(names, ", "), "kubernetes pods llm app=vllm, kubernetes service a/vllm:http, dns srv _http._tcp.w.test, dns w.test:8000"; got != want {
		t.Errorf("%s", got)
	}
	// All that is wrong is said at once, by place.
	cfg = parse("discovery: {dns: [{name: w.test}], kubernetes: [{namespace: llm, kubeconfig: KUBECONFIG}]}")
	_, err = sources(&cfg.Discovery)
	for _, want := range []string{"item 1: discovery.kubernetes: pods: 0 of pods, service and inference_pool are given", "item 1: discovery.dns: port: 0 is not a port"} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}
