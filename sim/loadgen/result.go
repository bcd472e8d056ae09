package loadgen

import (
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/warmpath/warmpath/sim/spread"
	"github.com/warmpath/warmpath/sim/workload"
)

// A Share is prompt tokens and how many of them a worker had cached.
type Share struct {
	Requests     int     `json:"requests"`
	PromptTokens int     `json:"prompt_tokens"`
	CachedTokens int     `json:"cached_tokens"`
	HitRate      float64 `json:"hit_rate"`
}

func (s *Share) add(o *Outcome) {
	s.Requests++
	s.PromptTokens += o.PromptTokens
	s.CachedTokens += o.CachedTokens
	if s.PromptTokens > 0 {
		s.HitRate = float64(s.CachedTokens) / float64(s.PromptTokens)
	}
}

// Latency in milliseconds.
type Latency struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// WorkerShare is what one worker served.
type WorkerShare struct {
	Share
	OutputTokens int `json:"output_tokens"`
}

// A Result is the measurements of a run. Latencies and rates are in the
// engines' time, unless their name says real.
type Result struct {
	// Requests sent, Completed without an error.
	Requests  int `json:"requests"`
	Completed int `json:"completed"`
	// Errors by kind, and turns never sent because an earlier turn of their
	// session failed.
	Errors       map[string]int `json:"errors"`
	SkippedTurns int            `json:"skipped_turns"`
	// Reroutes are requests that took more than one attempt upstream.
	Reroutes int `json:"reroutes"`

	All       Share                      `json:"all"`
	FirstTurn Share                      `json:"first_turn"`
	FollowUp  Share                      `json:"follow_up"`
	Tiers     [len(workload.Tiers)]Share `json:"tiers"`
	UsageLost int                        `json:"usage_missing"` // completed without usage
	ByWorker  map[string]WorkerShare     `json:"by_worker"`
	ByTarget  map[string]int             `json:"by_target"`

	TTFT  Latency `json:"ttft_ms"`
	Total Latency `json:"total_ms"`
	// TimePerToken after the first.
	TimePerToken Latency `json:"tpot_ms"`

	RequestsPerSecond     float64 `json:"requests_per_second"`
	OutputTokensPerSecond float64 `json:"output_tokens_per_second"`
	// RequestCoV is the coefficient of variation of requests per worker, over
	// the workers that answered at all.
	RequestCoV float64 `json:"request_cov"`

	// ElapsedReal of the run.
	ElapsedReal time.Duration `json:"elapsed_real_ns"`
	// Pace is the engine seconds that passed in one real second on average.
	Pace float64 `json:"pace"`
	// Lateness is how long after their planned time requests were sent.
	Lateness Latency `json:"lateness_ms"`
	// Distrust says why the latencies cannot be trusted; "" if they can.
	Distrust string `json:"distrust,omitempty"`
}

// HitRate over all requests.
func (r *Result) HitRate() float64 { return r.All.HitRate }

// Trusted reports whether the machine kept up.
func (r *Result) Trusted() bool { return r.Distrust == "" }

// ErrorCount over all kinds.
func (r *Result) ErrorCount() int { return r.Requests - r.Completed }

// latencies collects durations.
type latencies struct {
	h     *hdrhistogram.Histogram // microseconds
	sum   time.Duration
	count int
}

func newLatencies() *latencies {
	return &latencies{h: hdrhistogram.New(1, int64(10*time.Minute/time.Microsecond), 3)}
}

func (l *latencies) add(d time.Duration) {
	l.sum += d
	l.count++
	_ = l.h.RecordValue(min(max(int64(d/time.Microsecond), 1), l.h.HighestTrackableValue()))
}

func (l *latencies) latency() Latency {
	if l.count == 0 {
		return Latency{}
	}
	at := func(q float64) float64 { return float64(l.h.ValueAtQuantile(q)) / 1000 }
	return Latency{
		Mean: float64(l.sum) / float64(l.count) / float64(time.Millisecond),
		P50:  at(50), P90: at(90), P99: at(99), Max: float64(l.h.Max()) / 1000,
	}
}

// A recorder adds outcomes up. Only the scheduling goroutine uses it, but for
// its lock, which lets a Progress callback read a result while it grows.
type recorder struct {
	mu                    sync.Mutex
	config                *Config
	total                 int
	r                     Result
	ttft, all, tpot, late *latencies
	outputTokens          int
}

func newRecorder(c *Config) *recorder {
	return &recorder{
		config: c, total: c.Workload.Requests(),
		r:    Result{Errors: map[string]int{}, ByWorker: map[string]WorkerShare{}, ByTarget: map[string]int{}},
		ttft: newLatencies(), all: newLatencies(), tpot: newLatencies(), late: newLatencies(),
	}
}

func (rec *recorder) add(e ended) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	o, r := &e.outcome, &rec.r
	r.Requests++
	r.ByTarget[o.Target]++
	rec.late.add(o.Late)
	if o.Attempts > 1 {
		r.Reroutes++
	}
	if rec.config.OnResult != nil {
		defer rec.config.OnResult(*o)
	}
	if o.Err != "" {
		r.Errors[o.Err]++
		r.SkippedTurns += len(e.conversation.Session().Turns) - 1 - o.Turn
		return
	}
	r.Completed++
	if o.PromptTokens == 0 {
		r.UsageLost++
	}
	r.All.add(o)
	if o.Turn == 0 {
		r.FirstTurn.add(o)
	} else {
		r.FollowUp.add(o)
	}
	r.Tiers[workload.Tier(o.PromptTokens)].add(o)
	w := r.ByWorker[o.Worker]
	w.add(o)
	w.OutputTokens += o.OutputTokens
	r.ByWorker[o.Worker] = w
	rec.outputTokens += o.OutputTokens
	rec.ttft.add(o.TTFT)
	rec.all.add(o.Total)
	if o.OutputTokens > 1 {
		rec.tpot.add((o.Total - o.TTFT) / time.Duration(o.OutputTokens-1))
	}
}

func (rec *recorder) progress(inFlight int, elapsed time.Duration) Progress {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return Progress{
		Done: rec.r.Requests, Failed: rec.r.Requests - rec.r.Completed, InFlight: inFlight,
		Total: rec.total - rec.r.SkippedTurns, HitRate: rec.r.All.HitRate, Elapsed: elapsed,
	}
}

// maxLatenessShare of the median TTFT that the schedule may be
// late at its 99th percentile before latencies are not to be trusted.
const maxLatenessShare = 0.5

func (rec *recorder) result(real, engine time.Duration) *Result {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	r := rec.r
	r.TTFT, r.Total, r.TimePerToken = rec.ttft.latency(), rec.all.latency(), rec.tpot.latency()
	r.ElapsedReal, r.Pace = real, engine.Seconds()/real.Seconds()
	r.RequestsPerSecond = float64(r.Completed) / engine.Seconds()
	r.OutputTokensPerSecond = float64(rec.outputTokens) / engine.Seconds()
	var perWorker []float64
	for name, w := range r.ByWorker {
		if name != "" {
			perWorker = append(perWorker, float64(w.Requests))
		}
	}
	r.RequestCoV = spread.CoV(perWorker)
	r.Lateness = rec.late.latency()
	if limit := max(maxLatenessShare*r.TTFT.P50, 50); r.Completed > 0 && r.Lateness.P99 > limit {
		r.Distrust = fmt.Sprintf("1 %% of the requests were sent more than %.0f ms late (median TTFT %.0f ms): the machine was too busy, the latencies cannot be trusted",
			r.Lateness.P99, r.TTFT.P50)
	}
	return &r
}
