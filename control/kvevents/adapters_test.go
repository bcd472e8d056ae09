package kvevents

import (
	"fmt"
	"testing"

	"github.com/warmpath/warmpath/shared/fingerprint"
)

// adapterPrompt stores a prompt of 64 tokens for an adapter, as its only block.
func adapterPrompt(m *Map, adapter string, hash uint64) (tokens []uint32) {
	tokens = make([]uint32, 64)
	m.Apply(&Batch{Events: []Event{{Kind: Stored, Hashes: []uint64{hash}, Tokens: tokens, BlockSize: 64, Medium: GPU, FullAttention: true, Group: -1, Opaque: 1, Adapter: adapter}}})
	return tokens
}

func TestOtherWeightsUnderAnAdaptersNameFindNothingOfThoseBefore(t *testing.T) {
	held := newLedger()
	m := NewMap(Config{Pool: "pool"}, held)
	found := func(adapter string, generation uint64, tokens []uint32) bool {
		path := gatewayPathOf(adapter, generation, "", tokens)
		_, ok := held.held[path[len(path)-1].Fingerprint]
		return ok
	}
	m.SetAdapters(map[string]uint64{"sql": 1, "law": 1})
	tokens := adapterPrompt(m, "sql", 1)
	adapterPrompt(m, "law", 2)
	adapterPrompt(m, "", 3)
	if !found("sql", 1, tokens) || !found("law", 1, tokens) || !found("", 0, tokens) {
		t.Fatal(held.held)
	}
	m.SetAdapters(map[string]uint64{"sql": 2, "law": 1})
	if found("sql", 1, tokens) || found("sql", 2, tokens) {
		t.Error("what the weights before have left is found")
	}
	if !found("law", 1, tokens) || !found("", 0, tokens) || m.Counts().Held != 2 || m.Counts().Blocks != 3 {
		t.Errorf("others went with it: %+v", m.Counts())
	}
	adapterPrompt(m, "sql", 4) // engines give it another name
	if found("sql", 1, tokens) || !found("sql", 2, tokens) {
		t.Error(held.held)
	}
	// A restart of this service changes nothing.
	held = newLedger()
	m = reborn(t, m, held)
	if found("sql", 1, tokens) || !found("sql", 2, tokens) || !found("law", 1, tokens) {
		t.Errorf("after a restart: %v", held.held)
	}
	// The engine goes on hitting what it has of weights that come back. What was
	// evicted meanwhile isn't there.
	m.Apply(&Batch{Events: []Event{{Kind: Removed, Hashes: []uint64{2}, Medium: GPU, Group: -1}}})
	m.SetAdapters(map[string]uint64{"sql": 1, "law": 1})
	if !found("sql", 1, tokens) || found("sql", 2, tokens) || found("law", 1, tokens) || held.bad != "" {
		t.Error(held.held, held.bad)
	}
}

func TestEverNewNamesOfAdaptersCostLittle(t *testing.T) {
	held := newLedger()
	m := NewMap(Config{Pool: "pool"}, held)
	for i := range maxAdapters + 10 {
		adapterPrompt(m, fmt.Sprint("adapter-", i), uint64(i+1))
	}
	if c := m.Counts(); len(m.adapters) != maxAdapters || c.Untranslated != 11 || len(held.held) != maxAdapters-1 {
		t.Errorf("%d adapters, %+v", len(m.adapters), c)
	}
	adapterPrompt(m, "", 1<<40)
	if got := gatewayPath("", "", make([]uint32, fingerprint.UnitTokens*4)); held.held[got[0].Fingerprint] == 0 {
		t.Error("the base model has no place any more")
	}
}

// An engine may load and unload adapters for months: those of which nothing is cached any more
// make room for new ones, and none is taken for another.
func TestAdaptersThatHaveGoneMakeRoomForNewOnes(t *testing.T) {
	held := newLedger()
	m := NewMap(Config{Pool: "pool"}, held)
	name := func(i int) string { return fmt.Sprint("adapter-", i) }
	found := func(adapter string, tokens []uint32) bool {
		return held.held[gatewayPathOf(adapter, 0, "", tokens)[0].Fingerprint] != 0
	}
	remove := func(hash uint64) {
		m.Apply(&Batch{Events: []Event{{Kind: Removed, Hashes: []uint64{hash}, Medium: GPU, Group: -1}}})
	}
	var tokens []uint32
	const loaded, stays = 8, 5 // at a time; one that is never unloaded
	for i := range 10_000 {
		tokens = adapterPrompt(m, name(i), uint64(i+1))
		if gone := i - loaded; gone >= 0 && gone != stays {
			remove(uint64(gone + 1))
		}
	}
	for i := range 10_000 {
		if got, want := found(name(i), tokens), i == stays || i >= 10_000-loaded; got != want {
			t.Fatalf("%s is found %v, want %v", name(i), got, want)
		}
	}
	if c := m.Counts(); c.Untranslated != 0 || c.Held != loaded+1 || len(m.adapters) > maxAdapters || held.bad != "" {
		t.Errorf("%d adapters, %+v, %s", len(m.adapters), c, held.bad)
	}
}

// An adapter that comes back after its number was found spare has another one.
func TestAnAdapterThatComesBackIsNotTakenForTheOneThatHasItsNumber(t *testing.T) {
	held := newLedger()
	m := NewMap(Config{Pool: "pool"}, held)
	name := func(i int) string { return fmt.Sprint("adapter-", i) }
	var tokens []uint32
	next := uint64(1)
	load := func(i int) {
		tokens = adapterPrompt(m, name(i), next)
		next++
	}
	found := func(i int) bool {
		return held.held[gatewayPathOf(name(i), 0, "", tokens)[0].Fingerprint] != 0
	}
	for i := range maxAdapters - 1 {
		load(i)
	}
	const gone, back = 4000, 17
	for i := range gone {
		m.Apply(&Batch{Events: []Event{{Kind: Removed, Hashes: []uint64{uint64(i + 1)}, Medium: GPU, Group: -1}}})
	}
	load(10_000)
	load(back)
	for i := range gone - 2 {
		load(20_000 + i)
	}
	if !found(10_000) || !found(back) || !found(20_000) || !found(20_000+gone-3) || m.Counts().Untranslated != 0 {
		t.Fatalf("%+v", m.Counts())
	}
	load(30_000)
	if found(30_000) || m.Counts().Untranslated != 1 {
		t.Error("there was room for one more than there are numbers")
	}
	m.SetAdapters(map[string]uint64{name(back): 3})
	for _, restarted := range []bool{false, true} {
		if restarted {
			held = newLedger()
			m = reborn(t, m, held)
		}
		if found(back) || !found(10_000) || !found(20_000) || !found(20_000+gone-3) || !found(gone+1) {
			t.Errorf("restarted %v: other weights of one adapter took what another has, or left what it had", restarted)
		}
	}
}
