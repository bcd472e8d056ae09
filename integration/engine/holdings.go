package engine

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/warmpath/warmpath/shared/fingerprint"
)

// Holdings is the plainest map of an engine's cache: the whole prompt of every
// block that was ever stored, and how many of each lie there now. vLLM doesn't
// merge equal blocks: what was computed twice goes twice.
type Holdings struct {
	known   map[string]block
	present map[string]int
	removed int
	clears  int
}

type block struct {
	parent  string
	tokens  []uint32 // from the start of the prompt to the block's end
	adapter string
	salt    string
}

// HoldingsOf plays batches in order.
func HoldingsOf(batches []Batch) (*Holdings, error) {
	h := &Holdings{known: map[string]block{}, present: map[string]int{}}
	for _, b := range batches {
		for i := range b.Events {
			if err := h.play(&b.Events[i]); err != nil {
				return nil, fmt.Errorf("batch %d, event %d: %w", b.Sequence, i, err)
			}
		}
	}
	return h, nil
}

func (h *Holdings) play(e *Event) error {
	switch e.Type {
	case "BlockStored":
		if len(e.Tokens) != len(e.Hashes)*e.BlockTokens {
			return fmt.Errorf("%d tokens in %d blocks of %d", len(e.Tokens), len(e.Hashes), e.BlockTokens)
		}
		at := block{adapter: e.Adapter, salt: saltOf(e)}
		if e.Parent != nil {
			before, ok := h.known[*e.Parent]
			if !ok {
				return fmt.Errorf("parent %s was never stored", *e.Parent)
			}
			at, at.parent = before, *e.Parent
		}
		for i, hash := range e.Hashes {
			at.tokens = slices.Concat(at.tokens, e.Tokens[i*e.BlockTokens:(i+1)*e.BlockTokens])
			h.known[hash] = at
			h.present[hash]++
			at.parent = hash
		}
	case "BlockRemoved":
		for _, hash := range e.Hashes {
			switch h.present[hash]--; h.present[hash] {
			case -1:
				return fmt.Errorf("block %s is removed and wasn't there", hash)
			case 0:
				delete(h.present, hash)
			}
			h.removed++
		}
	case "AllBlocksCleared":
		clear(h.present)
		h.clears++
	default:
		return fmt.Errorf("an event of type %q", e.Type)
	}
	return nil
}

// saltOf finds the cache salt among the keys of the first block: the string that
// isn't the adapter's name.
func saltOf(e *Event) string {
	var keys []any
	if len(e.ExtraKeys) == 0 || json.Unmarshal(e.ExtraKeys[0], &keys) != nil {
		return ""
	}
	for _, k := range keys {
		if text, ok := k.(string); ok && text != e.Adapter {
			return text
		}
	}
	return ""
}

// Blocks is how many blocks lie there.
func (h *Holdings) Blocks() (n int) {
	for _, copies := range h.present {
		n += copies
	}
	return n
}

// held tells whether a block lies there with all before it.
func (h *Holdings) held(hash string) bool {
	for ; hash != ""; hash = h.known[hash].parent {
		if h.present[hash] == 0 {
			return false
		}
	}
	return true
}

// Expected is what a table must and may say of a worker.
type Expected struct {
	// Must has the positions that every prompt's schedule keeps, May every whole
	// unit: where turns end is for tables to find out.
	Must, May map[uint64]bool
}

// Expect works out the fingerprints of everything that is held, prompt by prompt.
// weights are the generations of adapters by name; the base model is the same
// under each of its names.
func (h *Holdings) Expect(pool string, weights map[string]uint64) Expected {
	want := Expected{map[uint64]bool{}, map[uint64]bool{}}
	var chain fingerprint.Chain
	for hash := range h.present {
		if !h.held(hash) {
			continue
		}
		b := h.known[hash]
		chain.Reset(fingerprint.Salt(pool, b.adapter, weights[b.adapter], b.salt, fingerprint.Exact))
		for at := fingerprint.UnitTokens; at <= len(b.tokens); at += fingerprint.UnitTokens {
			chain.WriteTokens(b.tokens[at-fingerprint.UnitTokens : at])
			units := chain.Units()
			want.May[chain.Fingerprint()] = true
			if fingerprint.NextScheduled(units-1) == units {
				want.Must[chain.Fingerprint()] = true
			}
		}
	}
	return want
}

// Diff says how what a table has differs, "" when it doesn't.
func (e Expected) Diff(has map[uint64]bool) string {
	missing, surplus := 0, 0
	for fp := range e.Must {
		if !has[fp] {
			missing++
		}
	}
	for fp := range has {
		if !e.May[fp] {
			surplus++
		}
	}
	if missing+surplus == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d checkpoints are missing, %d of %d are of nothing that the engine holds", missing, len(e.Must), surplus, len(has))
}
