//go:build envoy

package envoy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/warmpath/warmpath/integration/engines"
)

// policyIs gives control another policy while it runs, and returns once the pool's
// mode and the settings of admission have come to the gateway.
func (r *rig) policyIs(mode, more string) {
	r.t.Helper()
	r.writePolicy(r.policy, mode, more)
	var want struct {
		MaxPartition int `json:"max_partition_ms"`
	}
	if _, err := fmt.Sscanf(more[strings.Index(more, "max_partition_ms"):], "max_partition_ms: %d", &want.MaxPartition); err != nil {
		r.t.Fatal(err)
	}
	r.eventually(10*time.Second, "control has the new policy", func() error {
		q := r.control.Quota(false)
		have := want
		if err := json.Unmarshal(q.Settings, &have); err != nil {
			return err
		}
		for _, p := range q.Pools {
			if p.Name == "default" && (p.Enforced != (mode == "enforce") || have != want) {
				return fmt.Errorf("enforced %v, %+v", p.Enforced, have)
			}
		}
		return nil
	})
	<-time.After(time.Second) // four batches
}

// single is r with one connection to Envoy, which one of its threads has.
func (r *rig) single() *rig {
	one := *r
	one.client = &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}, Timeout: 60 * time.Second}
	r.t.Cleanup(one.client.CloseIdleConnections)
	return &one
}

// rose tells how much counters have risen since before.
func (r *rig) rose(name string, before map[string]int64) (n int64) {
	r.t.Helper()
	r.flushed(func() {
		c := r.counters()
		n = c.Sum(metric(name))
		for key, old := range before {
			if strings.HasPrefix(key, metric(name)) {
				n -= old
			}
		}
	})
	return n
}

func observedOnly(r *rig) {
	r.policyIs("observe", admissionPolicy)
	defer r.policyIs("enforce", admissionPolicy)
	// The tenant gets its part of its limit here by coming.
	if a := r.fresh(talk(6, 2500).ask().body(false, 8), "x-tenant-id", "small"); a.err() != nil {
		r.t.Fatal(a.err())
	}
	<-time.After(500 * time.Millisecond)
	before := r.counters()
	// Beyond what the pool has, and beyond what the tenant has: all are at the workers at once.
	for _, c := range []struct {
		n      int
		tenant string
		reason string
		would  int64
	}{
		{slots + 3, "other", "queue_wait", 3},
		{4, "small", "tenant_concurrency", 2},
	} {
		if most := r.mostAtOnce(c.n, "x-tenant-id", c.tenant); most != int64(c.n) {
			r.t.Errorf("%d of %d requests of the tenant %q were at the workers at once", most, c.n, c.tenant)
		}
		if n := r.rose("would_refuse.p1."+c.reason, before); n != c.would {
			r.t.Errorf("of %d at once of the tenant %q %d would be refused by %s, want %d", c.n, c.tenant, n, c.reason, c.would)
		}
	}
	if n := r.rose("refused.", before); n != 0 {
		r.t.Errorf("%d were refused", n)
	}
	text, err := r.proxy.Admin(r.t.Context(), "/stats/prometheus")
	if err != nil {
		r.t.Fatal(err)
	}
	if want := `warmpath_would_refuse{reason="queue_wait",class="p1"}`; !strings.Contains(text, want) {
		r.t.Errorf("no %s in /stats/prometheus", want)
	}
	r.nothingHeld()
}

// leftAlone: the refusal of one request keeps the next ones away, before control
// has heard of it; and not for long.
func leftAlone(r *rig) {
	one := r.single()
	before := r.counters()
	r.fleet.Record()
	r.fleet.RefuseFirst(1, http.StatusServiceUnavailable)
	began := time.Now()
	a := one.chat(r.t.Context(), talk(3000, 3000).ask(), false)
	seen := r.fleet.Recorded()
	if a.err() != nil || len(seen) != 2 {
		r.t.Fatalf("%v, attempts at %v", a.err(), workersOf(seen))
	}
	refuser := seen[0].Worker
	for i := 0; i < 24 && time.Since(began) < 900*time.Millisecond; i++ {
		if a := one.chat(r.t.Context(), talk(uint64(3100+i), 3000).ask(), false); a.err() != nil || a.worker == refuser {
			r.t.Errorf("request %d after the refusal: %v, served by %s, which had refused", i, a.err(), a.worker)
		}
	}
	r.eventually(10*time.Second, "who refused serves again", func() error {
		for i := range 12 {
			if a := one.chat(r.t.Context(), talk(uint64(time.Now().UnixNano())+uint64(i), 3000).ask(), false); a.worker == refuser {
				return nil
			}
		}
		return fmt.Errorf("none of 12 new conversations went to %s", refuser)
	})
	if n := r.rose("reroutes", before); n != 1 {
		r.t.Errorf("reroutes rose by %d", n)
	}
}

// excludedByTheClient: the worker that holds a conversation is named by its opaque
// name, as a refusal gives it, and the next turn goes elsewhere.
func excludedByTheClient(r *rig) {
	settings := r.proxy.Settings()
	settings["expose_worker"] = true
	if err := r.swap(r.proxy.Module(), settings); err != nil {
		r.t.Fatal(err)
	}
	c := talk(3200, 6000)
	var holder *answer
	r.eventually(10*time.Second, "the conversation has its worker, and a name for it", func() error {
		a := r.chat(r.t.Context(), c.ask(), false)
		c.hear(a.text)
		last := holder
		if holder = a; a.err() != nil || a.header.Get("x-warmpath-worker") == "" || last == nil || last.worker != a.worker {
			return fmt.Errorf("served by %s (%q): %w", a.worker, a.header.Get("x-warmpath-worker"), a.err())
		}
		return nil
	})
	name := holder.header.Get("x-warmpath-worker")
	before := r.counters()
	r.fleet.Record()
	a := r.chat(r.t.Context(), c.ask(), false, "x-warmpath-exclude", name)
	if a.err() != nil || a.worker == holder.worker {
		r.t.Errorf("%v, served by %s, which the client had excluded as %s", a.err(), a.worker, name)
	}
	r.noneOfOurs()
	if n := r.rose("excluded", before); n != 1 {
		r.t.Errorf("excluded rose by %d", n)
	}
	settings["expose_worker"] = false
	if err := r.swap(r.proxy.Module(), settings); err != nil {
		r.t.Fatal(err)
	}
	r.leased()
}

func dangerousPrompt(r *rig) {
	one := r.single()
	before := r.counters()
	send := func(body []byte, breaks int) (*answer, []engines.Request) {
		r.fleet.Record()
		r.fleet.BreakFirst(breaks)
		a := one.send(r.t.Context(), chatPath, bytes.NewReader(body))
		return a, r.fleet.Recorded()
	}
	body := talk(3300, 3000).ask().body(false, 8)
	a, seen := send(body, 2)
	began := time.Now()
	if a.status != http.StatusServiceUnavailable || len(seen) != 2 {
		r.t.Fatalf("broken twice: status %d after attempts at %v", a.status, workersOf(seen))
	}
	for i := 0; i < 24 && time.Since(began) < 900*time.Millisecond; i++ {
		a := one.chat(r.t.Context(), talk(uint64(3320+i), 3000).ask(), false)
		if a.err() != nil || a.worker == seen[0].Worker || a.worker == seen[1].Worker {
			r.t.Errorf("request %d after that: %v, served by %s; %v had broken off", i, a.err(), a.worker, workersOf(seen))
		}
	}
	<-time.After(300 * time.Millisecond) // a tick, for the other VMs
	if a, seen := send(body, 1); a.status != http.StatusServiceUnavailable || len(seen) != 1 {
		r.t.Errorf("the same prompt again: status %d after attempts at %v, want one", a.status, workersOf(seen))
	}
	if a, seen := send(talk(3301, 3000).ask().body(false, 8), 1); a.err() != nil || len(seen) != 2 {
		r.t.Errorf("another prompt: %v after attempts at %v, want two", a.err(), workersOf(seen))
	}
	if n := r.rose("retries_denied.dangerous", before); n != 1 {
		r.t.Errorf("retries_denied.dangerous rose by %d", n)
	}
}

func retryBudgetSpent(r *rig) {
	one := r.single()
	before := r.counters()
	refused := func(i int) (a *answer, attempts int) {
		r.fleet.Record()
		r.fleet.RefuseFirst(1, http.StatusServiceUnavailable)
		a = one.chat(r.t.Context(), talk(uint64(3400+i), 2500).ask(), false)
		return a, len(r.fleet.Recorded())
	}
	rerouted := 0
	for a, attempts := refused(0); attempts == 2; a, attempts = refused(rerouted) {
		if a.err() != nil {
			r.t.Fatal(a.err())
		}
		if rerouted++; rerouted > 40 {
			r.t.Fatal("the budget has no end")
		}
	}
	if rerouted < 5 {
		r.t.Errorf("only %d re-routes were in the budget", rerouted)
	}
	if n := r.rose("retries_denied.budget", before); n != 1 {
		r.t.Errorf("retries_denied.budget rose by %d", n)
	}
	for i := range 30 { // earn three
		if a := one.chat(r.t.Context(), talk(uint64(3500+i), 2500).ask(), false); a.err() != nil {
			r.t.Fatal(a.err())
		}
	}
	if a, attempts := refused(99); a.err() != nil || attempts != 2 {
		r.t.Errorf("with a budget again: %v after %d attempts", a.err(), attempts)
	}
}

// The floor of the one gateway is half of the pool: 2 slots. Beyond it, level 2 allows 3.
const cutOffPolicy = `
admission:
  max_partition_ms: 8000
  floor_share: 0.5
  level2: {slots: 3}
  identity: {tenant_header: x-tenant-id, class_header: x-class}
  pools: {default: {slots: 4, prefill_ms: 0}}
  classes:
    p0: {queue: {requests: 64, bytes: 10000000, deadline_ms: 8000}}
    p1: {queue: {requests: 64, bytes: 10000000, deadline_ms: 8000}}
    p2: {queue: {requests: 64, bytes: 10000000, deadline_ms: 1000}}
`

func cutOffFromControl(r *rig) {
	r.policyIs("enforce", cutOffPolicy)
	r.leased()
	if most := r.mostAtOnce(slots+1, "x-class", "p0"); most != slots {
		r.t.Errorf("leased: %d at once, want %d", most, slots)
	}
	// level tells whether requests are admitted by what is known so.
	level := func(name string) error {
		before := r.counters()
		if a := r.fresh(talk(1, 2000).ask().body(false, 8), "x-class", "p0"); a.err() != nil {
			return a.err()
		}
		if r.rose("admission_level."+name, before) == 0 {
			return fmt.Errorf("no request was admitted at the level %s", name)
		}
		return nil
	}
	r.killControl()
	r.eventually(8*time.Second, "the lease is over", func() error { return level("floor") })
	p2 := make(chan *answer, 1)
	go func() { p2 <- r.fresh(talk(2, 2500).ask().body(false, 8), "x-class", "p2") }()
	if most := r.mostAtOnce(3, "x-class", "p0"); most != 2 {
		r.t.Errorf("at the floor: %d at once, want 2", most)
	}
	if a := <-p2; a.status != http.StatusServiceUnavailable || a.header.Get("x-warmpath-reason") != "queue_timeout" {
		r.t.Errorf("P2 has no floor, and got status %d, reason %q", a.status, a.header.Get("x-warmpath-reason"))
	}
	r.eventually(15*time.Second, "the floor is over", func() error { return level("alone") })
	if most := r.mostAtOnce(4, "x-class", "p0"); most != 3 {
		r.t.Errorf("with nothing known: %d at once, want 3", most)
	}
	text, err := r.proxy.Admin(r.t.Context(), "/stats/prometheus")
	if err != nil {
		r.t.Fatal(err)
	}
	for _, want := range []string{"leased", "floor", "alone"} {
		if !strings.Contains(text, `warmpath_admission_level{level="`+want+`"}`) {
			r.t.Errorf("no level %s in /stats/prometheus", want)
		}
	}
	r.startControl()
	r.leased()
	if most := r.mostAtOnce(slots+1, "x-class", "p0"); most != slots {
		r.t.Errorf("leased again: %d at once, want %d", most, slots)
	}
	r.nothingHeld()
}

// mostAtOnce sends n requests together, which the workers take 0.7 s for, and
// tells how many of them Envoy had at the workers at once.
func (r *rig) mostAtOnce(n int, headers ...string) (most int64) {
	r.t.Helper()
	for _, w := range r.fleet.Workers {
		w.Delay(700 * time.Millisecond)
	}
	defer func() {
		for _, w := range r.fleet.Workers {
			w.Delay(0)
		}
	}()
	ends := make(chan *answer, n)
	for i := range n {
		go func() { ends <- r.fresh(talk(uint64(i), 2500).ask().body(false, 8), headers...) }()
	}
	for got := 0; got < n; {
		select {
		case a := <-ends:
			if got++; a.err() != nil {
				r.t.Error(a.err())
			}
		case <-time.After(20 * time.Millisecond):
			stats, err := r.proxy.Stats(r.t.Context(), `^cluster\.pool-default\.upstream_rq_active$`)
			if err != nil {
				r.t.Fatal(err)
			}
			most = max(most, stats["cluster.pool-default.upstream_rq_active"])
		}
	}
	return most
}
