//go:build envoy

package envoy

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
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
				return fmt.Errorf("settings: expose_worker has no effect (%v)", a.err())
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

// swap puts a filter file in place and waits until Envoy has taken it.
func (r *rig) swap(module string, settings envoyrun.Tree) error {
	before := r.filterStat("config_reload")
	if err := r.proxy.SwapFilter(envoyrun.Filter{Module: module, Settings: settings}); err != nil {
		return err
	}
	deadline := time.Now().Add(90 * time.Second) // a new module is compiled meanwhile
	for r.filterStat("config_reload") == before {
		if time.Now().After(deadline) {
			return fmt.Errorf("envoy has not taken the filter file within 90 s")
		}
		<-time.After(50 * time.Millisecond)
	}
	return nil
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
		before := r.filterStat("config_fail")
		if err := r.proxy.SwapFilter(f); err != nil {
			r.t.Fatal(err)
		}
		r.eventually(60*time.Second, name+" is refused", func() error {
			if r.filterStat("config_fail") == before {
				return fmt.Errorf("config_fail is still %d", before)
			}
			return nil
		})
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
	ctx := r.t.Context()
	began := time.Now()
	var wg sync.WaitGroup
	type end struct {
		what   string
		status int
		after  time.Duration
	}
	ends := make(chan end, 64)
	start := func(what string, headers ...string) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			a := r.chat(ctx, talk(uint64(len(what)), 2500).ask(), true, headers...)
			ends <- end{what, a.status, time.Since(began)}
		}()
	}
	for range 20 {
		start("held", "x-fault", "hold")
	}
	r.active(20)
	// Connections are spread over two threads: trap until both VMs have died.
	deaths := 0
	for i := 0; i < 40 && deaths < 6; i++ {
		if a := r.chat(ctx, talk(1, 2500).ask(), false, "x-fault", "trap"); a.status != http.StatusOK {
			deaths++
		}
		r.client.CloseIdleConnections()
	}
	if deaths == 0 {
		r.t.Fatal("no VM died")
	}
	wg.Wait()
	close(ends)
	for e := range ends {
		if e.status != http.StatusServiceUnavailable && e.status != http.StatusGatewayTimeout {
			r.t.Errorf("a %s request ended with %d, want 503 or 504", e.what, e.status)
		}
		if e.after > heldLimit+5*time.Second {
			r.t.Errorf("a %s request ended after %v, the limit is %v", e.what, e.after, heldLimit)
		}
	}
	r.eventually(10*time.Second, "requests are served again", func() error {
		return r.chat(ctx, talk(2, 2500).ask(), false).err()
	})
	r.waitSteering()
	r.idle()
}
