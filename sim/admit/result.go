package admit

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/warmpath/warmpath/shared/quota"
)

// Result is a run.
type Result struct {
	Config  Config
	Records []*Record
	Samples []Sample
	// MostInUse is the most requests that were at the workers at once.
	MostInUse int
}

// Pick chooses records.
type Pick func(r *Record) bool

// Between picks what arrived in a time.
func Between(from, to time.Duration) Pick {
	return func(r *Record) bool { return r.Arrived >= from && r.Arrived < to }
}

// Class picks a class.
func Class(c int) Pick { return func(r *Record) bool { return r.Class == c } }

// Tenant picks a tenant.
func Tenant(name string) Pick { return func(r *Record) bool { return r.Tenant == name } }

// NotTenant picks all others.
func NotTenant(name string) Pick { return func(r *Record) bool { return r.Tenant != name } }

// Of returns the records that all picks choose.
func (r *Result) Of(picks ...Pick) []*Record {
	var out []*Record
	for _, rec := range r.Records {
		if !slices.ContainsFunc(picks, func(p Pick) bool { return !p(rec) }) {
			out = append(out, rec)
		}
	}
	return out
}

// TTFT is a quantile of the times to first token, in seconds. A request that was admitted and
// has no first token at the end counts with the time until then.
func (r *Result) TTFT(q float64, records []*Record) float64 {
	var times []float64
	for _, rec := range records {
		switch ttft, ok := rec.TTFT(); {
		case ok:
			times = append(times, ttft.Seconds())
		case rec.Admitted >= 0 && !rec.Failed:
			times = append(times, (r.Config.Length - rec.Arrived).Seconds())
		}
	}
	return quantile(q, times)
}

// quantile sorts; it is 0 of none.
func quantile(q float64, values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[min(int(q*float64(len(values))), len(values)-1)]
}

// later is the share of the answered whose first token took longer.
func (r *Result) later(seconds float64, records []*Record) float64 {
	answered, late := 0, 0
	for _, rec := range records {
		if ttft, ok := rec.TTFT(); ok {
			answered++
			if ttft.Seconds() > seconds {
				late++
			}
		}
	}
	return float64(late) / float64(max(answered, 1))
}

// Counts are what became of requests.
type Counts struct {
	Arrived, Admitted, Refused, Failed int
	// RefusedAtOnce were told in the moment in which they came.
	RefusedAtOnce int
	ByReason      map[string]int
}

// Count counts.
func Count(records []*Record) Counts {
	c := Counts{Arrived: len(records), ByReason: map[string]int{}}
	for _, r := range records {
		switch {
		case r.Refused != quota.None:
			c.Refused++
			c.ByReason[r.Refused.String()]++
			if r.Ended == r.Arrived {
				c.RefusedAtOnce++
			}
		case r.Failed:
			c.Failed++
		case r.Admitted >= 0:
			c.Admitted++
		}
	}
	return c
}

// Served is the prompt tokens that were answered in a time, by tenant.
func (r *Result) Served(from, to time.Duration) map[string]int {
	out := map[string]int{}
	for _, rec := range r.Records {
		if rec.FirstToken >= from && rec.FirstToken < to {
			out[rec.Tenant] += rec.Tokens
		}
	}
	return out
}

// Throughput is prompt tokens prefilled a second.
func (r *Result) Throughput(from, to time.Duration) float64 {
	n := 0
	for _, tokens := range r.Served(from, to) {
		n += tokens
	}
	return float64(n) / (to - from).Seconds()
}

// Jain is the fairness index of what the tenants got: 1 when all have the same, 1/n when one has
// all. Source: R. Jain, D. Chiu, W. Hawe, DEC TR-301, 1984.
func Jain(served map[string]int) float64 {
	sum, squares := 0.0, 0.0
	for _, n := range served {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	if squares == 0 {
		return math.NaN()
	}
	return sum * sum / (float64(len(served)) * squares)
}

// classThroughput is a class's prompt tokens prefilled a second.
func (r *Result) classThroughput(class int, from, to time.Duration) float64 {
	n := 0
	for _, rec := range r.Records {
		if rec.Class == class && rec.FirstToken >= from && rec.FirstToken < to {
			n += rec.Tokens
		}
	}
	return float64(n) / (to - from).Seconds()
}

// edges are the times at which requests were admitted (+1) and ended (-1).
func edges(records []*Record) []edge {
	var out []edge
	for _, r := range records {
		if r.Admitted < 0 {
			continue
		}
		out = append(out, edge{r.Admitted, 1})
		if r.Ended >= 0 {
			out = append(out, edge{r.Ended, -1})
		}
	}
	// An end and an admission at the same moment are the hand-over of a slot.
	slices.SortFunc(out, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	return out
}

type edge struct {
	at time.Duration
	by int
}

// atOnce is the most of the requests that were admitted at once.
func atOnce(records []*Record) int {
	n, most := 0, 0
	for _, e := range edges(records) {
		n += e.by
		most = max(most, n)
	}
	return most
}

// fullShare is the share of the time in which at least so many were.
func fullShare(records []*Record, many int, length time.Duration) float64 {
	n := 0
	var since, full time.Duration
	for _, e := range edges(records) {
		if n >= many {
			full += e.at - since
		}
		n, since = n+e.by, e.at
	}
	if n >= many {
		full += length - since
	}
	return full.Seconds() / length.Seconds()
}
