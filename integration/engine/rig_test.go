//go:build engine

package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/warmpath/warmpath/control"
	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/gateway"
	"github.com/warmpath/warmpath/integration/engines"
	"github.com/warmpath/warmpath/integration/envoybin"
	"github.com/warmpath/warmpath/integration/envoyrun"
	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
)

const (
	pool  = "default"
	token = "change-me" // of the control service, as in the shipped example

	// tokenTimeout replaces the minute, or the quarter of an hour, for which a
	// front bears an engine's silence within an answer.
	tokenTimeout = 4 * time.Second
)

// worker is one engine, who records it, and how the control service reaches its
// events.
type worker struct {
	*Process
	recorder       *Recorder
	events, replay *cutter // nil: they are discovered
}

// rig is one front with a control service of its own, before the same engines.
type rig struct {
	t       *testing.T
	front   string
	workers []*worker
	ranks   int // of each engine, as the worker list says; 0: it doesn't
	control *control.Service
	config  control.Config
	stop    func() // the control service
	url     string // where clients send
	client  *http.Client
	home    []*talk // of the first turn
	// shared is the front's table, nil where it can't be read from outside.
	shared func(key string) []byte
}

func (r *rig) startControl() {
	r.t.Helper()
	var specs []discovery.Spec
	for _, w := range r.workers {
		spec := discovery.Spec{
			Address: w.Address, Ranks: r.ranks, Pool: pool, MaxRunning: MaxRunning, QueueLimit: 64,
			CapacityTokens: blocks * BlockTokens, BlockTokens: BlockTokens, PrefillTokensPerSecond: 5000,
			KVEvents: discovery.KVEvents{Auto: true},
		}
		if w.events != nil {
			spec.KVEvents = discovery.KVEvents{Endpoint: w.events.endpoint(), Replay: w.replay.endpoint(), Topic: "kv@"}
		}
		specs = append(specs, spec)
	}
	log, err := os.CreateTemp("", "control-"+r.front+"-*.log")
	if err != nil {
		r.t.Fatal(err)
	}
	listener, err := engines.Listen()
	if err != nil {
		r.t.Fatal(err)
	}
	r.config = control.Config{
		Listen: listener.Addr().String(), Token: token, Workers: specs, Policy: r.policy(threshold),
		Discovery: control.Discovery{AdaptersInterval: time.Second},
		StateFile: filepath.Join(r.t.TempDir(), "state.bin"), Logger: slog.New(slog.NewTextHandler(log, nil)),
	}
	listener.Close()
	t := r.t
	t.Cleanup(func() {
		log.Close()
		if t.Failed() {
			t.Logf("the control service's log is kept in %s", log.Name())
			return
		}
		_ = os.Remove(log.Name())
	})
	r.client = &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	t.Cleanup(r.client.CloseIdleConnections)
	r.runControl()
	t.Cleanup(func() { r.stop() }) // the one that runs then
}

// threshold is the rule of all scenarios but for those about another one.
var threshold = map[string]any{"name": "threshold"}

// policy is the document with a rule.
func (r *rig) policy(rule map[string]any) []byte {
	r.t.Helper()
	doc, err := json.Marshal(map[string]any{"pools": []any{map[string]any{
		"name": pool, "index": 0, "models": []string{ModelName, AliasName, AdapterName}, "mode": "route", "policy": rule,
		"tokenizer": map[string]any{"file": installed.model.Tokenizer, "template": Template, "engine": "vllm", "parity": "require", "exact_grace_ms": 60_000},
	}}})
	if err != nil {
		r.t.Fatal(err)
	}
	return doc
}

// runControl starts the control service, for the first time or again.
func (r *rig) runControl() {
	r.t.Helper()
	var err error
	if r.control, err = control.New(r.config); err != nil {
		r.t.Fatalf("start the control service: %v", err)
	}
	r.stop = background(r.t, "control service", r.control.Run)
	select {
	case <-r.control.Ready():
	case <-time.After(20 * time.Second):
		r.t.Fatal("the control service is not ready after 20 s")
	}
}

// background runs a service until stop.
func background(t *testing.T, what string, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func startGateway(r *rig) {
	module, err := os.ReadFile(installed.module)
	if err != nil {
		r.t.Fatal(err)
	}
	var addresses []string
	for _, w := range r.workers {
		addresses = append(addresses, w.Address)
	}
	endpoints, err := gateway.NewEndpoints(pool, addresses...)
	if err != nil {
		r.t.Fatal(err)
	}
	plugin, err := json.Marshal(map[string]any{"gateway": "gw-1", "explain": true, "control": map[string]any{"cluster": "warmpath-control", "token": token}})
	if err != nil {
		r.t.Fatal(err)
	}
	g, err := gateway.New(r.t.Context(), gateway.Config{
		Listen: "127.0.0.1:0", Module: module, Plugin: plugin, Endpoints: endpoints, VMs: 2,
		Clusters:     map[string][]string{"warmpath-control": {r.control.URL()}},
		TokenTimeout: tokenTimeout, DrainTimeout: time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(background(r.t, "gateway", g.Run))
	r.url = g.URL()
	r.shared = func(key string) []byte {
		value, _, _ := g.Host().SharedData("warmpath", key)
		return value
	}
}

func startEnvoy(r *rig) {
	binary, err := envoybin.Install(r.t.Context(), *envoyVersion)
	if err != nil {
		r.t.Fatal(err)
	}
	ports := map[int]int{envoyrun.ControlPort: portOf(r.t, r.control.Addr())}
	for i, w := range r.workers {
		ports[9001+i] = portOf(r.t, w.Address)
	}
	proxy, err := envoyrun.Start(r.t.Context(), envoyrun.Options{
		Binary: binary, Example: "envoy.yaml", Module: installed.module, Ports: ports,
		Settings: func(settings envoyrun.Tree) { settings["explain"] = true },
		Bootstrap: func(tree envoyrun.Tree) {
			route := envoyrun.Find(tree, "name", pool)["route"].(envoyrun.Tree)
			route["idle_timeout"] = fmt.Sprintf("%.1fs", tokenTimeout.Seconds())
			cluster := envoyrun.Find(tree, "cluster_name", "pool-"+pool)
			group := cluster["endpoints"].([]any)[0].(envoyrun.Tree)
			group["lb_endpoints"] = group["lb_endpoints"].([]any)[:len(r.workers)]
		},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	t := r.t
	t.Cleanup(func() {
		if t.Failed() {
			path := filepath.Join(os.TempDir(), "engine-test-envoy.log")
			if os.WriteFile(path, []byte(proxy.Log()), 0o644) == nil {
				t.Logf("envoy's log is kept in %s", path)
			}
		}
		proxy.Stop()
	})
	r.url = proxy.ClientURL
}

// waitExact waits until the control service follows the events of both engines
// and every VM of the front reads prompts by their tokens.
func (r *rig) waitExact() {
	r.t.Helper()
	r.eventually(90*time.Second, "events are followed, prompts are read exactly", func() error {
		for _, w := range r.control.Status().Workers {
			if w.Events == nil || w.Events.Source != "connected" {
				return fmt.Errorf("the events of %s: %+v", w.Address, w.Events)
			}
		}
		for range 6 { // over new connections: other threads
			a, err := r.ask(request{messages: []message{{"user", "Are you there?"}}})
			r.client.CloseIdleConnections()
			if err != nil {
				return err
			}
			if !a.exact {
				return fmt.Errorf("explained as %q; the tokenizer: %+v", a.explained, r.control.Status().Tokenizers)
			}
		}
		return nil
	})
}

// eventually repeats check until it passes; the last error is told.
func (r *rig) eventually(limit time.Duration, what string, check func() error) {
	r.t.Helper()
	envoyrun.Eventually(r.t, limit, what, check)
}

// status is what the control service says of a worker.
func (r *rig) status(w *worker) api.Worker {
	r.t.Helper()
	for _, s := range r.control.Status().Workers {
		if s.Address == w.Address {
			return s
		}
	}
	r.t.Fatalf("the control service doesn't know %s", w.Address)
	return api.Worker{}
}

// holdings is the recorder's map of a worker.
func (r *rig) holdings(w *worker) *Holdings {
	r.t.Helper()
	batches, err := w.recorder.Batches()
	if err != nil {
		r.t.Fatal(err)
	}
	h, err := HoldingsOf(batches)
	if err != nil {
		r.t.Fatalf("engine %s: %v", w.Name, err)
	}
	return h
}

// agree waits until the tables say of every worker what its own map says. What is
// only predicted has 30 s to be reported, a request under way longer.
func (r *rig) agree(limit time.Duration) {
	r.t.Helper()
	r.eventually(limit, "the table holds what the engines reported", func() error {
		published := r.published()
		var fronts map[uint16]map[uint64]bool
		if r.shared != nil {
			fronts = r.inShared()
		}
		for _, w := range r.workers {
			holdings, status := r.holdings(w), r.status(w)
			want, ref := holdings.Expect(pool, map[string]uint64{AdapterName: generationOf(w.Model.Adapter)}), status.Ref
			if diff := want.Diff(published[ref]); diff != "" {
				return fmt.Errorf("engine %s in the control service's table: %s (%d blocks are there, its events tell of %d: %+v)", w.Name, diff, len(holdings.present), status.Events.Held, status.Events)
			}
			if r.shared == nil {
				continue
			}
			if diff := want.Diff(fronts[ref]); diff != "" {
				return fmt.Errorf("engine %s in the gateway's table: %s", w.Name, diff)
			}
		}
		return nil
	})
}

// published is the control service's table by worker.
func (r *rig) published() map[uint16]map[uint64]bool {
	r.t.Helper()
	out := map[uint16]map[uint64]bool{}
	stats := r.control.Table().Stats()
	for i := range table.Ranges(stats.Bits) {
		frame, err := r.control.Table().Pages(stats.Epoch, stats.Bits, i)
		if err != nil {
			r.t.Fatal(err)
		}
		err = wire.ForEachSection(frame, func(s wire.Section) error {
			return wire.ForEachPage(s.Payload, func(p table.Page) error { note(out, p); return nil })
		})
		if err != nil {
			r.t.Fatal(err)
		}
	}
	return out
}

var keys = wire.NewKeys("default")

// inShared is the front's own table by worker.
func (r *rig) inShared() map[uint16]map[uint64]bool {
	r.t.Helper()
	out := map[uint16]map[uint64]bool{}
	meta, err := table.DecodeMeta(r.shared(keys.Meta()))
	if err != nil {
		r.t.Fatal(err)
	}
	for i := range uint32(1) << meta.Bits {
		note(out, table.Page(r.shared(keys.Page(meta.Bits, i))))
	}
	return out
}

func note(out map[uint16]map[uint64]bool, p table.Page) {
	for i := range p.Count() {
		e := p.At(i)
		for _, ref := range e.Refs {
			if ref == 0 {
				continue
			}
			if out[ref] == nil {
				out[ref] = map[uint64]bool{}
			}
			out[ref][e.Fingerprint] = true
		}
	}
}

func portOf(t *testing.T, address string) int {
	t.Helper()
	var port int
	if _, err := fmt.Sscanf(address[bytes.LastIndexByte([]byte(address), ':')+1:], "%d", &port); err != nil {
		t.Fatal(err)
	}
	return port
}
