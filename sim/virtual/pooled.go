package virtual

import "github.com/warmpath/warmpath/sim/engine"

// pool is one LRU cache of the whole fleet's size: the honest ceiling of hits.
// Requests go through it in the order in which they arrive, whoever serves
// them.
type pool struct{ *engine.LRU }

func newPool(blocks int) pool { return pool{engine.NewLRU(blocks)} }

// play returns how many leading blocks of the prompt were there, and keeps
// prompt and answer.
func (p pool) play(r *Request) (hit int) {
	hit = p.Holds(r.blocks[:(r.Prompt-1)/engine.BlockTokens]) // the last token is always computed
	p.Touch(r.blocks)
	return hit
}
