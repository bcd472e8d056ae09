package fingerprint

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestARestoredChainGoesOnWhateverWasChainedMeanwhile(t *testing.T) {
	var straight, chain Chain
	rapid.Check(t, func(t *rapid.T) {
		// Enough units for the schedule to be thinned, enough turns for the first to be dropped.
		begin := make([]byte, rapid.OneOf(rapid.IntRange(0, 2_000), rapid.IntRange(0, 1_500_000)).Draw(t, "begin"))
		for i := range begin {
			begin[i] = byte(i * 37 >> 2)
		}
		turns := rapid.SampledFrom([]int{1, 3, 200, 500}).Draw(t, "turns")
		watch := rapid.SampledFrom([]uint32{0, 5, 700}).Draw(t, "watch")
		feed := func(c *Chain) {
			for text := begin; len(text) > 0; {
				n := min(len(text), len(begin)/turns+1)
				c.Write(text[:n])
				c.TurnEnd()
				text = text[n:]
			}
		}
		end := make([]byte, rapid.IntRange(0, 90_000).Draw(t, "end"))
		straight.Watch(watch)
		straight.Reset(3)
		feed(&straight)
		straight.Write(end)
		straight.TurnEnd()
		want := slices.Clone(straight.Finish())
		key, ok := straight.RingKey()

		chain.Watch(watch)
		chain.Reset(3)
		feed(&chain)
		state, checkpoints := chain.Save(nil)
		for range 2 {
			chain.Reset(rapid.Uint64().Draw(t, "other salt"))
			chain.Write(make([]byte, 100_000))
			chain.TurnEnd()
			cut := rapid.IntRange(0, len(checkpoints)).Draw(t, "cut")
			chain.Restore(&state, checkpoints[:cut], checkpoints[cut:])
			chain.Write(end)
			chain.TurnEnd()
			if diff := cmp.Diff(want, slices.Clone(chain.Finish())); diff != "" {
				t.Fatalf("checkpoints differ (-straight +restored):\n%s", diff)
			}
			if k, has := chain.RingKey(); k != key || has != ok || chain.Units() != straight.Units() {
				t.Fatalf("ring key %x %v of %d units, want %x %v of %d", k, has, chain.Units(), key, ok, straight.Units())
			}
		}
	})
}
