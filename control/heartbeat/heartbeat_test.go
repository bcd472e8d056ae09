package heartbeat

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/control/kvevents"
	"github.com/warmpath/warmpath/shared/fingerprint"
)

// held collects what a map of KV events tells.
type held map[fingerprint.Checkpoint]bool

func (h held) Hold(path []fingerprint.Checkpoint) {
	for _, c := range path {
		c.TurnEnd = false
		h[c] = true
	}
}
func (h held) Drop(uint64)     {}
func (h held) Clear()          { clear(h) }
func (held) Slow(uint64, bool) {}

// A token list tells the same as the KV events of an engine that stores it: two
// implementations, one table.
func TestATokenListTellsWhatTheEventsOfItsBlocksTell(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		block := rapid.SampledFrom([]int{16, 32, 48, 64}).Draw(t, "block")
		ends := []uint32{3, 7}
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		tokens := make([]uint32, rapid.IntRange(1, 1200).Draw(t, "tokens"))
		for i := range tokens {
			tokens[i] = uint32(random.IntN(12))
		}
		salt := rapid.SampledFrom([]string{"", "tenant"}).Draw(t, "salt")
		p := Prefix{CacheSalt: salt, Tokens: tokens}
		got := p.Checkpoints("default", "", 0, ends, block)

		events := held{}
		m := kvevents.NewMap(kvevents.Config{Pool: "default", TurnEnds: ends}, events)
		blocks := len(tokens) / block
		e := kvevents.Event{Kind: kvevents.Stored, Medium: kvevents.GPU, Group: -1, FullAttention: true, BlockSize: block, Tokens: tokens[:blocks*block], CacheSalt: salt, Opaque: blocks}
		for i := range blocks {
			e.Hashes = append(e.Hashes, uint64(i+1))
		}
		m.Apply(&kvevents.Batch{Events: []kvevents.Event{e}})

		for i, c := range got {
			c.TurnEnd = false
			// The end of the list is a checkpoint of its own.
			if !events[c] && i < len(got)-1 {
				t.Fatalf("unit %d isn't told by the events", c.End)
			}
			delete(events, c)
		}
		if len(events) > 0 {
			t.Fatalf("the events tell %v more", events)
		}
	})
}

func TestNamesAndSaltsMakeOtherFingerprints(t *testing.T) {
	tokens := make([]uint32, 64)
	base := Prefix{Tokens: tokens}
	path := base.Checkpoints("default", "", 0, nil, 16)
	if len(path) != 1 || path[0].End != 4 {
		t.Fatalf("%v", path)
	}
	for name, other := range map[string][]fingerprint.Checkpoint{
		"pool":    base.Checkpoints("other", "", 0, nil, 16),
		"adapter": base.Checkpoints("default", "adapter", 0, nil, 16),
		"weights": base.Checkpoints("default", "adapter", 1, nil, 16),
		"salt":    (&Prefix{CacheSalt: "s", Tokens: tokens}).Checkpoints("default", "", 0, nil, 16),
	} {
		if other[0].Fingerprint == path[0].Fingerprint {
			t.Errorf("%s makes no difference", name)
		}
	}
	if short := base.Checkpoints("default", "", 0, nil, 128); len(short) != 0 {
		t.Errorf("half a block: %v", short)
	}
}
