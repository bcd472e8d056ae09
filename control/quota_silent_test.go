package control

import (
	"testing"
	"time"
)

// TestASilentGatewaysSlotsAreOnlyGivenAwayOnEvidence: it is cut off with streams
// under way. That the workers have none left is known from those that say how many
// they have, or whose process has ended.
func TestASilentGatewaysSlotsAreOnlyGivenAwayOnEvidence(t *testing.T) {
	const limit, streams = 8, 4
	for name, c := range map[string]struct {
		then  func(e *engines)
		freed bool
	}{
		"the worker says that it has none": {func(*engines) {}, true},
		"the worker doesn't say":           {func(e *engines) { e.bare = true }, false},
		"the worker doesn't answer":        {func(e *engines) { e.hung[alpha] = true }, false},
		"the worker's process has ended":   {func(e *engines) { delete(e.started, alpha) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				e := newEngines(alpha, beta)
				b := start(t, e, Config{Workers: specs(alpha, beta), Policy: []byte(`
pools: [{name: default, models: ["*"], mode: enforce}]
admission:
  pools: {default: {slots: 8, prefill_ms: 0}}
  max_partition_ms: 10000
`)})
				<-b.s.Ready()
				silent, other := &renewer{b: b, name: "silent", nonce: 1}, &renewer{b: b, name: "other", nonce: 2}
				renewAll(silent, other)
				silent.inUse = streams
				renewAll(silent, other)
				e.mu.Lock()
				c.then(e)
				e.mu.Unlock()
				for range 240 { // a minute
					other.inUse = other.slots() // and asks for more
					other.renew()
					if !c.freed && other.inUse > limit-streams {
						t.Fatalf("the other gateway has %d of %d, with %d streams of the silent one under way", other.inUse, limit, streams)
					}
					time.Sleep(250 * time.Millisecond)
				}
				if c.freed && other.inUse != limit {
					t.Errorf("the other gateway has %d of %d", other.inUse, limit)
				}
			})
		})
	}
}
