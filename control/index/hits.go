package index

// Hits is what one worker's dispatches and answers have shown since its process
// is known: requests that succeed while nothing ever matches are the silent
// failure of a cache router.
type Hits struct {
	Dispatches, Matched uint64 // requests sent there, and those of which a part was expected there
	Answers             uint64 // complete ones
	Unnamed             uint64 // how many of the last answers in a row didn't name their cached tokens
	// Of the answers that did, tokens: of the prompts, expected to be cached, and
	// cached.
	PromptTokens, PredictedTokens, CachedTokens uint64
}

func (h *Hits) dispatched(d *Dispatch) {
	h.Dispatches++
	if d.MatchedUnits > 0 {
		h.Matched++
	}
}

func (h *Hits) answered(d *Done) {
	if d.Outcome != Complete {
		return // usage comes last
	}
	h.Answers++
	if d.CachedTokens < 0 {
		h.Unnamed++
		return
	}
	h.Unnamed = 0
	h.PromptTokens += uint64(max(d.PromptTokens, 0))
	h.PredictedTokens += uint64(d.PredictedTokens)
	h.CachedTokens += uint64(d.CachedTokens)
}
