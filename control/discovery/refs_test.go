package discovery

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func idle(uint16) bool { return false }

// generation is one of many processes behind one address.
func generation(i int) Identity { return Identity{Address: one, Generation: uint64(i)} }

func TestARetiredRefRestsBeforeAnotherWorkerGetsIt(t *testing.T) {
	r := newRefTable(time.Minute)
	now, given := t0, map[uint16]time.Time{}
	for i := range 6_000 {
		now = now.Add(20 * time.Millisecond)
		r.assign([]Identity{generation(i)})
		ref := r.ref[generation(i)]
		if last, again := given[ref]; ref == 0 || again && now.Sub(last) < time.Minute {
			t.Fatalf("generation %d: ref %d again after %v", i, ref, now.Sub(last))
		}
		r.retire(generation(i), now)
		r.published(r.retired, uint64(i+1))
		r.release(uint64(i+1), idle, now)
		given[ref] = now
	}
	if len(r.owner) > 10_000 {
		t.Errorf("%d refs kept", len(r.owner))
	}
}

func TestARefIsReusedOnlyWhenNobodyCanMistakeIt(t *testing.T) {
	for name, c := range map[string]struct {
		published bool
		passed    uint64 // version that all gateways have; the ref is gone from 7 on
		busy      bool
		after     time.Duration
		want      bool // free
	}{
		"all true":                   {true, 7, false, time.Minute, true},
		"quarantine":                 {true, 7, false, time.Minute - 1, false},
		"a gateway is behind":        {true, 6, false, time.Hour, false},
		"still in the table":         {false, 9, false, time.Hour, false},
		"a request is still running": {true, 7, true, time.Hour, false},
	} {
		r := newRefTable(time.Minute)
		r.assign([]Identity{generation(1)})
		ref := r.ref[generation(1)]
		r.retire(generation(1), t0)
		if c.published {
			r.published(1, 7)
		}
		r.release(c.passed, func(asked uint16) bool { return c.busy && asked == ref }, t0.Add(c.after))
		if _, taken := r.owner[ref]; taken == c.want {
			t.Errorf("%s: free %v, want %v", name, !taken, c.want)
		}
	}
}

func TestARetirementAfterThePublishingIsNotCoveredByIt(t *testing.T) {
	r := newRefTable(time.Minute)
	r.assign([]Identity{generation(1), generation(2)})
	r.retire(generation(1), t0)
	n := r.retired
	r.retire(generation(2), t0) // while the table is being written
	r.published(n, 7)
	r.release(100, idle, t0.Add(time.Hour))
	if _, first := r.ref[generation(1)]; first {
		t.Error("the first still rests")
	}
	if _, second := r.ref[generation(2)]; !second {
		t.Error("the second was freed by a table that still names it")
	}
}

// TestNoRefNamesTwoWithinWhatAGatewayMayHold plays retirements, publishings and
// gateways that lag, and looks at what the slowest gateway can still see.
func TestNoRefNamesTwoWithinWhatAGatewayMayHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRefTable(time.Second)
		r.size = 7 // so that refs are scarce
		now, version := t0, uint64(1)
		gateways := make([]uint64, 3)
		var live []Identity
		type fact struct {
			version uint64
			roster  map[uint16]Identity
		}
		facts := []fact{}
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 1500).Draw(t, "ms")) * time.Millisecond)
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				if len(live) < 3 {
					r.assign([]Identity{generation(i)})
					if r.ref[generation(i)] != 0 {
						live = append(live, generation(i))
					}
				}
			case 1:
				if len(live) > 0 {
					r.retire(live[0], now)
					live = live[1:]
				}
			case 2:
				version++
				roster := map[uint16]Identity{}
				for _, id := range live {
					roster[r.ref[id]] = id
				}
				facts = append(facts, fact{version, roster})
				r.published(r.retired, version)
			case 3:
				g := rapid.IntRange(0, 2).Draw(t, "gateway")
				gateways[g] = version
			}
			passed := min(gateways[0], gateways[1], gateways[2])
			r.release(passed, idle, now)
			// Nothing that a gateway at any of these versions believes may
			// contradict what is live now.
			for _, f := range facts {
				if f.version < passed {
					continue
				}
				for _, id := range live {
					if old, ok := f.roster[r.ref[id]]; ok && old != id {
						t.Fatalf("ref %d names %v, a gateway at version %d has %v", r.ref[id], id, f.version, old)
					}
				}
			}
		}
	})
}
