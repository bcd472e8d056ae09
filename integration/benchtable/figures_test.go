package main

import "testing"

func TestRealPromptsAreFoundInFewPages(t *testing.T) {
	f := measureFigures(1500, map[int]int{3: 40_000}, 20_000)
	for _, l := range f.Lookups {
		if l.Lookups != 1200 || l.Deepest != 1 || l.Same < 0.9 || l.GetsP50 > 12 || l.GetsP90 > lookupBudget {
			t.Errorf("%+v", l)
		}
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
