package index

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// oracle is the dumb second implementation: per worker a map from prefix to the
// time of its last use, everything by linear search.
type oracle struct {
	capacity uint64
	workers  map[uint16]map[string]*held // prefix as text -> record
}

type held struct {
	path    string // the text that ends here
	units   uint32 // of the whole prefix
	touched uint64
}

// texts are paths over a small alphabet: "abc" is the prompt whose checkpoints
// end after "a", "ab", "abc". A letter is 4 units.
func pathOf(text string) []Checkpoint {
	var out []Checkpoint
	for i := range text {
		out = append(out, Checkpoint{Fingerprint: fingerprintOf(text[:i+1]), End: uint32(i+1) * 4})
	}
	return out
}

func fingerprintOf(text string) uint64 {
	f := uint64(14695981039346656037)
	for _, c := range []byte(text) {
		f = (f ^ uint64(c)) * 1099511628211
	}
	return f
}

func (o *oracle) insert(ref uint16, text string, now uint64) {
	w := o.workers[ref]
	for i := range text {
		p := text[:i+1]
		if w[p] == nil {
			w[p] = &held{path: p, units: uint32(i+1) * 4}
		}
		w[p].touched = now
	}
	for uint64(len(w))*4 > o.capacity {
		// The least recently used goes, of one path the deepest first.
		var victim *held
		for _, h := range w {
			if victim == nil || h.touched < victim.touched || h.touched == victim.touched && h.units > victim.units {
				victim = h
			}
		}
		delete(w, victim.path)
	}
}

// lost: at the time of seq the worker held only the first units of text.
func (o *oracle) lost(ref uint16, text string, units uint32, seq uint64) {
	for p, h := range o.workers[ref] {
		if h.touched < seq && len(p) > int(units)/4 && len(text) > int(units)/4 && p[:units/4+1] == text[:units/4+1] {
			delete(o.workers[ref], p)
		}
	}
}

// TestTheIndexHoldsWhatANaiveBlockMapHolds drives both with random prompts,
// evictions, shortfalls and restarts.
func TestTheIndexHoldsWhatANaiveBlockMapHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const workers = 3
		blocks := rapid.Uint64Range(3, 12).Draw(t, "capacity")
		x := New(Config{})
		o := &oracle{capacity: blocks * 4, workers: map[uint16]map[string]*held{}}
		add := func(ref uint16) {
			x.AddWorker(WorkerSpec{Ref: ref, Pool: "p", CapacityTokens: int(blocks) * 4 * 16, BlockTokens: 16})
			o.workers[ref] = map[string]*held{}
		}
		for ref := uint16(1); ref <= workers; ref++ {
			add(ref)
		}
		now := time.Unix(0, 0)
		published := map[uint64][]uint16{}
		id := uint64(0)
		steps := rapid.IntRange(1, 60).Draw(t, "steps")
		for range steps {
			ref := rapid.Uint16Range(1, workers).Draw(t, "ref")
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				x.RemoveWorker(ref)
				add(ref)
			default:
				text := rapid.StringMatching("[ab]{1,8}").Draw(t, "text")
				id++
				request := RequestID{Gateway: 1, ID: id}
				x.Dispatch(Dispatch{Request: request, Chosen: ref, PromptUnits: uint32(len(text)) * 4, Path: pathOf(text)}, now)
				o.insert(ref, text, x.seq)
				done := Done{Request: request, Served: ref, Outcome: Complete, CachedTokens: -1, PromptTokens: -1, OutputTokens: -1}
				m := x.models[ref]
				confirmed := x.pending.byID[request].confirmed
				if confirmed > 0 && rapid.Bool().Draw(t, "shortfall") {
					// The engine says it had only part of what was proven.
					units := uint32(rapid.IntRange(0, int(confirmed)/8).Draw(t, "units") * 4)
					done.PredictedTokens, done.CachedTokens = confirmed*16, int32(units*16)
					if float64(done.CachedTokens) < 0.9*float64(confirmed*16)-16 {
						o.lost(ref, text, units, x.pending.byID[request].seq)
					}
				}
				x.Done(done, now)
				if m.units > blocks*4 {
					t.Fatalf("worker %d covers %d of %d units", ref, m.units, blocks*4)
				}
			}
			checkModels(t, x)
			x.Drain(func(c Change) {
				if len(c.Holders) == 0 {
					delete(published, c.Fingerprint)
				} else {
					published[c.Fingerprint] = slices.Clone(c.Holders)
				}
			})
			compare(t, o, published)
		}
	})
}

func compare(t *rapid.T, o *oracle, published map[uint64][]uint16) {
	want := map[uint64][]uint16{}
	for ref := uint16(1); int(ref) <= len(o.workers); ref++ {
		for p := range o.workers[ref] {
			f := fingerprintOf(p)
			want[f] = append(want[f], ref)
		}
	}
	got := map[uint64][]uint16{}
	for f, refs := range published {
		got[f] = slices.Sorted(slices.Values(refs))
	}
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Fatalf("published %v\nwant %v", got, want)
	}
}

// checkModels holds the invariants of every model.
func checkModels(t interface{ Fatalf(string, ...any) }, x *Index) {
	nodes := 0
	for ref, m := range x.models {
		if err := m.check(); err != nil {
			t.Fatalf("worker %d: %v", ref, err)
		}
		nodes += len(m.at)
	}
	if nodes != x.store.live {
		t.Fatalf("%d nodes in models, %d in the store", nodes, x.store.live)
	}
	links := 0
	for f := range x.store.holders {
		born := uint64(math.MaxUint64)
		for id := x.store.holders[f].first; id != 0; id = x.store.node(id).same {
			n := x.store.node(id)
			if n.fingerprint != f || n.born > born { // equal only in a snapshot that nobody wrote
				t.Fatalf("holders of %x out of order", f)
			}
			born = n.born
			links++
		}
	}
	if links != nodes {
		t.Fatalf("%d nodes, %d links of holders", nodes, links)
	}
}

func (m *model) check() error {
	position := map[uint32]int{}
	var units uint64
	var before uint32
	for id := m.newest; id != 0; id = m.node(id).older {
		n := m.node(id)
		position[id] = len(position)
		if before != 0 && n.touched > m.node(before).touched {
			return fmt.Errorf("node %d was used later than the one that is more recent", id)
		}
		if n.newer != before {
			return fmt.Errorf("recency links of %d broken", id)
		}
		before = id
		units += uint64(n.end-m.end(n.parent)) + uint64(n.tail)
		if n.parent != 0 {
			if p, ok := position[n.parent]; !ok {
				return fmt.Errorf("node %d is more recent than its parent, or outlived it (%d)", id, p)
			}
			if m.end(n.parent) >= n.end {
				return fmt.Errorf("node %d ends before its parent", id)
			}
		}
		if m.at[n.fingerprint] != id {
			return fmt.Errorf("node %d isn't found by its fingerprint", id)
		}
		for c := n.child; c != 0; c = m.node(c).next {
			if m.node(c).parent != id {
				return fmt.Errorf("child %d of %d has another parent", c, id)
			}
		}
	}
	if before != m.oldest || len(position) != len(m.at) || units != m.units {
		return fmt.Errorf("oldest %d/%d, nodes %d/%d, units %d/%d", before, m.oldest, len(position), len(m.at), units, m.units)
	}
	return nil
}
