package virtual

import "github.com/warmpath/warmpath/sim/engine"

// pool is one LRU cache of the whole fleet's size: the honest ceiling of hits.
// It keeps a request's prompt as it arrives, whoever serves it, and prompt and
// answer when the answer is out. So it never has an answer sooner than an
// engine, and a conversation's age counts from its last answer's end, as it
// does where requests hold on to their blocks while they run. What is being
// decoded takes the room that it takes in the fleet.
type pool struct {
	*engine.LRU
	blocks   int   // in all
	decoding []int // of them, by worker
	taken    int   // their sum
}

func newPool(blocks, workers int) *pool {
	return &pool{LRU: engine.NewLRU(blocks), blocks: blocks, decoding: make([]int, workers)}
}

// decodes notes how many blocks a worker's answers take.
func (p *pool) decodes(worker, blocks int) {
	p.taken += blocks - p.decoding[worker]
	p.decoding[worker] = blocks
	p.Resize(p.blocks - p.taken)
}

// asked returns how many leading blocks of the prompt were there, and keeps it.
func (p *pool) asked(r *Request) (hit int) {
	hit = p.Holds(r.blocks[:(r.Prompt-1)/engine.BlockTokens]) // the last token is always computed
	p.Touch(r.promptBlocks())
	return hit
}

// answered keeps prompt and answer, which a worker isn't decoding any more.
func (p *pool) answered(r *Request, worker int) {
	p.decodes(worker, max(0, p.decoding[worker]-len(r.blocks)+len(r.promptBlocks())))
	p.Touch(r.blocks)
}
