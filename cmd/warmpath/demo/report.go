package demo

import (
	"strings"

	"github.com/warmpath/warmpath/gateway"
	"github.com/warmpath/warmpath/hostsim"
	"github.com/warmpath/warmpath/sim/engine"
	"github.com/warmpath/warmpath/sim/live"
	"github.com/warmpath/warmpath/sim/loadgen"
	"github.com/warmpath/warmpath/sim/spread"
	"github.com/warmpath/warmpath/sim/workload"
)

// Report is the demo's result; its JSON is what --json writes.
type Report struct {
	Requests  int                 `json:"requests"`
	Workers   int                 `json:"workers"`
	Gateways  int                 `json:"gateways"`
	Seed      uint64              `json:"seed"`
	TimeScale float64             `json:"time_scale"` // engine seconds per real second, at most
	Capacity  float64             `json:"capacity"`   // times the workload's
	Order     []string            `json:"order"`
	Policies  map[string]*Outcome `json:"policies"`
}

// Outcome is what one policy did. Rates are shares of prompt tokens; times are
// engine time.
type Outcome struct {
	HitRate          float64            `json:"hit_rate"`
	FirstTurnHitRate float64            `json:"first_turn_hit_rate"`
	FollowupHitRate  float64            `json:"followup_hit_rate"`
	Tiers            map[string]Tier    `json:"tiers"`
	Duplication      Duplication        `json:"duplication"`
	TTFT             Times              `json:"ttft_ms"`
	Total            Times              `json:"total_ms"`
	RequestsPerSec   float64            `json:"requests_per_second"`
	OutputTokensPerS float64            `json:"output_tokens_per_second"`
	LoadCoV          float64            `json:"load_cov"`    // of the workers' busy time
	RequestCoV       float64            `json:"request_cov"` // of requests per worker
	Reroutes         int                `json:"reroutes"`
	Errors           int                `json:"errors"`
	ErrorKinds       map[string]int     `json:"error_kinds,omitempty"`
	ElapsedSeconds   float64            `json:"elapsed_seconds"` // real
	Pace             float64            `json:"pace"`            // engine seconds per real second, on average
	Trusted          bool               `json:"latencies_trusted"`
	Distrust         string             `json:"distrust,omitempty"`
	Module           map[string]float64 `json:"module"` // the module's own counters, summed over gateways

	curve []float64 // hit rate so far in per cent, a few points a second
}

// Tier is the share of one prompt-length tier.
type Tier struct {
	Requests     int     `json:"requests"`
	PromptTokens int     `json:"prompt_tokens"`
	HitRate      float64 `json:"hit_rate"`
}

// Duplication says how often the same tokens lie in several caches at the end.
type Duplication struct {
	ResidentTokens   int     `json:"resident_tokens"`
	DistinctTokens   int     `json:"distinct_tokens"`
	DuplicatedTokens int     `json:"duplicated_tokens"`
	CopiesPerPrefix  float64 `json:"copies_per_prefix"` // mean over system prompts that are resident
	MaxCopies        int     `json:"max_copies"`
}

// Times are milliseconds.
type Times struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
}

func outcomeOf(r *loadgen.Result, fleet *live.Fleet, w *workload.Workload, prefixBlocks func(systemPrompt string) []engine.BlockHash, gateways []*gateway.Gateway) *Outcome {
	o := &Outcome{
		HitRate: r.HitRate(), FirstTurnHitRate: r.FirstTurn.HitRate, FollowupHitRate: r.FollowUp.HitRate,
		Tiers:          map[string]Tier{},
		TTFT:           Times{r.TTFT.Mean, r.TTFT.P50, r.TTFT.P99},
		Total:          Times{r.Total.Mean, r.Total.P50, r.Total.P99},
		RequestsPerSec: r.RequestsPerSecond, OutputTokensPerS: r.OutputTokensPerSecond,
		RequestCoV: r.RequestCoV, Reroutes: r.Reroutes, Errors: r.ErrorCount(), ErrorKinds: r.Errors,
		ElapsedSeconds: r.ElapsedReal.Seconds(), Pace: r.Pace, Trusted: r.Trusted(), Distrust: r.Distrust,
		Module: moduleCounters(gateways),
	}
	for i, name := range workload.Tiers {
		t := r.Tiers[i]
		o.Tiers[name] = Tier{t.Requests, t.PromptTokens, t.HitRate}
	}
	busy := make([]float64, 0, len(fleet.Workers))
	for _, worker := range fleet.Workers {
		busy = append(busy, worker.Stats().Busy.Seconds())
	}
	o.LoadCoV = spread.CoV(busy)
	prefixes := make([][]engine.BlockHash, 0)
	for tenant := range w.Spec.Tenants.Count {
		prefixes = append(prefixes, prefixBlocks(w.SystemPrompt(tenant)))
	}
	res := fleet.Residency(prefixes)
	o.Duplication = Duplication{res.ResidentTokens, res.DistinctTokens, res.DuplicatedTokens, res.CopiesPerPrefix, res.MaxCopies}
	return o
}

// moduleCounters sums the module's counters over the gateways, without its
// prefix.
func moduleCounters(gateways []*gateway.Gateway) map[string]float64 {
	sum := map[string]float64{}
	for _, g := range gateways {
		for _, m := range g.Host().Metrics() {
			name := strings.TrimPrefix(m.Name, "warmpath.")
			if m.Type == hostsim.Histogram {
				sum[name+".count"] += float64(m.Count)
				sum[name+".sum"] += float64(m.Sum)
			} else if m.Value != 0 {
				sum[name] += float64(m.Value)
			}
		}
	}
	return sum
}
