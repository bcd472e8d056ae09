package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/control"
	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/control/discovery"
)

// The whole way: an engine that control mustn't scrape, an agent beside it, and
// what the service then says of the worker, until the agent has drained it.
func TestAnAgentSpeaksForItsEngine(t *testing.T) {
	scraped := make(chan struct{}, 1000)
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			return
		}
		if r.Header.Get("Authorization") != "Bearer engine-secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte("sglang:num_running_reqs 5\nsglang:token_usage 0.5\nsglang:max_total_num_tokens 4096\nprocess_start_time_seconds 1700000000\n"))
		scraped <- struct{}{}
	}))
	defer engine.Close()
	address := strings.TrimPrefix(engine.URL, "http://")
	service, err := control.New(control.Config{Listen: "127.0.0.1:0", Token: "secret", Workers: []discovery.Spec{{Address: address}}})
	if err != nil {
		t.Fatal(err)
	}
	serving, stopService := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- service.Run(serving) }()
	<-service.Ready()

	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("WARMPATH_ENGINE_TOKEN", "engine-secret")
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	root := rootCommand()
	root.SetOut(&out)
	root.SetArgs([]string{
		"agent", "--engine", engine.URL, "--control", service.URL(), "--token-file", token,
		"--interval", "100ms", "--drain", "300ms", "--max-running", "16", "--listen", "127.0.0.1:0",
	})
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(ctx) }()
	status := func() api.Worker { return service.Status().Workers[0] }
	for range 4 {
		<-scraped
	}
	w := status()
	if w.Running != 5 || w.KVShare != 0.5 || w.Capacity != 4096 || w.MaxRunning != 16 || w.State != "healthy" || w.Heartbeats == nil || w.Heartbeats.Count < 2 ||
		len(w.Degraded) != 1 || w.Degraded[0] != "no metrics: /metrics answers 401" {
		text, _ := json.Marshal(w)
		t.Errorf("%s", text)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if w := status(); w.State != "draining" {
		t.Errorf("after the agent's end: %s", w.State)
	}
	if !strings.HasPrefix(out.String(), "agent of "+address+", health at http://127.0.0.1:") {
		t.Errorf("%q", out.String())
	}
	stopService()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
