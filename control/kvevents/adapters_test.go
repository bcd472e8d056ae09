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
