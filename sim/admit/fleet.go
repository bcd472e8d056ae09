package admit

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/quota"
	"github.com/warmpath/warmpath/sim/engine"
)

// Flow is requests of one kind.
type Flow struct {
	Tenant string
	Class  int
	// Rate is requests/s at a time; nil for none. Burst come at once at BurstAt.
	Rate    func(at time.Duration) float64
	Burst   int
	BurstAt time.Duration
	// Prompt and Output are tokens: exactly so many, or with Spread a log-normal with that
	// coefficient of variation.
	Prompt, Output int
	Spread         float64
	// Only has all of it come to one gateway.
	Only bool
}

// Config is one run.
type Config struct {
	Seed              uint64
	Workers, Gateways int
	Params            engine.Params
	// Admission is settings as in a policy; "" lets everything through.
	Admission string
	Flows     []Flow
	Length    time.Duration
	// Law makes the law of the controller, nil for the usual one.
	Law func() quota.Law
	// Fail has the last so many workers fail at a time, and their requests with them.
	Fail   int
	FailAt time.Duration
}

// request is one request.
type request struct {
	id             uint64
	flow           *Flow
	class          int
	tenant         uint16
	prompt, output int
	arrived        time.Duration
	waiter         quota.Waiter
	gateway        *gateway
	worker         *worker
	charged        bool         // it has a slot and a request of its tenant's limits
	pending        quota.Reason // the limit of its tenant that it waits for
	first          bool         // its first token is out
	done           bool
	record         *Record
}

// Record is what became of a request.
type Record struct {
	Tenant  string
	Class   int
	Tokens  int
	Arrived time.Duration
	// Admitted, FirstToken and Ended are times; -1 for never.
	Admitted, FirstToken, Ended time.Duration
	// Refused says why, None for one that wasn't. RetryAfter goes with it.
	Refused    quota.Reason
	RetryAfter time.Duration
	Failed     bool
}

// TTFT is the time to first token, false for a request without.
func (r *Record) TTFT() (time.Duration, bool) {
	return r.FirstToken - r.Arrived, r.FirstToken >= 0
}

// worker is one engine.
type worker struct {
	fleet    *fleet
	engine   *engine.Engine
	requests map[uint64]*request
	prefill  int // tokens that were sent and have no first token yet
	dead     bool
	armed    time.Duration // when it is looked at next, -1 never
}

// fleet is a run.
type fleet struct {
	clock
	cfg      Config
	rng      *rand.Rand
	workers  []*worker
	gateways []*gateway
	control  *control
	settings *policy.Admission
	ids      uint64
	records  []*Record
	samples  []Sample
	inUse    [policy.Classes]int
	most     int // in use at once
	tokens   int // prefilled
}

// Sample is the fleet at a moment.
type Sample struct {
	At time.Duration
	// Slots in use at the workers and waiting in the gateways, by class.
	InUse, Waiting [policy.Classes]int
	// Slots is what the live workers run at once.
	Slots int
	// Prefilled is tokens since the sample before.
	Prefilled int
	Shares    quota.Shares
	P99Millis [policy.Classes]uint32
}

const sampleEvery = 100 * time.Millisecond

// Run plays a configuration.
func Run(cfg Config) (*Result, error) {
	f := &fleet{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0x61646d6974))}
	for range cfg.Workers {
		e, err := engine.New(cfg.Params)
		if err != nil {
			return nil, err
		}
		f.workers = append(f.workers, &worker{fleet: f, engine: e, requests: map[uint64]*request{}, armed: -1})
	}
	if cfg.Admission != "" {
		settings, err := policy.ParseAdmission([]byte(cfg.Admission))
		if err != nil {
			return nil, fmt.Errorf("read admission settings: %w", err)
		}
		f.settings = settings
		f.control = newControl(f)
	}
	for i := range cfg.Gateways {
		f.gateways = append(f.gateways, newGateway(f, i))
	}
	for i := range cfg.Flows {
		f.start(&cfg.Flows[i], i)
	}
	if cfg.Fail > 0 {
		f.at(cfg.FailAt, f.fail)
	}
	f.every(sampleEvery, f.sample)
	f.run(cfg.Length)
	return &Result{Config: cfg, Records: f.records, Samples: f.samples, MostInUse: f.most}, nil
}

// start has a flow's requests come.
func (f *fleet) start(flow *Flow, i int) {
	rng := rand.New(rand.NewPCG(f.cfg.Seed, uint64(i)))
	for range flow.Burst {
		f.at(flow.BurstAt, func() { f.arrive(flow, rng) })
	}
	if flow.Rate == nil {
		return
	}
	// Thinned from the highest rate of each step.
	const step = 100 * time.Millisecond
	for from := time.Duration(0); from < f.cfg.Length; from += step {
		rate := flow.Rate(from)
		for at := from; rate > 0; {
			at += time.Duration(rng.ExpFloat64() / rate * float64(time.Second))
			if at >= from+step {
				break
			}
			f.at(at, func() { f.arrive(flow, rng) })
		}
	}
}

func (f *fleet) arrive(flow *Flow, rng *rand.Rand) {
	f.ids++
	r := &request{
		id: f.ids, flow: flow, class: flow.Class, arrived: f.now,
		prompt: length(rng, flow.Prompt, flow.Spread), output: length(rng, flow.Output, flow.Spread),
	}
	r.record = &Record{
		Tenant: flow.Tenant, Class: flow.Class, Tokens: r.prompt, Arrived: f.now,
		Admitted: -1, FirstToken: -1, Ended: -1,
	}
	f.records = append(f.records, r.record)
	to := f.gateways[rng.IntN(len(f.gateways))]
	if flow.Only {
		to = f.gateways[0]
	}
	to.arrive(r)
}

// length draws a number of tokens.
func length(rng *rand.Rand, mean int, spread float64) int {
	if spread == 0 {
		return mean
	}
	return max(1, lognormal(rng, float64(mean), spread))
}

// send gives a request to a worker.
func (f *fleet) send(w *worker, r *request) {
	r.worker = w
	r.record.Admitted = f.now
	f.inUse[r.class]++
	total := 0
	for _, n := range f.inUse {
		total += n
	}
	f.most = max(f.most, total)
	if w.dead {
		f.end(r, true)
		return
	}
	err := w.engine.Submit(f.now, engine.Request{ID: r.id, PromptTokens: r.prompt, OutputTokens: r.output})
	if err != nil {
		if !errors.Is(err, engine.ErrQueueFull) {
			panic(err) // a prompt that no engine takes is a mistake of the scenario
		}
		f.end(r, true)
		return
	}
	w.prefill += r.prompt
	w.requests[r.id] = r
	w.arm()
}

// arm has the worker looked at when something happens in it.
func (w *worker) arm() {
	next, ok := w.engine.NextEvent()
	if !ok || w.dead || w.armed >= 0 && w.armed <= next {
		return
	}
	w.armed = next
	w.fleet.at(next, func() {
		if w.armed == next {
			w.armed = -1
			w.look()
		}
	})
}

func (w *worker) look() {
	if w.dead {
		return
	}
	for _, e := range w.engine.Advance(w.fleet.now) {
		r := w.requests[e.ID]
		if !r.first {
			r.first = true
			w.prefill -= r.prompt
			w.fleet.tokens += r.prompt
			r.record.FirstToken = w.fleet.now
			r.gateway.answered(r)
		}
		if e.Kind == engine.Finished {
			delete(w.requests, e.ID)
			w.fleet.end(r, false)
		}
	}
	w.arm()
}

// end ends an admitted request.
func (f *fleet) end(r *request, failed bool) {
	r.done = true
	r.record.Ended, r.record.Failed = f.now, failed
	f.inUse[r.class]--
	r.gateway.done(r)
}

// fail kills the last workers.
func (f *fleet) fail() {
	for _, w := range f.workers[len(f.workers)-f.cfg.Fail:] {
		w.dead = true
		for _, id := range sorted(w.requests) {
			f.end(w.requests[id], true)
		}
		w.requests, w.prefill = map[uint64]*request{}, 0
	}
}

func (f *fleet) live() int {
	n := 0
	for _, w := range f.workers {
		if !w.dead {
			n++
		}
	}
	return n
}

func (f *fleet) sample() {
	s := Sample{At: f.now, InUse: f.inUse, Slots: f.live() * f.cfg.Params.MaxRunning, Prefilled: f.tokens}
	f.tokens = 0
	for _, g := range f.gateways {
		for c, q := range g.queues {
			s.Waiting[c] += q.Len()
		}
	}
	if f.control != nil {
		s.Shares, s.P99Millis = f.control.last()
	}
	f.samples = append(f.samples, s)
}
