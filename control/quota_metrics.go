package control

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmpath/warmpath/shared/quota"
)

// quotaCollector reads the state of admission when it is scraped. Tenants are no labels: there may
// be thousands, and their names come from the outside.
type quotaCollector struct{ s *Service }

var (
	descQuotaSlots    = desc("admission_slots", "Requests at once that the pool's workers take; absent without a limit.", "pool")
	descQuotaDebit    = desc("admission_debit_slots", "Slots that gateways have or may have.", "pool")
	descQuotaSilent   = desc("admission_silent_slots", "Those of them that belong to gateways that are not heard.", "pool")
	descQuotaPrefill  = desc("admission_prefill_tokens_limit", "Tokens to prefill that may be under way; absent without a limit.", "pool")
	descQuotaOpen     = desc("admission_open", "How far the controller lets the classes below P0: 1 as configured, 0 their floors.", "pool")
	descQuotaShare    = desc("admission_share", "Share of the pool in force.", "pool", "class")
	descQuotaInUse    = desc("admission_in_use", "Requests admitted, over all gateways.", "pool", "class")
	descQuotaWaiting  = desc("admission_waiting", "Requests that wait, over all gateways.", "pool", "class")
	descQuotaOldest   = desc("admission_oldest_wait_seconds", "Age of the request that waits longest.", "pool", "class")
	descQuotaTokens   = desc("admission_prefill_tokens", "Tokens to prefill under way.", "pool", "class")
	descQuotaRefused  = desc("admission_refused_total", "Requests refused, over all gateways.", "pool", "class")
	descQuotaTTFT     = desc("admission_ttft_p99_seconds", "99th percentile of the time to first token in the last second; absent without any.", "pool", "class")
	descQuotaLearning = desc("admission_learning", "1 while a ledger that has just started gives nobody more than it has.")
	descQuotaGateways = desc("admission_gateways", "Gateways by what the ledger knows of them.", "state")
	descQuotaBad      = desc("admission_bad_usage_total", "Batches whose usage got no lease: damaged, or the state could not be written.")
)

func (c *quotaCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descQuotaSlots, descQuotaDebit, descQuotaSilent, descQuotaPrefill, descQuotaOpen, descQuotaShare, descQuotaInUse, descQuotaWaiting,
		descQuotaOldest, descQuotaTokens, descQuotaRefused, descQuotaTTFT, descQuotaLearning, descQuotaGateways, descQuotaBad,
	} {
		out <- d
	}
}

func (c *quotaCollector) Collect(out chan<- prometheus.Metric) {
	gauge, count := into(out)
	count(descQuotaBad, c.s.ingest.Counters.BadUsage.Load())
	st, ok := c.s.admission.Status(time.Now())
	if !ok {
		return
	}
	gauge(descQuotaLearning, truth(st.Learning))
	states := map[string]int{"live": 0, "silent": 0, "unknown": 0}
	for i := range st.Gateways {
		states[stateOf(&st.Gateways[i])]++
	}
	for state, n := range states {
		gauge(descQuotaGateways, float64(n), state)
	}
	for i := range st.Pools {
		p := &st.Pools[i]
		if p.Capacity.Slots != quota.NoLimit {
			gauge(descQuotaSlots, float64(p.Capacity.Slots), p.Name)
		}
		if p.Capacity.PrefillTokens != quota.NoLimit {
			gauge(descQuotaPrefill, float64(p.Capacity.PrefillTokens), p.Name)
		}
		gauge(descQuotaDebit, float64(p.Debit), p.Name)
		gauge(descQuotaSilent, float64(p.Silent), p.Name)
		gauge(descQuotaOpen, p.Open, p.Name)
		for class := range p.Class {
			of, label := &p.Class[class], "p"+strconv.Itoa(class)
			gauge(descQuotaShare, p.Shares.Class[class], p.Name, label)
			gauge(descQuotaInUse, float64(of.InUse), p.Name, label)
			gauge(descQuotaWaiting, float64(of.Waiting), p.Name, label)
			gauge(descQuotaOldest, float64(of.OldestWaitMillis)/1000, p.Name, label)
			gauge(descQuotaTokens, float64(of.Prefill), p.Name, label)
			count(descQuotaRefused, of.Refused, p.Name, label)
			if n := len(p.History); n > 0 && p.History[n-1].Count[class] > 0 {
				gauge(descQuotaTTFT, float64(p.History[n-1].P99Millis[class])/1000, p.Name, label)
			}
		}
	}
}

// stateOf is what the ledger knows of a gateway, in a word.
func stateOf(g *quota.GatewayStatus) string {
	switch {
	case g.Unknown:
		return "unknown"
	case !g.Live:
		return "silent"
	}
	return "live"
}
