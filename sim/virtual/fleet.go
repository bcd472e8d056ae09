package virtual

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/warmpath/warmpath/shared/homes"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/route"
	"github.com/warmpath/warmpath/sim/engine"
)

// Delays are the times that information takes, as measured on a live system
// (JSON: warmpath sim run --delays file).
type Delays struct {
	// ReportEvery is the time between two reports of a worker, Report how long
	// one takes to every gateway.
	ReportEvery, Report time.Duration
	// Books is the time from a dispatch until the other gateways know what its gateway has in flight,
	// if nobody said anything lately. BooksEvery is the least time between two words, of a gateway to
	// control and of control to all, see betweenBooks. EndsEvery is how often a gateway says so that
	// dispatches nothing.
	Books, BooksEvery, EndsEvery time.Duration
	// Event is the time from a block's storing or removal to the gateways'
	// tables. Prediction is that from a dispatch, if nobody said anything lately: it
	// goes with the words of the books. EventLoss is the share of events that never arrive.
	Event, Prediction time.Duration
	EventLoss         float64
	// Hop is the time from a choice to the engine's queue.
	Hop time.Duration
}

// Fault is something that happens to workers.
type Fault struct {
	At      time.Duration
	Workers []int
	Kind    FaultKind
}

// FaultKind is what happens.
type FaultKind uint8

// Kinds of faults.
const (
	Die      FaultKind = iota // gone: its requests fail, its cache is lost; known a second later
	Return                    // back, empty, under a new generation
	Evict                     // its cache is dropped at once
	Announce                  // it says when it will drop its cache: what it holds counts less and less
)

// Config is one run.
type Config struct {
	Seed     uint64
	Workers  int
	Gateways int
	Params   engine.Params
	Speed    []float64 // by worker: 0.2 is five times slower; missing ones are 1
	Delays   Delays
	Source   Source
	Policy   policy.Policy
	Rule     RuleMaker
	Faults   []Fault
	// BusyFrom is when Fleet.Busy begins to count.
	BusyFrom time.Duration
	// Overload, if set, ends the run when its queue only grows.
	Overload *overload
	// Progress is told now and then how many requests are done.
	Progress func(done int)
	// Arrived is told of every request as it arrives.
	Arrived func(r *Request, now time.Duration)
	// Record takes every request that has ended.
	Record func(o Outcome)
	// Sampled is told of every report as it is taken.
	Sampled func(s Sample, now time.Duration)
}

// Sample is what is so at the time of a worker's report.
type Sample struct {
	Worker   int
	Uncached int           // prompt tokens that are to be computed there, as gateways booked them
	Waiting  int           // requests sent there without a first token
	Work     time.Duration // that its requests have cost since it began, see engine.Counters
	Homes    int           // hot prefixes whose homes the gateways know
	Answers  int           // blocks of what is being decoded
}

// Outcome is how a request ended.
type Outcome struct {
	*Request
	Worker     int
	Cached     int // prompt tokens found in the cache
	Predicted  int // as the gateway thought
	Held       int // prompt tokens that the best worker held when it came, soon after a fault; 0 otherwise
	Arrived    time.Duration
	TTFT       time.Duration
	TPOT       time.Duration // 0 for one token
	Refused    bool          // nobody took it
	Failed     bool          // its worker died
	Waiting    bool          // the run was given up while it waited: TTFT is how long until then
	FirstToken time.Duration
	Ended      time.Duration
}

// Fleet is a run in progress.
type Fleet struct {
	cfg         Config
	seed        uint64
	workers     []*worker
	generations []uint32
	gateways    []*Gateway
	index       *index
	fader       fader // of what was reported
	rule        Rule
	learns      bool                // the rule asks the index
	books       *books              // as the gateways know them
	words       *words              // by which they do; nil for never
	planner     *homes.Planner      // nil where the rule knows no homes
	wanted      []wantedCopy        // by the plan, as the gateways know it
	copying     []*copying          // copies that gateways have claimed
	slices      map[uint64]*copying // in the engines, by ID
	aftermath   *aftermath          // nil without faults
	rng         *rand.Rand
	events      eventQueue
	now         time.Duration
	live        map[uint64]*Request
	done        int
	open        int  // requests that are somewhere or on their way
	waiting     int  // for their first token
	saturated   bool // the run was given up
	counts      Counts
}

// Counts are a run's requests, the beginning included. Once all is answered
// Arrived is the sum of the others.
type Counts struct {
	Arrived  int `json:"arrived"`
	Answered int `json:"answered"`
	Refused  int `json:"refused"`
	Failed   int `json:"failed"`
	Open     int `json:"open,omitempty"` // on their way when the run was given up
	// Preemptions are how often engines took a running request's blocks for another, and
	// RecomputedTokens what had to be computed again for it.
	Preemptions      int `json:"preemptions,omitempty"`
	RecomputedTokens int `json:"recomputed_tokens,omitempty"`
	// Copies of hot prefixes that gateways have made, and the Slices that they sent for them: requests
	// of their own, which are counted nowhere else.
	Copies int `json:"copies,omitempty"`
	Slices int `json:"slices,omitempty"`
}

type worker struct {
	address string
	engine  *engine.Engine
	params  engine.Params
	rate    float64 // prefill tokens/s
	up      bool
	empty   time.Duration // when its cache was last empty, 0 for the start

	evictUntil time.Duration // an announced eviction
	lost       uint32        // how often its cache was lost
	due        time.Duration // of the wake-up that counts
	seen       report        // as the gateways know it
	busy       time.Duration // of engines before the present one
	before     time.Duration // busy at Config.BusyFrom
}

// worked is how long the worker has worked, now and before it died.
func (w *worker) worked(now time.Duration) time.Duration {
	if w.engine == nil {
		return w.busy
	}
	return w.busy + w.engine.Stats(now).Busy
}

func scaled(p engine.Params, speed float64) engine.Params {
	by := func(d time.Duration) time.Duration { return time.Duration(float64(d) / speed) }
	p.StepBase, p.StepPerRequest, p.DecodePerKVToken = by(p.StepBase), by(p.StepPerRequest), by(p.DecodePerKVToken)
	p.PrefillPerToken, p.PrefillPerToken1KContext = by(p.PrefillPerToken), by(p.PrefillPerToken1KContext)
	return p
}

// Run plays a whole run.
func Run(cfg Config) (*Fleet, error) {
	if cfg.Workers < 1 || cfg.Gateways < 1 || cfg.Source == nil || cfg.Rule == nil {
		return nil, errors.New("virtual: a run needs workers, gateways, a source and a rule")
	}
	cfg.Faults = slices.Clone(cfg.Faults) // the word of a death is added
	f := &Fleet{
		cfg: cfg, seed: cfg.Seed, rng: rand.New(rand.NewPCG(cfg.Seed, 3)),
		index: newIndex(cfg.Delays, rand.New(rand.NewPCG(cfg.Seed, 4))),
		live:  map[uint64]*Request{}, slices: map[uint64]*copying{}, generations: make([]uint32, cfg.Workers),
	}
	for i := range cfg.Workers {
		speed := 1.0
		if i < len(cfg.Speed) {
			speed = cfg.Speed[i]
		}
		w := &worker{address: fmt.Sprintf("10.%d.%d.%d:8000", i>>16&255, i>>8&255, i&255), params: scaled(cfg.Params, speed)}
		if err := f.start(w, i); err != nil {
			return nil, err
		}
		step := w.params.PrefillTime(w.params.StepTokens)
		w.rate = float64(w.params.StepTokens) / step.Seconds()
		f.workers = append(f.workers, w)
	}
	for g := range cfg.Gateways {
		f.gateways = append(f.gateways, newGateway(f, g, cfg.Policy))
	}
	f.books = newBooks(len(f.workers), len(f.gateways))
	f.rule = cfg.Rule(f)
	_, f.learns = f.rule.(routeRule)
	if f.learns && cfg.Policy.Name == policy.Cost {
		f.planner = homes.NewPlanner()
		f.at(0, event{kind: planHomes})
	}
	if len(cfg.Faults) > 0 {
		f.aftermath = newAftermath()
	}
	for i := range f.workers { // reports come in turn, not all at once
		f.at(cfg.Delays.ReportEvery*time.Duration(i)/time.Duration(len(f.workers)), event{kind: takeReport, worker: i})
	}
	for i := range cfg.Faults {
		f.at(cfg.Faults[i].At, event{kind: faultEvent, worker: i})
	}
	if f.learns && cfg.Delays.BooksEvery > 0 {
		f.speak()
	}
	f.at(cfg.BusyFrom, event{kind: countBusy})
	f.openNext()
	if err := f.play(); err != nil {
		return nil, err
	}
	return f, nil
}

// start gives a worker an empty engine.
func (f *Fleet) start(w *worker, i int) error {
	e, err := engine.New(w.params)
	if err != nil {
		return err
	}
	w.engine, w.up, w.due = e, true, 0
	generation := f.generations[i]
	e.Watch(func(h engine.BlockHash, there bool) {
		if f.learns {
			f.index.event(f.now, i, generation, h, there)
		}
	})
	return nil
}

func (f *Fleet) openNext() {
	if at, r, ok := f.cfg.Source.Open(); ok {
		f.at(max(at, f.now), event{kind: arrive, request: r, open: true})
		f.open++
	}
}

func (f *Fleet) play() error {
	second := time.Duration(0)
	for len(f.events.heap) > 0 && f.open > 0 {
		e := f.events.pop()
		f.now = e.at
		switch e.kind {
		case arrive:
			if e.open {
				f.openNext()
			}
			f.arrive(e.request)
		case submit:
			if err := f.submit(e.request); err != nil {
				return err
			}
		case wake:
			if w := f.workers[e.worker]; w.due == e.at && w.up {
				f.advance(e.worker)
			}
		case takeReport:
			f.report(e.worker)
		case giveReport:
			f.workers[e.worker].seen = *e.report
			for _, g := range f.gateways {
				g.reported(e.worker, e.report)
			}
		case tellEnds, takeBooks, hearBooks, passNews, passBooks, giveBooks:
			f.word(&e)
		case faultEvent:
			f.fault(f.cfg.Faults[e.worker])
		case planHomes:
			f.plan()
		case giveHomes:
			for _, g := range f.gateways {
				g.view.Homes = e.homes
			}
			f.wanted = e.wanted
		case submitSlice:
			f.submitSlice(e.copying)
		case answerSlice:
			f.answerSlice(e.copying)
		case countBusy:
			for _, w := range f.workers {
				w.before = w.worked(f.now)
			}
			f.wakeAll()
		}
		if f.now-second > time.Second {
			second = f.now
			f.index.sweep(f.now)
			if o := f.cfg.Overload; o != nil && o.second(f.now, f.counts.Arrived, f.waiting) {
				f.giveUp()
				return nil
			}
		}
	}
	return nil
}

func (f *Fleet) wakeAll() {
	for i, w := range f.workers {
		if w.up {
			f.wakeAt(i)
		}
	}
}

// arrive lets a gateway choose.
func (f *Fleet) arrive(r *Request) {
	r.arrived = f.now
	f.counts.Arrived++
	f.waiting++
	r.gateway = f.rng.IntN(len(f.gateways))
	g := f.gateways[r.gateway]
	g.order++
	if f.cfg.Arrived != nil {
		f.cfg.Arrived(r, f.now)
	}
	if f.aftermath != nil {
		f.aftermath.arrived(f, r)
	}
	f.dispatch(g, r)
}

// dispatch chooses, books a request and sends it on its way.
func (f *Fleet) dispatch(g *Gateway, r *Request) {
	best, cached := f.rule.Choose(g, r, f.now)
	if r.pinned > 0 {
		best, cached = r.pinned-1, 0
	}
	if best < 0 {
		f.end(r, Outcome{Refused: true})
		return
	}
	r.worker = best
	r.predicted, r.uncached = cached, max(0, r.Prompt-cached)
	b := &g.own[best]
	b.fade(f.now, &g.fader)
	b.inFlight++
	b.uncached += r.uncached
	b.waiting++
	r.waits = true
	b.recent += float64(r.uncached)
	if f.learns {
		if len(g.at) > 0 && cached < g.at[len(g.at)-1]*engine.BlockTokens { // else the table has all of it
			f.tellBooks(g.Index)
		}
		f.predict(g.Index, f.index.predict(f.now, r, best, f.generations[best], g.at))
	}
	if f.planner != nil {
		f.planner.Heat.AddOf(g.maker(), g.checkpoints(r), f.now)
		g.dispatched = max(f.now, 1)
		f.makeCopies(g, r)
	}
	f.rule.Dispatched(g, r, best)
	f.live[r.ID] = r
	r.onTheWay = true
	f.at(f.now+f.cfg.Delays.Hop, event{kind: submit, request: r})
}

// submit hands a request to its engine. One that is gone or full is left once
// for another.
func (f *Fleet) submit(r *Request) error {
	r.onTheWay = false
	w := f.workers[r.worker]
	err := errGone
	if w.up {
		err = w.engine.Submit(f.now, engine.Request{ID: r.ID, PromptTokens: r.Prompt, OutputTokens: r.Output, Blocks: r.blocks})
	}
	if err == nil {
		f.wakeAt(r.worker)
		return nil
	}
	g := f.gateways[r.gateway]
	f.unbook(g, r)
	delete(f.live, r.ID)
	switch {
	case errors.Is(err, errGone), errors.Is(err, engine.ErrQueueFull):
		if !r.retried {
			r.retried = true
			g.avoid[r.worker] = f.now + avoidFor
			f.dispatch(g, r)
			return nil
		}
	case !errors.Is(err, engine.ErrTooLong):
		return fmt.Errorf("virtual: request %d of the source: %w", r.ID, err)
	}
	f.end(r, Outcome{Refused: true, Worker: r.worker})
	return nil
}

// errGone is the connection that nobody takes.
var errGone = errors.New("virtual: the worker is gone")

// avoidFor is how long a gateway leaves a worker alone that failed.
const avoidFor = time.Second

func (f *Fleet) unbook(g *Gateway, r *Request) {
	if rule, ok := f.rule.(interface{ Failed(*Gateway, *Request) }); ok && r.firstToken == 0 {
		rule.Failed(g, r)
	}
	g.own[r.worker].inFlight--
	g.computed(r)
}

// computed takes a request's prompt off what is to be computed.
func (g *Gateway) computed(r *Request) {
	b := &g.own[r.worker]
	b.uncached -= r.uncached
	r.uncached = 0
	if r.waits {
		b.waiting--
		r.waits = false
	}
}

// wakeAt sets the time at which something next happens in an engine.
func (f *Fleet) wakeAt(i int) {
	w := f.workers[i]
	if at, ok := w.engine.NextEvent(); ok {
		at = max(at, f.now)
		if w.due != at {
			w.due = at
			f.at(at, event{kind: wake, worker: i})
		}
	} else {
		w.due = 0
	}
}

// advance takes what has happened in an engine.
func (f *Fleet) advance(i int) {
	w := f.workers[i]
	w.due = 0
	for _, e := range w.engine.Advance(f.now) {
		if c := f.slices[e.ID]; c != nil {
			f.sliceComputed(c)
			continue
		}
		r := f.live[e.ID]
		g := f.gateways[r.gateway]
		switch e.Kind {
		case engine.FirstToken:
			r.firstToken = e.At
			f.waiting--
			g.computed(r)
		case engine.Finished:
			if r.firstToken == 0 {
				r.firstToken = e.At
				f.waiting--
			}
			f.unbook(g, r)
			delete(f.live, r.ID)
			if f.aftermath != nil {
				f.aftermath.answered(f, r, i)
			}
			o := Outcome{Worker: i, Cached: e.CachedTokens, TTFT: r.firstToken - r.arrived, FirstToken: r.firstToken, Ended: e.At}
			if e.Generated > 1 {
				o.TPOT = (e.At - r.firstToken) / time.Duration(e.Generated-1)
			}
			f.end(r, o)
		}
	}
	f.wakeAt(i)
}

// end records a request and lets its conversation go on.
func (f *Fleet) end(r *Request, o Outcome) {
	o.Request, o.Arrived, o.Predicted, o.Held = r, r.arrived, r.predicted, r.held*engine.BlockTokens
	if o.Ended == 0 {
		o.Ended = f.now
	}
	f.open--
	f.done++
	if r.firstToken == 0 {
		f.waiting--
	}
	switch {
	case o.Refused:
		f.counts.Refused++
	case o.Failed:
		f.counts.Failed++
	default:
		f.counts.Answered++
	}
	if f.cfg.Record != nil {
		f.cfg.Record(o)
	}
	if f.cfg.Progress != nil && f.done%1000 == 0 {
		f.cfg.Progress(f.done)
	}
	if at, next, ok := f.cfg.Source.After(r, f.now); ok {
		f.open++
		f.at(max(at, f.now), event{kind: arrive, request: next})
	}
}

// report samples a worker; the gateways have it a moment later.
func (f *Fleet) report(i int) {
	d := f.cfg.Delays
	f.at(f.now+d.ReportEvery, event{kind: takeReport, worker: i})
	w := f.workers[i]
	r := &report{taken: max(f.now, 1)}
	if w.up {
		r.stats = w.engine.Stats(f.now)
		f.wakeAt(i)
	}
	if f.cfg.Sampled != nil {
		var total book
		for _, g := range f.gateways {
			total.uncached += g.own[i].uncached
			total.waiting += g.own[i].waiting
		}
		f.cfg.Sampled(Sample{i, total.uncached, total.waiting, r.stats.Work, len(f.gateways[0].view.Homes), r.stats.AnswerBlocks}, f.now)
	}
	if !w.up {
		return // silence: nobody reports for a dead worker
	}
	f.at(f.now+d.Report, event{kind: giveReport, worker: i, report: r})
}

// fault lets something happen to workers.
func (f *Fleet) fault(x Fault) {
	f.aftermath.fault(f.now)
	for _, i := range x.Workers {
		w := f.workers[i]
		switch x.Kind {
		case Announce:
			w.evictUntil = f.evictionOf(i)
		case Evict:
			if w.up {
				w.engine.ClearCache(f.now)
				f.wakeAt(i)
			}
			w.empty, w.evictUntil = f.now, 0
			w.lost++
		case Return:
			if w.up {
				continue
			}
			f.generations[i]++
			f.index.forget(i)
			if err := f.start(w, i); err != nil {
				panic(err) // the same parameters were good before
			}
			w.empty = f.now
			f.state(i, route.Healthy)
		case Die:
			if w.up {
				f.die(i)
			}
		case markDown:
			if !w.up {
				f.state(i, route.Down)
			}
		}
	}
}

// die loses a worker with its cache. What it had not begun to answer goes to
// another, once.
func (f *Fleet) die(i int) {
	w := f.workers[i]
	f.advance(i) // what it had answered until now was received
	w.busy = w.worked(f.now)
	f.counts.take(w.engine.Stats(f.now))
	w.engine, w.up, w.due = nil, false, 0
	w.lost++
	known := f.now + time.Second
	if f.now == 0 {
		known = 0 // it was never there
	}
	f.at(known, event{kind: faultEvent, worker: f.addFault(Fault{Workers: []int{i}, Kind: markDown})})
	f.loseSlices(i)
	for _, r := range f.at1(i) {
		if r.onTheWay {
			continue // finds out when it gets there
		}
		g := f.gateways[r.gateway]
		f.unbook(g, r)
		delete(f.live, r.ID)
		if r.firstToken == 0 && !r.retried { // nothing was answered yet: another takes it
			r.retried = true
			g.avoid[i] = f.now + avoidFor
			f.dispatch(g, r)
			continue
		}
		f.end(r, Outcome{Failed: true, Worker: i})
	}
}

// markDown is control's word that a worker is gone, a second after.
const markDown FaultKind = 255

func (f *Fleet) addFault(x Fault) int {
	f.cfg.Faults = append(f.cfg.Faults, x)
	return len(f.cfg.Faults) - 1
}

// evictionOf is when a worker's announced eviction happens.
func (f *Fleet) evictionOf(worker int) time.Duration {
	for _, x := range f.cfg.Faults {
		if x.Kind == Evict && x.At >= f.now && slices.Contains(x.Workers, worker) {
			return x.At
		}
	}
	return 0
}

func (f *Fleet) state(worker int, s route.State) {
	for _, g := range f.gateways {
		g.view.Workers[worker].State = s
		g.avoid[worker] = 0
	}
}

// at1 lists the requests at a worker in the order of their numbers.
func (f *Fleet) at1(worker int) (all []*Request) {
	for _, r := range f.live {
		if r.worker == worker {
			all = append(all, r)
		}
	}
	sortRequests(all)
	return all
}

// Busy is how long each worker has worked since Config.BusyFrom.
func (f *Fleet) Busy() []time.Duration {
	busy := make([]time.Duration, len(f.workers))
	for i, w := range f.workers {
		busy[i] = w.worked(f.now) - w.before
	}
	return busy
}

// Counts tells what became of the requests.
func (f *Fleet) Counts() Counts {
	c := f.counts
	for _, w := range f.workers {
		if w.engine != nil {
			c.take(w.engine.Stats(f.now))
		}
	}
	return c
}

// take adds what an engine did.
func (c *Counts) take(s engine.Stats) {
	c.Preemptions += int(s.Preemptions)
	c.RecomputedTokens += int(s.RecomputedTokens)
}

// Saturated tells whether the run was given up because its queue only grew.
func (f *Fleet) Saturated() bool { return f.saturated }

// Now is the virtual time.
func (f *Fleet) Now() time.Duration { return f.now }
