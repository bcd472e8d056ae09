package discovery

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

// State of a worker; the numbers are those of the LOADS section.
type State uint8

// States. Unknown lasts from the listing to the end of the first probe.
const (
	Unknown State = iota
	Healthy
	Draining
	Down
)

func (s State) String() string {
	switch s {
	case Healthy:
		return "healthy"
	case Draining:
		return "draining"
	case Down:
		return "down"
	default:
		return "unknown"
	}
}

// Worker is a copy of one record.
type Worker struct {
	Spec
	Ref        uint16 // 0 until the first probe of its batch is over
	Generation uint64
	State      State
	Reason     string    // why it is in this state, for people
	Since      time.Time // when it got into this state
	LastSeen   time.Time // last successful health check; zero never
	Load       Load
	LoadAt     time.Time // when Load was read; zero never
	Gone       bool      // the last probe found nobody who listens
	// MetricsProblem is why the last scrape told nothing; empty after a good one.
	MetricsProblem string
	CachingOff     bool // the engine says that it keeps no prefixes
	// EvictShare of the cache goes, or is about to, until EvictUntil; zero none.
	EvictUntil time.Time
	EvictShare float64
	EvictWhy   string
	BeatAt     time.Time // last heartbeat; zero never
	Beats      uint64
	// BeatDraining: the last heartbeat asked for a drain.
	BeatDraining bool
	AvoidUntil   time.Time // end of the negative mark; zero none
	AvoidWhy     string
}

// Observation is what one probe round found out.
type Observation struct {
	OK      bool
	Refused bool   // the connection was refused: nobody listens
	Reason  string // of a failure, or a remark
	Load    *Load  // nil when metrics weren't read in this round
	// MetricsProblem is why they couldn't be; with neither of the two nobody tried.
	MetricsProblem string
}

// Hooks are called with the fleet's lock held, in the order in which things
// happened; they must not call back into the fleet.
type Hooks struct {
	Added   func(Worker)     // a ref is live (new worker, or new generation)
	Updated func(Worker)     // same ref, other settings
	Retired func(ref uint16) // a ref names nobody any more
	// Changed is called after any change that gateways should learn about;
	// urgent means now (state, roster, mark) rather than with the next loads.
	Changed func(urgent bool)
}

// FleetConfig sets the thresholds of the fleet. Zero values take the defaults.
type FleetConfig struct {
	Failures   int           // failed probes in a row that mark a worker down; 2
	Quarantine time.Duration // before a retired ref may name another worker; 10 min
	ForgetDown time.Duration // a worker down this long has lost its cache for us; 2 min
	// Agreed: refs are those of a list that several control services agree on, see
	// Agree. Wanted, beside the hooks, is called when workers are not in it.
	Agreed bool
	Wanted func()
}

// Fleet keeps one record per listed worker. All methods are safe for
// concurrent use and return at once; time comes from the caller.
type Fleet struct {
	cfg   FleetConfig
	hooks Hooks

	mu      sync.Mutex
	workers map[string]*worker // by canonical address
	refs    *refTable
	drained map[string]bool // drained at run time, beside Spec.Drain
	listed  bool
	opened  bool // the first refs were given
	served  bool // Ready was true
}

type worker struct {
	Worker
	listed       Spec   // Spec as the list has it
	facts        Facts  // that the engine told
	eventBlock   int    // tokens of a block in its KV events; 0 not told
	started      uint64 // of the process, Unix ms; 0 not told
	pageStarted  uint64 // what the metrics page said of it last
	beatSequence uint64
	probed       bool
	failures     int
	wasRefused   bool    // since the last success
	counted      uint64  // generation by counting
	source       genFrom // where Generation comes from
	progress     float64
	forgotten    bool
	marks        int // consecutive marks, for the back-off
	lastMark     time.Time
	loadReadOnce bool
}

type genFrom uint8

const (
	genNone genFrom = iota
	genCounted
	genStartTime
	genConfigured
)

// NewFleet returns an empty fleet.
func NewFleet(cfg FleetConfig, hooks Hooks) *Fleet {
	if cfg.Failures <= 0 {
		cfg.Failures = 2
	}
	cfg.Quarantine = cmp.Or(cfg.Quarantine, 10*time.Minute)
	cfg.ForgetDown = cmp.Or(cfg.ForgetDown, 2*time.Minute)
	if hooks.Added == nil {
		hooks.Added = func(Worker) {}
	}
	if hooks.Updated == nil {
		hooks.Updated = func(Worker) {}
	}
	if hooks.Retired == nil {
		hooks.Retired = func(uint16) {}
	}
	if hooks.Changed == nil {
		hooks.Changed = func(bool) {}
	}
	return &Fleet{cfg: cfg, hooks: hooks, workers: map[string]*worker{}, refs: newRefTable(cfg.Quarantine), drained: map[string]bool{}}
}

// Ref is what a state file keeps of one worker.
type Ref struct {
	Identity
	Ref     uint16
	Drained bool // at run time
}

// RestoreRef takes a Ref of an earlier run. Call it before the first SetList.
// False when it contradicts one already known. Where refs are agreed on, only the
// drain is taken.
func (f *Fleet) RestoreRef(r Ref) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.cfg.Agreed && !f.refs.restore(r.Identity, r.Ref) {
		return false
	}
	if r.Drained {
		f.drained[r.Address] = true
	}
	return true
}

// RestoreDone ends the restoring: pairs that no listed worker claims go into
// quarantine.
func (f *Fleet) RestoreDone(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id := range f.refs.ref {
		f.refs.retire(id, now)
	}
}

// Refs returns what a state file should keep: the refs of workers, and those
// that rest, which gateways may know still after a restart.
func (f *Fleet) Refs() []Ref {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]Ref, 0, len(f.refs.ref))
	for id, ref := range f.refs.ref {
		w := f.workers[id.Address]
		out = append(out, Ref{Identity: id, Ref: ref, Drained: w != nil && w.Ref == ref && f.drained[id.Address]})
	}
	slices.SortFunc(out, func(a, b Ref) int { return cmp.Compare(a.Ref, b.Ref) })
	return out
}

// SetList replaces the list (as Parse or Check returned it) and says which
// addresses came and went.
func (f *Fleet) SetList(specs []Spec, now time.Time) (added, removed []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listed = true
	want := make(map[string]Spec, len(specs))
	for _, s := range specs {
		want[s.Address] = s
	}
	changed := false
	for _, addr := range sortedKeys(f.workers) {
		w := f.workers[addr]
		s, keep := want[addr]
		if keep && s.Pool == w.Pool && s.Incarnation == w.Incarnation {
			continue
		}
		// Another pool or pod behind the same address is another worker.
		f.retire(w, now)
		delete(f.workers, addr)
		changed = true
		if !keep || s.Incarnation != w.Incarnation {
			delete(f.drained, addr)
		}
		if !keep {
			removed = append(removed, addr)
		}
	}
	for _, s := range specs {
		w, ok := f.workers[s.Address]
		if !ok {
			w = &worker{Worker: Worker{Spec: s, Since: now}, listed: s}
			if s.Generation != 0 {
				w.Generation, w.source = within(s.Incarnation, s.Generation), genConfigured
			}
			f.workers[s.Address] = w
			added = append(added, s.Address)
			changed = true
			continue
		}
		if w.listed == s {
			continue
		}
		changed = true
		old := w.listed
		w.listed = s
		w.fill()
		if s.Generation != old.Generation && s.Generation != 0 {
			f.newGeneration(w, s.Generation, genConfigured, now)
		}
		f.settle(w, now)
		if w.Ref != 0 {
			f.hooks.Updated(w.Worker)
		}
	}
	f.assign()
	if changed {
		f.hooks.Changed(true)
	}
	return added, removed
}

// Drain sets or lifts the run-time drain of a worker.
func (f *Fleet) Drain(address string, on bool, now time.Time) error {
	canonical, err := f.Listed(address)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if on {
		f.drained[canonical] = true
	} else {
		delete(f.drained, canonical)
	}
	if w, ok := f.workers[canonical]; ok {
		f.settle(w, now)
	}
	f.hooks.Changed(true)
	return nil
}

// Observe applies one probe round of the worker at address. Rounds of
// addresses that left the list are ignored.
func (f *Fleet) Observe(address string, o Observation, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w, ok := f.workers[address]
	if !ok {
		return
	}
	urgent := !w.probed
	w.probed = true
	if o.OK {
		urgent = f.observeUp(w, o, now) || urgent
	} else {
		w.failures++
		w.wasRefused = w.wasRefused || o.Refused
		w.Reason, w.Gone = o.Reason, o.Refused
		// A refused connection needs no second opinion.
		if o.Refused || w.failures >= f.cfg.Failures || w.LastSeen.IsZero() {
			w.failures = max(w.failures, f.cfg.Failures)
		}
	}
	urgent = f.settle(w, now) || urgent
	urgent = f.assign() || urgent
	f.hooks.Changed(urgent)
}

func (f *Fleet) observeUp(w *worker, o Observation, now time.Time) (urgent bool) {
	recovered := w.failures >= f.cfg.Failures
	w.LastSeen, w.Reason, w.Gone = now, o.Reason, false
	if o.Load != nil {
		l := *o.Load
		// A page without the start tells of another process by its counters alone.
		wentBack := w.loadReadOnce && l.Progress < w.progress && w.Load.Known == l.Known && w.source == genCounted
		urgent = f.takeLoad(w, l, now)
		w.loadReadOnce, w.progress, w.MetricsProblem = true, l.Progress, ""
		switch {
		case l.StartedMillis != 0:
			urgent = f.pageStartedAt(w, l.StartedMillis, now) || urgent
		case wentBack:
			w.counted++
			urgent = f.newGeneration(w, w.counted, genCounted, now) || urgent
		}
	} else if o.MetricsProblem != "" {
		w.MetricsProblem = o.MetricsProblem
	}
	if w.source == genNone {
		w.counted = f.refs.lastCounted(w.Address, w.Pool, w.Incarnation)
		f.newGeneration(w, w.counted, genCounted, now)
	} else if w.source == genCounted && recovered && w.wasRefused {
		// Nobody listened for a while: the process that answers now is a new one.
		w.counted++
		urgent = f.newGeneration(w, w.counted, genCounted, now) || urgent
	}
	if recovered {
		w.AvoidUntil, w.AvoidWhy, w.marks = time.Time{}, "", 0
	}
	w.failures, w.wasRefused, w.forgotten = 0, false, false
	return urgent
}

// newGeneration gives w another identity; entries of the old one go at once.
func (f *Fleet) newGeneration(w *worker, generation uint64, from genFrom, now time.Time) bool {
	generation = within(w.Incarnation, generation)
	if w.Generation == generation && w.source == from {
		return false
	}
	f.retire(w, now)
	w.Generation, w.source = generation, from
	w.AvoidUntil, w.AvoidWhy, w.marks = time.Time{}, "", 0
	w.EvictUntil, w.EvictShare, w.EvictWhy = time.Time{}, 0, ""
	w.beatSequence, w.BeatDraining = 0, false
	return true
}

func (f *Fleet) retire(w *worker, now time.Time) {
	if w.Ref == 0 {
		return
	}
	f.refs.retire(w.identity(), now)
	f.hooks.Retired(w.Ref)
	w.Ref = 0
}

// settle derives State from what is known; true when it changed.
func (f *Fleet) settle(w *worker, now time.Time) bool {
	state := Healthy
	switch {
	case !w.probed:
		state = Unknown
	case w.failures >= f.cfg.Failures:
		state = Down
	case w.Drain || f.drained[w.Address] || w.Load.Asleep || w.drains(now):
		state = Draining
	}
	if state == w.State {
		return false
	}
	w.State, w.Since = state, now
	return true
}

// assign gives refs to workers that were probed (or failed to answer). The first
// list waits for the last of its workers and gets them at once, in one order, so
// that the same list gets the same refs after a restart. Later ones come as they
// answer: a pod that hangs while it starts must not keep refs from others.
func (f *Fleet) assign() bool {
	var ids []Identity
	for _, w := range f.workers {
		if !w.probed && !f.opened {
			return false
		}
		if w.probed && w.Ref == 0 {
			ids = append(ids, w.identity())
		}
	}
	if len(ids) == 0 {
		return false
	}
	f.opened = true
	if f.cfg.Agreed {
		ids = slices.DeleteFunc(ids, func(id Identity) bool { _, ok := f.refs.ref[id]; return !ok })
		if len(f.wanted()) > 0 {
			f.cfg.Wanted()
		}
	}
	f.refs.assign(ids)
	given := false
	for _, id := range ids {
		w := f.workers[id.Address]
		w.Ref = f.refs.ref[id]
		if w.Ref != 0 {
			f.hooks.Added(w.Worker)
			given = true
		}
	}
	return given
}

// Mark kinds and how long the first mark of a row lasts; each further mark
// within MarkMemory doubles it, up to MarkLimit.
const (
	MarkRefused = 500 * time.Millisecond // 429 or 503 from the engine
	MarkFailed  = time.Second            // refused connection or reset
	MarkLimit   = 8 * time.Second
	MarkMemory  = 10 * time.Second
)

// Mark makes gateways avoid the worker for a while. Every mark has an end; of
// two the later end wins. One that comes while another runs is an echo of the same
// trouble: it counts as from the beginning of that one, and makes the next no longer.
// Unknown refs are ignored. True when a worker was marked.
func (f *Fleet) Mark(ref uint16, base time.Duration, why string, now time.Time) (address string, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for addr, w := range f.workers {
		if w.Ref != ref || ref == 0 {
			continue
		}
		if now.Sub(w.lastMark) > MarkMemory {
			w.marks = 0
		}
		if !now.Before(w.AvoidUntil) {
			w.marks++
			w.lastMark = now
		}
		if until := w.lastMark.Add(min(base<<min(w.marks-1, 8), MarkLimit)); until.After(w.AvoidUntil) {
			w.AvoidUntil, w.AvoidWhy = until, why
			f.hooks.Changed(true)
		}
		return addr, true
	}
	return "", false
}

// Tick drops the refs of workers that have been down so long that their cache
// can't be believed in. Call it about once a second.
func (f *Fleet) Tick(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, addr := range sortedKeys(f.workers) {
		w := f.workers[addr]
		if w.BeatDraining && f.settle(w, now) {
			f.hooks.Changed(true)
		}
		if w.State == Down && !w.forgotten && now.Sub(w.Since) >= f.cfg.ForgetDown && w.Ref != 0 {
			w.forgotten = true
			f.hooks.Retired(w.Ref)
			f.hooks.Added(w.Worker)
			f.hooks.Changed(true)
		}
	}
}

// Workers returns all records, by address.
func (f *Fleet) Workers() []Worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]Worker, 0, len(f.workers))
	for _, addr := range sortedKeys(f.workers) {
		w := f.workers[addr].Worker
		w.Drain = w.Drain || f.drained[addr]
		out = append(out, w)
	}
	return out
}

// Ready reports whether a list was given and every worker on it was probed.
func (f *Fleet) Ready() (ready bool, reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.listed {
		return false, "no worker list yet"
	}
	waiting := 0
	for _, w := range f.workers {
		if !w.probed {
			waiting++
		}
	}
	if waiting > 0 {
		return false, fmt.Sprintf("first probe of %d of %d workers not finished", waiting, len(f.workers))
	}
	if n := len(f.wanted()); n > 0 && f.cfg.Agreed && !f.served {
		return false, fmt.Sprintf("references of %d workers not agreed on yet", n)
	}
	f.served = true
	return true, ""
}

func (w *worker) identity() Identity {
	return Identity{Address: w.Address, Pool: w.Pool, Generation: w.Generation}
}

func sortedKeys(m map[string]*worker) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
