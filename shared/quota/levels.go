package quota

import (
	"cmp"
	"slices"

	"github.com/warmpath/warmpath/shared/policy"
)

// levels makes the tenants of a pool's classes equal before the gateways' parts are computed: a
// tenant that floods one gateway adds no more to what that gateway asks for than its fair part of
// the class.
type levels struct {
	// factor is by how much a tenant's demand counts, by number and class.
	factor []float64

	demands, weights []float64 // scratch
	order            []int
	of               []int // tenant and class of demands
}

// recompute computes the factors from what all gateways have reported.
func (v *levels) recompute(l *Ledger, at int, p *pool) {
	n := len(l.admission.Tenants) * policy.Classes
	total := slices.Grow(v.factor[:0], n)[:n] // holds demands first
	clear(total)
	var raw [policy.Classes]float64
	for _, g := range l.gateways {
		h := &g.pools[at]
		for c := range h.class {
			raw[c] += float64(h.class[c].inUse) + float64(h.class[c].waiting)
		}
		for i := range h.tenants {
			t := &h.tenants[i]
			if int(t.Tenant) < len(l.admission.Tenants) {
				total[int(t.Tenant)*policy.Classes+int(t.Class)] += float64(t.InUse) + float64(t.Waiting)
			}
		}
	}
	v.factor = total
	split := Divide(float64(p.capacity.Slots), raw, &p.shares)
	for c := range raw {
		v.recomputeClass(l.admission.Tenants, c, split.Class[c], raw[c])
	}
}

// recomputeClass turns the demands of a class into factors.
func (v *levels) recomputeClass(tenants []policy.Tenant, c int, capacity, raw float64) {
	v.demands, v.weights, v.of, v.order = v.demands[:0], v.weights[:0], v.of[:0], v.order[:0]
	for t := range tenants {
		d := v.factor[t*policy.Classes+c]
		v.factor[t*policy.Classes+c] = 1
		if d == 0 {
			continue
		}
		raw -= d
		if limit := float64(tenants[t].Concurrency); limit > 0 && d > limit {
			v.factor[t*policy.Classes+c] = limit / d
			d = limit
		}
		v.order = append(v.order, len(v.demands))
		v.demands, v.weights, v.of = append(v.demands, d), append(v.weights, tenants[t].Weight), append(v.of, t)
	}
	// What no tenant's record explains is left alone.
	capacity -= max(raw, 0)
	slices.SortFunc(v.order, func(i, j int) int {
		return cmp.Compare(v.demands[i]*v.weights[j], v.demands[j]*v.weights[i])
	})
	fair := level(max(capacity, 0), v.demands, v.weights, v.order)
	if fair < 0 {
		return
	}
	for i, t := range v.of {
		if most := fair * v.weights[i]; v.demands[i] > most {
			v.factor[t*policy.Classes+c] *= most / v.demands[i]
		}
	}
}

// ask computes what a gateway asks for.
func (v *levels) ask(h *holding) {
	var cut [policy.Classes]float64
	for i := range h.tenants {
		t := &h.tenants[i]
		if at := int(t.Tenant)*policy.Classes + int(t.Class); at < len(v.factor) {
			cut[t.Class] += (float64(t.InUse) + float64(t.Waiting)) * (1 - v.factor[at])
		}
	}
	for c := range h.class {
		u := &h.class[c]
		asked := float64(u.inUse) + float64(u.waiting)
		h.demand[c] = max(asked-cut[c], 0)
		h.prefill[c] = float64(u.prefill) + float64(u.waitingTokens)
		if asked > 0 {
			h.prefill[c] *= h.demand[c] / asked
		}
	}
}
