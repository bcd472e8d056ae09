package virtual

import (
	"slices"
	"time"

	"github.com/warmpath/warmpath/shared/route"
	"github.com/warmpath/warmpath/sim/engine"
)

// Copies of hot prefixes are made as the module makes them. The plan says which gateway makes one, and
// the next request that begins with the prefix and comes to that gateway brings the tokens. The gateway
// sends the worker slices: requests of its own for the beginning of the prefix, each rule.CopySlice
// tokens longer than the one before, for one token of answer. The next goes out when the last was
// answered, so whoever lives there waits for a slice and not for the whole. A slice is in its gateway's
// books, and in no figure of clients' requests.

const (
	// makerFor is how long after its last dispatch a gateway may be given copies.
	makerFor = 2 * time.Second
	// claimTime is how long a gateway leaves a copy alone that it has claimed, whatever became of it.
	// It renews its claim while it makes it.
	claimTime = 5 * time.Second
	// sliceIDs are beyond those of clients' requests.
	sliceIDs = uint64(1) << 62
)

// wantedCopy is one that the plan has a gateway make.
type wantedCopy struct {
	fingerprint     uint64
	units           int // of the prefix
	worker, gateway int
}

// copying is a copy that its gateway has claimed.
type copying struct {
	wantedCopy
	generation uint32             // of the worker
	blocks     []engine.BlockHash // of the prefix
	positions  []int              // of its checkpoints
	done       int                // tokens that were computed
	slice      *Request           // that isn't answered yet
	claimed    time.Duration
	over       bool
}

// makers are the gateways that may be given copies.
func (f *Fleet) makers() (all []uint64) {
	if f.cfg.Policy.CopySlice <= 0 {
		return nil
	}
	for _, g := range f.gateways {
		if g.dispatched > 0 && f.now-g.dispatched <= makerFor {
			all = append(all, g.maker())
		}
	}
	return all
}

// maker is what the plan calls a gateway: 0 would be one that isn't known.
func (g *Gateway) maker() uint64 { return uint64(g.Index) + 1 }

// makeCopies begins those copies that a gateway is to make of a prefix that a request begins with. One
// that the worker has, or gets by a request, it leaves.
func (f *Fleet) makeCopies(g *Gateway, r *Request) {
	for _, want := range f.wanted {
		if want.gateway != g.Index || want.worker == r.worker {
			continue
		}
		at, ok := slices.BinarySearch(g.at, want.units)
		if !ok || uint64(r.blocks[want.units-1]) != want.fingerprint || g.request.Gets(refOf(want.worker), uint32(want.units)) || !f.wants(want) || !f.claim(want) {
			continue
		}
		c := &copying{
			wantedCopy: want, generation: f.generations[want.worker], claimed: f.now,
			blocks: r.blocks[:want.units:want.units], positions: slices.Clone(g.at[:at+1]),
		}
		f.copying = append(f.copying, c)
		f.nextSlice(c)
	}
}

// wants tells whether the plan still has the gateway make a copy, at a worker that takes requests.
func (f *Fleet) wants(c wantedCopy) bool {
	g := f.gateways[c.gateway]
	return slices.Contains(f.wanted, c) && g.view.Workers[c.worker].State < route.Draining && g.avoid[c.worker] <= f.now
}

// claim tells whether a copy isn't claimed, and forgets the claims whose time is over.
func (f *Fleet) claim(want wantedCopy) bool {
	f.copying = slices.DeleteFunc(f.copying, func(c *copying) bool { return c.over && f.now-c.claimed >= claimTime })
	return !slices.ContainsFunc(f.copying, func(c *copying) bool { return c.wantedCopy == want })
}

// nextSlice sends the next slice, if the copy is still wanted.
func (f *Fleet) nextSlice(c *copying) {
	if !f.wants(c.wantedCopy) || c.generation != f.generations[c.worker] {
		c.over = true
		return
	}
	if f.now-c.claimed > claimTime/3 {
		c.claimed = f.now
	}
	tokens := min(c.done+f.cfg.Policy.CopySlice, c.units*engine.BlockTokens)
	f.counts.Slices++
	c.slice = &Request{
		ID: sliceIDs + uint64(f.counts.Slices), Prompt: tokens, Output: 1, blocks: c.blocks[:tokens/engine.BlockTokens],
		gateway: c.gateway, worker: c.worker, uncached: tokens - c.done,
	}
	g := f.gateways[c.gateway]
	b := &g.own[c.worker]
	b.fade(f.now, &g.fader)
	b.inFlight++
	b.uncached += c.slice.uncached
	b.recent += float64(c.slice.uncached)
	f.tellBooks(c.gateway)
	f.at(f.now+f.cfg.Delays.Hop, event{kind: submitSlice, copying: c})
}

// submitSlice hands a slice to its engine. One that is gone or full ends the copy.
func (f *Fleet) submitSlice(c *copying) {
	w, r := f.workers[c.worker], c.slice
	if !w.up || w.engine.Submit(f.now, engine.Request{ID: r.ID, PromptTokens: r.Prompt, OutputTokens: r.Output, Blocks: r.blocks}) != nil {
		f.closeSlice(c)
		c.over = true
		return
	}
	f.slices[r.ID] = c
	f.wakeAt(c.worker)
}

// sliceComputed takes an engine's answer, which the gateway has a hop later.
func (f *Fleet) sliceComputed(c *copying) {
	delete(f.slices, c.slice.ID)
	f.at(f.now+f.cfg.Delays.Hop, event{kind: answerSlice, copying: c})
}

// answerSlice goes on with a copy. When it is whole the gateway tells so, as of a dispatch. The plan is
// told late as a whole, see plan, so it learns of it at once.
func (f *Fleet) answerSlice(c *copying) {
	r := c.slice
	f.closeSlice(c)
	if c.done = r.Prompt; c.done < c.units*engine.BlockTokens {
		f.nextSlice(c)
		return
	}
	c.over = true
	f.counts.Copies++
	f.planner.Made(c.fingerprint, refOf(c.worker), f.gateways[c.gateway].maker())
	if c.generation == f.generations[c.worker] {
		f.predict(c.gateway, f.index.predict(f.now, r, c.worker, c.generation, c.positions))
	}
}

// closeSlice takes a copy's slice off the books.
func (f *Fleet) closeSlice(c *copying) {
	b := &f.gateways[c.gateway].own[c.worker]
	b.inFlight--
	b.uncached -= c.slice.uncached
	delete(f.slices, c.slice.ID)
	c.slice = nil
	f.tellBooks(c.gateway)
}

// loseSlices ends the copies whose slice a worker had when it died.
func (f *Fleet) loseSlices(worker int) {
	for _, c := range f.copying {
		if c.worker == worker && c.slice != nil && f.slices[c.slice.ID] == c {
			f.closeSlice(c)
			c.over = true
		}
	}
}
