//go:build !wasm

package admission

import (
	"testing"
	"time"
)

// TestAProcessThatStoodStillDropsNobody: paused, or short of CPU, a whole process
// stands still, or its clock is set forward. Whoever goes on first finds all other
// rows old; what those VMs have is still at the workers.
func TestAProcessThatStoodStillDropsNobody(t *testing.T) {
	for name, first := range map[string]func(g *gateway){
		"a request comes before any tick": func(*gateway) {},
		"its own tick comes first":        func(g *gateway) { g.vms[1].tick(g) },
		"the courier's tick comes first": func(g *gateway) {
			g.control.tick(g)
			g.control.gate.AppendUsage(nil, g.host.Clock)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, stop := newGateway(t, 2)
			defer stop()
			g.lease(t, 6, 2)
			for range 2 {
				g.arrive(g.vms[0], 1, 1, 400)
			}
			for range 4 {
				g.arrive(g.vms[0], 0, 1, 400)
			}
			if all, small := g.running(); all != 6 || small != 2 {
				t.Fatalf("%d run, %d of the tenant's", all, small)
			}
			for range 3 { // again and again
				g.host.Clock += int64(5 * time.Second)
				first(g)
				for _, tenant := range []uint16{0, 1} {
					if r := g.arrive(g.vms[1], tenant, 1, 400); r.running {
						t.Fatalf("a request of tenant %d was let in beside those that run", tenant)
					}
				}
				g.advance(100 * time.Millisecond)
			}
			// A VM that is really gone is missed all the same.
			g.vms[0].dead = true
			g.pass(2 * time.Second)
			if r := g.arrive(g.vms[1], 0, 1, 400); !r.running {
				t.Fatal("what a dead VM had is never given back")
			}
		})
	}
}
