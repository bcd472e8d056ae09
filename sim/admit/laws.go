package admit

import (
	"fmt"
	"math"
	"time"

	"github.com/warmpath/warmpath/shared/quota"
)

// laws are what the controller could do. A nil law is the usual one.
var laws = []struct {
	name string
	law  func() quota.Law
}{
	{"usual", nil},
	{"AIMD at the objective", func() quota.Law { return &quota.AIMD{Guard: 1, Close: 0.7, Rise: 0.05} }},
	{"AIMD at 0.7 of it", func() quota.Law { return &quota.AIMD{Guard: 0.7, Close: 0.7, Rise: 0.02, Settle: 2} }},
	{"proportional", func() quota.Law { return &proportional{aim: 0.8, gain: 0.3} }},
	{"open", func() quota.Law { return fixed(1) }},
	{"closed", func() quota.Law { return fixed(0) }},
}

// fixed never moves: what no controller does, and the most that any can do.
type fixed float64

func (f fixed) Next(float64, *quota.Histogram, uint32) float64 { return float64(f) }

// proportional moves by the logarithm of the distance between the 99th percentile and its aim, a
// part of the objective.
type proportional struct {
	aim, gain float64

	window  quota.Histogram
	seconds int
}

func (p *proportional) Next(open float64, second *quota.Histogram, objectiveMillis uint32) float64 {
	p.window.Add(second, &quota.Histogram{})
	if p.seconds++; p.window.Count() < 100 && p.seconds < 5 {
		return open
	}
	if p99 := p.window.Quantile(0.99); p99 > 0 {
		open -= p.gain * math.Log(float64(p99)/(p.aim*float64(objectiveMillis)))
	} else {
		open += p.gain
	}
	p.window, p.seconds = quota.Histogram{}, 0
	return open
}

// slowFleet has workers of half the speed that the settings name, P1 asking for more than there is
// from 20 s on, and prompts of half the length, so that P0's objective can be kept.
func slowFleet(seed uint64, length time.Duration, p0 func(time.Duration) float64, law func() quota.Law) Config {
	flows := []Flow{
		{Tenant: "live", Class: 0, Rate: p0, Prompt: prompt / 2, Output: output, Spread: 0.5},
		{Tenant: "standard", Class: 1, Rate: from(20*seconds, 2*capacity*0.6), Prompt: prompt / 2, Output: output, Spread: 0.5},
	}
	c := base(seed, length, fmt.Sprintf(`{"pools": {"chat": {"tokens_per_second": %d}}}`, rate), flows...)
	c.Params.PrefillPerToken *= 2
	c.Law = law
	return c
}

// turns counts how often the controller changed its direction from a time on, a minute.
func (r *Result) turns(from time.Duration) float64 {
	n, direction, last := 0, 0, -1.0
	for i := range r.Samples {
		s := &r.Samples[i]
		if s.At < from {
			continue
		}
		now := direction
		if last >= 0 && s.Shares.Lend > last {
			now = 1
		} else if s.Shares.Lend < last {
			now = -1
		}
		if now != direction && direction != 0 {
			n++
		}
		direction, last = now, s.Shares.Lend
	}
	return float64(n) / (r.Config.Length - from).Minutes()
}

// compareLaws has each law keep P0's objective at several loads, up to one at which none can.
func compareLaws() Scenario {
	loads := []float64{0.1, 0.25, 0.35, 0.5}
	const begins, length = 60 * seconds, 240 * seconds
	name := func(law string, load float64) string { return fmt.Sprintf("%s, P0 at %.0f %%", law, 100*load) }
	return Scenario{
		Name: "laws", Alone: true,
		About: "laws of the controller, with workers of half the speed that the settings name: P0 at 10 to 50 % of what they should do, P1 asks for 60 %",
		Runs: func(seed uint64) []Named {
			var runs []Named
			for _, load := range loads {
				for _, l := range laws {
					runs = append(runs, Named{name(l.name, load), slowFleet(seed, length, steady(2*capacity*load), l.law)})
				}
			}
			return runs
		},
		Judge: func(r map[string]*Result) []Check {
			var checks []Check
			measured := Between(begins, length-5*seconds)
			for _, load := range loads {
				least := 0.0
				for i := range laws {
					l := &laws[len(laws)-1-i] // closed comes first
					x := r[name(l.name, load)]
					p99 := x.TTFT(0.99, x.Of(Class(0), measured))
					p := fmt.Sprintf("P0 at %2.0f %%: %s: ", 100*load, l.name)
					if l.name == "closed" {
						least = p99
					}
					if l.law == nil {
						checks = append(checks, atMost(p+"p99 TTFT, s, against the objective or what is possible", p99/max(2, least), 1.05),
							atMost(p+"changes of direction a minute", x.turns(begins), 3))
					} else {
						checks = append(checks, told(p+"changes of direction a minute", x.turns(begins)))
					}
					checks = append(checks, told(p+"p99 TTFT, s", p99),
						told(p+"later than the objective, share", x.later(2, x.Of(Class(0), measured))),
						told(p+"P1's throughput, share of what the workers do", x.classThroughput(1, begins, length-5*seconds)/(capacity*prompt/2)))
				}
			}
			return checks
		},
	}
}

// objective: P0's load goes up and down while P1 asks for all there is, and the workers are slower
// than anybody knows.
func objective() Scenario {
	const length, rises, falls = 300 * seconds, 100 * seconds, 200 * seconds
	return Scenario{
		Name: "objective", About: "prefill is half as fast as the settings say, P1 asks for more than there is, and P0's load goes from 10 to 25 % and back; the controller keeps P0's p99",
		Runs: func(seed uint64) []Named {
			p0 := between(rises, falls, 2*capacity*0.25, 2*capacity*0.1)
			return []Named{
				{"controller", slowFleet(seed, length, p0, nil)},
				{"open", slowFleet(seed, length, p0, laws[4].law)},
				{"closed", slowFleet(seed, length, p0, laws[5].law)},
			}
		},
		Judge: func(r map[string]*Result) []Check {
			on, open, closed := r["controller"], r["open"], r["closed"]
			found := Between(40*seconds, length-5*seconds)
			p1 := func(x *Result) float64 {
				return x.classThroughput(1, 40*seconds, length-5*seconds) / (capacity * prompt / 2)
			}
			least := 1.0
			for i := range on.Samples {
				least = min(least, on.Samples[i].Shares.Class[1])
			}
			return []Check{
				atMost("P0's p99 TTFT, s", on.TTFT(0.99, on.Of(Class(0), found)), 2),
				atMost("P0 later than its objective, share", on.later(2, on.Of(Class(0), found)), 0.01),
				atMost("changes of direction a minute", on.turns(40*seconds), 3),
				atLeast("P1's throughput against the fleet that only knows the floor", p1(on)/p1(closed), 1.1),
				atLeast("P1's least share, against its floor of 0.1", least, 0.1),
				told("left open: P0's p99 TTFT, s", open.TTFT(0.99, open.Of(Class(0), found))),
				told("left open: P0 later than its objective, share", open.later(2, open.Of(Class(0), found))),
				told("left open: P1's throughput against the controller's", p1(open)/p1(on)),
				told("closed: P0's p99 TTFT, s", closed.TTFT(0.99, closed.Of(Class(0), found))),
			}
		},
	}
}
