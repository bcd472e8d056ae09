package route

import (
	"strconv"
	"testing"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/ring"
)

// ranked is a fleet of engines with so many data-parallel ranks each behind one
// port; 1 is an engine whose port is one worker.
func ranked(rule policy.Name, ranks ...int) *View {
	v := fleet(0, rule)
	for e, n := range ranks {
		for r := range n {
			w := Worker{
				Ref: uint16(len(v.Workers) + 1), State: Healthy, Address: "10.0.0." + strconv.Itoa(e+1) + ":8000",
				Trust: 1, MaxRunning: 100, QueueLimit: 50, BlockTokens: 16,
			}
			if n > 1 {
				w.Rank = uint8(r + 1)
				w.Address += "@" + strconv.Itoa(r)
			}
			w.AddressKey = ring.Key(w.Address)
			v.Workers = append(v.Workers, w)
		}
	}
	v.Ring = ringOf(v)
	return v
}

// TestASecondChoiceIsOfTheSameRankBehindAnotherPort: the header that names the
// rank goes with both attempts, and who sits behind a dead port is dead.
func TestASecondChoiceIsOfTheSameRankBehindAnotherPort(t *testing.T) {
	for name := policy.Name(0); name.String() != "unknown" && name < 32; name++ {
		for _, c := range []struct {
			engines []int
			holder  uint16
			ranked  bool
			second  func(w *Worker) bool // nil: there is none
		}{
			{[]int{4, 4, 4}, 6, true, func(w *Worker) bool { return w.Rank == 2 && !samePort(w.Address, "10.0.0.2:8000") }},
			{[]int{2, 1}, 2, false, func(w *Worker) bool { return w.Ref == 3 }},
			{[]int{4}, 3, true, nil},
		} {
			v := ranked(name, c.engines...)
			for seed := range 20 {
				req := long(holds(c.holder, 4000))
				req.Sequence = uint64(seed)
				var d Decision
				Choose(req, v, v.At, NewRand(uint64(seed)), &d)
				best := v.worker(d.Best)
				if best.Rank == 0 {
					continue // the engine with one rank was chosen
				}
				if d.Ranked != c.ranked {
					t.Fatalf("%v %v: the rank may be told: %v, want %v", name, c.engines, d.Ranked, c.ranked)
				}
				if (d.Second != 0) != (c.second != nil) {
					t.Fatalf("%v %v: second %d", name, c.engines, d.Second)
				}
				if c.second == nil {
					continue
				}
				second := v.worker(d.Second)
				if samePort(best.Address, second.Address) || d.Ranked && second.Rank != best.Rank {
					t.Fatalf("%v %v: best %s, second %s", name, c.engines, best.Address, second.Address)
				}
				if d.Best == c.holder && !c.second(second) {
					t.Errorf("%v %v: best %s, second %s", name, c.engines, best.Address, second.Address)
				}
			}
		}
	}
}

// TestAWorkerThatIsAvoidedIsSecondOnlyOfItsRank: who was left out comes back for
// the second choice, but not with another rank while one of the same is there.
func TestAWorkerThatIsAvoidedIsSecondOnlyOfItsRank(t *testing.T) {
	v := ranked(policy.Threshold, 2, 2)
	for _, ref := range []uint16{1, 2, 3, 4} {
		v.worker(ref).AvoidFor = 0
	}
	v.worker(3).AvoidFor = 1 << 40 // rank 0 of the other engine
	d := choose(long(holds(1, 4000)), v)
	if d.Best != 1 || d.Second != 3 || !d.Ranked {
		t.Errorf("best %d, second %d, ranked %v", d.Best, d.Second, d.Ranked)
	}
	v.worker(3).State = Down
	if d = choose(long(holds(1, 4000)), v); d.Best != 1 || d.Second != 4 || d.Ranked {
		t.Errorf("best %d, second %d, ranked %v", d.Best, d.Second, d.Ranked)
	}
}
