//go:build envoy

package envoy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/integration/envoyrun"
)

// wrongSetUp: settings and proxy do not fit each other. Both faults are told
// by a counter and by one line in the log.
func wrongSetUp(t *testing.T, version string, m mode) {
	column := version + " " + m.name
	if m.name == "headers" {
		scenario(t, "wrong set-up is told: stop-iteration flag missing", column, func(t *testing.T) {
			flagMissing(newRig(t, version, m, func(o *envoyrun.Options) {
				o.Concurrency = 1
				o.Wasm = func(wasm envoyrun.Tree) {
					delete(wasm["config"].(envoyrun.Tree), "allow_on_headers_stop_iteration")
				}
			}))
		})
		return
	}
	scenario(t, "wrong set-up is told: companion missing", column, func(t *testing.T) {
		companionMissing(newRig(t, version, m, func(o *envoyrun.Options) {
			o.Concurrency = 1
			edit := o.Bootstrap
			o.Bootstrap = func(tree envoyrun.Tree) {
				edit(tree)
				envoyrun.DropFilter(tree, "envoy.filters.http.header_mutation")
			}
		}))
	})
}

// withoutEarlyMutation: where nothing strips clients' headers before the
// filters (an Istio gateway without our patch, say), the module does.
func withoutEarlyMutation(t *testing.T, version string, m mode) {
	scenario(t, "without early mutation clients cannot name an endpoint either", version+" "+m.name, func(t *testing.T) {
		r := newRig(t, version, m, func(o *envoyrun.Options) {
			o.Concurrency = 1
			o.Module = built.faults
			edit := o.Bootstrap
			o.Bootstrap = func(tree envoyrun.Tree) {
				edit(tree)
				delete(envoyrun.Find(tree, "stat_prefix", "llm"), "early_header_mutation_extensions")
			}
		})
		r.startControl()
		r.waitSteering()
		clientsCannotNameAnEndpoint(r)
		// A panic before the strip leaves the client's word where it is: the
		// worker must not see it all the same.
		r.fleet.Record()
		a := r.chat(t.Context(), talk(1, 2500).ask(), false, "x-fault", "panic-headers",
			"x-gateway-destination-endpoint", r.fleet.Workers[0].Address, "x-warmpath-decision", "mine")
		if a.err() != nil {
			t.Error(a.err())
		}
		r.noneOfOurs()
	})
}

// flagMissing: the module stops at headers and is never shown the body.
func flagMissing(r *rig) {
	r.startControl()
	ctx := r.t.Context()
	r.eventually(15*time.Second, "a held request is ended by the hold limit", func() error {
		a := r.chat(ctx, talk(1, 3000).ask(), false)
		if a.status != 504 {
			return fmt.Errorf("status %d, want 504 once the table is there", a.status)
		}
		return nil
	})
	r.chat(ctx, talk(2, 3000).ask(), false)
	r.flushed(func() {
		if n := r.counters()[metric("hold_never_released")]; n < 2 {
			r.t.Errorf("hold_never_released is %d after two requests", n)
		}
	})
	r.oneLine("allow_on_headers_stop_iteration")
	r.doctorFinds("envoy.hold", "allow_on_headers_stop_iteration")
}

// companionMissing: the choice is left in filter state and nobody reads it.
func companionMissing(r *rig) {
	r.startControl()
	ctx := r.t.Context()
	told := func() int64 {
		c := r.counters()
		return c[metric("fallback.endpoint_fallback")] + c[metric("fallback.endpoint_unknown")]
	}
	r.eventually(30*time.Second, "the fallback is counted", func() error {
		for i := range 16 {
			if a := r.chat(ctx, talk(uint64(i), 3000).ask(), false); a.err() != nil {
				r.t.Fatalf("requests must be served all the same: %v", a.err())
			}
		}
		var n int64
		r.flushed(func() { n = told() })
		if n < 12 { // the line comes with the eighth
			return fmt.Errorf("fallback.endpoint_* is %d", n)
		}
		return nil
	})
	r.oneLine("header_mutation")
	r.doctorFinds("envoy.hold", "header_mutation")
}

// oneLine wants exactly one warning or error in Envoy's log that names what is
// missing.
func (r *rig) oneLine(word string) {
	r.t.Helper()
	var lines []string
	for _, line := range strings.Split(r.proxy.Log(), "\n") {
		if strings.Contains(line, "wasm log") && strings.Contains(line, word) {
			lines = append(lines, line)
		}
	}
	if len(lines) != 1 {
		r.t.Errorf("%d log lines name %s, want one: %q", len(lines), word, lines)
	}
}
