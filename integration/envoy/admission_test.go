//go:build envoy

package envoy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/integration/envoyrun"
)

// slots is what the pool of these scenarios may have in use.
const slots = 4

// admissionPolicy is the shipped policy with admission.
const admissionPolicy = `
admission:
  max_partition_ms: 3000
  identity: {tenant_header: x-tenant-id, class_header: x-class}
  tenants:
    small: {concurrency: 2}
  pools: {default: {slots: 4, prefill_ms: 0}}
  bypass: {secret_sha256: 674b4e490d1b0266e4ef6ffc72433f08ef1d4705628ee7eab407b4e484ae2b8f, max_concurrency: 2}
  classes:
    p0: {queue: {requests: 64, bytes: 10000000, deadline_ms: 8000}}
    p1: {queue: {requests: 64, bytes: 10000000, deadline_ms: 8000}}
    p2: {queue: {requests: 64, bytes: 10000000, deadline_ms: 1000}}
`

// TestAdmission tells the stories of requests that wait and of those that are
// turned away, on every version and with both ways of holding a request.
func TestAdmission(t *testing.T) {
	for _, version := range versions(t) {
		for _, m := range modes {
			t.Run(version+" "+m.name, func(t *testing.T) {
				r := newRig(t, version, m, func(o *envoyrun.Options) { o.Module = built.faults })
				r.policy = r.withAdmission()
				r.startControl()
				r.waitSteering()
				r.leased()
				r.scenario("admission: a request waits for its slot and is served byte for byte", waitsAndIsServed)
				r.scenario("admission: a tenant over its limit is told 429 and when to come back", tenantRefused)
				r.scenario("admission: the bypass's secret passes by full slots and gets no further", bypassPasses)
				r.scenario("admission: clients that leave the queue free it", leavesTheQueue)
				r.scenario("admission: who has waited as long as its class may is told 503", waitExpires)
				r.scenario("admission: a VM that dies gives back what it held", admittedVMDies)
				r.scenario("admission: in observe mode nobody is refused, and who would be is counted", observedOnly)
				r.scenario("a worker that refused is left alone at once", leftAlone)
				r.scenario("a client names the worker to leave out, and another serves", excludedByTheClient)
				if m.name == "headers" { // the other way can't turn retries off
					r.scenario("a prompt that broke two workers is not tried at a third", dangerousPrompt)
					r.scenario("a spent retry budget turns retries off, and is earned back", retryBudgetSpent)
					r.scenario("admission: cut off from control there is the floor, then what level 2 says", cutOffFromControl)
				}
			})
		}
	}
}

// withAdmission writes the shipped policy with admission where the control
// service finds it.
func (r *rig) withAdmission() string {
	r.t.Helper()
	return r.withPolicy("enforce", admissionPolicy)
}

// withPolicy writes the shipped policy with another mode and more keys.
func (r *rig) withPolicy(mode, more string) string {
	r.t.Helper()
	path := filepath.Join(r.t.TempDir(), "policy.yaml")
	r.writePolicy(path, mode, more)
	return path
}

// writePolicy does so where control looks for it.
func (r *rig) writePolicy(path, mode, more string) {
	r.t.Helper()
	text, err := os.ReadFile(r.examplePath("policy.yaml"))
	if err != nil {
		r.t.Fatal(err)
	}
	i := bytes.Index(text, []byte("- name: default"))
	text = append(text[:i:i], bytes.Replace(text[i:], []byte("mode: route"), []byte("mode: "+mode), 1)...)
	if err := os.WriteFile(path+".new", append(text, more...), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		r.t.Fatal(err)
	}
}

// leased returns once a lease of control's is in force and control has learnt
// what gateways had in use before.
func (r *rig) leased() {
	r.t.Helper()
	r.eventually(30*time.Second, "the gateway has slots of its own", func() error {
		// Requests that passed before the table came may look like those of
		// gateways that control has not heard of.
		if r.control.Quota(false).Learning {
			return errors.New("control is learning")
		}
		before := r.counters()[metric("admission_level.leased")]
		if a := r.fresh(talk(1, 2000).ask().body(false, 8)); a.err() != nil {
			return a.err()
		}
		<-time.After(300 * time.Millisecond)
		if r.counters()[metric("admission_level.leased")] == before {
			return errors.New("no lease is in force")
		}
		return nil
	})
}

// fill takes n slots for as long as the workers delay, and returns what waits
// for their ends.
func (r *rig) fill(n int, delay time.Duration, headers ...string) (wait func()) {
	r.t.Helper()
	for _, w := range r.fleet.Workers {
		w.Delay(delay)
	}
	ends := make(chan *answer, n)
	for i := range n {
		go func() { ends <- r.fresh(talk(uint64(i), 2500).ask().body(false, 8), headers...) }()
	}
	r.eventually(3*time.Second, "the slots are in use", func() error {
		if got := r.inUse(); got != int64(n) {
			return fmt.Errorf("%d of %d are", got, n)
		}
		return nil
	})
	for _, w := range r.fleet.Workers {
		w.Delay(0)
	}
	return func() {
		for range n {
			if a := <-ends; a.err() != nil {
				r.t.Error(a.err())
			}
		}
	}
}

// fresh sends a body over a connection of its own, which any thread may get.
func (r *rig) fresh(body []byte, headers ...string) *answer {
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	one := *r
	one.client = &http.Client{Transport: transport, Timeout: 60 * time.Second}
	return one.send(r.t.Context(), chatPath, bytes.NewReader(body), headers...)
}

func (r *rig) inUse() int64   { return r.counters().Sum(metric("slots_in_use.")) }
func (r *rig) waiting() int64 { return r.counters().Sum(metric("queue_waiting.")) }

// nothingHeld waits until the gate has nothing any more.
func (r *rig) nothingHeld() {
	r.t.Helper()
	r.eventually(10*time.Second, "slots and queues are empty", func() error {
		if a, b := r.inUse(), r.waiting(); a != 0 || b != 0 {
			return fmt.Errorf("%d in use, %d waiting", a, b)
		}
		return nil
	})
	r.idle()
}

func waitsAndIsServed(r *rig) {
	taken := r.counters()[metric("queue_wakes.taken")]
	for round := range 3 {
		wait := r.fill(slots, 2500*time.Millisecond)
		const more = 6
		type waited struct {
			*answer
			body []byte
			took time.Duration
		}
		ends := make(chan waited, more)
		r.fleet.Record()
		for i := range more {
			go func() {
				body := talk(uint64(100*round+i), 20_000).ask().body(false, 8)
				began := time.Now()
				a := r.fresh(body)
				ends <- waited{a, body, time.Since(began)}
			}()
		}
		r.eventually(3*time.Second, "requests wait", func() error {
			if got := r.waiting(); got != more {
				return fmt.Errorf("%d of %d do", got, more)
			}
			return nil
		})
		sent := map[string]bool{}
		for range more {
			e := <-ends
			sent[sha256Hex(e.body)] = true
			if e.err() != nil {
				r.t.Errorf("after %v: %v", e.took, e.err())
				continue
			}
			if e.took < 300*time.Millisecond {
				r.t.Errorf("answered after %v: it did not wait", e.took)
			}
		}
		wait()
		for _, req := range r.fleet.Recorded() {
			delete(sent, req.BodySHA256)
		}
		if len(sent) > 0 {
			r.t.Errorf("%d bodies did not arrive as sent", len(sent))
		}
		r.nothingHeld()
	}
	r.flushed(func() {
		if r.counters()[metric("queue_wakes.taken")] == taken {
			r.t.Error("no VM was woken by another")
		}
	})
}

func tenantRefused(r *rig) {
	// The tenant gets its lease by asking: the first request waits for it.
	if a := r.fresh(talk(6, 2500).ask().body(false, 8), "x-tenant-id", "small"); a.err() != nil {
		r.t.Fatal(a.err())
	}
	wait := r.fill(2, 2500*time.Millisecond, "x-tenant-id", "small")
	for _, dialect := range []struct{ path, kind string }{{chatPath, "rate_limit_error"}, {"/v1/messages", `"type":"error"`}} {
		a := r.send(r.t.Context(), dialect.path, bytes.NewReader(talk(7, 2500).ask().body(false, 8)), "x-tenant-id", "small")
		seconds, err := strconv.Atoi(a.header.Get("retry-after"))
		if a.status != http.StatusTooManyRequests || err != nil || seconds < 1 || a.header.Get("x-warmpath-reason") != "tenant_concurrency" ||
			!strings.Contains(string(a.body), dialect.kind) {
			r.t.Errorf("%s: status %d, retry-after %q, reason %q: %s", dialect.path, a.status, a.header.Get("retry-after"), a.header.Get("x-warmpath-reason"), a.body)
		}
	}
	// Others are not concerned.
	if a := r.fresh(talk(8, 2500).ask().body(false, 8), "x-tenant-id", "other"); a.err() != nil {
		r.t.Error(a.err())
	}
	wait()
	if a := r.fresh(talk(9, 2500).ask().body(false, 8), "x-tenant-id", "small"); a.err() != nil {
		r.t.Errorf("with room again: %v", a.err())
	}
	r.nothingHeld()
}

func bypassPasses(r *rig) {
	bypassed, refused := r.counters()[metric("bypassed")], r.counters()[metric("refused.p1.bypass_concurrency")]
	wait := r.fill(slots, 2*time.Second)
	r.fleet.Record()
	a := r.fresh(talk(3, 2500).ask().body(false, 8), "x-warmpath-bypass", "let me through")
	if a.err() != nil || a.ttfb > time.Second {
		r.t.Errorf("after %v: %v", a.ttfb, a.err())
	}
	for _, req := range r.fleet.Recorded() {
		for name := range req.Header {
			if strings.HasPrefix(strings.ToLower(name), "x-warmpath") || strings.HasPrefix(strings.ToLower(name), "x-client") {
				r.t.Errorf("a worker got the header %s", name)
			}
		}
	}
	for _, w := range r.fleet.Workers {
		w.Delay(800 * time.Millisecond)
	}
	ends := make(chan *answer, 3)
	for i := range 3 { // two at once may
		go func() {
			ends <- r.fresh(talk(uint64(20+i), 2500).ask().body(false, 8), "x-warmpath-bypass", "let me through")
		}()
	}
	status := map[int]int{}
	for range 3 {
		status[(<-ends).status]++
	}
	if status[http.StatusOK] != 2 || status[http.StatusTooManyRequests] != 1 {
		r.t.Errorf("of three at once with the secret: %v", status)
	}
	for _, w := range r.fleet.Workers {
		w.Delay(0)
	}
	wait()
	r.nothingHeld()
	r.flushed(func() {
		c := r.counters()
		if passed, denied := c[metric("bypassed")]-bypassed, c[metric("refused.p1.bypass_concurrency")]-refused; passed != 3 || denied != 1 {
			r.t.Errorf("bypassed rose by %d, refused.p1.bypass_concurrency by %d", passed, denied)
		}
	})
	text, err := r.proxy.Admin(r.t.Context(), "/stats/prometheus")
	if err != nil {
		r.t.Fatal(err)
	}
	for _, want := range []string{
		`warmpath_admitted{class="p1"}`, `warmpath_refused{reason="tenant_concurrency",class="p1"}`, `warmpath_slots_in_use{class="p1"}`,
		`warmpath_admission_level{level="leased"}`, `warmpath_queue_wait_ms_count{class="p1"}`,
	} {
		if !strings.Contains(text, want) {
			r.t.Errorf("no %s in /stats/prometheus", want)
		}
	}
}

func leavesTheQueue(r *rig) {
	before := r.counters().Sum(metric("queue_aborted."))
	wait := r.fill(slots, 2*time.Second)
	const n = 8
	ctx, cancel := context.WithCancel(r.t.Context())
	for i := range n {
		go func() {
			req, _ := http.NewRequestWithContext(ctx, http.MethodPost, r.proxy.ClientURL+chatPath, bytes.NewReader(talk(uint64(i), 30_000).ask().body(true, 8)))
			req.Header.Set("content-type", "application/json")
			transport := &http.Transport{DisableKeepAlives: true}
			defer transport.CloseIdleConnections()
			if answer, err := transport.RoundTrip(req); err == nil {
				answer.Body.Close()
			}
		}()
	}
	r.eventually(3*time.Second, "requests wait", func() error {
		if got := r.waiting(); got != n {
			return fmt.Errorf("%d of %d do", got, n)
		}
		return nil
	})
	cancel()
	wait()
	r.nothingHeld()
	r.flushed(func() {
		if rose := r.counters().Sum(metric("queue_aborted.")) - before; rose != n {
			r.t.Errorf("queue_aborted rose by %d after %d aborts", rose, n)
		}
	})
}

func waitExpires(r *rig) {
	wait := r.fill(slots, 2500*time.Millisecond)
	began := time.Now()
	a := r.fresh(talk(5, 2500).ask().body(false, 8), "x-class", "p2")
	took := time.Since(began)
	if a.status != http.StatusServiceUnavailable || a.header.Get("x-warmpath-reason") != "queue_timeout" || a.header.Get("retry-after") == "" {
		r.t.Errorf("status %d, reason %q, retry-after %q: %s", a.status, a.header.Get("x-warmpath-reason"), a.header.Get("retry-after"), a.body)
	}
	if took < time.Second || took > 1600*time.Millisecond {
		r.t.Errorf("after %v, its class may wait 1 s", took)
	}
	wait()
	r.nothingHeld()
}

func admittedVMDies(r *rig) {
	for _, w := range r.fleet.Workers {
		w.Delay(4 * time.Second)
	}
	const n = slots + 6
	ends := make(chan *answer, n)
	for i := range n {
		go func() { ends <- r.fresh(talk(uint64(i), 2500).ask().body(false, 8)) }()
	}
	r.eventually(3*time.Second, "slots are in use and requests wait", func() error {
		if a, b := r.inUse(), r.waiting(); a != slots || b != n-slots {
			return fmt.Errorf("%d in use, %d waiting", a, b)
		}
		return nil
	})
	for _, w := range r.fleet.Workers {
		w.Delay(0)
	}
	// Connections are spread over two threads: trap until no stream is left.
	deadline := time.Now().Add(20 * time.Second)
	for got := 0; got < n; {
		r.fresh(talk(1, 2500).ask().body(false, 8), "x-fault", "trap")
		for more := true; more; {
			select {
			case <-ends:
				got++
			default:
				more = false
			}
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%d of %d requests have ended", got, n)
		}
		<-time.After(20 * time.Millisecond)
	}
	r.nothingHeld()
	r.flushed(func() {
		if r.counters()[metric("slots_orphaned")] == 0 {
			r.t.Error("no slot of a dead VM was given back")
		}
	})
	wait := r.fill(slots, 2*time.Second)
	wait()
	r.nothingHeld()
}
