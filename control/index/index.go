package index

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/warmpath/warmpath/shared/fingerprint"
)

// Config bounds an Index. Zero values take the defaults.
type Config struct {
	// MaxBytes caps nodes and maps. Of what workers used least recently the least
	// valuable goes first. 512 MiB (about 4.5 million checkpoints).
	MaxBytes int64
	// MaxPendingBytes caps the dispatches that wait for their done report; the
	// oldest go first. 64 MiB.
	MaxPendingBytes int64
	// PendingAge is how long a dispatch may wait for its done report. 15 min.
	PendingAge time.Duration
	// Replica tells the orders of several indexes apart that hear the same; see Order.
	// Below 4,096.
	Replica uint16
}

// WorkerSpec is what the index needs to know of a worker.
type WorkerSpec struct {
	Ref            uint16
	Pool           string
	CapacityTokens int
	// CapacityAssumed: nobody said how large the cache is, so nothing is said of what is free in it.
	CapacityAssumed bool
	BlockTokens     int
	PrefillRate     float64 // tokens/s, starting point of the learned rate; 0 unknown
}

// RequestID names one request: ids are unique within a gateway's boot only.
type RequestID struct {
	Gateway uint64
	ID      uint64
}

// Dispatch is a dispatch report.
type Dispatch struct {
	Request RequestID
	// Order of the report among all, where another index hears it too; 0: now.
	Order       uint64
	Chosen      uint16 // 0: nobody was chosen
	PromptUnits uint32
	// MatchedUnits of the prompt were expected in the chosen worker's cache.
	MatchedUnits uint32
	Path         []Checkpoint // ascending by End; copied
	// Idle: nothing waited and hardly anything ran at the chosen worker, so the
	// time to the first token will be prefill time.
	Idle bool
	// Observe: the choice wasn't carried out, so it predicts nothing before the
	// done report says who served.
	Observe bool
	// Copy: no client asked, a gateway has made a copy of a prefix. The worker has it and had the
	// work, and it tells nothing of what requests begin with, hit and wait for.
	Copy bool
}

// Outcome of a request, as in the done report.
type Outcome uint8

// Outcomes.
const (
	Complete        Outcome = 1
	ClientAbort     Outcome = 2
	UpstreamFailure Outcome = 3
	Refused         Outcome = 4
	Local           Outcome = 5
)

// Done is a done report. Token counts are -1 when the engine didn't say.
type Done struct {
	Request         RequestID
	Order           uint64 // as of a Dispatch
	Served          uint16 // 0: unknown
	Outcome         Outcome
	PredictedTokens uint32
	CachedTokens    int32
	PromptTokens    int32
	OutputTokens    int32
	TTFT            time.Duration // negative: no token was seen
	Total           time.Duration
}

// Counters count what happened since the index was made.
type Counters struct {
	Dispatches, Dones             uint64
	UnknownRef                    uint64 // reports that name a ref nobody has
	UnknownRequest                uint64 // done without dispatch (restart, expiry)
	Malformed                     uint64 // paths that contradict what is known
	Moved                         uint64 // predictions moved to the worker that served
	Undone                        uint64 // predictions taken back
	Shortfalls                    uint64 // the engine held less than was proven before
	StaleDropped                  uint64 // checkpoints dropped by shortfalls
	UsageMissing                  uint64
	EvictedCapacity               uint64 // by the model of a worker's cache
	EvictedBytes                  uint64 // by MaxBytes
	PendingExpired                uint64
	PredictedTokens, CachedTokens uint64 // over done reports with usage
	CameTrueTokens                uint64 // min(predicted, cached)
	MoreTokens                    uint64 // cached beyond what was predicted
	Reported, Withdrawn           uint64 // checkpoints that engines reported and took back
	Told                          uint64 // checkpoints that heartbeats named
	Unreported                    uint64 // predictions that a reporting engine never came to confirm
}

// Index is safe for concurrent use.
type Index struct {
	cfg Config

	mu       sync.Mutex
	store    *store
	models   map[uint16]*model
	learned  map[uint16]*learned
	pools    map[string]*poolStats
	poolSize map[string]int
	restored map[uint16]*restoredModel
	pending  pendingSet
	early    earlySet
	seq      uint64   // the latest order
	times    timeline // of seq
	counters Counters
}

// New returns an empty index.
func New(cfg Config) *Index {
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, 512<<20)
	cfg.MaxPendingBytes = cmp.Or(cfg.MaxPendingBytes, 64<<20)
	cfg.PendingAge = cmp.Or(cfg.PendingAge, 15*time.Minute)
	x := &Index{cfg: cfg, restored: map[uint16]*restoredModel{}}
	x.reset()
	return x
}

func (x *Index) reset() {
	x.store = newStore()
	x.models = map[uint16]*model{}
	x.learned = map[uint16]*learned{}
	x.pools = map[string]*poolStats{}
	x.poolSize = map[string]int{}
	x.pending = newPendingSet(x.cfg.MaxPendingBytes)
	x.early = earlySet{}
}

// AddWorker makes a ref live, or gives a live one other settings. If a snapshot
// brought entries of that ref, or reports that came too early, they count from now on.
func (x *Index) AddWorker(w WorkerSpec) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.models[w.Ref]
	if m == nil {
		defer x.retryEarly()
		m = newModel(x.store, w.Ref)
		x.models[w.Ref] = m
		x.learned[w.Ref] = newLearned(w.PrefillRate)
		x.poolSize[w.Pool]++
		m.pool = w.Pool
		if r := x.restored[w.Ref]; r != nil && r.pool == w.Pool {
			r.into(m, x.learned[w.Ref])
			x.poolOf(w.Pool).tokensPerUnit = max(r.tokensPerUnit, 1)
			x.seq = max(x.seq, r.seq)
		}
		delete(x.restored, w.Ref)
	}
	m.capacityTokens, m.blockTokens = w.CapacityTokens, w.BlockTokens
	m.capacityAssumed = w.CapacityAssumed
	for x.store.bytes() > x.cfg.MaxBytes && x.evictOldest(64) {
	}
	x.counters.EvictedCapacity += uint64(m.shrink(x.capacityUnits(m)))
}

// RemoveWorker forgets a ref and all it held.
func (x *Index) RemoveWorker(ref uint16) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.models[ref]
	if m == nil {
		return
	}
	m.clear()
	delete(x.models, ref)
	delete(x.learned, ref)
	if x.poolSize[m.pool]--; x.poolSize[m.pool] == 0 {
		delete(x.poolSize, m.pool)
		delete(x.pools, m.pool)
	}
}

// Clear forgets every entry and every dispatch under way, not the workers nor
// what was learned about them.
func (x *Index) Clear() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, m := range x.models {
		m.clear()
	}
	x.pending = newPendingSet(x.cfg.MaxPendingBytes)
	x.early = earlySet{}
	clear(x.restored)
	x.store.remembered = nil
}

// Dispatch takes a prediction in: the chosen worker will hold the whole path.
func (x *Index) Dispatch(d Dispatch, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.counters.Dispatches++
	if !validPath(d.Path) {
		x.counters.Malformed++
		return
	}
	d.Order = x.order(d.Order, now)
	if !x.tooEarly(d.Request, d.Chosen) {
		x.dispatch(d, now)
		return
	}
	d.Path = slices.Clone(d.Path)
	x.early.add(early{at: now, dispatch: &d})
	x.endEarly(time.Time{})
}

func (x *Index) dispatch(d Dispatch, now time.Time) {
	if x.pending.has(d.Request) {
		return // a gateway that can't tell whether it was heard says it again
	}
	p := pending{copy: d.Copy, id: d.Request, at: now, seq: d.Order, chosen: d.Chosen, idle: d.Idle, promptUnits: d.PromptUnits, path: slices.Clone(d.Path)}
	m := x.models[d.Chosen]
	switch {
	case m == nil:
		if d.Chosen != 0 {
			x.counters.UnknownRef++
		}
		p.chosen = 0
	case d.Observe:
	default:
		p.counted, p.work = true, float64(d.PromptUnits-min(d.MatchedUnits, d.PromptUnits))*fingerprint.UnitTokens
		x.learned[d.Chosen].recent.add(p.work, now)
		if !d.Copy {
			x.learned[d.Chosen].hits.dispatched(&d)
		}
	}
	if m != nil && len(d.Path) > 0 {
		_, p.confirmed = m.deepest(d.Path)
		if !d.Copy {
			x.poolOf(m.pool).saw(d.Path)
			x.warmMatch(d.Path)
		}
		if !d.Observe && !m.spread {
			if p.inserted = x.insert(m, d.Path, d.Order); p.inserted {
				m.predict(d.Path)
				p.born = m.born
			}
			if !d.Copy {
				x.expectNext(d.Path)
			}
			m.awaitReport(d.Path, now.Add(unansweredFor))
		}
	}
	x.counters.PendingExpired += uint64(x.pending.add(p))
}

// Done settles a dispatch.
func (x *Index) Done(d Done, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.counters.Dones++
	d.Order = x.order(d.Order, now)
	if !x.tooEarly(d.Request, d.Served) {
		x.done(d, now)
		return
	}
	x.early.add(early{at: now, done: &d})
	x.endEarly(time.Time{})
}

func (x *Index) done(d Done, now time.Time) {
	served := x.models[d.Served]
	if served == nil && d.Served != 0 {
		x.counters.UnknownRef++
	}
	answered := d.Outcome == Complete || d.Outcome == ClientAbort && d.TTFT >= 0
	p, ok := x.pending.take(d.Request)
	if !ok {
		x.counters.UnknownRequest++
		if served != nil && answered {
			x.learnRates(served, &d, false)
		}
		return
	}
	chosen := x.models[p.chosen]
	x.moveWork(&p, &d, answered, now)
	if !answered {
		x.undo(chosen, &p)
		return
	}
	if served == nil && d.Served == 0 && !p.observed() {
		// It was answered, and nobody says by whom: most likely as it was told.
		served = chosen
	}
	if chosen != nil && served != chosen {
		x.undo(chosen, &p)
	}
	if served == nil {
		return
	}
	if served != chosen && p.inserted {
		x.counters.Moved++
	}
	if served.spread {
		if !p.copy {
			x.learnRates(served, &d, p.idle && served == chosen)
			x.settle(served, chosen, &p, &d, now)
		}
		return // one of its caches has the prompt now, and reports it
	}
	// Whoever answered has computed the whole prompt, and an engine counts a
	// block's age from the end of the request that used it last.
	if !x.insert(served, p.path, d.Order) {
		return
	}
	if !p.copy {
		x.learnRates(served, &d, p.idle && served == chosen)
		x.settle(served, chosen, &p, &d, now)
	}
	served.confirm(p.path)
	served.awaitReport(p.path, now.Add(unreportedFor))
	x.proven(served, &p, &d, now)
	x.holdOutput(served, &p, &d)
}

// settle compares what the worker was proven to hold with what it says it held.
func (x *Index) settle(served, chosen *model, p *pending, d *Done, now time.Time) {
	x.learned[served.ref].hits.answered(d)
	if d.CachedTokens < 0 {
		x.counters.UsageMissing++
		return
	}
	cached := float64(d.CachedTokens)
	x.counters.PredictedTokens += uint64(d.PredictedTokens)
	x.counters.CachedTokens += uint64(d.CachedTokens)
	x.counters.CameTrueTokens += uint64(min(cached, float64(d.PredictedTokens)))
	x.counters.MoreTokens += uint64(max(cached-float64(d.PredictedTokens), 0))
	pool := x.poolOf(served.pool)
	ratio := pool.tokensPerUnit
	if d.PromptTokens > 0 && p.promptUnits > 0 {
		ratio = float64(d.PromptTokens) / float64(p.promptUnits)
		pool.learnRatio(ratio, p.promptUnits)
	}
	if served != chosen {
		return
	}
	// Only what an engine had confirmed before this dispatch can be found wanting:
	// of two siblings on their way together the second hits what the first has
	// computed so far, and that is nobody's fault.
	expected := min(float64(d.PredictedTokens), float64(p.confirmed)*ratio)
	if expected < 1 {
		return
	}
	block := float64(max(served.blockTokens, 1))
	if cached >= 0.9*expected-block {
		x.learned[served.ref].trust.prove(1, now)
		return
	}
	x.counters.Shortfalls++
	x.learned[served.ref].trust.prove(cached/expected, now)
	x.counters.StaleDropped += uint64(served.dropStale(p.path, uint32(math.Ceil(cached/ratio)), p.seq))
}

// holdOutput counts the generated text: the engine caches it behind the prompt.
func (x *Index) holdOutput(m *model, p *pending, d *Done) {
	if d.OutputTokens <= 0 || len(p.path) == 0 {
		return
	}
	id, ok := m.at[p.path[len(p.path)-1].Fingerprint]
	if !ok || m.node(id).child != 0 {
		return
	}
	m.setTail(id, uint32(float64(d.OutputTokens)/x.poolOf(m.pool).tokensPerUnit))
	x.counters.EvictedCapacity += uint64(m.shrink(x.capacityUnits(m)))
}

func (x *Index) undo(m *model, p *pending) {
	if m == nil || !p.inserted {
		return
	}
	x.counters.Undone++
	m.undo(p.path, p.born)
}

// insert adds a path that was used at that order, within both bounds.
func (x *Index) insert(m *model, path []Checkpoint, order uint64) bool {
	room := x.cfg.MaxBytes - int64(len(path))*(nodeBytes+fingerprintBytes)
	for x.store.bytes() > room && x.evictOldest(64) {
	}
	if !m.insert(path, order) {
		x.counters.Malformed++
		return false
	}
	x.counters.EvictedCapacity += uint64(m.shrink(x.capacityUnits(m)))
	return true
}

// evictOldest drops up to n checkpoints. Of each worker only the least recently
// used may go, as nothing hangs on it; the least valuable of those is where it
// begins.
func (x *Index) evictOldest(n int) bool {
	var victim *model
	least := math.Inf(1)
	for _, m := range x.models {
		if m.oldest == 0 {
			continue
		}
		if v := x.value(m.node(m.oldest).fingerprint); victim == nil || v < least {
			victim, least = m, v
		}
	}
	if victim == nil {
		return false
	}
	for ; n > 0 && victim.oldest != 0; n-- {
		victim.removeLeaf(victim.oldest)
		x.counters.EvictedBytes++
	}
	return true
}

func (x *Index) capacityUnits(m *model) uint64 {
	if m.reporting {
		return math.MaxUint64
	}
	return uint64(float64(m.capacityTokens) / x.poolOf(m.pool).tokensPerUnit)
}

// Tick forgets dispatches whose done report never came. Their predictions stay:
// the model's own eviction will see to them.
func (x *Index) Tick(now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.endEarly(now.Add(-earlyFor))
	x.counters.PendingExpired += uint64(x.pending.expire(now.Add(-x.cfg.PendingAge)))
	for _, m := range x.models {
		x.counters.Unreported += uint64(m.expireUnproven(now))
	}
}

// Change is the new state of one fingerprint. Without holders it is gone.
type Change struct {
	Fingerprint uint64
	Holders     []uint16 // newest first; valid during the call only
	PoolSize    int      // live workers of the holders' pool
}

// Drain calls f for every fingerprint whose holders changed since the last
// Drain, in ascending order.
func (x *Index) Drain(f func(Change)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	dirty := x.store.dirty
	x.store.dirty = nil
	slices.Sort(dirty)
	dirty = slices.Compact(dirty)
	var scratch []uint16
	for _, fp := range dirty {
		scratch = x.visit(fp, scratch, f)
	}
}

// Each calls f for every fingerprint that has holders, in no order. Pending
// changes stay pending.
func (x *Index) Each(f func(Change)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	var scratch []uint16
	for fp := range x.store.holders {
		scratch = x.visit(fp, scratch, f)
	}
}

func (x *Index) visit(fp uint64, scratch []uint16, f func(Change)) []uint16 {
	scratch = x.store.appendHolders(scratch[:0], fp)
	c := Change{Fingerprint: fp, Holders: scratch}
	if len(scratch) > 0 {
		if m := x.models[scratch[0]]; m != nil {
			c.PoolSize = x.poolSize[m.pool]
		}
	}
	f(c)
	return scratch
}

// Stats is the size of the index.
type Stats struct {
	Counters
	Fingerprints, Nodes, Pending int
	Bytes, PendingBytes          int64
}

// Stats returns counters and sizes.
func (x *Index) Stats() Stats {
	x.mu.Lock()
	defer x.mu.Unlock()
	return Stats{
		Counters: x.counters, Fingerprints: len(x.store.holders), Nodes: x.store.live,
		Pending: len(x.pending.byID), Bytes: x.store.bytes(), PendingBytes: x.pending.bytes,
	}
}

// WorkerStats is what is known about one worker's cache and speed.
type WorkerStats struct {
	Ref           uint16
	Entries       int
	CoveredTokens float64 // of CapacityTokens, as modelled
	Trust         float64 // 0..1
	// Asked is how many answers could prove something lately, Came how many of them did, in
	// whole and in part: what Trust rests on. Both fade by 1/e in a minute.
	Asked, Came   float64
	Hits          Hits
	PrefillRate   float64 // tokens/s, 0 unknown
	DecodeSeconds float64 // per token, 0 unknown
	// FreeTokens fit without pushing anything out. It is 0 and TailAt zero while the size of
	// the cache is not known.
	FreeTokens float64
	// TailAt is when what would be pushed out next was used last, or some time after; zero unknown.
	TailAt time.Time
	// RecentTokens is the uncached work sent there, each token fading by 1/e in 10 s.
	RecentTokens float64
}

// Worker returns what is known about a live ref.
func (x *Index) Worker(ref uint16, now time.Time) (WorkerStats, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.models[ref]
	if m == nil {
		return WorkerStats{}, false
	}
	l := x.learned[ref]
	s := WorkerStats{
		Ref: ref, Entries: len(m.at), CoveredTokens: float64(m.units) * x.poolOf(m.pool).tokensPerUnit,
		PrefillRate: l.prefill.rate(), DecodeSeconds: l.decodeSeconds, RecentTokens: l.recent.at(now),
	}
	l.trust.fade(now)
	s.Trust, s.Asked, s.Came, s.Hits = l.trust.value(), l.trust.asked, l.trust.came, l.hits
	if !m.capacityAssumed && m.oldest != 0 {
		s.FreeTokens = max(0, float64(m.capacityTokens)-s.CoveredTokens)
		s.TailAt = x.times.of(m.node(m.oldest).touched)
	}
	return s, true
}

// validPath checks what every path must be: positions ascending, at most 256,
// no zero fingerprint (the key of no text).
func validPath(path []Checkpoint) bool {
	if len(path) > 256 {
		return false
	}
	last := uint32(0)
	for _, c := range path {
		if c.End <= last || c.End > 1<<24 || c.Fingerprint == 0 {
			return false
		}
		last = c.End
	}
	return true
}
