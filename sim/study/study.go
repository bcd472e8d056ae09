// Package study plays a workload against engines in virtual time, with three
// toy routing policies, to see what the workload's shape and the workers'
// capacity alone do to the hit rate.
//
// It sends the very bodies of package workload through the workers' own parser
// and engine, without HTTP, so its hit rates are those of the live fleet under
// the same policy. The policies are idealised: they know every load at once.
package study

import (
	"bytes"
	"container/heap"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/warmpath/warmpath/sim/dialect"
	"github.com/warmpath/warmpath/sim/engine"
	"github.com/warmpath/warmpath/sim/spread"
	"github.com/warmpath/warmpath/sim/text"
	"github.com/warmpath/warmpath/sim/workload"
)

// A Request is what a policy may look at.
type Request struct {
	Session int
	Tenant  int
	// Load is the number of requests at each worker, running or waiting.
	Load []int
}

// A Policy chooses a worker.
type Policy func(Request) int

// RoundRobin takes the workers in turn.
func RoundRobin() Policy {
	next := -1
	return func(r Request) int {
		next = (next + 1) % len(r.Load)
		return next
	}
}

// SessionHash keeps each session on the worker of its hash. (FNV of short names
// such as "s-17" spreads worse than chance over 16 workers; this mixes fully.)
func SessionHash() Policy {
	return func(r Request) int {
		h := uint64(r.Session+1) * 0x9e3779b97f4a7c15
		h ^= h >> 32
		h *= 0xd6e8feb86659fd93
		h ^= h >> 32
		return int(h % uint64(len(r.Load)))
	}
}

// PrefixHome gives each system prompt homes: at first the worker that has the
// fewest prompts, and whenever all of them carry more than bound times the mean
// load also the least loaded worker. A session starts at the least loaded home
// of its tenant and stays there unless its worker is overloaded in turn.
func PrefixHome(bound float64) Policy {
	homes := map[int][]int{}
	sessions := map[int]int{}
	var hosted []int
	return func(r Request) int {
		if hosted == nil {
			hosted = make([]int, len(r.Load))
		}
		total := 0
		for _, n := range r.Load {
			total += n
		}
		overloaded := func(worker int) bool {
			return float64(r.Load[worker]) > bound*float64(total)/float64(len(r.Load))+2
		}
		if worker, known := sessions[r.Session]; known && !overloaded(worker) {
			return worker
		}
		best := -1
		for _, worker := range homes[r.Tenant] {
			if !overloaded(worker) && (best < 0 || r.Load[worker] < r.Load[best]) {
				best = worker
			}
		}
		if best < 0 {
			// Prefer few prompts for a first home, little load for a further one.
			for worker := range r.Load {
				if best < 0 || len(homes[r.Tenant]) == 0 && hosted[worker] < hosted[best] ||
					len(homes[r.Tenant]) > 0 && r.Load[worker] < r.Load[best] {
					best = worker
				}
			}
			if !slices.Contains(homes[r.Tenant], best) {
				homes[r.Tenant] = append(homes[r.Tenant], best)
				hosted[best]++
			}
		}
		sessions[r.Session] = best
		return best
	}
}

// A Share is prompt tokens and how many of them were in a cache.
type Share struct {
	Requests     int
	PromptTokens int
	CachedTokens int
}

// HitRate is cached over all prompt tokens.
func (s Share) HitRate() float64 {
	if s.PromptTokens == 0 {
		return 0
	}
	return float64(s.CachedTokens) / float64(s.PromptTokens)
}

// A Result of one run.
type Result struct {
	All, FirstTurns, FollowUps Share
	ByTier                     [len(workload.Tiers)]Share
	Refused                    int
	TTFTMean, TTFTP50, TTFTP99 time.Duration
	// Duration is the engine's time from the start to the last answer.
	Duration time.Duration
	// BusyCoV and RequestCoV are coefficients of variation over the workers.
	BusyCoV, RequestCoV float64
	// MeanBusy is the share of the time in which a worker had a step going.
	MeanBusy float64
	// PeakRunning is the largest batch seen at an arrival.
	PeakRunning int
}

type arrival struct {
	at           time.Duration
	conversation *workload.Conversation
}

type arrivals []arrival

func (a arrivals) Len() int           { return len(a) }
func (a arrivals) Less(i, j int) bool { return a[i].at < a[j].at }
func (a arrivals) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *arrivals) Push(x any)        { *a = append(*a, x.(arrival)) }
func (a *arrivals) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

type flight struct {
	arrival
	answer []byte
	prompt int
}

type run struct {
	engines  []*engine.Engine
	load     []int
	requests []float64
	pending  arrivals
	flights  map[uint64]flight
	parser   dialect.Parser
	tokens   []text.Token
	ttft     []time.Duration
	result   Result
	nextID   uint64
}

// Run plays the whole workload.
func Run(w *workload.Workload, workers int, p engine.Params, policy Policy) (Result, error) {
	s := &run{flights: map[uint64]flight{}, load: make([]int, workers), requests: make([]float64, workers)}
	for range workers {
		e, err := engine.New(p)
		if err != nil {
			return Result{}, err
		}
		s.engines = append(s.engines, e)
	}
	for i := range w.Sessions {
		s.pending = append(s.pending, arrival{w.Sessions[i].Start, w.Start(i)})
	}
	heap.Init(&s.pending)
	for {
		at, which := s.nextEvent()
		if len(s.pending) > 0 && (which < 0 || s.pending[0].at <= at) {
			a := heap.Pop(&s.pending).(arrival)
			if err := s.submit(a, policy); err != nil {
				return Result{}, err
			}
			continue
		}
		if which < 0 {
			break
		}
		s.collect(which, s.engines[which].Advance(at))
	}
	return s.finish(), nil
}

func (s *run) nextEvent() (at time.Duration, which int) {
	which = -1
	for i, e := range s.engines {
		if next, ok := e.NextEvent(); ok && (which < 0 || next < at) {
			at, which = next, i
		}
	}
	return at, which
}

func (s *run) submit(a arrival, policy Policy) error {
	c := a.conversation
	worker := policy(Request{Session: c.Index(), Tenant: c.Session().Tenant, Load: s.load})
	request, bad := s.parser.Parse(dialect.Chat, c.Body())
	if bad != nil {
		return fmt.Errorf("study: session %d turn %d: %w", c.Index(), c.TurnIndex(), bad)
	}
	prompt := request.Prompts[0]
	answer := text.AppendAnswer(nil, text.Fingerprint(prompt), request.MaxTokens)
	s.tokens = text.AppendTokens(append(s.tokens[:0], prompt...), answer)
	s.nextID++
	id := s.nextID<<8 | uint64(worker)
	s.collect(worker, s.engines[worker].Advance(a.at))
	err := s.engines[worker].Submit(a.at, engine.Request{
		ID: id, PromptTokens: len(prompt), OutputTokens: request.MaxTokens,
		Blocks: engine.AppendBlockHashes(nil, engine.RootHash(""), s.tokens),
	})
	switch {
	case errors.Is(err, engine.ErrQueueFull):
		s.result.Refused++
		return nil
	case err != nil:
		return fmt.Errorf("study: session %d turn %d: %w", c.Index(), c.TurnIndex(), err)
	}
	s.result.PeakRunning = max(s.result.PeakRunning, s.load[worker]+1)
	s.load[worker]++
	s.requests[worker]++
	s.flights[id] = flight{arrival: a, answer: answer, prompt: len(prompt)}
	return nil
}

func (s *run) collect(worker int, events []engine.Event) {
	for _, ev := range events {
		f := s.flights[ev.ID]
		if ev.Generated == 1 {
			s.ttft = append(s.ttft, ev.At-f.at)
		}
		if ev.Kind != engine.Finished {
			continue
		}
		delete(s.flights, ev.ID)
		s.load[worker]--
		s.result.Duration = max(s.result.Duration, ev.At)
		share := &s.result.FollowUps
		if f.conversation.TurnIndex() == 0 {
			share = &s.result.FirstTurns
		}
		for _, x := range []*Share{share, &s.result.All, &s.result.ByTier[workload.Tier(f.prompt)]} {
			x.Requests++
			x.PromptTokens += f.prompt
			x.CachedTokens += ev.CachedTokens
		}
		if f.conversation.Answered(bytes.Clone(f.answer)) {
			heap.Push(&s.pending, arrival{ev.At + f.conversation.Think(), f.conversation})
		}
	}
}

func (s *run) finish() Result {
	r := s.result
	slices.Sort(s.ttft)
	if n := len(s.ttft); n > 0 {
		var sum time.Duration
		for _, t := range s.ttft {
			sum += t
		}
		r.TTFTMean, r.TTFTP50, r.TTFTP99 = sum/time.Duration(n), s.ttft[n/2], s.ttft[n*99/100]
	}
	busy := make([]float64, len(s.engines))
	for i, e := range s.engines {
		busy[i] = e.Stats(r.Duration).Busy.Seconds()
		r.MeanBusy += busy[i] / r.Duration.Seconds() / float64(len(busy))
	}
	r.BusyCoV, r.RequestCoV = spread.CoV(busy), spread.CoV(s.requests)
	return r
}
