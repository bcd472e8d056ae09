package guard

// Load is what the engine's metrics page said.
type Load struct {
	Running, Waiting int
	KVShare          float64 // of the cache, held by running requests, 0..1
	CapacityTokens   int     // of the cache; 0 not known
	// PromptTokens counts those that were computed or found in the cache since the
	// engine's start; 0 none yet, or not known.
	PromptTokens float64
}

// engine is the engine as it was read last, and what was let in and ended since.
type engine struct {
	load    Load
	known   bool
	pressed bool // memory, until KVShare is below the lower mark again
	// proved is how many the engine was seen to run at once: without a limit that
	// was told, so many may go there at once again.
	proved int

	now, read tally // read: when the page was asked for
}

// tally counts what this guard did.
type tally struct {
	sent, ended int
	served      int // of those that ended, with a whole answer
	answered    int // of those sent, whose answer began
	// grown is the tokens of their prompts, less those of requests that ended before
	// the page was read that shows them.
	grown int
}

// observe takes a page in that was asked for when the tally was asked.
func (e *engine) observe(l Load, asked tally, limits Limits) {
	e.load, e.known, e.read = l, true, asked
	e.proved = max(e.proved, l.Running)
	switch {
	case l.KVShare >= limits.MemoryHigh:
		e.pressed = true
	case l.KVShare < limits.MemoryLow:
		e.pressed = false
	}
}

// forget is called when the page can't be read any more: what it said is no more
// true, and unknown is not full.
func (e *engine) forget() { e.known, e.pressed, e.proved = false, false, 0 }

// room tells whether the engine's own queue is short enough for one more, when
// this guard has own requests there. Who may use a part of the queue only gives
// share > 1.
func (e *engine) room(own int, limits Limits, share int) bool {
	limit, queued, there := limits.MaxRunning, 0, own
	if e.known {
		ended := e.now.ended - e.read.ended
		queued = e.load.Waiting - ended
		// Others may send there too.
		there = max(own, e.load.Running+e.load.Waiting+e.now.sent-e.read.sent-ended)
		if limit == 0 {
			limit = e.proved
		}
	} else if limit == 0 {
		return true
	}
	return max(queued, there-limit) < max(1, limits.EngineQueue/share)
}

// memoryFor tells whether a long prompt of so many tokens leaves the running ones
// room to grow, beside pending tokens of prompts that aren't computed and those that
// were since the page was read. Cached ones among them and what is computed of them
// counts twice: better too much.
func (e *engine) memoryFor(tokens, pending int, limits Limits) bool {
	switch {
	case !e.known:
		return true
	case e.pressed:
		return false
	case e.load.CapacityTokens == 0:
		return true
	}
	growth := pending + e.now.grown - e.read.grown + tokens
	return e.load.KVShare+float64(growth)/float64(e.load.CapacityTokens) <= limits.MemoryHigh
}
