package fleet

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/ring"
	"github.com/warmpath/warmpath/shared/route"
	"github.com/warmpath/warmpath/shared/wire"
)

const (
	// maxWorkers bounds a roster, as the ring does.
	maxWorkers = ring.MaxMembers
	// avoidDefault is how long a worker that failed is left alone here, until
	// control has spread the word; avoidMost bounds a worker's own wish.
	avoidDefault = time.Second
	avoidMost    = 10 * time.Second
)

// Pool is the workers of one pool as route.Choose wants them. The view is kept
// up to date in place: decoding loads and every change of the books touch it.
type Pool struct {
	View route.View
	// Copies of the pool's hot prefixes that this gateway has to make.
	Copies []wire.Copy

	refs     []uint16
	members  []ring.Member
	nodes    int // virtual nodes the ring was built with
	sequence uint64
	exact    exact
}

// NextSequence counts the pool's requests in this VM.
func (p *Pool) NextSequence() uint64 {
	p.sequence++
	return p.sequence
}

// worker is one record of the roster.
type worker struct {
	ref        uint16
	at         int // position in pool.View.Workers
	pool       *Pool
	address    string // with its rank
	endpoint   string // without: where it is reached
	rank       uint8  // data-parallel, + 1; 0 none
	name       uint32
	generation uint64
	avoidUntil int64   // unix ns: local mark
	kvShare    float64 // of the last load record
	avoidFor   time.Duration
	inFlight   int // fleet-wide as control knew it, less what this gateway had then
	uncached   int
	recent     float64 // the fleet's recent work at loadsTime, less this VM's
	before     int     // this gateway's requests in flight when the loads were read
}

// workers indexes the roster by ref and address.
type workers struct {
	index     *[1 << 16]uint16 // position in list + 1
	list      []worker
	byAddress map[string]uint16 // endpoints; of several ranks the last
	count     int
}

func (w *workers) init() {
	w.index = new([1 << 16]uint16)
	w.byAddress = map[string]uint16{}
}

// reset forgets all workers and keeps the memory.
func (w *workers) reset() {
	for i := range w.list {
		w.index[w.list[i].ref] = 0
	}
	w.list, w.count = w.list[:0], 0
	clear(w.byAddress)
}

func (w *workers) of(ref uint16) *worker {
	if i := w.index[ref]; i != 0 {
		return &w.list[i-1]
	}
	return nil
}

// RefOf is the ref of the worker that is reached at an address, 0 for none. Of several ranks
// there it is the one that was meant, and 0 where none was.
func (f *Fleet) RefOf(address string, meant ...uint16) uint16 {
	ref := f.workers.byAddress[address]
	if w := f.workers.of(ref); w == nil || w.rank == 0 {
		return ref
	}
	for _, m := range meant {
		if w := f.workers.of(m); w != nil && w.endpoint == address {
			return m
		}
	}
	return 0
}

// AddressOf is the name of a worker, its address with its rank; empty for an unknown ref.
func (f *Fleet) AddressOf(ref uint16) string {
	if w := f.workers.of(ref); w != nil {
		return w.address
	}
	return ""
}

// EndpointOf is where a worker is reached, empty for an unknown ref.
func (f *Fleet) EndpointOf(ref uint16) string {
	if w := f.workers.of(ref); w != nil {
		return w.endpoint
	}
	return ""
}

// RankOf is the data-parallel rank of a worker behind its endpoint, -1 where it is alone.
func (f *Fleet) RankOf(ref uint16) int {
	if w := f.workers.of(ref); w != nil {
		return int(w.rank) - 1
	}
	return -1
}

// WorkerName is the opaque name of a worker, 0 for an unknown ref.
func (f *Fleet) WorkerName(ref uint16) uint32 {
	if w := f.workers.of(ref); w != nil {
		return w.name
	}
	return 0
}

// Excluded appends the refs of opaque worker names.
func (f *Fleet) Excluded(names [2]uint32, out []uint16) []uint16 {
	if names[0] == 0 {
		return out
	}
	for i := range f.workers.list {
		if w := &f.workers.list[i]; w.name == names[0] || w.name == names[1] {
			out = append(out, w.ref)
		}
	}
	return out
}

// PoolOf is the pool that serves a model, nil for none. An unknown model (the
// empty name) is served by the pool for all others, or by the only one.
func (f *Fleet) PoolOf(model string) *Pool {
	if f.policy == nil {
		return nil
	}
	p := f.policy.Pool(model)
	if p == nil && model == "" && len(f.pools) == 1 {
		return f.pools[0]
	}
	for _, pool := range f.pools {
		if pool.View.Pool == p {
			return pool
		}
	}
	return nil
}

// ViewAt is the pool's view for a decision now.
func (f *Fleet) ViewAt(pool *Pool, now int64) *route.View {
	pool.View.Fresh = f.Fresh(now)
	return &pool.View
}

// Avoid marks a worker that failed or refused: it is left out here at once,
// before control has spread the word. seconds is the worker's own Retry-After,
// 0 for none. The longest mark counts, and every mark ends.
func (f *Fleet) Avoid(ref uint16, now int64, seconds int) {
	w := f.workers.of(ref)
	if w == nil {
		return
	}
	d := avoidDefault
	if seconds > 0 {
		d = min(time.Duration(seconds)*time.Second, avoidMost)
	}
	w.avoidUntil = max(w.avoidUntil, now+int64(d))
	f.Touched(ref)
}

// Touched brings a worker's place in its view up to the books.
func (f *Fleet) Touched(ref uint16) {
	w := f.workers.of(ref)
	if w == nil {
		return
	}
	own, sibling := f.Own.Of(ref), f.siblings.tally.Of(ref)
	here := int(own.InFlight) + int(sibling.InFlight)
	v := &w.pool.View.Workers[w.at]
	v.InFlight = w.inFlight + here
	v.UncachedTokens = w.uncached + int(own.UncachedTokens) + int(sibling.UncachedTokens)
	v.RecentTokens = w.recent + f.Recent.Of(ref, f.loadsTime)
	// What the engine's report doesn't count yet: more in flight than it
	// knew, or more from here than when the report came.
	since := max(v.InFlight-v.Running-v.Waiting, here-w.before, 0)
	v.Load = route.LoadOf(v, w.kvShare, since)
	v.AvoidFor = w.avoidFor
	if w.avoidUntil != 0 {
		v.AvoidFor = max(v.AvoidFor, f.Since(w.avoidUntil)-w.pool.View.At)
	}
}

// setPolicy puts a parsed policy in force and sorts the workers into its pools.
func (f *Fleet) setPolicy(set *policy.Set) {
	old := f.pools
	f.policy = set
	f.pools = make([]*Pool, len(set.Pools))
	for i := range set.Pools {
		// Round robin starts anywhere: VMs in step would all send their first
		// requests to the same worker.
		pool := &Pool{sequence: rand.Uint64() >> 1}
		for _, o := range old {
			if o.View.Pool.Name == set.Pools[i].Name {
				pool.View.At = o.View.At
				pool.View.Ring, pool.members, pool.nodes, pool.sequence = o.View.Ring, o.members, o.nodes, o.sequence
			}
		}
		pool.View.Pool, pool.View.Score = &set.Pools[i], f.Score
		f.pools[i] = pool
	}
	f.lookForScore()
	f.setExact(set)
}

// lookForScore counts and tells, once for a while, that the policy wants a score which this module
// hasn't. The policy is taken all the same: refused, it would leave a VM that starts later without
// any, and its requests unrouted.
func (f *Fleet) lookForScore() {
	missing := ""
	for _, pool := range f.pools {
		if pool.View.Pool.Policy.Name == policy.Custom && f.Score == nil {
			missing = pool.View.Pool.Name
			f.metrics.Inc(metrics.NoScore, 0)
		}
	}
	if missing != "" && missing != f.toldScore {
		abi.Log(abi.LogError, "warmpath: pool "+missing+" has the rule custom and this module has no score of its own: it decides by threshold with its defaults. "+
			"Give the proxy the module that was built with the score, or the pool another rule (counted in warmpath.no_score)")
	}
	f.toldScore = missing
}

// setRoster replaces the workers. A damaged roster changes nothing.
func (f *Fleet) setRoster(payload []byte) error {
	n := 0
	if err := wire.ForEachWorker(payload, func(*wire.Worker) error { n++; return nil }); err != nil {
		return err
	}
	if n > maxWorkers {
		return &wire.Error{What: "roster: more workers than a ring can hold"}
	}
	f.roster = append(f.roster[:0], payload...)
	// Two of them take turns: a roster leaves no garbage behind.
	old := f.workers
	f.workers, f.before = f.before, old
	f.workers.reset()
	for _, pool := range f.pools {
		pool.View.Workers = pool.View.Workers[:0]
		pool.refs = pool.refs[:0]
	}
	_ = wire.ForEachWorker(payload, func(r *wire.Worker) error {
		f.addWorker(r, &old)
		return nil
	})
	for _, pool := range f.pools {
		pool.buildRing()
	}
	return nil
}

func (f *Fleet) addWorker(r *wire.Worker, old *workers) {
	pool := f.poolByIndex(r.Pool)
	if pool == nil || f.workers.index[r.Ref] != 0 {
		return
	}
	w := worker{ref: r.Ref, pool: pool, generation: r.Generation, at: len(pool.View.Workers)}
	view := route.Worker{Ref: r.Ref, Trust: 1, Age: route.Never}
	w.rank = r.Rank
	if before := old.of(r.Ref); before != nil && before.generation == r.Generation && before.endpoint == string(r.Address) && before.rank == r.Rank {
		w.address, w.endpoint, w.name, w.avoidUntil = before.address, before.endpoint, before.name, before.avoidUntil
	} else {
		w.endpoint = string(r.Address)
		w.address = w.endpoint
		if r.Rank != 0 {
			w.address += "@" + strconv.Itoa(int(r.Rank)-1)
		}
		w.name = workerName([]byte(w.address), r.Generation)
	}
	view.Address, view.AddressKey, view.Rank = w.address, ring.Key(w.address), r.Rank
	view.MaxRunning, view.QueueLimit = int(r.MaxRunning), int(r.QueueLimit)
	view.BlockTokens = int(r.BlockTokens)
	pool.View.Workers = append(pool.View.Workers, view)
	pool.refs = append(pool.refs, r.Ref)
	f.workers.list = append(f.workers.list, w)
	f.workers.index[r.Ref] = uint16(len(f.workers.list))
	f.workers.byAddress[w.endpoint] = r.Ref
	f.workers.count++
}

func (f *Fleet) poolByIndex(index uint8) *Pool {
	for _, pool := range f.pools {
		if pool.View.Pool.Index == index {
			return pool
		}
	}
	return nil
}

// buildRing builds the ring anew when its members have changed.
func (p *Pool) buildRing() {
	nodes := p.View.Pool.Policy.VirtualNodes
	same := nodes == p.nodes && len(p.members) == len(p.View.Workers) && p.View.Ring != nil
	for i := 0; same && i < len(p.members); i++ {
		same = p.members[i].Ref == p.View.Workers[i].Ref && p.members[i].Address == p.View.Workers[i].Address
	}
	if same {
		return
	}
	p.members = p.members[:0]
	for i := range p.View.Workers {
		p.members = append(p.members, ring.Member{Ref: p.View.Workers[i].Ref, Address: p.View.Workers[i].Address})
	}
	p.nodes = nodes
	p.View.Ring = ring.Build(p.members, nodes)
}

// setCaches takes what control believes of the workers' caches and of their
// recent work. It comes with the loads and is true at the same time; Touched
// adds this VM's own work, weighed as of then. A damaged payload leaves all of
// it unknown.
func (f *Fleet) setCaches(payload []byte) error {
	for i := range f.workers.list {
		w := &f.workers.list[i]
		w.recent = 0
		v := &w.pool.View.Workers[w.at]
		v.FreeTokens, v.TailAge, v.CacheAge = 0, 0, 0
	}
	if err := wire.ForEachCache(payload, func(*wire.Cache) error { return nil }); err != nil {
		return err
	}
	return wire.ForEachCache(payload, func(c *wire.Cache) error {
		w := f.workers.of(c.Ref)
		if w == nil {
			return nil
		}
		v := &w.pool.View.Workers[w.at]
		v.FreeTokens = int(min(c.FreeTokens, 1<<31-1))
		v.TailAge = time.Duration(c.TailAgeMillis) * time.Millisecond
		v.CacheAge = time.Duration(c.EmptyAgeMillis) * time.Millisecond
		// Control's sum contains this VM's own but for its last reports.
		w.recent = max(0, float64(c.RecentTokens)-f.Recent.Of(c.Ref, f.loadsTime))
		return nil
	})
}

// setLoads brings the workers' load up to a LOADS payload that was true at the
// given time. A damaged one changes nothing.
func (f *Fleet) setLoads(payload []byte, at int64) error {
	if err := wire.ForEachLoad(payload, func(*wire.Load) error { return nil }); err != nil {
		return err
	}
	for _, pool := range f.pools {
		pool.View.At = f.Since(at)
	}
	return wire.ForEachLoad(payload, func(l *wire.Load) error {
		w := f.workers.of(l.Ref)
		if w == nil {
			return nil
		}
		v := &w.pool.View.Workers[w.at]
		v.State = route.State(l.State)
		v.Running, v.Waiting = int(l.Running), int(l.Waiting)
		v.Watermark, w.kvShare = float64(l.KVShare), float64(l.KVShare)
		v.DecodeSeconds = float64(l.DecodeSecondsPerToken)
		v.PrefillRate, v.Trust = float64(l.PrefillRate), float64(l.Trust)
		v.Age = route.Never
		if l.AgeMillis != wire.Never {
			v.Age = time.Duration(l.AgeMillis) * time.Millisecond
		}
		w.avoidFor = time.Duration(l.AvoidMillis) * time.Millisecond
		v.EvictShare, v.EvictFor = float64(l.EvictShare), time.Duration(l.EvictMillis)*time.Millisecond
		// The fleet's figures contain this gateway's own as of its last
		// batch; only the others' share is news.
		own, sibling := f.Own.Of(l.Ref), f.siblings.tally.Of(l.Ref)
		w.before = int(own.InFlight) + int(sibling.InFlight)
		w.inFlight = max(0, int(l.FleetInFlight)-w.before)
		w.uncached = max(0, int(l.FleetUncachedTokens)-int(own.UncachedTokens)-int(sibling.UncachedTokens))
		f.Touched(l.Ref)
		return nil
	})
}
