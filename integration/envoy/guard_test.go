//go:build envoy

package envoy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/warmpath/warmpath/agent"
	"github.com/warmpath/warmpath/agent/guard"
	"github.com/warmpath/warmpath/gateway"
	"github.com/warmpath/warmpath/integration/envoyrun"
)

// token is that of the shipped examples.
const token = "change-me"

// guardPolicy is added to the shipped policy: clients say their class in x-class, the
// module passes it on, and every request may be re-routed.
const guardPolicy = `
admission:
  identity: {class_header: x-class}
  engine_priority_header: true
  retry_budget: 1
`

// front is an agent that stands guard before one worker.
type front struct {
	t       *testing.T
	worker  string // address of the worker behind
	address string // its own
	control string // URL

	guard *guard.Guard
	stop  func() error
}

// start runs an agent with fresh counters, at the address it had before.
func (f *front) start() {
	f.t.Helper()
	listener, err := net.Listen("tcp", f.address)
	if err != nil {
		f.t.Fatal(err)
	}
	f.guard, err = guard.New(guard.Config{
		Engine: "http://" + f.worker, ClassHeader: "x-vllm-priority",
		Limits: guard.Limits{MaxRunning: 2, EngineQueue: 1, QueueRequests: 2, QueueWait: [3]time.Duration{time.Second, time.Second, time.Minute}},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	a, err := agent.New(agent.Config{
		Engine: "http://" + f.worker, Control: []string{f.control}, Worker: f.address, Interval: 250 * time.Millisecond,
		Token:    func() (string, error) { return token, nil },
		DrainFor: 30 * time.Second, Guard: f.guard, GuardListener: listener,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx, nil) }()
	f.stop = func() error { cancel(); f.stop = nil; return <-ended }
}

func (f *front) end() {
	if f.stop != nil {
		if err := f.stop(); err != nil {
			f.t.Error(err)
		}
	}
}

// count sums the guard's samples of one name whose labels include what.
func (f *front) count(name string, labels ...string) (sum int) {
	f.t.Helper()
	resp, err := http.Get("http://" + f.address + "/metrics")
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, m := range families["warmpath_guard_"+name].GetMetric() {
		var has []string
		for _, l := range m.GetLabel() {
			has = append(has, l.GetValue())
		}
		if !slices.ContainsFunc(labels, func(l string) bool { return !slices.Contains(has, l) }) {
			sum += int(m.GetCounter().GetValue() + m.GetGauge().GetValue())
		}
	}
	return sum
}

// TestGuard: every worker has an agent in front. What a guard refuses is served by
// the second choice, once, behind both proxies and with both ways of holding.
func TestGuard(t *testing.T) {
	for _, version := range versions(t) {
		for _, m := range modes {
			t.Run(version+" "+m.name, func(t *testing.T) {
				var fronts []*front
				r := newRig(t, version, m, func(o *envoyrun.Options) {
					for i := range 6 {
						f := &front{t: t, worker: fmt.Sprintf("127.0.0.1:%d", o.Ports[9001+i]), address: freeAddress(t)}
						f.control = fmt.Sprintf("http://127.0.0.1:%d", o.Ports[envoyrun.ControlPort])
						o.Ports[9001+i] = portOf(f.address)
						fronts = append(fronts, f)
					}
				})
				r.fronts = fronts
				r.policy = r.withPolicy("route", guardPolicy)
				for _, f := range fronts {
					f.start()
					t.Cleanup(f.end)
				}
				r.startControl()
				r.waitSteering()
				r.guarded()
				if m.name == "headers" {
					r.behindGateway().guarded()
				}
			})
		}
	}
}

// guarded tells the stories; each leaves fresh guards behind.
func (r *rig) guarded() {
	r.scenario("guard: its refusal is served by the second choice, byte for byte", refusedIsServedElsewhere)
	r.scenario("guard: a class is what the gateway says", classIsTheGateways)
	r.scenario("guard: two refusals are the client's answer", refusedTwice)
	r.scenario("guard: overload costs one re-route at most and nothing else", overloadIsTold)
	r.scenario("guard: an agent that ends under load costs no request", drainedUnderLoad)
	r.scenario("guard: clients that leave free everything", leaveTheGuard)
}

// behindGateway is r with the embedded gateway in Envoy's place.
func (r *rig) behindGateway() *rig {
	r.t.Helper()
	module, err := os.ReadFile(built.filter)
	if err != nil {
		r.t.Fatal(err)
	}
	var addresses []string
	for _, f := range r.fronts[:4] {
		addresses = append(addresses, f.address)
	}
	endpoints, err := gateway.NewEndpoints("default", addresses...)
	if err != nil {
		r.t.Fatal(err)
	}
	plugin, err := json.Marshal(map[string]any{"gateway": "embedded", "control": map[string]any{"cluster": "warmpath-control", "token": token}})
	if err != nil {
		r.t.Fatal(err)
	}
	g, err := gateway.New(r.t.Context(), gateway.Config{
		Listen: "127.0.0.1:0", Module: module, Plugin: plugin, Endpoints: endpoints, VMs: 2,
		Clusters:     map[string][]string{"warmpath-control": {"http://" + r.controlAddress}},
		DrainTimeout: time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			r.t.Errorf("gateway: %v", err)
		}
	})
	one := *r
	one.version, one.mode, one.proxy = "gateway", mode{}, &envoyrun.Proxy{ClientURL: g.URL()}
	one.eventually(20*time.Second, "the gateway steers", func() error {
		c := talk(uint64(time.Now().UnixNano()), 6000)
		a := one.chat(r.t.Context(), c.ask(), false)
		c.hear(a.text)
		b := one.chat(r.t.Context(), c.ask(), false)
		if err := errors.Join(a.err(), b.err()); err != nil {
			return err
		}
		if a.worker != b.worker || a.header.Get("x-warmpath-attempts") != "" {
			return fmt.Errorf("a conversation went to %s, then to %s", a.worker, b.worker)
		}
		return nil
	})
	return &one
}

// of is who stands before a worker.
func (r *rig) of(worker string) *front {
	i := slices.IndexFunc(r.fronts, func(f *front) bool { return f.worker == worker })
	if i < 0 {
		r.t.Fatalf("nobody stands before %q", worker)
	}
	return r.fronts[i]
}

// renew gives fronts fresh guards, and waits until they are used again.
func (r *rig) renew(fronts ...*front) {
	r.t.Helper()
	for _, f := range fronts {
		f.end()
		f.start()
	}
	r.eventually(20*time.Second, "every worker is healthy and used", func() error {
		for _, w := range r.control.Status().Workers {
			if w.State != "healthy" {
				return fmt.Errorf("%s is %s", w.Address, w.State)
			}
		}
		used := map[string]bool{}
		for i := range 40 {
			a := r.chat(r.t.Context(), talk(uint64(time.Now().UnixNano())+uint64(i), 3000).ask(), false)
			if a.err() != nil {
				return a.err()
			}
			used[a.worker] = true
		}
		if len(used) < 4 {
			return fmt.Errorf("requests went to %v only", slices.Sorted(maps.Keys(used)))
		}
		return nil
	})
}

func refusedIsServedElsewhere(r *rig) {
	for i, size := range []int{6_000, 2_000_000} {
		c := talk(uint64(7000+i), size)
		first := r.chat(r.t.Context(), c.ask(), false)
		if first.err() != nil {
			r.t.Fatal(first.err())
		}
		c.hear(first.text)
		r.eventually(20*time.Second, "the conversation has its worker", func() error {
			a := r.chat(r.t.Context(), c.ask(), false)
			c.hear(a.text)
			if a.err() != nil || a.worker != first.worker {
				return fmt.Errorf("served by %s: %w", a.worker, a.err())
			}
			return nil
		})
		holder := r.of(first.worker)
		for try := 0; ; try++ {
			if try == 20 {
				r.t.Fatalf("%d bytes: of %d workers none was asked again", size, try)
			}
			holder.guard.Drain() // and nobody else hears of it
			body := c.ask().body(i == 0, 8)
			r.fleet.Record()
			a := r.send(r.t.Context(), chatPath, bytes.NewReader(body))
			seen := r.sawBody(body)
			if a.err() != nil || a.worker == holder.worker || a.header.Get("x-warmpath-refused") != "" {
				r.t.Errorf("%d bytes: %v, served by %s (holder %s)", size, a.err(), a.worker, holder.worker)
			}
			if len(seen) != 1 || seen[0] != a.worker {
				r.t.Errorf("%d bytes: it came as sent to %v, and %s served", size, seen, a.worker)
			}
			n := holder.count("refused_total", "draining")
			if n == 1 && a.header.Get("x-warmpath-attempts") == "2" {
				break
			}
			if n != 0 || a.err() != nil {
				r.t.Fatalf("%d bytes: %d refusals at the holder, attempts %q", size, n, a.header.Get("x-warmpath-attempts"))
			}
			// The rule has found another worker better, for what the holder had done of
			// late: from now on that one holds most of the conversation.
			c.hear(a.text)
			holder.end()
			holder.start()
			holder = r.of(a.worker)
		}
		r.renew(holder)
	}
}

// sawBody is where a body came, since Record.
func (r *rig) sawBody(body []byte) (workers []string) {
	for _, seen := range r.fleet.Recorded() {
		if seen.BodySHA256 == sha256Hex(body) {
			workers = append(workers, seen.Worker)
		}
	}
	return workers
}

func classIsTheGateways(r *rig) {
	for _, c := range []struct {
		says, forged string
		want         string
	}{
		{"p0", "2", "p0"},
		{"p2", "0", "p2"},
		{"", "0", "p1"},
	} {
		before := r.work(c.want)
		headers := []string{"x-vllm-priority", c.forged}
		if c.says != "" {
			headers = append(headers, "x-class", c.says)
		}
		if a := r.chat(r.t.Context(), talk(7050, 3000).ask(), false, headers...); a.err() != nil {
			r.t.Error(a.err())
		}
		// A guard counts a request when its answer is out.
		r.eventually(5*time.Second, fmt.Sprintf("%+v is counted as %s", c, c.want), func() error {
			if n := r.work(c.want) - before; n != 1 {
				return fmt.Errorf("%d requests of %s", n, c.want)
			}
			return nil
		})
	}
}

func refusedTwice(r *rig) {
	for _, f := range r.fronts[:4] {
		f.guard.Drain()
	}
	r.fleet.Record()
	body := talk(7100, 3000).ask().body(false, 8)
	a := r.send(r.t.Context(), chatPath, bytes.NewReader(body))
	seen := r.sawBody(body)
	refusals := 0
	for _, f := range r.fronts[:4] {
		refusals += f.count("refused_total", "draining")
	}
	if a.status != http.StatusServiceUnavailable || a.header.Get("x-warmpath-refused") != "draining" || a.header.Get("retry-after") == "" ||
		!strings.Contains(string(a.body), `"code":"overloaded"`) || refusals != 2 || len(seen) != 0 {
		r.t.Errorf("status %d %v %s after %d refusals; engines saw it at %v", a.status, a.header, a.body, refusals, seen)
	}
	r.renew(r.fronts[:4]...)
}

// overloadIsTold: more clients than the guards let in and have wait.
func overloadIsTold(r *rig) {
	for _, w := range r.fleet.Workers {
		w.Delay(100 * time.Millisecond)
	}
	before := r.work()
	l := r.crowd(r.t.Context(), 24, nil, func(l *load) bool { return l.sent.Load() > 600 })
	for _, w := range r.fleet.Workers {
		w.Delay(0)
	}
	r.idleGuards()
	tried := int64(r.work() - before)
	refused := 0
	for _, f := range r.fronts[:4] {
		refused += f.count("refused_total")
	}
	r.t.Log(l, "; guards were asked", tried, "times and refused", refused)
	sent, told := l.sent.Load(), l.refused.Load()
	// Nobody is tried a third time. Whoever is told has been refused once or twice
	// (there may be no second choice while all others are avoided), whoever is served
	// at most once.
	if l.before.Load()+l.after.Load() > 0 || tried > 2*sent || int64(refused) < told || int64(refused) > sent+told {
		r.t.Errorf("%v; guards were asked %d times and refused %d", l, tried, refused)
	}
	if told == 0 || told == sent || tried <= sent {
		r.t.Errorf("%d of %d were told, in %d tries: that is no overload with second choices", told, sent, tried)
	}
	r.renew(r.fronts[:4]...)
}

// work is how many requests with these labels the guards have seen the end of.
func (r *rig) work(labels ...string) (n int) {
	for _, f := range r.fronts[:4] {
		n += f.count("requests_total", labels...)
	}
	return n
}

// idleGuards waits until nothing is left in any guard.
func (r *rig) idleGuards() {
	r.t.Helper()
	r.eventually(15*time.Second, "nothing is left in a guard", func() error {
		for _, f := range r.fronts {
			if a, b, c := f.count("in_flight"), f.count("waiting"), f.count("prefill_tokens"); a+b+c != 0 {
				return fmt.Errorf("%s: %d in flight, %d waiting, %d tokens", f.address, a, b, c)
			}
		}
		return nil
	})
}

func drainedUnderLoad(r *rig) {
	victim := r.fronts[1]
	ended := make(chan error, 1)
	stop := victim.stop
	var once sync.Once
	l := r.crowd(r.t.Context(), 6, nil, func(l *load) bool {
		n := l.sent.Load()
		if n > 150 {
			once.Do(func() { go func() { ended <- stop() }() })
		}
		return n > 600
	})
	r.t.Log(l)
	if err := <-ended; err != nil {
		r.t.Error(err)
	}
	if n := l.failedBefore() + l.after.Load(); n > 0 {
		r.t.Errorf("%d requests failed", n)
	}
	for _, w := range r.control.Status().Workers {
		if w.Address == victim.address && (w.Heartbeats == nil || !w.Heartbeats.Draining) {
			r.t.Errorf("control was not told: %+v", w.Heartbeats)
		}
	}
	victim.start()
	r.renew()
}

func leaveTheGuard(r *rig) {
	stream := func(ctx context.Context, i int) *http.Request {
		body := talk(uint64(7200+i), 5000).ask().body(true, 4000)
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, r.proxy.ClientURL+chatPath, bytes.NewReader(body))
		req.Header.Set("x-class", "p2") // waits for longer than this takes
		return req
	}
	for _, w := range r.fleet.Workers {
		w.Delay(20 * time.Second)
	}
	r.leave(14, stream, nil) // at most 12 are let in
	for _, w := range r.fleet.Workers {
		w.Delay(0)
	}
	r.idleGuards()
	r.leave(8, stream, func(body io.Reader) { io.CopyN(io.Discard, body, 2000) })
	r.idleGuards()
	r.renew(r.fronts[:4]...)
}

// atGuards waits until n requests are at the guards, let in or waiting.
func (r *rig) atGuards(n int) {
	r.t.Helper()
	r.eventually(10*time.Second, fmt.Sprintf("%d requests are at the guards", n), func() error {
		there := 0
		for _, f := range r.fronts {
			there += f.guard.InFlight() + f.guard.Waiting()
		}
		if there != n {
			return fmt.Errorf("%d are", there)
		}
		return nil
	})
}
