package engine

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/shared/fingerprint"
)

// story is what a recorder writes of an engine with blocks of 32 tokens.
func story(t *testing.T, lines ...string) []Batch {
	t.Helper()
	var out []Batch
	for i, line := range lines {
		var b Batch
		if err := json.Unmarshal([]byte(`{"events":[`+line+`]}`), &b); err != nil {
			t.Fatal(err)
		}
		b.Sequence = uint64(i)
		out = append(out, b)
	}
	return out
}

// tokens is n ids as JSON.
func tokens(n int) string { return "[" + strings.Repeat("7,", n-1) + "7]" }

func TestTheNaiveMapHoldsWhatIsHeldFromTheStart(t *testing.T) {
	stored := `{"type":"BlockStored","block_hashes":["1","2","3","4"],"parent_block_hash":null,"token_ids":` + tokens(128) + `,"block_size":32,"extra_keys":[["s"],null,null,null]}`
	more := `{"type":"BlockStored","block_hashes":["5","6"],"parent_block_hash":"4","token_ids":` + tokens(64) + `,"block_size":32}`
	of := func(lines ...string) *Holdings {
		h, err := HoldingsOf(story(t, lines...))
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	scheduled := func(h *Holdings) int { return len(h.Expect("p", nil).Must) }
	if h := of(stored, more); h.Blocks() != 6 || scheduled(h) != 3 || len(h.Expect("p", nil).May) != 12 {
		t.Errorf("%d blocks, %d checkpoints", h.Blocks(), scheduled(h))
	}
	if h := of(stored, more, `{"type":"BlockRemoved","block_hashes":["4"]}`); h.Blocks() != 5 || scheduled(h) != 1 {
		t.Errorf("without block 4: %d blocks, %d checkpoints", h.Blocks(), scheduled(h))
	}
	if h := of(stored, `{"type":"AllBlocksCleared"}`); h.Blocks() != 0 || scheduled(h) != 0 || h.clears != 1 {
		t.Errorf("cleared: %d blocks", h.Blocks())
	}
	if h := of(stored, stored, `{"type":"BlockRemoved","block_hashes":["1","2"]}`); h.Blocks() != 6 || scheduled(h) != 2 {
		t.Errorf("with a copy of each: %d blocks, %d checkpoints", h.Blocks(), scheduled(h))
	}
	var chain fingerprint.Chain
	chain.Reset(fingerprint.Salt("p", "", 0, "s", fingerprint.Exact))
	chain.WriteTokens(slices.Repeat([]uint32{7}, 64))
	if !of(stored).Expect("p", nil).Must[chain.Fingerprint()] {
		t.Error("64 tokens under salt s are not among what must be known")
	}
	for _, wrong := range []string{
		more,
		`{"type":"BlockRemoved","block_hashes":["9"]}`,
		`{"type":"BlockStored","block_hashes":["1"],"token_ids":[1,2,3],"block_size":32}`,
		`{"type":"Surprise"}`,
	} {
		if _, err := HoldingsOf(story(t, wrong)); err == nil {
			t.Errorf("%s was believed", wrong)
		}
	}
}

func TestADifferenceIsTold(t *testing.T) {
	e := Expected{Must: map[uint64]bool{1: true, 2: true}, May: map[uint64]bool{1: true, 2: true, 3: true}}
	if d := e.Diff(e.Must); d != "" {
		t.Error(d)
	}
	if d := e.Diff(e.May); d != "" {
		t.Error(d)
	}
	has := maps.Clone(e.May)
	delete(has, 1)
	has[9] = true
	if d := e.Diff(has); !strings.HasPrefix(d, "1 of 2 checkpoints are missing, 1 of 3 ") {
		t.Error(d)
	}
}
