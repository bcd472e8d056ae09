package admit

import (
	"fmt"
	"math"
	"time"

	"github.com/warmpath/warmpath/sim/engine"
)

// Scenario is a story with figures to hold.
type Scenario struct {
	Name, About string
	// Alone: it is long, and played only when it is named.
	Alone bool
	// Runs are played one after the other; Judge gets their results by name.
	Runs  func(seed uint64) []Named
	Judge func(r map[string]*Result) []Check
}

// Named is a run of a scenario.
type Named struct {
	Name   string
	Config Config
}

// Check is one figure and what it has to be.
type Check struct {
	Name string `json:"name"`
	// Value is the median where several seeds were played.
	Value float64 `json:"value"`
	// Seeds are the values of each of several seeds, in their order.
	Seeds []float64 `json:"seeds,omitempty"`
	// Target is the least value if AtLeast, else the greatest. A check without is only told.
	Target  float64 `json:"target"`
	AtLeast bool    `json:"at_least"`
	Told    bool    `json:"told,omitempty"`
	Holds   bool    `json:"holds"`
}

func atMost(name string, value, target float64) Check {
	return Check{Name: name, Value: value, Target: target, Holds: value <= target}
}

func atLeast(name string, value, target float64) Check {
	return Check{Name: name, Value: value, Target: target, AtLeast: true, Holds: value >= target}
}

func told(name string, value float64) Check {
	return Check{Name: name, Value: value, Told: true, Holds: true}
}

const (
	workers  = 20
	gateways = 8
	slots    = 32
	prompt   = 4000
	output   = 64
	rate     = 10_000 // tokens/s of prefill of one worker
)

// params are the engines of the scenarios: 10,000 tokens/s of prefill in chunks of 512, 32
// requests at once, and nothing cached.
func params() engine.Params {
	return engine.Params{
		CapacityBlocks: 1 << 14, MaxRunning: slots, MaxQueued: -1, StepTokens: 512,
		StepBase: time.Millisecond, PrefillPerToken: time.Second / rate,
	}
}

// capacity is what the fleet prefills, in requests/s: chunks also carry the tokens of those that
// decode, and each step costs its base.
const capacity = workers * rate / prompt * 0.95

func base(seed uint64, length time.Duration, settings string, flows ...Flow) Config {
	return Config{
		Seed: seed, Workers: workers, Gateways: gateways, Params: params(), Admission: settings, Flows: flows, Length: length,
	}
}

func steady(rate float64) func(time.Duration) float64 {
	return func(time.Duration) float64 { return rate }
}

// between is a rate in a time, and another one outside.
func between(from, to time.Duration, inside, outside float64) func(time.Duration) float64 {
	return func(at time.Duration) float64 {
		if at >= from && at < to {
			return inside
		}
		return outside
	}
}

func from(at time.Duration, rate float64) func(time.Duration) float64 {
	return between(at, math.MaxInt64, rate, 0)
}

const seconds = time.Second

// Scenarios are all of them.
func Scenarios() []Scenario {
	return []Scenario{stampede(), idle(), equal(), flood(), quotaFull(), double(), nodes(), objective(), compareLaws()}
}

// Find returns a scenario by name.
func Find(name string) (Scenario, error) {
	names := ""
	for _, s := range Scenarios() {
		if s.Name == name {
			return s, nil
		}
		names += " " + s.Name
	}
	return Scenario{}, fmt.Errorf("no scenario %q (there are%s)", name, names)
}

// stampede: a cache expires, a job starts, a page is shown on television.
func stampede() Scenario {
	flows := []Flow{
		{Tenant: "base", Class: 0, Rate: steady(capacity * 0.3), Prompt: prompt, Output: output},
		{Tenant: "crowd", Class: 0, Burst: 500, BurstAt: 10 * seconds, Prompt: prompt, Output: output},
		{Tenant: "crowd", Class: 0, Burst: 500, BurstAt: 40 * seconds, Prompt: prompt, Output: output},
		{Tenant: "crowd", Class: 0, Burst: 500, BurstAt: 70 * seconds, Prompt: prompt, Output: output},
	}
	// The second after each stampede, and the time in which the queues of before would be felt.
	at := func(r *Record) bool { return r.Arrived >= 10*seconds && (r.Arrived-10*seconds)%(30*seconds) < seconds }
	after := func(r *Record) bool {
		since := (r.Arrived - 10*seconds) % (30 * seconds)
		return r.Arrived >= 10*seconds && since >= 2*seconds && since < 10*seconds
	}
	return Scenario{
		Name: "stampede", About: "three times 500 requests at once to 20 workers that take 32 each, over a third of load",
		Runs: func(seed uint64) []Named {
			return []Named{
				{"admission", base(seed, 100*seconds, `{"pools": {"chat": {"prefill_ms": 500}}}`, flows...)},
				{"off", base(seed, 100*seconds, "", flows...)},
			}
		},
		Judge: func(r map[string]*Result) []Check {
			on, off := r["admission"], r["off"]
			c := Count(on.Of(at))
			return []Check{
				atMost("p99 TTFT of the admitted, s", on.TTFT(0.99, on.Of(at)), 2),
				atLeast("refused that were told at once, share", float64(c.RefusedAtOnce)/float64(c.Refused), 0.95),
				atLeast("admitted, share of what packed workers prefill within the objective", float64(c.Admitted)/(3*2*workers*rate/prompt), 0.25),
				told("refused", float64(c.Refused)),
				atMost("p99 TTFT of those that come 2 to 10 s later, s", on.TTFT(0.99, on.Of(after)), 2),
				told("off: p99 TTFT, s", off.TTFT(0.99, off.Of(at))),
				told("off: p99 TTFT of those that come 2 to 10 s later, s", off.TTFT(0.99, off.Of(after))),
			}
		},
	}
}

// idle: P2 has what nobody else wants, and only that.
func idle() Scenario {
	const comes = 40 * seconds
	return Scenario{
		Name: "idle", About: "P2 asks for more than there is; 100 of P0 come after 40 s, and from then on more than there is",
		Runs: func(seed uint64) []Named {
			batch := Flow{Tenant: "batch", Class: 2, Rate: steady(capacity * 1.5), Prompt: prompt, Output: output}
			return []Named{
				{"with P0", base(seed, 80*seconds, `{}`, batch, Flow{Tenant: "live", Class: 0, Burst: 100, BurstAt: comes, Rate: from(comes, capacity*1.5), Prompt: prompt, Output: output})},
				{"with P0 where slots are short", base(seed, 80*seconds, `{"pools": {"chat": {"slots": 60, "prefill_ms": 0}}}`, batch, Flow{Tenant: "live", Class: 0, Burst: 100, BurstAt: comes, Rate: from(comes, capacity*1.5), Prompt: prompt, Output: output})},
				{"half P0", base(seed, 80*seconds, `{}`, batch, Flow{Tenant: "live", Class: 0, Rate: steady(capacity * 0.5), Prompt: prompt, Output: output})},
				{"P2 without admission", base(seed, 80*seconds, "", batch)},
			}
		},
		Judge: func(r map[string]*Result) []Check {
			on, half, off := r["with P0"], r["half P0"], r["P2 without admission"]
			most := off.Throughput(20*seconds, 40*seconds) // what the engines can
			batch := func(r *Result) float64 {
				admitted, batch := 0, 0
				for _, rec := range r.Records {
					if rec.Admitted >= comes+200*time.Millisecond {
						admitted++
						batch += rec.Class / 2
					}
				}
				return float64(batch) / float64(admitted)
			}
			served := half.Served(20*seconds, 80*seconds)
			spare := most*60 - float64(served["live"])
			return []Check{
				atLeast("P2 alone: throughput against saturated engines", on.Throughput(20*seconds, 40*seconds)/most, 0.95),
				atLeast("beside P0 at half load: P2's part of the idle capacity", float64(served["batch"])/spare, 0.95),
				atLeast("beside P0 at half load: utilisation", half.Throughput(20*seconds, 80*seconds)/most, 0.95),
				atMost("P2's part of what is admitted from 0.2 s after P0 comes", batch(on), 0),
				atMost("the same where slots are short and not prefill", batch(r["with P0 where slots are short"]), 0),
				atLeast("with P0: utilisation", on.Throughput(45*seconds, 80*seconds)/most, 0.95),
				atMost("P0's p99 TTFT, s", on.TTFT(0.99, on.Of(Class(0))), 2),
				told("P0's p99 TTFT beside P2 at half load, s", half.TTFT(0.99, half.Of(Class(0), Between(20*seconds, 80*seconds)))),
			}
		},
	}
}

// equal: tenants of one weight get the same, whatever each asks for.
func equal() Scenario {
	return Scenario{
		Name: "equal", About: "ten tenants of equal weight ask for one and a half to six times their parts; in a second run one of them comes by one gateway only",
		Runs: func(seed uint64) []Named {
			var flows, unequal []Flow
			for i := range 10 {
				f := Flow{
					Tenant: fmt.Sprintf("t%d", i), Class: 1, Rate: steady(capacity / 10 * (1.5 + float64(i)/2)),
					Prompt: 1000 + 600*i, Output: output, Spread: 0.5,
				}
				f.Rate = steady(capacity / 10 * (1.5 + float64(i)/2) * prompt / float64(f.Prompt))
				flows = append(flows, f)
				f.Only = i == 9
				unequal = append(unequal, f)
			}
			settings := `{"tenants": {` + nine + `, "t9": {}}}`
			return []Named{
				{"equal", base(seed, 90*seconds, settings, flows...)},
				{"one by one gateway", base(seed, 90*seconds, settings, unequal...)},
				{"off", base(seed, 90*seconds, "", flows...)},
			}
		},
		Judge: func(r map[string]*Result) []Check {
			on, one, off := r["equal"], r["one by one gateway"], r["off"]
			return []Check{
				atLeast("fairness of what the tenants got", Jain(on.Served(20*seconds, 90*seconds)), 0.98),
				atLeast("utilisation", on.Throughput(20*seconds, 90*seconds)/off.Throughput(20*seconds, 90*seconds), 0.95),
				told("fairness where one comes by one gateway only", Jain(one.Served(20*seconds, 90*seconds))),
				told("off: fairness", Jain(off.Served(20*seconds, 90*seconds))),
			}
		},
	}
}

// nine tenants of equal weight.
const nine = `"t0": {}, "t1": {}, "t2": {}, "t3": {}, "t4": {}, "t5": {}, "t6": {}, "t7": {}, "t8": {}`

// flood: one tenant sends ten times what it did.
func flood() Scenario {
	const begins, ends = 30 * seconds, 300 * seconds
	return Scenario{
		Name: "flood", About: "ten tenants at 60 % of capacity, with limits of one and a half times their load; one sends ten times its load",
		Runs: func(seed uint64) []Named {
			each := capacity * 0.06
			flows := func(factor float64) []Flow {
				var flows []Flow
				for i := range 9 {
					flows = append(flows, Flow{Tenant: fmt.Sprintf("t%d", i), Class: 1, Rate: steady(each), Prompt: prompt, Output: output, Spread: 0.3})
				}
				return append(flows, Flow{Tenant: "flood", Class: 1, Rate: between(begins, ends, each*factor, each), Prompt: prompt, Output: output, Spread: 0.3})
			}
			limits := fmt.Sprintf(`{"tenant_defaults": {"uncached_tokens_per_minute": %d, "burst_s": 4}, "tenants": {%s, "flood": {}}}`, int(each*1.5*60*prompt), nine)
			return []Named{
				{"calm", base(seed, ends, limits, flows(1)...)},
				{"flood", base(seed, ends, limits, flows(10)...)},
				{"flood without limits", base(seed, ends, `{"tenants": {`+nine+`, "flood": {}}}`, flows(10)...)},
				{"off", base(seed, ends, "", flows(10)...)},
			}
		},
		Judge: func(r map[string]*Result) []Check {
			others := func(run string) float64 {
				x := r[run]
				return x.TTFT(0.99, x.Of(NotTenant("flood"), Between(begins, ends-5*seconds)))
			}
			refused := func(run string) float64 {
				c := Count(r[run].Of(NotTenant("flood")))
				return float64(c.Refused) / float64(c.Arrived)
			}
			return []Check{
				atMost("others' p99 TTFT against the calm run", others("flood")/others("calm"), 1.1),
				atMost("others refused, share: chance takes some to their own limits", refused("flood"), 0.001),
				told("others refused in the calm run, share", refused("calm")),
				told("without limits: others refused, share", refused("flood without limits")),
				told("others' p99 TTFT in the calm run, s", others("calm")),
				told("without limits: others' p99 TTFT, s", others("flood without limits")),
				told("off: others' p99 TTFT, s", others("off")),
			}
		},
	}
}

// quotaFull: a tenant's quota is used up in the middle of its work.
func quotaFull() Scenario {
	const perMinute = 600
	return Scenario{
		Name: "quota", About: "a tenant of 600 requests a minute sends 20 a second; its quota is full after a minute and a half",
		Runs: func(seed uint64) []Named {
			return []Named{{"quota", base(seed, 150*seconds, fmt.Sprintf(`{"tenants": {"busy": {"requests_per_minute": %d}, "small": {"concurrency": 3}}}`, perMinute),
				Flow{Tenant: "busy", Class: 1, Rate: steady(20), Prompt: prompt, Output: output},
				Flow{Tenant: "small", Class: 1, Rate: steady(20), Prompt: 1000, Output: output},
				Flow{Tenant: "other", Class: 1, Rate: steady(10), Prompt: prompt, Output: output})}}
		},
		Judge: func(r map[string]*Result) []Check {
			x := r["quota"]
			busy := Count(x.Of(Tenant("busy")))
			allowed := perMinute + perMinute*150.0/60
			late := Count(x.Of(Tenant("busy"), Between(100*seconds, 150*seconds)))
			small := x.Of(Tenant("small"))
			return []Check{
				atMost("admitted of what a minute's burst and the rate allow", float64(busy.Admitted)/allowed, 1),
				atLeast("admitted of it, at least", float64(busy.Admitted)/allowed, 0.97),
				atLeast("refused with the tenant's own limit, of all of its refused", float64(late.ByReason["tenant_requests"])/float64(late.Refused), 0.95),
				atMost("others refused", float64(Count(x.Of(Tenant("other"))).Refused), 0),
				atMost("the tenant of 3 at once: most at once", float64(atOnce(small)), 3),
				told("the tenant of 3 at once: time in which it had 3, share", fullShare(small, 3, 150*seconds)),
			}
		},
	}
}

// double: one class doubles.
func double() Scenario {
	return Scenario{
		Name: "double", About: "P0 and P1 at 40 % each; P1 doubles after 30 s, and ten times that after 60 s",
		Runs: func(seed uint64) []Named {
			flows := []Flow{
				{Tenant: "live", Class: 0, Rate: steady(capacity * 0.4), Prompt: prompt, Output: output},
				{Tenant: "standard", Class: 1, Rate: func(at time.Duration) float64 {
					switch {
					case at < 30*seconds:
						return capacity * 0.4
					case at < 60*seconds:
						return capacity * 0.8
					}
					return capacity * 8
				}, Prompt: prompt, Output: output},
			}
			return []Named{{"admission", base(seed, 90*seconds, `{}`, flows...)}, {"off", base(seed, 90*seconds, "", flows...)}}
		},
		Judge: func(r map[string]*Result) []Check {
			on, off := r["admission"], r["off"]
			live := Count(on.Of(Class(0)))
			return []Check{
				atMost("P0's p99 TTFT, s", on.TTFT(0.99, on.Of(Class(0))), 2),
				atMost("P0 refused, share", float64(live.Refused)/float64(live.Arrived), 0.02),
				atLeast("P1's throughput while it asks for too much, share of capacity", on.classThroughput(1, 65*seconds, 90*seconds)/(capacity*prompt), 0.5),
				told("off: P0's p99 TTFT after P1 has doubled, s", off.TTFT(0.99, off.Of(Class(0), Between(30*seconds, 60*seconds)))),
				told("off: P0's p99 TTFT at ten times, s", off.TTFT(0.99, off.Of(Class(0), Between(60*seconds, 85*seconds)))),
			}
		},
	}
}

// nodes: three workers of twenty fail together.
func nodes() Scenario {
	return Scenario{
		Name: "nodes", About: "P0 at 50 %, P1 at 60 %; 3 of 20 workers fail together after 30 s",
		Runs: func(seed uint64) []Named {
			flows := []Flow{
				{Tenant: "live", Class: 0, Rate: steady(capacity * 0.5), Prompt: prompt, Output: output},
				{Tenant: "standard", Class: 1, Rate: steady(capacity * 0.6), Prompt: prompt, Output: output},
			}
			with := func(settings string) Config {
				c := base(seed, 90*seconds, settings, flows...)
				c.Fail, c.FailAt = 3, 30*seconds
				return c
			}
			return []Named{{"admission", with(`{}`)}, {"off", with("")}}
		},
		Judge: func(r map[string]*Result) []Check {
			on, off := r["admission"], r["off"]
			after := Between(30*seconds, 85*seconds)
			live := Count(on.Of(Class(0), after))
			return []Check{
				atMost("P0's p99 TTFT after it, s", on.TTFT(0.99, on.Of(Class(0), after)), 2),
				told("P0 refused after it, share", float64(live.Refused)/float64(live.Arrived)),
				told("P1's p99 TTFT after it, s", on.TTFT(0.99, on.Of(Class(1), after))),
				told("off: P0's p99 TTFT after it, s", off.TTFT(0.99, off.Of(Class(0), after))),
			}
		},
	}
}
