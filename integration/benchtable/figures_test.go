package main

import (
	"testing"

	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/table"
)

func TestRealPromptsAreFoundInFewPages(t *testing.T) {
	f := measureFigures(1500, map[int]int{3: 40_000}, 20_000)
	for _, l := range f.Lookups {
		if l.Lookups != 1200 || l.Deepest != 1 || l.Same < 0.9 || l.GetsP50 > 12 || l.GetsP90 > lookupBudget {
			t.Errorf("%+v", l)
		}
	}
	for _, l := range f.Lengths {
		if l.New.P50 > 12 || l.New.P99 > 14 || l.Known.P99 > lookupBudget || l.Found < 0.95 || l.Lost < 0.2 && l.Found < 0.995 {
			t.Errorf("%+v", l)
		}
	}
	if n := len(f.Lengths); n != 2*3*len(lookupLengths) {
		t.Errorf("%d kinds of prompts", n)
	}
	c := f.Covers[0]
	if c.Tokens < 3*40_000 || c.TokensPerEntry < 50 || c.EntriesDropped > 0 || c.TableBytes < 24*c.Entries {
		t.Errorf("%+v", c)
	}
	for _, h := range f.Entries {
		if h.Entries+int(h.Dropped) != 20_000 || h.Complete != 1 || (h.SetBytes > 0) != (h.Holders > 6) {
			t.Errorf("%+v", h)
		}
	}
}

func TestPromptsThatAreLookedUpFollowWhatTheTableKnows(t *testing.T) {
	w := newPrompts(lookupTalks[0], 20_000)
	if len(w.entries) != 20_000 || len(w.lookups) != bodies {
		t.Fatalf("%d entries, %d lookups", len(w.entries), len(w.lookups))
	}
	known, found, seen := w.known(), 0, map[string]bool{}
	for _, body := range w.lookups[:500] {
		_, longest := w.oracle(known, body)
		if longest*fingerprint.UnitTokens > 1000 {
			found++
		}
		seen[string(body)] = true
	}
	if found < 450 || len(seen) != 500 {
		t.Errorf("%d of 500 prompts are known beyond 1,000 tokens, %d are different", found, len(seen))
	}
	if w.bits != sizeClass(20_000) || !table.ValidBits(w.bits) {
		t.Errorf("%d bits", w.bits)
	}
}
