package route

import (
	"time"

	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/table"
)

// Sent is a prefix that the gateway itself has sent to a worker so lately that the table may not know
// of it.
type Sent struct {
	Ref uint16
	// Units is the end of the deepest checkpoint of the request that was sent there.
	Units uint32
	// Known is how much of it the table knows there: AddSent sets it.
	Known uint32
	// Ago is how long ago, Ready how long the worker takes yet to have computed it, 0 for no longer.
	Ago, Ready time.Duration
}

// AddSent makes what the gateway has sent lately part of the request's matches: the worker will have
// it when a request that is sent now has its turn, and what it has to compute before is in the
// gateway's books. Set Matches before.
func (r *Request) AddSent(sent []Sent) {
	r.Sent = sent
	known := len(r.Matches)
next:
	for i := range sent {
		s := &sent[i]
		s.Known = 0
		for k := range known {
			if m := &r.Matches[k]; m.Ref == s.Ref {
				s.Known, m.Units = m.Units, max(m.Units, s.Units)
				continue next
			}
		}
		r.Matches = append(r.Matches, table.Match{Ref: s.Ref, Units: s.Units})
	}
}

// Gets tells whether a worker has so many units of the prompt, or will by what was sent there (AddSent).
func (r *Request) Gets(ref uint16, units uint32) bool {
	for i := range r.Matches {
		if m := &r.Matches[i]; m.Ref == ref && m.Units >= units {
			return true
		}
	}
	return false
}

// siblingShare is how much of what a second of prefill costs others is charged where it copies a
// prefix that a worker is just computing. More will ask for the same at the same time, and nobody
// knows how many: at 1 all of them wait for one worker, at 0 whoever would wait for the prefix makes
// a copy. At a third a second costs 2 in a quiet pool: there a worker gets new siblings until they
// have the prefix's own time to compute among themselves, then another one begins. With 70 requests
// at each worker it costs 3.5. A hot prefix that has no homes yet, or never gets any as control is
// away, spreads the later the higher the price (docs/experiments.md).
const siblingShare = 1.0 / 3

// findPending sets pending.
func (c *chooser) findPending() {
	units := uint32(0)
	for i := range c.req.Sent {
		if s := &c.req.Sent[i]; s.Ready > 0 && c.at(s.Ref) >= 0 {
			units = max(units, s.Units)
		}
	}
	c.pending = min(int(units)*fingerprint.UnitTokens, c.req.PromptTokens)
}

// promised is what worker i is sure to have of its match. What is only on its way there it may have,
// or not yet, or at another rank.
func (c *chooser) promised(i int) int {
	held := c.d.seen[i].held
	for k := range c.req.Sent {
		if s := &c.req.Sent[k]; s.Ref == c.view.Workers[i].Ref && s.Units > s.Known {
			held = min(held, c.usable(i, s.Known))
		}
	}
	return held
}

// explainSent tells of each candidate what was sent there lately.
func (c *chooser) explainSent() {
	for i := range c.req.Sent {
		if at := c.at(c.req.Sent[i].Ref); at >= 0 {
			c.d.Candidates[at].SentAgo = max(c.req.Sent[i].Ago, 1)
		}
	}
}
