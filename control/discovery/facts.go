package discovery

import (
	"cmp"
	"time"
)

// learn takes what an engine tells about itself for what the list leaves open.
// What isn't told now stays as it was told before. True when something changed.
func (f *Fleet) learn(w *worker, told Facts) bool {
	for _, field := range []struct{ known, told *int }{
		{&w.facts.CapacityTokens, &told.CapacityTokens},
		{&w.facts.BlockTokens, &told.BlockTokens},
		{&w.facts.MaxRunning, &told.MaxRunning},
		{&w.facts.QueueLimit, &told.QueueLimit},
	} {
		if *field.told == 0 {
			*field.told = *field.known
		}
	}
	if told.Caching == CachingNotTold {
		told.Caching = w.facts.Caching
	}
	if told == w.facts {
		return false
	}
	w.facts = told
	return f.refill(w)
}

// refill is fill for a worker whose facts are others. True when something changed.
func (f *Fleet) refill(w *worker) bool {
	was, off := w.Spec, w.CachingOff
	w.fill()
	if w.Spec == was && w.CachingOff == off {
		return false
	}
	if w.Ref != 0 {
		f.hooks.Updated(w.Worker)
	}
	return true
}

// EventBlocks takes in how many tokens the blocks have that the KV events of a worker
// are about. It counts where neither the list nor the engine's metrics say: a hit
// ends at a block's edge, so with smaller ones more would be promised than comes true.
func (f *Fleet) EventBlocks(ref uint16, tokens int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.workers {
		if w.Ref != ref || ref == 0 {
			continue
		}
		if w.eventBlock == tokens {
			return
		}
		if w.eventBlock = tokens; f.refill(w) {
			f.hooks.Changed(true)
		}
		return
	}
}

// fill makes the spec in force of the listed one and of what the engine told.
func (w *worker) fill() {
	w.Spec, w.CachingOff = w.listed, w.facts.Caching == CachingOff
	if w.CapacityAssumed && w.facts.CapacityTokens > 0 {
		w.CapacityTokens, w.CapacityAssumed = w.facts.CapacityTokens, false
	}
	if block := cmp.Or(w.facts.BlockTokens, w.eventBlock); w.BlockAssumed && block > 0 {
		w.BlockTokens, w.BlockAssumed = block, false
	}
	if w.MaxRunning == 0 {
		w.MaxRunning = w.facts.MaxRunning
	}
	if w.QueueLimit == 0 {
		w.QueueLimit = w.facts.QueueLimit
	}
}

// takeLoad keeps a load report unless a later one is known. True when gateways
// should hear of it at once.
func (f *Fleet) takeLoad(w *worker, l Load, at time.Time) (urgent bool) {
	if at.Before(w.LoadAt) {
		return false
	}
	if l.Asleep && !w.Load.Asleep && w.Ref != 0 {
		// An engine that sleeps has let its cache go.
		f.hooks.Retired(w.Ref)
		f.hooks.Added(w.Worker)
		urgent = true
	}
	w.Load, w.LoadAt = l, at
	return f.learn(w, l.Facts) || urgent
}
