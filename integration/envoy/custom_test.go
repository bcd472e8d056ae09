//go:build envoy

package envoy

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// customUnderLoad: the policy gives the pool the rule custom while the module in place has no
// score, then the example's module is swapped in, then both go back, all while clients talk.
func customUnderLoad(r *rig) {
	ctx := r.t.Context()
	before, err := os.ReadFile(r.examplePath("policy.yaml"))
	if err != nil {
		r.t.Fatal(err)
	}
	module := r.proxy.Module()
	counter := func(name string) int64 { return r.counters()[metric(name)] }
	rises := func(name string) error {
		from := counter(name)
		deadline := time.Now().Add(10 * time.Second)
		for counter(name) <= from {
			if time.Now().After(deadline) {
				return fmt.Errorf("%s stays at %d for 10 s", name, from)
			}
			<-time.After(50 * time.Millisecond)
		}
		return nil
	}
	swap := func() error {
		missing := counter("no_score")
		if err := r.control.SetPolicy([]byte(`{"pools":[
			{"name":"small","index":1,"models":["small"]},
			{"name":"default","index":0,"models":["*"],"policy":{"name":"custom"}}]}`)); err != nil {
			return err
		}
		deadline := time.Now().Add(10 * time.Second)
		for counter("no_score") == missing {
			if time.Now().After(deadline) {
				return fmt.Errorf("the module without a score doesn't say so")
			}
			<-time.After(50 * time.Millisecond)
		}
		if err := rises("decisions.holder"); err != nil {
			return fmt.Errorf("without a score: %w", err)
		}
		if err := r.swap(built.custom, r.proxy.Settings()); err != nil {
			return fmt.Errorf("to the module with a score: %w", err)
		}
		if err := rises("decisions.custom"); err != nil {
			return fmt.Errorf("with a score: %w", err)
		}
		if err := r.control.SetPolicy(before); err != nil {
			return err
		}
		if err := rises("decisions.holder"); err != nil {
			return fmt.Errorf("with the policy from before: %w", err)
		}
		return r.swap(module, r.proxy.Settings())
	}
	fallback := r.counters().Sum(metric("fallback."))
	var swapped atomic.Bool
	done := make(chan error, 1)
	go func() {
		err := swap()
		swapped.Store(true)
		done <- err
	}()
	l := r.crowd(ctx, 8, nil, func(l *load) bool { return swapped.Load() && l.sent.Load() >= *minRequests })
	if err := <-done; err != nil {
		r.t.Fatal(err)
	}
	r.t.Log(l)
	if n := l.failedBefore() + l.after.Load(); n > 0 {
		r.t.Errorf("%d requests failed", n)
	}
	r.flushed(func() {
		if rose := r.counters().Sum(metric("fallback.")) - fallback; rose > 0 {
			r.t.Errorf("%d requests were not steered across the swaps", rose)
		}
	})
	r.idle()
}
