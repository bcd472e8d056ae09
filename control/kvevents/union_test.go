package kvevents

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/shared/fingerprint"
)

func TestWhatOneOfTwoRanksHoldsIsHeldByAPart(t *testing.T) {
	out := newLedger()
	u := NewUnion(out, 2)
	ranks := []*Map{NewMap(Config{Pool: "pool"}, u.Rank()), NewMap(Config{Pool: "pool"}, u.Rank())}
	apply(t, ranks[0], "dp2/00_rank0.bin")
	some := len(out.slow)
	if len(out.held) != 0 || some == 0 {
		t.Errorf("%d checkpoints are held, %d by a part", len(out.held), some)
	}
	apply(t, ranks[1], "dp2/00_rank0.bin") // the same at the other rank
	if len(out.held) != some || len(out.slow) != 0 {
		t.Errorf("%d checkpoints are held, %d by a part; want %d and none", len(out.held), len(out.slow), some)
	}
	ranks[0].Clear()
	if len(out.held) != 0 || len(out.slow) != some {
		t.Errorf("%d checkpoints are held, %d by a part; want none and %d", len(out.held), len(out.slow), some)
	}
	ranks[1].Clear()
	if len(out.held)+len(out.slow) != 0 || out.bad != "" {
		t.Errorf("%d checkpoints of nobody %s", len(out.held)+len(out.slow), out.bad)
	}
}

// both tells two sinks.
type both [2]Sink

func (b both) Hold(path []fingerprint.Checkpoint) { b[0].Hold(path); b[1].Hold(path) }
func (b both) Drop(fp uint64)                     { b[0].Drop(fp); b[1].Drop(fp) }
func (b both) Slow(fp uint64, on bool)            { b[0].Slow(fp, on); b[1].Slow(fp, on) }
func (b both) Clear()                             { b[0].Clear(); b[1].Clear() }

// Whatever three ranks store, move to slower memory and remove, the union holds
// what all of them hold, and has by a part what else any of them has.
func TestAUnionAgreesWithPlainSetsWhateverHappens(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 7))
		out := newLedger()
		u := NewUnion(out, 3)
		var maps []*Map
		var alone []*ledger
		for range 3 {
			l := newLedger()
			alone = append(alone, l)
			maps = append(maps, NewMap(Config{Pool: "pool"}, both{l, u.Rank()}))
		}
		for step := range 120 {
			m := maps[random.IntN(len(maps))]
			m.Apply(&Batch{Events: []Event{someEvent(random)}})
			held, slow := map[uint64]uint32{}, map[uint64]bool{}
			for _, l := range alone {
				for fp, end := range l.held {
					held[fp] = end
					slow[fp] = true
				}
				for fp := range l.slow {
					slow[fp] = true
				}
			}
			for fp := range held {
				for _, l := range alone {
					if _, ok := l.held[fp]; !ok {
						delete(held, fp)
					}
				}
			}
			for fp := range held {
				delete(slow, fp)
			}
			if diff := cmp.Diff(held, out.held) + cmp.Diff(slow, out.slow); diff != "" || out.bad != "" {
				t.Fatalf("seed %d, step %d: %s %s", seed, step, out.bad, diff)
			}
		}
	}
}

// someEvent is about one of a few prompts of four blocks that share beginnings:
// block i of prompt p is that of every prompt with the same p>>(3-i).
func someEvent(random *rand.Rand) Event {
	prompt, size := random.Uint64N(8), 64
	name := func(block int) uint64 { return uint64(block+1)<<8 | prompt>>(3-block) }
	medium := []Medium{GPU, GPU, GPU, CPU}[random.IntN(4)]
	switch n := random.IntN(40); {
	case n == 0:
		return Event{Kind: Cleared}
	case n < 15:
		return Event{Kind: Removed, Hashes: []uint64{name(random.IntN(4))}, Medium: medium, Group: -1}
	}
	e := Event{Kind: Stored, BlockSize: size, Medium: medium, Group: -1, FullAttention: true}
	for block := range 1 + random.IntN(4) {
		e.Hashes = append(e.Hashes, name(block))
		for i := range size {
			e.Tokens = append(e.Tokens, uint32(name(block))*1000+uint32(i))
		}
	}
	e.Opaque = len(e.Hashes)
	return e
}
