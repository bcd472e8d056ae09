package kvevents

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/shared/fingerprint"
)

// ledger is a Sink that keeps what is held, and checks how it is told.
type ledger struct {
	held   map[uint64]uint32 // end by fingerprint
	slow   map[uint64]bool
	strict bool // one prompt only: every path goes on from what is known
	bad    string
}

func newLedger() *ledger { return &ledger{held: map[uint64]uint32{}, slow: map[uint64]bool{}} }

func (l *ledger) Hold(path []fingerprint.Checkpoint) {
	if len(path) > fingerprint.MaxCheckpoints {
		l.bad = "a path is too long"
	}
	for i, c := range path {
		if _, known := l.held[c.Fingerprint]; i == 0 && l.strict && !known && len(l.held) > 0 {
			l.bad = "a path hangs on nothing"
		}
		if i > 0 && c.End <= path[i-1].End || c.End == 0 {
			l.bad = "a path doesn't ascend"
		}
		l.held[c.Fingerprint] = c.End
	}
}

func (l *ledger) Drop(fp uint64) {
	if _, ok := l.held[fp]; !ok {
		l.bad = "dropped what wasn't held"
	}
	delete(l.held, fp)
}

func (l *ledger) Slow(fp uint64, on bool) {
	if !on && !l.slow[fp] {
		l.bad = "no longer slow what wasn't"
	}
	if l.slow[fp] = on; !on {
		delete(l.slow, fp)
	}
}

func (l *ledger) Clear() {
	clear(l.held)
	clear(l.slow)
}

// gatewayPath is what a gateway computes for a prompt whose turns end at ends.
func gatewayPath(adapter, salt string, tokens []uint32, ends ...int) []fingerprint.Checkpoint {
	return gatewayPathOf(adapter, 0, salt, tokens, ends...)
}

func gatewayPathOf(adapter string, generation uint64, salt string, tokens []uint32, ends ...int) []fingerprint.Checkpoint {
	var c fingerprint.Chain
	c.Reset(fingerprint.Salt("pool", adapter, generation, salt, fingerprint.Exact))
	at := 0
	for _, e := range ends {
		c.WriteTokens(tokens[at:e])
		c.TurnEnd()
		at = e
	}
	c.WriteTokens(tokens[at:])
	return slices.Clone(c.Finish())
}

func apply(t testing.TB, m *Map, name string) Batch {
	t.Helper()
	var b Batch
	if err := Decode(payload(t, name), &b); err != nil {
		t.Fatal(err)
	}
	m.Apply(&b)
	return b
}

func TestGatewaysFindWhatTheEngineStored(t *testing.T) {
	for _, c := range []struct{ recording, model, salt string }{
		{"main/0000_cold_pub.bin", "", ""},
		{"evict/0001_salt_pub.bin", "", "tenant-A"},
		{"lora/0001_lora_pub.bin", "lora-a", ""},
		{"lora/0002_lora_pub.bin", "lora-a", "tenant-B"},
	} {
		held := newLedger()
		m := NewMap(Config{Pool: "pool"}, held)
		b := apply(t, m, c.recording)
		for _, model := range []string{"", "tiny", "lora-a", "lora-b"} {
			for _, salt := range []string{"", "tenant-A", "tenant-B"} {
				same := salt == c.salt && model == c.model
				for _, cp := range gatewayPath(model, salt, b.Events[0].Tokens) {
					if _, ok := held.held[cp.Fingerprint]; ok != same {
						t.Errorf("%s: model %s, salt %q, unit %d: found %v, want %v", c.recording, model, salt, cp.End, ok, same)
					}
				}
			}
		}
	}
}

func TestEvictionAndResetOfARealEngineLeaveOnlyWhatItHolds(t *testing.T) {
	held := newLedger()
	m := NewMap(Config{Pool: "pool"}, held)
	for i, name := range recorded(t, "evict/*.bin") {
		apply(t, m, name)
		c := m.Counts()
		if c.UnknownParent+c.UnknownRemoved+c.BadShape+c.OtherGroup+c.Untranslated != 0 || c.Held != c.Blocks || c.Blocks > 140 {
			t.Fatalf("after %s: %+v", name, c)
		}
		if i >= 10 && i < 16 && c.Blocks < 120 {
			t.Errorf("after %s: %d blocks of an engine that is full at 140", name, c.Blocks)
		}
	}
	if c := m.Counts(); c.Removed == 0 || c.Cleared != 1 || c.Blocks != 4 {
		t.Errorf("%+v", c)
	}
	// Four blocks of 32 tokens: units 4 and 8.
	if len(held.held) != 2 || held.bad != "" {
		t.Errorf("%d checkpoints, %s", len(held.held), held.bad)
	}
}

func TestTurnEndsAreCheckpoints(t *testing.T) {
	tokens := make([]uint32, 32*16)
	for i := range tokens {
		tokens[i] = uint32(1000 + i)
	}
	// Ends in the middle of a unit; at a unit's edge behind the line break; in a
	// unit that begins a block, so that the block before completes it; twice in
	// one unit; at an edge behind the line break, after another turn of its block.
	for _, end := range []int{150, 176, 197, 199, 400, 420, 432} {
		tokens[end-2] = 7
	}
	held := newLedger()
	m := NewMap(Config{Pool: "pool", TurnEnds: []uint32{7}}, held)
	e := Event{Kind: Stored, Tokens: tokens, BlockSize: 32, Medium: GPU, FullAttention: true}
	for i := range 16 {
		e.Hashes = append(e.Hashes, uint64(i+1))
	}
	e.Opaque = len(e.Hashes)
	m.Apply(&Batch{Events: []Event{e}})
	for _, cp := range gatewayPath("", "", tokens, 150, 176, 197, 199, 400, 420, 432) {
		if held.held[cp.Fingerprint] != cp.End {
			t.Errorf("unit %d isn't held (turn end %v)", cp.End, cp.TurnEnd)
		}
	}
	// The turn that ends at token 197 is whole with block 6 (192 tokens).
	m.Apply(&Batch{Events: []Event{{Kind: Removed, Hashes: []uint64{7}, Medium: GPU, Group: -1}}})
	for _, end := range held.held {
		if end > 12 {
			t.Errorf("unit %d is held without block 7", end)
		}
	}
	if _, ok := held.held[gatewayPath("", "", tokens[:192])[2].Fingerprint]; !ok || held.bad != "" {
		t.Error("what block 6 completes went with block 7", held.bad)
	}
}

func TestWhatGatewaysCannotNameIsCountedAndNotHeld(t *testing.T) {
	held := newLedger()
	m := NewMap(Config{Pool: "pool"}, held)
	tokens := make([]uint32, 64)
	stored := func(change func(*Event), hashes ...uint64) {
		e := Event{Kind: Stored, Hashes: hashes, Tokens: tokens[:len(hashes)*16], BlockSize: 16, Medium: GPU, FullAttention: true, Group: 0, Opaque: len(hashes)}
		change(&e)
		m.Apply(&Batch{Events: []Event{e}})
	}
	stored(func(e *Event) { e.FullAttention = false }, 1, 2, 3, 4)
	stored(func(e *Event) { e.Tokens = tokens[:63] }, 1, 2, 3, 4)
	stored(func(e *Event) { e.BlockSize = 0 }, 1, 2, 3, 4)
	stored(func(e *Event) { e.Tokens = []uint32{1 << 24}; e.BlockSize = 1 }, 1)
	stored(func(e *Event) { e.Opaque = 0 }, 1, 2, 3, 4)
	stored(func(e *Event) { e.HasParent, e.Parent = true, 4 }, 5, 6, 7, 8)
	stored(func(e *Event) { e.Group = 1 }, 11, 12, 13, 14)
	m.Apply(&Batch{Events: []Event{{Kind: Removed, Hashes: []uint64{1}, Medium: GPU, Group: 1}}})
	c := m.Counts()
	if c.OtherGroup != 3 || c.BadShape != 3 || c.Untranslated != 8 || c.Blocks != 8 || len(held.held) != 0 {
		t.Errorf("%+v, %d held", c, len(held.held))
	}
	// In host memory only: slow. Loaded: held.
	stored(func(e *Event) { e.Medium = CPU }, 21, 22, 23, 24)
	if len(held.held) != 0 || len(held.slow) != 1 || m.Counts().CPU != 4 || m.Counts().Slow != 4 {
		t.Errorf("%+v, %d held", m.Counts(), len(held.held))
	}
	stored(func(*Event) {}, 21, 22, 23, 24)
	stored(func(e *Event) { e.Medium, e.Tokens = Disk, nil }, 24)
	if len(held.held) != 1 || len(held.slow) != 0 || m.Counts().Disk != 1 {
		t.Errorf("%+v, %d held", m.Counts(), len(held.held))
	}
	m.Apply(&Batch{Events: []Event{{Kind: Removed, Hashes: []uint64{24}, Medium: GPU, Group: 0}}})
	if c := m.Counts(); len(held.held) != 0 || len(held.slow) != 1 || c.Blocks != 12 || c.Held != 11 || c.Evicted != 0 {
		t.Errorf("%+v, %d held", c, len(held.held))
	}
}

func TestBlocksWaitForTheirParentAndWhatWasRemovedMeanwhileStaysAway(t *testing.T) {
	held := newLedger()
	m := NewMap(Config{Pool: "pool", MaxAside: 200}, held)
	tokens := make([]uint32, 64)
	stored := func(parent uint64, hashes ...uint64) {
		m.Apply(&Batch{Events: []Event{{Kind: Stored, Hashes: hashes, HasParent: parent != 0, Parent: parent, Tokens: tokens[:len(hashes)*16], BlockSize: 16, Medium: GPU, FullAttention: true, Group: -1, Opaque: len(hashes)}}})
	}
	stored(4, 5, 6, 7, 8)
	stored(8, 9, 10, 11, 12)
	stored(8, 9, 10, 11, 12) // told twice
	m.Apply(&Batch{Events: []Event{{Kind: Removed, Hashes: []uint64{11}, Medium: GPU, Group: -1}}})
	stored(12, 13, 14, 15, 16) // waits for 12, which nobody holds now
	stored(16, 17, 18, 19, 20) // no room
	if c := m.Counts(); c.Blocks != 0 || c.Aside != 10 || c.Unplaced != 4 {
		t.Fatalf("%+v", c)
	}
	stored(0, 1, 2, 3, 4)
	if c := m.Counts(); c.Held != 10 || c.Aside != 4 {
		t.Errorf("%+v", c)
	}
	if got := len(held.held); got != 2 {
		t.Errorf("%d checkpoints, want units 4 and 8", got)
	}
}

// naive is a cache as plain as can be: sets of blocks and whole prompts.
type naive struct {
	gpu     map[uint64]int // blocks of one name: an engine may have computed it twice
	host    map[uint64]bool
	parent  map[uint64]uint64
	prompt  map[uint64][]uint32 // tokens from the start to the block's end
	model   map[uint64]string
	weights map[uint64]uint64 // generation of the model
	salt    map[uint64]string

	now uint64 // generation of the adapter
}

// current tells whether a block is of the weights that the engine has now.
func (n *naive) current(h uint64) bool { return n.model[h] == "" || n.weights[h] == n.now }

// has tells whether a block is there with all before it: on the GPU, or anywhere.
func (n *naive) has(h uint64, anywhere bool) bool {
	for h != 0 {
		if n.gpu[h] == 0 && !(anywhere && n.host[h]) || !n.current(h) {
			return false
		}
		h = n.parent[h]
	}
	return true
}

func (n *naive) store(h uint64, in Medium) {
	if in == GPU {
		n.gpu[h]++
	} else {
		n.host[h] = true
	}
}

func (n *naive) remove(h uint64, in Medium) {
	if in != GPU {
		delete(n.host, h)
	} else if n.gpu[h]--; n.gpu[h] <= 0 {
		delete(n.gpu, h)
	}
}

// blocks are those that are there, anywhere.
func (n *naive) blocks() map[uint64]bool {
	out := maps.Clone(n.host)
	for h := range n.gpu {
		out[h] = true
	}
	return out
}

// after lists the blocks ever seen that go on behind one, in order.
func (n *naive) after(parent uint64) (out []uint64) {
	for h, p := range n.parent {
		if p == parent {
			out = append(out, h)
		}
	}
	slices.Sort(out)
	return out
}

func TestAMapAgreesWithPlainSetsWhateverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int{1, 5, 16, 24, 32, 100, 256, 1024}).Draw(t, "block size")
		held := newLedger()
		m := NewMap(Config{Pool: "pool"}, held)
		var n naive
		reset := func() {
			n = naive{map[uint64]int{}, map[uint64]bool{}, map[uint64]uint64{}, map[uint64][]uint32{}, map[uint64]string{}, map[uint64]uint64{}, map[uint64]string{}, n.now}
		}
		reset()
		hashes := []uint64{} // every block ever seen
		next := uint64(1)
		medium := func() Medium { return rapid.SampledFrom([]Medium{GPU, GPU, CPU}).Draw(t, "medium") }
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch what := rapid.IntRange(0, 21).Draw(t, "what"); {
			case what == 0:
				m.Apply(&Batch{Events: []Event{{Kind: Cleared}}})
				reset()
				hashes = hashes[:0]
			case what == 20:
				// Another process of this service goes on.
				before := m.Counts()
				held = newLedger()
				m = reborn(t, m, held)
				if c := m.Counts(); c.Blocks != before.Blocks || c.Held != before.Held || c.Gone != before.Gone {
					t.Fatalf("%+v after, %+v before", c, before)
				}
			case what == 21:
				// Other weights, or those of before, go by the adapter's name.
				n.now = rapid.Uint64Range(0, 2).Draw(t, "generation")
				m.SetAdapters(map[string]uint64{"ad": n.now})
			case what < 6 && len(hashes) > 0:
				h := rapid.SampledFrom(hashes).Draw(t, "removed")
				from := medium()
				m.Apply(&Batch{Events: []Event{{Kind: Removed, Hashes: []uint64{h}, Medium: from, Group: -1}}})
				n.remove(h, from)
			case what < 8 && len(hashes) > 0:
				// Stored again, as after an eviction. The map may have forgotten all of it.
				h := rapid.SampledFrom(hashes).Draw(t, "again")
				p := n.parent[h]
				if !n.current(h) || p != 0 && m.byHash.find(&m.nodes, p) == 0 {
					continue
				}
				e := Event{Kind: Stored, Hashes: []uint64{h}, Parent: p, HasParent: p != 0, BlockSize: size, Medium: medium(), FullAttention: true, Group: -1, Opaque: 1}
				e.Adapter, e.CacheSalt = n.model[h], n.salt[h]
				e.Tokens = n.prompt[h][len(n.prompt[h])-size:]
				m.Apply(&Batch{Events: []Event{e}})
				n.store(h, e.Medium)
			default:
				parent := uint64(0)
				if len(hashes) > 0 && rapid.Bool().Draw(t, "goes on") {
					parent = rapid.SampledFrom(hashes).Draw(t, "parent")
					if !n.current(parent) || m.byHash.find(&m.nodes, parent) == 0 {
						continue
					}
				}
				e := Event{Kind: Stored, Parent: parent, HasParent: parent != 0, BlockSize: size, Medium: medium(), FullAttention: true, Group: -1}
				if parent == 0 {
					e.Adapter = rapid.SampledFrom([]string{"", "ad"}).Draw(t, "adapter")
					e.CacheSalt = rapid.SampledFrom([]string{"", "s"}).Draw(t, "salt")
				} else {
					e.Adapter, e.CacheSalt = n.model[parent], n.salt[parent]
				}
				prompt := slices.Clone(n.prompt[parent])
				at := parent
				// It may part from a prompt that goes on from there, too, within a block.
				same := 0
				var twin []uint32
				if of := n.after(parent); len(of) > 0 {
					twin = n.prompt[rapid.SampledFrom(of).Draw(t, "twin")][len(prompt):]
					same = rapid.IntRange(0, size-1).Draw(t, "same")
				}
				for range rapid.IntRange(1, 1+2000/size/4).Draw(t, "blocks") {
					for range size {
						if same > 0 {
							prompt = append(prompt, twin[0])
							twin, same = twin[1:], same-1
							continue
						}
						// Unique, so that no two blocks hold the same text.
						prompt = append(prompt, uint32(next*7919)%maxTokenID)
						next++
					}
					h := next << 20
					hashes = append(hashes, h)
					n.store(h, e.Medium)
					n.parent[h], n.prompt[h], n.model[h], n.weights[h], n.salt[h] = at, slices.Clone(prompt), e.Adapter, n.now, e.CacheSalt
					e.Hashes, e.Tokens = append(e.Hashes, h), append(e.Tokens, prompt[len(prompt)-size:]...)
					at = h
				}
				e.Opaque = len(e.Hashes)
				m.Apply(&Batch{Events: []Event{e}})
			}
			if held.bad != "" {
				t.Fatal(held.bad)
			}
		}
		want, slow := map[uint64]uint32{}, map[uint64]bool{}
		count, kept := 0, 0
		for h := range n.blocks() {
			onGPU := n.has(h, false)
			switch {
			case onGPU:
				count++
			case n.has(h, true):
				kept++
			default:
				continue
			}
			weights := n.weights[h]
			if n.model[h] == "" {
				weights = 0
			}
			before := uint32(0)
			if p := n.parent[h]; p != 0 {
				before = uint32(len(n.prompt[p]) / 16)
			}
			for _, cp := range gatewayPathOf(n.model[h], weights, n.salt[h], n.prompt[h]) {
				if cp.End <= before || fingerprint.NextScheduled(cp.End-1) != cp.End {
					continue
				}
				if onGPU {
					want[cp.Fingerprint] = cp.End
				} else {
					slow[cp.Fingerprint] = true
				}
			}
		}
		if diff := cmp.Diff(want, held.held) + cmp.Diff(slow, held.slow); diff != "" {
			t.Fatal(diff)
		}
		if c := m.Counts(); c.Held != count || c.Slow != kept || c.Blocks != len(n.blocks()) || len(m.inside) > len(want) || len(m.insideSlow) > len(slow) {
			t.Fatalf("%+v, want %d held and %d slow of %d", c, count, kept, len(n.blocks()))
		}
	})
}

// TestABlockThatWasComputedTwiceGoesWithTheLastOfItsCopies: vLLM doesn't merge
// equal blocks. It goes on hitting one copy, and evicts the other.
func TestABlockThatWasComputedTwiceGoesWithTheLastOfItsCopies(t *testing.T) {
	held := newLedger()
	m := NewMap(Config{Pool: "pool"}, held)
	stored := Event{Kind: Stored, Hashes: []uint64{1, 2}, Tokens: make([]uint32, 128), BlockSize: 64, Medium: GPU, FullAttention: true, Group: -1, Opaque: 2}
	removed := func(hash uint64, medium Medium) {
		m.Apply(&Batch{Events: []Event{{Kind: Removed, Hashes: []uint64{hash}, Medium: medium, Group: -1}}})
	}
	m.Apply(&Batch{Events: []Event{stored}})
	delete(held.held, gatewayPath("", "", stored.Tokens)[1].Fingerprint) // the sink has lost it
	m.Apply(&Batch{Events: []Event{stored}})
	if len(held.held) != 2 {
		t.Errorf("%d checkpoints after the prompt was told again", len(held.held))
	}
	removed(2, GPU)
	removed(1, GPU)
	if c := m.Counts(); c.Held != 2 || c.Again != 2 || c.Removed != 2 || len(held.held) != 2 {
		t.Errorf("one copy of each is left: %+v, %d checkpoints", c, len(held.held))
	}
	removed(1, CPU) // was never there
	removed(2, GPU)
	if c := m.Counts(); c.Held != 1 || c.UnknownRemoved != 1 || len(held.held) != 1 {
		t.Errorf("%+v, %d checkpoints", c, len(held.held))
	}
	removed(1, GPU)
	if c := m.Counts(); c.Held+c.Blocks+c.Gone != 0 || len(held.held) != 0 || held.bad != "" {
		t.Errorf("%+v, %d checkpoints, %s", c, len(held.held), held.bad)
	}
}

// TestACheckpointWithinABlockGoesWithTheLastBlockThatCompletesIt: a turn ends in
// the first half of a block; behind it a stored answer and the next prompt, which
// words it in other tokens, go ways of their own.
func TestACheckpointWithinABlockGoesWithTheLastBlockThatCompletesIt(t *testing.T) {
	held := newLedger()
	m := NewMap(Config{Pool: "pool", TurnEnds: []uint32{7}}, held)
	prompt := make([]uint32, 128)
	prompt[80] = 7 // unit 5 is the last whole one
	stored := func(parent, hash uint64, tokens []uint32) {
		m.Apply(&Batch{Events: []Event{{Kind: Stored, Hashes: []uint64{hash}, HasParent: parent != 0, Parent: parent, Tokens: tokens, BlockSize: 64, Medium: GPU, FullAttention: true, Group: -1, Opaque: 1}}})
	}
	removed := func(hash uint64) {
		m.Apply(&Batch{Events: []Event{{Kind: Removed, Hashes: []uint64{hash}, Medium: GPU, Group: -1}}})
	}
	turn := gatewayPath("", "", prompt, 81)[1].Fingerprint
	stored(0, 1, prompt[:64])
	stored(1, 2, prompt[64:])
	other := slices.Clone(prompt)
	other[100] = 9
	stored(1, 3, other[64:])
	removed(2)
	if held.held[turn] != 5 || len(held.held) != 3 {
		t.Errorf("block 3 completes the turn as well: %v", held.held)
	}
	removed(3)
	if len(held.held) != 1 || held.bad != "" || len(m.inside) != 0 {
		t.Errorf("one block is left: %v, %s", held.held, held.bad)
	}
}

func TestAPromptIsOfOneModelWhateverItsEventsSay(t *testing.T) {
	held := newLedger()
	m := NewMap(Config{Pool: "pool"}, held)
	tokens := make([]uint32, 64)
	for i, adapter := range []string{"ad", "", "other"} {
		m.Apply(&Batch{Events: []Event{{Kind: Stored, Hashes: []uint64{uint64(i + 1)}, HasParent: i > 0, Parent: uint64(i), Tokens: tokens, BlockSize: 64, Medium: GPU, FullAttention: true, Group: -1, Opaque: 1, Adapter: adapter}}})
	}
	for _, cp := range gatewayPath("ad", "", make([]uint32, 192)) {
		if held.held[cp.Fingerprint] != cp.End {
			t.Errorf("unit %d isn't held", cp.End)
		}
	}
	if len(held.held) != 3 || held.bad != "" {
		t.Error(len(held.held), held.bad)
	}
}

func TestAPromptOfAMillionTokensIsToldInPieces(t *testing.T) {
	held := newLedger()
	held.strict = true
	m := NewMap(Config{Pool: "pool", TurnEnds: []uint32{7}}, held)
	e := Event{Kind: Stored, BlockSize: 1000, Medium: GPU, FullAttention: true, Group: -1, Opaque: 1000}
	for i := range 1000 {
		e.Hashes = append(e.Hashes, uint64(i+1))
		for k := range 1000 {
			e.Tokens = append(e.Tokens, uint32(1000*i+k)%200_000+8)
		}
		e.Tokens[1000*i+500] = 7
	}
	m.Apply(&Batch{Events: []Event{e}})
	scheduled, at := 0, uint32(0)
	for {
		if at = fingerprint.NextScheduled(at); at > 1_000_000/16 {
			break
		}
		scheduled++
	}
	// Turn ends that coincide with the schedule count once.
	if n := len(held.held); held.bad != "" || n < scheduled || n > scheduled+1000 || n < scheduled+900 {
		t.Errorf("%d checkpoints, %d of the schedule, %s", n, scheduled, held.bad)
	}
	if c := m.Counts(); c.Held != 1000 || c.BadShape != 0 {
		t.Errorf("%+v", c)
	}
}
