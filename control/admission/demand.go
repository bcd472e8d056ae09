package admission

import (
	"math"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/quota"
)

const (
	// Of each tenant with limits the last ten minutes are kept, in slots of five seconds.
	slotSeconds = 5
	slotCount   = historyLength / slotSeconds
)

// demand is what tenants with limits asked for of late, by their numbers.
type demand struct {
	tenants map[uint16]*asked
	seconds int64 // so many were taken in
}

// asked is what one tenant asked for.
type asked struct {
	slots [slotCount]slot // a ring: second n is in n / slotSeconds % slotCount
	last  int64           // the last second in which it had anything
	// As last reported.
	requests, tokens int64
	refused          uint64
}

// slot is five seconds of a tenant: requests under way or waiting for its own limits, at most and as
// the sum of the seconds, and what it sent.
type slot struct {
	peak, sum         float32
	requests, refused float32
	tokens            float32
}

// take takes in a second.
func (d *demand) take(tenants []quota.TenantStatus) {
	d.seconds++
	at := int(d.seconds / slotSeconds % slotCount)
	if d.seconds%slotSeconds == 0 {
		for index, a := range d.tenants {
			a.slots[at] = slot{}
			if d.seconds-a.last > historyLength {
				delete(d.tenants, index)
			}
		}
	}
	for i := range tenants {
		t := &tenants[i]
		a := d.tenants[t.Index]
		if a == nil {
			a = &asked{last: d.seconds, requests: t.RequestsUsed, tokens: t.TokensUsed, refused: t.Refused}
			d.tenants[t.Index] = a
		}
		s := &a.slots[at]
		now := float32(t.InUse + t.Waiting)
		s.peak, s.sum = max(s.peak, now), s.sum+now
		s.requests += float32(t.RequestsUsed - a.requests)
		s.tokens += float32(t.TokensUsed - a.tokens)
		s.refused += float32(t.Refused - min(a.refused, t.Refused))
		if now > 0 || t.RequestsUsed != a.requests || t.Refused != a.refused {
			a.last = d.seconds
		}
		a.requests, a.tokens, a.refused = t.RequestsUsed, t.TokensUsed, t.Refused
	}
}

// seen is how many of the last seconds were taken in.
func (d *demand) seen() int { return int(min(d.seconds, historyLength)) }

// each calls f with the slots of a tenant, oldest first. What was booked ahead and came back is not
// asked for.
func (d *demand) each(a *asked, f func(s *slot)) {
	now := d.seconds / slotSeconds
	for n := max(now-slotCount+1, 0); n <= now; n++ {
		s := a.slots[n%slotCount]
		s.requests, s.tokens = max(s.requests, 0), max(s.tokens, 0)
		f(&s)
	}
}

// add adds another tenant's demand: peaks that may not have come together, too.
func (a *asked) add(b *asked) {
	for i := range a.slots {
		x, y := &a.slots[i], &b.slots[i]
		x.peak += y.peak
		x.sum += y.sum
		x.requests += y.requests
		x.refused += y.refused
		x.tokens += y.tokens
	}
}

// Effect is what settings would have done to what was asked for in the last minutes.
type Effect struct {
	// Seconds are those that are known, ten minutes at most.
	Seconds int
	Tenants []TenantEffect
	Classes []ClassEffect
	// Unknown are tenants with limits of which nobody knows what they ask for: gateways report tenants
	// with limits alone.
	Unknown []string
}

// TenantEffect is one limit of a tenant.
type TenantEffect struct {
	Tenant, Limit string
	Value         int
	// Asked is the most that was asked for: at once, or in a minute.
	Asked float64
	// Over is the seconds in which more than the limit was asked for.
	Over int
	// Requests were sent, of which Refused would have been refused, about; WereRefused were, by the
	// limits in force.
	Requests, Refused, WereRefused float64
}

// ClassEffect is one class of a pool.
type ClassEffect struct {
	Pool     string
	Class    int
	Enforced bool
	// Limit is slots or prefill_tokens, Value how much the whole pool has of it.
	Limit string
	Value float64
	// Asked is the most that the class asked for.
	Asked float64
	// Short is the seconds in which it would have had to wait or be refused, and WasShort those with
	// the settings in force; Missing is the share of all that was asked for that there was no room for.
	Short, WasShort int
	Missing         float64
}

// Foresee says what settings would have done to what was asked for of late; ok is false where
// there is no ledger, or it has no settings yet: nothing is known then.
func (a *Admission) Foresee(next *policy.Admission) (e Effect, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.enabled() || next == nil {
		return Effect{}, false
	}
	e.Seconds = a.demand.seen()
	e.tenants(&a.demand, a.settings, next)
	for _, index := range sortedKeys(a.pools) {
		e.pool(a.pools[index], a.settings, next)
	}
	return e, true
}

// tenants replays what tenants sent.
func (e *Effect) tenants(d *demand, now, next *policy.Admission) {
	sums, unknown := map[uint16]*asked{}, map[uint16]bool{}
	for n := range now.Tenants {
		t := &now.Tenants[n]
		if t.Name == "" {
			continue
		}
		to, _ := next.TenantIndex([]byte(t.Name)) // who isn't listed is the default tenant
		if !t.Limited() {
			unknown[to] = true
			continue
		}
		if sums[to] == nil {
			sums[to] = &asked{}
		}
		if a := d.tenants[uint16(n)]; a != nil {
			sums[to].add(a)
		}
	}
	for n := range next.Tenants {
		t := &next.Tenants[n]
		if t.Name == "" || !t.Limited() {
			continue
		}
		a := sums[uint16(n)]
		if unknown[uint16(n)] || a == nil {
			e.Unknown = append(e.Unknown, t.Name)
		}
		if a != nil {
			e.limits(d, a, t)
		}
	}
}

// limits replays what a tenant sent against each of its limits. Where a limit of the time hid what was
// asked for, those that it refused are added.
func (e *Effect) limits(d *demand, a *asked, t *policy.Tenant) {
	total, were := 0.0, 0.0
	d.each(a, func(s *slot) { total += float64(s.requests + s.refused); were += float64(s.refused) })
	if total == 0 {
		return
	}
	add := func(limit string, value int, asked float64, over int, refused float64) {
		if refused > 0 || over > 0 {
			e.Tenants = append(e.Tenants, TenantEffect{
				Tenant: t.Name, Limit: limit, Value: value, Asked: asked, Over: min(over, d.seen()), Requests: total, Refused: math.Round(refused), WereRefused: were,
			})
		}
	}
	if most := float64(t.Concurrency); t.Concurrency != policy.NoLimit {
		peak, over, refused := 0.0, 0, 0.0
		d.each(a, func(s *slot) {
			peak = max(peak, float64(s.peak))
			if float64(s.peak) > most {
				over += slotSeconds
			}
			if mean := float64(s.sum) / slotSeconds; mean > most {
				refused += float64(s.requests+s.refused) * (mean - most) / mean
			}
		})
		add("concurrency", t.Concurrency, peak, over, refused)
	}
	rate := func(limit string, perMinute int, of func(s *slot) float64) {
		if perMinute == policy.NoLimit {
			return
		}
		burst := float64(perMinute) * t.Burst.Minutes()
		level, minute, most, over, refused := burst, 0.0, 0.0, 0, 0.0
		var last []float64 // of a minute
		d.each(a, func(s *slot) {
			n := of(s)
			if last = append(last, n); len(last) > 60/slotSeconds {
				minute -= last[0]
				last = last[1:]
			}
			minute += n
			most = max(most, minute)
			// What came in five seconds is taken for coming evenly.
			level += float64(perMinute) * slotSeconds / 60
			if n > level {
				over += slotSeconds
				refused += (n - level) / n * float64(s.requests+s.refused)
				n = level
			}
			level = min(level-n, burst)
		})
		add(limit, perMinute, most, over, refused)
	}
	rate("requests_per_minute", t.RequestsPerMinute, func(s *slot) float64 { return float64(s.requests + s.refused) })
	rate("uncached_tokens_per_minute", t.UncachedTokensPerMinute, func(s *slot) float64 {
		if s.requests == 0 {
			return float64(s.tokens)
		}
		return float64(s.tokens) * float64(s.requests+s.refused) / float64(s.requests)
	})
}

// pool splits what a pool has, second by second, as each settings would.
func (e *Effect) pool(p *pool, now, next *policy.Admission) {
	before, after := capacity(now.Pool(p.Name), p.fleet), capacity(next.Pool(p.Name), p.fleet)
	compare := func(limit string, was, is uint32, of func(m *Moment, class int) float64) {
		if is == quota.NoLimit {
			return
		}
		var effects [policy.Classes]ClassEffect
		var missing, asked [policy.Classes]float64
		for i := range p.history {
			m := &p.history[i]
			var want [policy.Classes]float64
			for c := range want {
				want[c] = of(m, c)
				asked[c] += want[c]
				effects[c].Asked = max(effects[c].Asked, want[c])
			}
			for c, short := range short(is, &want, m, next) {
				if missing[c] += short; short > 0 {
					effects[c].Short++
				}
			}
			if was == quota.NoLimit {
				continue
			}
			for c, short := range short(was, &want, m, now) {
				if short > 0 {
					effects[c].WasShort++
				}
			}
		}
		for c := range effects {
			of := &effects[c]
			if of.Short == 0 && of.WasShort == 0 {
				continue
			}
			of.Pool, of.Class, of.Limit, of.Value, of.Enforced = p.Name, c, limit, float64(is), now.Enforced(p.Name)
			of.Missing = missing[c] / asked[c]
			e.Classes = append(e.Classes, *of)
		}
	}
	compare("slots", before.Slots, after.Slots, func(m *Moment, c int) float64 { return float64(m.InUse[c] + m.Waiting[c]) })
	compare("prefill_tokens", before.PrefillTokens, after.PrefillTokens, func(m *Moment, c int) float64 { return float64(m.Prefill[c]) })
}

// short is what each class would have been short of in a second. The last request may go beyond what
// there is, so less than one slot, or a hundredth, is nothing.
func short(capacity uint32, want *[policy.Classes]float64, m *Moment, a *policy.Admission) (out [policy.Classes]float64) {
	c := quota.Controller{Open: m.Shares.Lend}
	shares := c.Shares(&a.Classes)
	split := quota.Divide(float64(capacity), *want, &shares)
	for class := range out {
		if lacks := want[class] - split.Class[class]; lacks > max(1, want[class]/100) {
			out[class] = lacks
		}
	}
	return out
}
