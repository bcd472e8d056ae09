package control

import (
	"strconv"
	"time"

	"github.com/warmpath/warmpath/control/admission"
	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/shared/quota"
)

// ownQuota is what GET /v1/quota answers of this replica's ledger.
func (s *Service) ownQuota(history bool) api.Quota {
	now := time.Now()
	out := api.Quota{Pools: []api.QuotaPool{}, Tenants: []api.QuotaTenant{}, Gateways: []api.QuotaGateway{}}
	st, ok := s.admission.Status(now)
	if !ok {
		return out
	}
	d := s.policy.Load()
	out.Enabled, out.Learning, out.Term = true, st.Learning, strconv.FormatUint(st.Term, 10)
	out.Settings = marshal(d.admission)
	names := map[uint8]string{}
	for i := range st.Pools {
		p := &st.Pools[i]
		names[p.Index] = p.Name
		out.Pools = append(out.Pools, quotaPool(p, &st, history, now))
	}
	for _, t := range st.Tenants {
		of := &st.Settings.Tenants[t.Index]
		out.Tenants = append(out.Tenants, api.QuotaTenant{
			Name: of.Name, Weight: of.Weight, InUse: t.InUse, Waiting: t.Waiting, Gateways: t.Gateways, Debit: t.Debit,
			Concurrency: of.Concurrency, RequestsPerMinute: of.RequestsPerMinute, TokensPerMinute: of.UncachedTokensPerMinute,
			RequestsLeft: t.RequestsLeft, TokensLeft: t.TokensLeft,
		})
	}
	for _, g := range st.Gateways {
		of := api.QuotaGateway{Name: g.Name, Nonce: strconv.FormatUint(g.Nonce, 16), State: stateOf(&g), Age: -1}
		if age := s.admission.Age(g.Heard, now); age >= 0 {
			of.Age = age.Seconds()
		}
		for _, p := range g.Pools {
			of.Pools = append(of.Pools, api.QuotaGatewayPool{
				Pool: names[p.Pool], Granted: p.Granted, Floor: p.Floor, InUse: p.InUse, Waiting: p.Waiting, Debit: p.Debit,
			})
		}
		out.Gateways = append(out.Gateways, of)
	}
	return out
}

func quotaPool(p *admission.Pool, st *admission.Status, history bool, now time.Time) api.QuotaPool {
	out := api.QuotaPool{
		Name: p.Name, Slots: limitOf(p.Capacity.Slots), TokensPerSecond: p.Capacity.TokensPerSecond, PrefillTokens: limitOf(p.Capacity.PrefillTokens),
		Debit: p.Debit, Silent: p.Silent, Settled: p.Settled, Open: p.Open, Enforced: st.Settings.Enforced(p.Name),
	}
	for c := range p.Class {
		of := &p.Class[c]
		class := api.QuotaClass{
			Class: "p" + strconv.Itoa(c), Share: p.Shares.Class[c], Part: of.Part, InUse: of.InUse, Waiting: of.Waiting,
			OldestMillis: of.OldestWaitMillis, PrefillTokens: of.Prefill, WaitingTokens: of.WaitingTokens, Refused: of.Refused,
			Objective: st.Settings.Classes[c].ObjectiveTTFT.Milliseconds(),
		}
		for i := len(p.History) - 1; i >= 0 && class.TTFTP99Millis == 0; i-- {
			class.TTFTP99Millis = p.History[i].P99Millis[c]
		}
		out.Classes = append(out.Classes, class)
	}
	if history {
		for i := range p.History {
			m := &p.History[i]
			out.History = append(out.History, api.QuotaMoment{
				Age: now.Sub(m.At).Seconds(), P99Millis: m.P99Millis, Count: m.Count, Shares: m.Shares.Class, Lend: m.Shares.Lend,
				InUse: m.InUse, Waiting: m.Waiting,
			})
		}
	}
	return out
}

// limitOf is -1 for no limit.
func limitOf(n uint32) int64 {
	if n == quota.NoLimit {
		return -1
	}
	return int64(n)
}
