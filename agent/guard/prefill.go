package guard

import (
	"slices"
	"time"
)

const (
	// leastSample: over fewer tokens the time is mostly not spent on prompts.
	leastSample = 2048
	// leastPrefill may always be let in: a rate that was learned wrong corrects
	// itself by what it then shows.
	leastPrefill = 4096
	// coldPrefill may be let in while the rate isn't known, but will be, and
	// coldTime is how long that is believed to take.
	coldPrefill = 16384
	coldTime    = 3 * time.Second
	// rises, falls: how far one sample moves the rate.
	rises, falls = 0.5, 0.1
	// countFor is over how long the engine's counter makes a sample: it moves when a
	// prompt is done.
	countFor = time.Second
)

// prefill keeps the backlog of prompts at the engine to what it computes within
// ahead: what waits here can still be overtaken by a higher class, or sent
// elsewhere.
//
// A prompt leaves the backlog with the first piece of its answer, or, as a whole
// answer doesn't show when its prompt was computed, when the engine has nobody
// waiting any more.
//
// The rate is learned from streams (a first token comes when the backlog that its
// prompt joined is computed) and from the engine's counter of prompt tokens. An idle
// engine shows less than it can, so the rate falls by streams alone, and only while
// somebody waits for it. Tokens are estimates: cached ones count, and four bytes are
// one. An engine that caches well shows a higher rate.
type prefill struct {
	ahead   time.Duration
	pending int     // tokens of prompts let in and not computed
	rate    float64 // tokens/s; 0 not known
	prompts []prompt

	counts    bool // the engine has a counter: it was seen above 0
	uncounted bool // it has none, as far as is known
	counted   float64
	at        time.Time // when counted was read; zero when nothing was pending
}

// prompt is one of the backlog, which must be computed by due whatever the engine
// says.
type prompt struct {
	ticket *ticket
	number int // of the engine's tally
	due    time.Time
}

// takes is how long so many tokens take, 0 while nobody knows.
func (p *prefill) takes(tokens int) time.Duration {
	if p.rate == 0 {
		return 0
	}
	return time.Duration(float64(tokens) / p.rate * float64(time.Second))
}

// room tells whether a prompt may join the backlog. Who may use a part of it only
// gives share > 1.
func (p *prefill) room(tokens, share int) bool {
	most := max(int(p.rate*p.ahead.Seconds()), leastPrefill)
	switch {
	case p.pending == 0:
		return true
	case p.rate > 0:
	case p.uncounted:
		return true
	default:
		most = coldPrefill
	}
	return p.pending+tokens <= most/share
}

// begin adds t, who is number in the order of those let in.
func (p *prefill) begin(t *ticket, number int, now time.Time) {
	p.pending += t.tokens
	t.pends, t.backlog, t.begun = true, p.pending, now
	due := now.Add(coldTime)
	if p.rate > 0 {
		due = now.Add(time.Second + 2*p.takes(p.pending))
	}
	p.prompts = append(p.prompts, prompt{t, number, due})
}

// end takes a prompt out of the backlog.
func (p *prefill) end(t *ticket) {
	if t.pends {
		t.pends = false
		p.pending -= t.tokens
	}
}

// answered takes in that t's first token came now; held, that somebody waits for
// prompts to be computed.
func (p *prefill) answered(t *ticket, held bool, now time.Time) {
	// Requests that are let in together reach the engine in any order, so prompts
	// before it may still stand; but a whole answer doesn't tell when its prompt was
	// computed. The rate rises by what is proven, and falls by what is not enough even
	// so.
	proven := t.backlog
	for _, before := range p.prompts {
		if before.ticket == t || !t.pends { // then all of them came later
			break
		}
		if before.ticket.pends {
			proven -= before.ticket.tokens
		}
	}
	in := now.Sub(t.begun)
	p.learn(float64(proven), in, false)
	if held && float64(t.backlog) < p.rate*in.Seconds() {
		p.learn(float64(t.backlog), in, true)
	}
}

// count takes in the engine's counter, 0 for none or for nothing yet: whether an
// engine has one shows when it has served, that is, must have counted a prompt.
func (p *prefill) count(total float64, served bool, now time.Time) {
	p.counts = p.counts || total > 0
	p.uncounted = served && !p.counts
	switch {
	case total == 0 || p.pending == 0:
		p.at = time.Time{}
		return
	case p.at.IsZero() || total < p.counted: // another process
	case now.Sub(p.at) < countFor:
		return
	default:
		p.learn(total-p.counted, now.Sub(p.at), false)
	}
	p.counted, p.at = total, now
}

func (p *prefill) learn(tokens float64, in time.Duration, held bool) {
	if tokens < leastSample || in <= 0 {
		return
	}
	switch sample := tokens / in.Seconds(); {
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
	p.drop(func(first prompt) bool { return !first.ticket.pends || !now.Before(first.due) })
}

// begunUntil takes out those let in up to a number.
func (p *prefill) begunUntil(number int) {
	p.drop(func(first prompt) bool { return first.number <= number })
}

// drop takes out prompts, in the order of their coming, for as long as over says so.
func (p *prefill) drop(over func(first prompt) bool) {
	n := 0
	for n < len(p.prompts) && over(p.prompts[n]) {
		p.end(p.prompts[n].ticket)
		n++
	}
	p.prompts = slices.Delete(p.prompts, 0, n)
}
