// Package fleet is what one VM knows of one deployment: the cache-location
// table, the workers with their load, its own books and those of its sibling
// VMs.
//
// All of it comes from shared data. The courier (package courier) writes the
// table's meta record, pages, roster, loads and policy there; Refresh looks at
// the meta record at most every 20 ms and decodes again what has a new
// version. A request asks PoolOf for its pool, Find for the workers that hold
// its prefix, and ViewAt for the pool as route.Choose wants it. In the other
// direction Tick writes the VM's row (what it has in flight) and its report
// chunks, which siblings and the courier read.
package fleet

import (
	"math/rand/v2"
	"time"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/books"
	"github.com/warmpath/warmpath/filter/config"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/filter/vocabs"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/route"
	"github.com/warmpath/warmpath/shared/table"
)

const (
	// refreshEvery is the most often the meta record is looked at.
	refreshEvery = 20 * time.Millisecond
	// freshFor is the age up to which a table may say that nobody can serve.
	freshFor = 30 * time.Second
)

// Fleet is one VM's knowledge of one deployment.
type Fleet struct {
	Keys    *Keys
	Pages   Pages
	Reports Reports
	// Vocabularies are those that this VM has loaded of the policy's.
	Vocabularies *vocabs.Set
	// Own is what this VM has in flight.
	Own *books.Tally
	// Recent is the uncached work that this VM has sent out lately.
	Recent *books.Recent
	// Score decides under the rule custom, nil in a module without one. It is set before the first
	// policy comes.
	Score route.Score
	// Nonce names this VM's boot: a slot that changes hands is told by it.
	Nonce uint64

	config  *config.Config
	metrics *metrics.Set
	started int64 // unix ns of the first look at the clock, for durations
	now     int64 // unix ns of the last Refresh or Tick
	ticks   uint32

	meta      table.Meta
	known     bool // meta is valid
	checkedAt int64
	asked     bool // a request came since the last tick
	orphaned  bool // no plugin context ticks this VM any more
	courier   bool // this VM is the courier
	swept     []byte
	rosterAt  uint64 // versions that are decoded
	loadsAt   uint64
	policyAt  uint64
	setsAt    uint64
	loadsTime int64             // unix ns when the loads in use were true
	roster    []byte            // the last good roster, for a new policy's pools
	policy    *policy.Set       // from control, or the static one
	admission *policy.Admission // nil: none
	pools     []*Pool
	workers   workers
	before    workers // of the roster before, for what is known of those who stay
	sets      []byte
	lookup    table.Lookup
	slow      []fingerprint.Checkpoint // scratch of FindSlow
	siblings  siblings
	sent      sent
	claims    claims
	row       row
	told      uint32 // kinds of bad data that were logged
	// toldTemplate is the last chat template that was said to be unknown.
	toldTemplate string
	// toldScore is the last pool that was said to want a score.
	toldScore string

	metaScratch  abi.Scratch
	valueScratch abi.Scratch
}

// New makes the fleet of a deployment. Nothing is read or written yet.
func New(deployment string, m *metrics.Set, rng *route.Rand) *Fleet {
	keys := NewKeys(deployment)
	f := &Fleet{
		Keys: keys, Own: books.NewTally(), Recent: books.NewRecent(), metrics: m,
		Nonce: rand.Uint64() ^ rng.Uint64(),
	}
	f.Pages.keys = keys
	f.Vocabularies = vocabs.New(keys.Keys, m, rng)
	f.siblings.tally = books.NewTally()
	f.workers.init()
	f.before.init()
	f.row.init(f)
	f.Reports.init(f)
	f.lookup.Set = f.set
	return f
}

// Configure sets the configuration in force: the newest plugin context's.
func (f *Fleet) Configure(cfg *config.Config) {
	f.config = cfg
	if f.policyAt == 0 && cfg.Static != nil {
		f.setPolicy(cfg.Static)
	}
}

// Config is the configuration in force.
func (f *Fleet) Config() *config.Config { return f.config }

// Metrics are the VM's counters.
func (f *Fleet) Metrics() *metrics.Set { return f.metrics }

// Clock is the time of the last Refresh or Tick, unix ns. A callback that
// needs no better one saves a host call.
func (f *Fleet) Clock() int64 { return f.now }

// Since turns a time into the duration that views and decisions count in.
func (f *Fleet) Since(now int64) time.Duration { return time.Duration(now - f.started) }

// Meta is the table's meta record as last seen; ok tells whether there is one.
func (f *Fleet) Meta() (meta table.Meta, ok bool) { return f.meta, f.known }

// KnowsPools tells whether a policy is known, from control or static.
func (f *Fleet) KnowsPools() bool { return f.policy != nil }

// Ready tells whether requests can be routed: a complete table and a roster,
// which may well list nobody.
func (f *Fleet) Ready() bool {
	return f.known && f.meta.Ready && f.policy != nil && f.rosterAt != 0
}

// Admission are the settings for admission, nil for none.
func (f *Fleet) Admission() *policy.Admission { return f.admission }

// PolicyPools are the pools of the policy.
func (f *Fleet) PolicyPools() []policy.Pool {
	if f.policy == nil {
		return nil
	}
	return f.policy.Pools
}

// Off tells whether the whole deployment observes only.
func (f *Fleet) Off() bool { return f.meta.Off || f.policy != nil && f.policy.Off }

// Fresh tells whether the table is young enough to say that nobody can serve.
func (f *Fleet) Fresh(now int64) bool {
	return f.known && now-f.meta.UpdatedUnixNanos < int64(freshFor)
}

// Refresh brings the VM up to the shared data's state, at most every 20 ms.
func (f *Fleet) Refresh(now int64) {
	f.setClock(now)
	f.asked = true
	if now-f.checkedAt < int64(refreshEvery) && f.checkedAt <= now {
		return
	}
	f.checkedAt = now
	f.readMeta()
	f.look(now)
}

// setClock takes the time, which is the machine's and may be set back. What is remembered until
// a time that has been already would then be believed until it comes again.
func (f *Fleet) setClock(now int64) {
	if f.started == 0 {
		f.started = now - 1
	}
	if now < f.now {
		f.siblings.at, f.siblings.scanned = 0, 0
		f.Pages.forgetAll()
		f.Recent.SetBack(f.now - now)
		for i := range f.workers.list {
			w := &f.workers.list[i]
			w.avoidUntil = min(w.avoidUntil, now+int64(avoidMost))
		}
	}
	f.now = now
}

// look reads the sibling rows when that was done a tick ago.
func (f *Fleet) look(now int64) {
	if now-f.siblings.scanned >= int64(f.config.Tick) {
		f.readSiblings(now)
	}
}

// Find appends the longest match of every worker for a prompt's checkpoints.
func (f *Fleet) Find(pool *Pool, checkpoints []fingerprint.Checkpoint, budget int, out []table.Match) []table.Match {
	f.Pages.Use(f.meta.Bits, f.now)
	f.lookup.Bits = f.meta.Bits
	f.lookup.Pool = pool.refs
	return f.lookup.Find(checkpoints, f.Pages.Get, budget, out)
}

// FindSlow appends the longest prefix that every worker has in any memory, some
// of it not the GPU's, where the pool gives it credit.
func (f *Fleet) FindSlow(pool *Pool, checkpoints []fingerprint.Checkpoint, budget int, out []table.Match) []table.Match {
	if pool.View.Pool.SlowCredit == 0 {
		return out
	}
	f.slow = append(f.slow[:0], checkpoints...)
	for i := range f.slow {
		f.slow[i].Fingerprint = fingerprint.Slow(f.slow[i].Fingerprint)
	}
	return f.Find(pool, f.slow, budget, out)
}
