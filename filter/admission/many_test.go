//go:build !wasm

package admission

import (
	"strings"
	"testing"
	"time"
)

// TestMoreVMsThanRowsKeepTheLimits: a proxy with more threads than there are rows and
// shares. Those without are neither taken for dead nor let in uncounted.
func TestMoreVMsThanRowsKeepTheLimits(t *testing.T) {
	g, stop := newGateway(t, 150)
	defer stop()
	g.lease(t, 140, 2)
	most, mostOf := 0, 0
	for round := range 6 {
		for i, v := range g.vms {
			g.arrive(v, uint16((i+round)%2), 1, 100)
			all, small := g.running()
			most, mostOf = max(most, all), max(mostOf, small)
		}
		g.pass(300 * time.Millisecond)
		g.lease(t, 140, 2) // USAGE sweeps
		if round == 3 {
			for _, r := range g.requests {
				if !r.over {
					g.end(r)
				}
			}
		}
	}
	if most > 140 || mostOf > 2 || most < 120 {
		t.Errorf("at most %d run of 140, and %d of the tenant's of 2", most, mostOf)
	}
	for _, r := range g.requests {
		if !r.over {
			g.end(r)
		}
	}
	g.pass(2 * time.Second)
	g.lease(t, 140, 2)
	if u := g.cell(); u.InUse != [3]int{} || u.Booked != [3]int{} || u.Waiting != [3]int{} {
		t.Errorf("something is left: %+v", u)
	}
	// One without a row that dies is missed all the same.
	last := g.vms[len(g.vms)-1]
	if r := g.arrive(last, 1, 1, 100); !r.running {
		t.Fatalf("with all free %+v", r)
	}
	last.dead = true
	g.pass(5 * time.Second)
	g.lease(t, 140, 2)
	if u := g.cell(); u.InUse != [3]int{} || g.tenantUse(t).InUse != 0 {
		t.Errorf("something is left of one that died: %+v, %+v", u, g.tenantUse(t))
	}
}

// TestATenantInMoreVMsThanItsCellListsKeepsItsLimit: who finds no place there waits.
func TestATenantInMoreVMsThanItsCellListsKeepsItsLimit(t *testing.T) {
	g, stop := newGatewayOf(t, 150, strings.ReplaceAll(settings, `"concurrency": 2`, `"concurrency": 200`))
	defer stop()
	g.lease(t, 1000, 140)
	most := 0
	for i, v := range append(g.vms, g.vms...) {
		if i%50 == 49 {
			g.pass(300 * time.Millisecond) // what is booked ahead and not needed is given back
		}
		g.arrive(v, 1, 1, 100)
		_, small := g.running()
		most = max(most, small)
	}
	if most > 140 || most < 120 {
		t.Errorf("at most %d of the tenant's run of 140", most)
	}
}
