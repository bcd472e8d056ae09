//go:build kube

package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/warmpath/warmpath/control"
	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/control/discovery/kubernetes"
)

// engine answers as an engine's health and metrics do.
func engine(t *testing.T) (port string) {
	t.Helper()
	started := time.Now().Unix()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			fmt.Fprintf(w, "process_start_time_seconds %d\nvllm:num_requests_running 0\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc 0\n", started)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL[strings.LastIndex(server.URL, ":")+1:]
}

// TestTheExamplesControlServiceFollowsTheCluster runs a control service on the
// example's configuration, rights and policy. Its workers are pods of this
// machine, on ports that their annotations name.
func TestTheExamplesControlServiceFollowsTheCluster(t *testing.T) {
	ns := "control"
	kubeconfig := applyRBAC(t, ns, func(*unstructured.Unstructured) {})
	cfg, policy := exampleConfig(t)
	cfg.Listen, cfg.StateFile, cfg.PolicyFile, cfg.Policy, cfg.Learn = "127.0.0.1:0", "", "", policy, -1
	for _, entry := range cfg.Discovery.Kubernetes {
		entry.Namespace, entry.Kubeconfig = ns, kubeconfig
		source, err := kubernetes.New(entry)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Sources = append(cfg.Sources, source)
	}
	if len(cfg.Sources) == 0 {
		t.Fatal("the example has no source")
	}
	service, err := control.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- service.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	statusOf := func() (st api.Status) {
		t.Helper()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, service.URL()+"/v1/status", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer test")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(&st); err != nil {
			t.Fatal(err)
		}
		return st
	}
	await := func(what string, ok func(map[string]api.Worker) bool) (map[string]api.Worker, time.Duration) {
		t.Helper()
		begin := time.Now()
		for {
			workers := map[string]api.Worker{}
			st := statusOf()
			for _, w := range st.Workers {
				workers[w.Address] = w
			}
			if ok(workers) {
				return workers, time.Since(begin)
			}
			if time.Since(begin) > 20*time.Second {
				t.Fatalf("never %s: %+v, sources %+v", what, st.Workers, st.Sources)
			}
			pause(ctx, 5*time.Millisecond)
		}
	}
	ports := []string{engine(t), engine(t)}
	at := func(i int) string { return "127.0.0.1:" + ports[i] }
	start := func(i int, pool string) {
		t.Helper()
		name := fmt.Sprint("vllm-", i)
		pod(t, ns, name, "{"+kubernetes.Prefix+"pool: "+pool+"}")
		patch(t, pods, ns, name, `metadata: {annotations: {`+kubernetes.Prefix+`ports: "`+ports[i]+`", `+kubernetes.Prefix+`max-running: "48"}}`)
		status(t, ns, name, "127.0.0.1", true)
	}
	start(0, "default")
	start(1, "small")
	workers, took := await("two healthy", func(w map[string]api.Worker) bool {
		return w[at(0)].State == "healthy" && w[at(1)].State == "healthy"
	})
	t.Logf("two pods are healthy workers after %v", took.Round(time.Millisecond))
	first := workers[at(0)]
	if first.Pool != "default" || workers[at(1)].Pool != "small" || first.MaxRunning != 48 || first.Source != "kubernetes pods control warmpath.dev/pool" || first.Events == nil {
		t.Errorf("%+v", first)
	}
	status(t, ns, "vllm-1", "127.0.0.1", false)
	workers, took = await("draining", func(w map[string]api.Worker) bool { return w[at(1)].State == "draining" })
	t.Logf("a pod that isn't ready is drained after %v", took.Round(time.Millisecond))
	if w := workers[at(1)]; took > soon || w.Ref == 0 || w.Reason != "pod vllm-1 is not ready: probe says False" {
		t.Errorf("after %v: %+v", took, w)
	}
	// The same process at the same address, in another pod.
	end(t, ns, "vllm-0", 0)
	_, took = await("gone", func(w map[string]api.Worker) bool { return len(w) == 1 })
	t.Logf("a pod is gone after %v", took.Round(time.Millisecond))
	if took > soon {
		t.Errorf("gone after %v", took)
	}
	start(0, "default")
	workers, _ = await("back", func(w map[string]api.Worker) bool { return w[at(0)].State == "healthy" })
	if again := workers[at(0)]; again.Generation == first.Generation || again.Ref == first.Ref {
		t.Errorf("the pod that came back is taken for the one that went: %+v, before %+v", again, first)
	}
	if st := statusOf(); st.Sources[1].Workers != 2 || st.Sources[1].Error != "" || st.Sources[1].Age > 11 {
		t.Errorf("%+v", st.Sources)
	}
}

// TestASourceWithoutRightsKeepsTheServiceFromBeingReady, and says why.
func TestASourceWithoutRightsKeepsTheServiceFromBeingReady(t *testing.T) {
	kubeconfig := applyRBAC(t, "unready", func(*unstructured.Unstructured) {})
	source, err := kubernetes.New(discovery.Kubernetes{Namespace: namespace(t, "foreign"), Kubeconfig: kubeconfig, Pods: "app=vllm", Ports: []uint16{8000}})
	if err != nil {
		t.Fatal(err)
	}
	service, err := control.New(control.Config{Listen: "127.0.0.1:0", Sources: []discovery.Source{source}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- service.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	for begin := time.Now(); ; pause(ctx, 20*time.Millisecond) {
		r := service.Readiness()
		if r.Ready {
			t.Fatal("it is ready")
		}
		if strings.Contains(r.Reason, "check RBAC: examples/kubernetes/rbac.yaml") {
			return
		}
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("the reason is %q", r.Reason)
		}
	}
}
