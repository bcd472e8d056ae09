//go:build !wasm

package fleet

import (
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/wire"
)

// vllm-project/vllm #49538: a scraped queue lagged seconds behind, so that a
// burst saw an idle worker all along. What was dispatched since the report
// counts at once, and not again when the report has caught up.
func TestABurstWithinOneScrapeCountsAtOnceAndOnce(t *testing.T) {
	host := proxy(t)
	f := vm(t)
	loads := func(l wire.Load) float64 {
		host.Clock += int64(time.Second)
		publish(host, 2, uint64(host.Clock), onePool) // at most 10 run and 10 wait
		l.Ref, l.State, l.Trust = 1, 1, 1
		put(host, wire.NewKeys("default").Loads(), wire.AppendLoad(nil, &l))
		f.Refresh(host.Clock)
		return f.pools[0].View.Workers[0].Load
	}
	if got := loads(wire.Load{}); got != 0 {
		t.Fatalf("idle: %v", got)
	}
	for i := 1; i <= 100; i++ {
		f.Own.Add(1, 1, 500)
		f.Touched(1)
		if got := f.pools[0].View.Workers[0].Load; got != float64(i)/10 {
			t.Fatalf("%d dispatched, load %v", i, got)
		}
	}
	for _, c := range []struct {
		name string
		load wire.Load
		want float64
	}{
		{"the report before", wire.Load{FleetInFlight: 0}, 10},
		{"control has heard of half of them", wire.Load{FleetInFlight: 50}, 10},
		{"the engine has taken ten", wire.Load{Running: 10, Waiting: 5, FleetInFlight: 100}, 9.5},
		{"the engine has all", wire.Load{Running: 10, Waiting: 90, FleetInFlight: 100}, 9},
		{"another gateway has ten there too", wire.Load{Running: 10, Waiting: 90, FleetInFlight: 110}, 9},
		{"and the engine doesn't know them", wire.Load{Running: 0, Waiting: 0, FleetInFlight: 110}, 11},
	} {
		if got := loads(c.load); got != c.want {
			t.Errorf("%s: load %v, want %v", c.name, got, c.want)
		}
	}
	f.Own.Sub(1, 100, 50_000)
	f.Touched(1)
	if got := loads(wire.Load{}); got != 0 {
		t.Errorf("all are over, and the load is %v", got)
	}
}
