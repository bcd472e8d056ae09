package guard

import "time"

const (
	// leastSample: the time to the first token of a shorter backlog is mostly not
	// spent on prompts.
	leastSample = 2048
	// leastPrefill may always be let in: a rate that was learned wrong corrects
	// itself by what it then shows.
	leastPrefill = 4096
	// rises, falls: how far one sample moves the rate.
	rises, falls = 0.5, 0.1
)

// prefill keeps the backlog of prompts at the engine to what it computes within
// ahead: what waits here can still be overtaken by a higher class, or sent
// elsewhere.
//
// The rate is learned from streams: a first token comes when the backlog that its
// prompt joined is computed. Tokens are estimates, cached ones among them, on both
// sides of the division. It falls only while somebody waits for it, as an idle
// engine shows less than it can.
type prefill struct {
	ahead   time.Duration
	pending int     // tokens of prompts let in and not computed
	rate    float64 // tokens/s; 0 not known: no bound
	prompts []prompt
}

// prompt is one that must be computed by due. Whole answers don't show when that
// was.
type prompt struct {
	ticket *ticket
	due    time.Time
}

// takes is how long so many tokens take, 0 while nobody knows.
func (p *prefill) takes(tokens int) time.Duration {
	if p.rate == 0 {
		return 0
	}
	return time.Duration(float64(tokens) / p.rate * float64(time.Second))
}

// room tells whether a prompt may join the backlog.
func (p *prefill) room(tokens, share int) bool {
	if p.rate == 0 || p.pending == 0 {
		return true
	}
	return p.pending+tokens <= max(int(p.rate*p.ahead.Seconds()), leastPrefill)/share
}

func (p *prefill) begin(t *ticket, now time.Time) {
	p.pending += t.tokens
	t.pends, t.backlog, t.begun = true, p.pending, now
	if p.rate > 0 {
		p.prompts = append(p.prompts, prompt{t, now.Add(time.Second + 2*p.takes(p.pending))})
	}
}

// end takes a prompt out of the backlog.
func (p *prefill) end(t *ticket) {
	if t.pends {
		t.pends = false
		p.pending -= t.tokens
	}
}

// learn takes in that t's first token came now; held, that somebody waits for
// prompts to be computed.
func (p *prefill) learn(t *ticket, held bool, now time.Time) {
	took := now.Sub(t.begun).Seconds()
	if t.backlog < leastSample || took <= 0 {
		return
	}
	sample := float64(t.backlog) / took
	switch {
	case p.rate == 0:
		p.rate = sample
	case sample > p.rate:
		p.rate += rises * (sample - p.rate)
	case held:
		p.rate += falls * (sample - p.rate)
	}
}

// overdue takes out the prompts that must have been computed long ago.
func (p *prefill) overdue(now time.Time) {
	n := 0
	for ; n < len(p.prompts); n++ {
		if first := &p.prompts[n]; first.ticket.pends && now.Before(first.due) {
			break
		}
		p.end(p.prompts[n].ticket)
	}
	p.prompts = append(p.prompts[:0], p.prompts[n:]...)
}
