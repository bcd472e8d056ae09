//go:build envoy

package envoy

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmpath/warmpath/integration/envoyrun"
)

// swappedUnderLoad: first the settings change, then the module, while clients
// talk; afterwards the module with faults is in place for what follows.
func swappedUnderLoad(r *rig) {
	ctx := r.t.Context()
	var once sync.Once
	done := make(chan error, 1)
	var finished bool
	var mu sync.Mutex
	swap := func() error {
		settings := r.proxy.Settings()
		settings["expose_worker"] = true
		if err := r.swap(r.proxy.Module(), settings); err != nil {
			return fmt.Errorf("settings: %w", err)
		}
		// Applied: every response names its worker now.
		deadline := time.Now().Add(10 * time.Second)
		for {
			a := r.chat(ctx, talk(850, 2500).ask(), false)
			if a.err() == nil && a.header.Get("x-warmpath-worker") != "" {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("settings: expose_worker has no effect, the last answer was %d", a.status)
			}
			<-time.After(50 * time.Millisecond)
		}
		if err := r.swap(built.faults, settings); err != nil {
			return fmt.Errorf("module: %w", err)
		}
		return nil
	}
	fallback := r.counters().Sum(metric("fallback."))
	l := r.crowd(ctx, 8, nil, func(l *load) bool {
		n := l.sent.Load()
		if n > 200 {
			once.Do(func() {
				go func() {
					err := swap()
					mu.Lock()
					finished = true
					mu.Unlock()
					done <- err
				}()
			})
		}
		mu.Lock()
		defer mu.Unlock()
		return finished && n >= *minRequests
	})
	if err := <-done; err != nil {
		r.t.Fatal(err)
	}
	r.t.Log(l)
	if n := l.failedBefore() + l.after.Load(); n > 0 {
		r.t.Errorf("%d requests failed", n)
	}
	// The new module has the table of the old one: nobody fell back.
	r.flushed(func() {
		if rose := r.counters().Sum(metric("fallback.")) - fallback; rose > 0 {
			r.t.Errorf("%d requests were not steered across the swaps", rose)
		}
	})
	if a := r.chat(ctx, talk(851, 2500).ask(), false, "x-fault", "panic-body"); a.err() != nil {
		r.t.Errorf("a panic in the new module: %v", a.err())
	}
	r.flushed(func() {
		if r.counters()[metric("panics")] == 0 {
			r.t.Error("no panic was counted: the new module is not in place")
		}
	})
	r.idle()
}

// compileLimit is how long a busy machine may need to compile a module.
const compileLimit = 2 * time.Minute

// swap puts a filter file in place and waits until Envoy has taken it.
func (r *rig) swap(module string, settings envoyrun.Tree) error {
	return r.swapUntil("config_reload", envoyrun.Filter{Module: module, Settings: settings})
}

// swapUntil puts a filter file in place and waits until a counter of Envoy's
// watch rises: config_reload when it is taken, config_fail when refused.
func (r *rig) swapUntil(counter string, f envoyrun.Filter) error {
	before, err := r.filterStat(counter)
	if err != nil {
		return err
	}
	if err := r.proxy.SwapFilter(f); err != nil {
		return err
	}
	deadline := time.Now().Add(compileLimit)
	for {
		if n, err := r.filterStat(counter); err == nil && n > before {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s of the filter file has not risen within %v", counter, compileLimit)
		}
		<-time.After(50 * time.Millisecond)
	}
}

// withFaults puts the module with faults in place if it is not yet.
func (r *rig) withFaults() {
	r.t.Helper()
	if r.proxy.Module() == built.faults {
		return
	}
	if err := r.swap(built.faults, r.proxy.Settings()); err != nil {
		r.t.Fatal(err)
	}
}

// badSwapRefused: a module that is none, and settings that the module
// refuses, leave the last good ones at work.
func badSwapRefused(r *rig) {
	corrupt := filepath.Join(r.t.TempDir(), "corrupt.wasm")
	if err := os.WriteFile(corrupt, []byte("\x00asm\x01\x00\x00\x00 and nothing that makes sense"), 0o644); err != nil {
		r.t.Fatal(err)
	}
	good := r.proxy.Settings()
	module := r.proxy.Module()
	bad := r.proxy.Settings()
	bad["hold"] = "sideways"
	for name, f := range map[string]envoyrun.Filter{
		"a corrupt module":    {Module: corrupt, Settings: good},
		"settings it refuses": {Module: module, Settings: bad},
	} {
		if err := r.swapUntil("config_fail", f); err != nil {
			r.t.Fatalf("%s: %v", name, err)
		}
		for i := range 20 {
			a := r.chat(r.t.Context(), talk(uint64(870+i), 2500).ask(), false)
			if a.err() != nil || a.header.Get("x-warmpath-worker") == "" {
				r.t.Fatalf("after %s: %v, x-warmpath-worker %q", name, a.err(), a.header.Get("x-warmpath-worker"))
			}
		}
	}
	if log := r.proxy.Log(); !strings.Contains(log, "hold") || !strings.Contains(log, "sideways") {
		r.t.Error("the log does not say what is wrong with the settings")
	}
	if err := r.swap(module, good); err != nil {
		r.t.Fatal(err)
	}
}

// panicLeaksNothing: the filter panics before it has looked at the headers.
// What a client claimed is gone by then, the request is served, and the
// worker sees nothing of ours.
func panicLeaksNothing(r *rig) {
	r.withFaults()
	target := r.fleet.Workers[2].Address
	panics := r.counters()[metric("panics")]
	r.fleet.Record()
	const n = 24
	there := 0
	for i := range n {
		a := r.chat(r.t.Context(), talk(uint64(900+i), 2500).ask(), i%2 == 0,
			"x-fault", "panic-headers", "x-gateway-destination-endpoint", target, "x-warmpath-pool", "small")
		if a.err() != nil {
			r.t.Fatal(a.err())
		}
		if a.worker == target {
			there++
		}
	}
	if there > n*3/4 {
		r.t.Errorf("%d of %d requests went where the client said", there, n)
	}
	r.noneOfOurs()
	r.flushed(func() {
		if rose := r.counters()[metric("panics")] - panics; rose < n {
			r.t.Errorf("panics rose by %d over %d", rose, n)
		}
	})
	r.idle()
}

// collectsUnderLoad: a garbage collection in the VM on every fifth request.
// On hosts without a working poll_oneoff this is where a Go module would die.
func collectsUnderLoad(r *rig) {
	r.withFaults()
	l := r.crowd(r.t.Context(), 8, func(n int64) []string {
		if n%5 == 0 {
			return []string{"x-fault", "gc"}
		}
		return nil
	}, func(l *load) bool { return l.sent.Load() >= *minRequests })
	r.t.Log(l)
	if n := l.failedBefore() + l.after.Load(); n > 0 {
		r.t.Errorf("%d requests failed", n)
	}
	r.idle()
}

// trappedVM: 20 requests are held and 6 are streaming when the VM of each
// thread dies. All end within the hold limit, the VMs come back, and nothing
// stays booked.
func trappedVM(r *rig) {
	r.withFaults()
	ctx := r.t.Context()
	type end struct {
		what string
		*answer
		after time.Duration
	}
	ends := make(chan end, 26)
	var died atomic.Int64 // unix ns
	var streaming atomic.Int64
	start := func(what string, tokens int, headers ...string) {
		go func() {
			body := bytes.NewReader(talk(uint64(len(what)), 2500).ask().body(true, tokens))
			a := r.send(ctx, chatPath, body, headers...)
			if what == "streaming" {
				streaming.Add(-1)
			}
			ends <- end{what, a, time.Duration(time.Now().UnixNano() - died.Load())}
		}()
	}
	streaming.Store(6)
	for range 6 {
		start("streaming", 40_000)
	}
	r.active(6)
	r.settled() // the streams are in the rows that siblings read
	for range 20 {
		start("held", 8, "x-fault", "hold")
	}
	r.active(26)
	died.Store(time.Now().UnixNano())

	// Connections are spread over two threads: trap until both VMs have died,
	// which is when no stream is left.
	deaths := 0
	for range 100 {
		if a := r.chat(ctx, talk(1, 2500).ask(), false, "x-fault", "trap"); a.status != http.StatusOK {
			deaths++
		}
		r.client.CloseIdleConnections()
		if streaming.Load() == 0 {
			break
		}
	}
	if deaths == 0 {
		r.t.Fatal("no VM died")
	}
	cut := 0
	for range cap(ends) {
		e := <-ends
		switch {
		case e.what == "streaming" && e.err() != nil:
			cut++
		case e.what == "held" && e.status != http.StatusServiceUnavailable && e.status != http.StatusGatewayTimeout:
			r.t.Errorf("a held request ended with %d (%v), want 503 or 504", e.status, e.before)
		}
		if e.after > heldLimit+5*time.Second {
			r.t.Errorf("a %s request ended %v after the trap, the limit for held ones is %v", e.what, e.after, heldLimit)
		}
	}
	r.t.Logf("%d of 6 streams were cut with their VM", cut)
	r.eventually(10*time.Second, "requests are served again", func() error {
		return r.chat(ctx, talk(2, 2500).ask(), false).err()
	})
	r.waitSteering()
	r.idle()
}
