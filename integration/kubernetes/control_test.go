//go:build kube

package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/warmpath/warmpath/control"
	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/control/discovery/kubernetes"
	"github.com/warmpath/warmpath/shared/wire"
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

// service is a control service that runs.
type service struct {
	*control.Service
	t    *testing.T
	stop func()
}

func run(t *testing.T, cfg control.Config) *service {
	t.Helper()
	s, err := control.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return &service{s, t, stop}
}

func (s *service) get(path string) []byte {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.URL()+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer test")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return body
}

// await polls the status until ok likes the workers, by address.
func (s *service) await(what string, ok func(map[string]api.Worker) bool) map[string]api.Worker {
	s.t.Helper()
	for begin := time.Now(); ; pause(s.t.Context(), 5*time.Millisecond) {
		var st api.Status
		if err := json.Unmarshal(s.get("/v1/status"), &st); err != nil {
			s.t.Fatal(err)
		}
		workers := map[string]api.Worker{}
		for _, w := range st.Workers {
			workers[w.Address] = w
		}
		if ok(workers) {
			return workers
		}
		if time.Since(begin) > 20*time.Second {
			s.t.Fatalf("never %s: %+v, sources %+v", what, st.Workers, st.Sources)
		}
	}
}

// inTables returns how long it takes until the table that gateways are given
// shows the worker in that state; 255 is not at all.
func (s *service) inTables(address string, want uint8) time.Duration {
	s.t.Helper()
	for begin := time.Now(); ; pause(s.t.Context(), 2*time.Millisecond) {
		ref, got := uint16(0), uint8(255)
		err := wire.ForEachSection(s.get("/v1/table?epoch=0&version=0&wait_ms=0"), func(section wire.Section) error {
			switch section.Type {
			case wire.SectionRoster:
				return wire.ForEachWorker(section.Payload, func(w *wire.Worker) error {
					if string(w.Address) == address {
						ref = w.Ref
					}
					return nil
				})
			case wire.SectionLoads:
				return wire.ForEachLoad(section.Payload, func(l *wire.Load) error {
					if l.Ref == ref {
						got = l.State
					}
					return nil
				})
			}
			return nil
		})
		if err == nil && got == want {
			return time.Since(begin)
		}
		if time.Since(begin) > 20*time.Second {
			s.t.Fatalf("%s is in state %d of the tables, want %d (%v)", address, got, want, err)
		}
	}
}

const (
	inHealth = uint8(discovery.Healthy)
	drained  = uint8(discovery.Draining)
	absent   = uint8(255)
)

// TestTheExamplesControlServiceFollowsTheCluster runs a control service on the
// example's configuration, rights and policy. Its workers are pods of this
// machine, on ports that their annotations name.
func TestTheExamplesControlServiceFollowsTheCluster(t *testing.T) {
	ns := "control"
	kubeconfig := applyRBAC(t, ns, func(*unstructured.Unstructured) {})
	cfg, policy := exampleConfig(t)
	cfg.Listen, cfg.PolicyFile, cfg.Policy, cfg.StateFile = "127.0.0.1:0", "", policy, filepath.Join(t.TempDir(), "state.bin")
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
	s := run(t, cfg)
	ports := []string{engine(t), engine(t)}
	at := func(i int) string { return "127.0.0.1:" + ports[i] }
	start := func(i int, pool string) {
		t.Helper()
		name := fmt.Sprint("vllm-", i)
		pod(t, ns, name, "{"+kubernetes.Prefix+"pool: "+pool+"}")
		patch(t, pods, ns, name, `metadata: {annotations: {`+kubernetes.Prefix+`ports: "`+ports[i]+`", `+kubernetes.Prefix+`max-running: "48"}}`)
		status(t, ns, name, "127.0.0.1", true)
	}
	timed := func(what string, address string, state uint8) {
		t.Helper()
		took := s.inTables(address, state)
		t.Logf("in gateways' tables a pod %s after %v", what, took.Round(time.Millisecond))
		if took > soon {
			t.Errorf("a pod %s after %v", what, took)
		}
	}
	start(0, "default")
	start(1, "small")
	timed("comes", at(1), inHealth)
	workers := s.await("healthy", func(w map[string]api.Worker) bool { return w[at(0)].State == "healthy" })
	first := workers[at(0)]
	if first.Pool != "default" || workers[at(1)].Pool != "small" || first.MaxRunning != 48 || first.Source != "kubernetes pods control warmpath.dev/pool" || first.Events == nil {
		t.Errorf("%+v", first)
	}
	status(t, ns, "vllm-1", "127.0.0.1", false)
	timed("that isn't ready is drained", at(1), drained)
	workers = s.await("draining", func(w map[string]api.Worker) bool { return w[at(1)].State == "draining" })
	if w := workers[at(1)]; w.Ref == 0 || w.Reason != "pod vllm-1 is not ready: probe says False" {
		t.Errorf("%+v", w)
	}
	// The same process at the same address, in another pod.
	end(t, ns, "vllm-0", 0)
	timed("is gone", at(0), absent)
	start(0, "default")
	timed("comes back", at(0), inHealth)
	workers = s.await("both", func(w map[string]api.Worker) bool { return len(w) == 2 })
	again := workers[at(0)]
	if again.Generation == first.Generation || again.Ref == first.Ref {
		t.Errorf("the pod that came back is taken for the one that went: %+v, before %+v", again, first)
	}
	// After a restart of the service the same pods are the same workers.
	s.stop()
	s = run(t, cfg)
	workers = s.await("both after a restart", func(w map[string]api.Worker) bool {
		return w[at(0)].State == "healthy" && w[at(1)].State == "draining"
	})
	if w := workers[at(0)]; w.Ref != again.Ref || w.Generation != again.Generation {
		t.Errorf("after a restart %+v, before %+v", w, again)
	}
}

// TestASourceWithoutRightsKeepsTheServiceFromBeingReady, and says why.
func TestASourceWithoutRightsKeepsTheServiceFromBeingReady(t *testing.T) {
	kubeconfig := applyRBAC(t, "unready", func(*unstructured.Unstructured) {})
	source, err := kubernetes.New(discovery.Kubernetes{Namespace: namespace(t, "foreign"), Kubeconfig: kubeconfig, Pods: "app=vllm", Ports: []uint16{8000}})
	if err != nil {
		t.Fatal(err)
	}
	s := run(t, control.Config{Listen: "127.0.0.1:0", Sources: []discovery.Source{source}})
	for begin := time.Now(); ; pause(t.Context(), 20*time.Millisecond) {
		r := s.Readiness()
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
