// Package admission runs the ledger in the control service: it tells the ledger the time and
// what the fleet can carry, answers the gateways' batches with leases, and lets the controllers
// move the shares.
//
// A second passes through it like this: each batch of a gateway brings its usage, which becomes
// leases in the ack, and its histograms of times to first token, which are added to the pool's
// window; ten times Tick lets the ledger forget who is gone; once the window of each pool goes to
// its controller, whose answer is the shares of the next second, and a line of its history.
package admission

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/quota"
	"github.com/warmpath/warmpath/shared/wire"
)

const (
	// TickInterval is how often Tick is called.
	TickInterval = 100 * time.Millisecond
	// controlInterval is the step of the controllers.
	controlInterval = time.Second
	// historyLength is how many steps are kept: ten minutes.
	historyLength = 600
	// hurryMillis is when the next batch should come while somebody waits.
	hurryMillis = 100
	maxSeen     = 8192
)

// Process is a process of a gateway, as it is remembered over a restart.
type Process struct {
	Name  string
	Nonce uint64
}

// Config of an Admission.
type Config struct {
	// Now is when it begins; its nanoseconds are the ledger's term.
	Now time.Time
	// Remembered are the gateways of the service before this one; nil when that is not known, empty
	// for none.
	Remembered []Process
	// Remember is told who has to be remembered: when a process has reported for the first time,
	// before it gets its first lease, which an error keeps back; and when one is forgotten.
	// It mustn't wait long: ErrNotYet says that it is under way.
	Remember func([]Process) error
	// Follows: there is no ledger before Lead.
	Follows bool
	// Law makes the law of a pool's controller; nil for the usual one.
	Law func() quota.Law
}

// ErrNotYet keeps a lease back that may be given in a moment.
var ErrNotYet = errors.New("not written yet")

// Start is what a ledger goes on from.
type Start struct {
	// Term is above that of any ledger before.
	Term uint64
	// Remembered as in Config.
	Remembered []Process
	// Open is how far the controllers let the classes below P0, by pool.
	Open map[string]float64
}

// Admission is the ledger of a control service. Safe for concurrent use.
type Admission struct {
	cfg Config

	mu       sync.Mutex
	ledger   *quota.Ledger     // nil while this one doesn't lead
	start    Start             // of the ledger, for what comes with the settings
	settings *policy.Admission // nil while the policy has none
	pools    map[uint8]*pool
	seen     map[histogramKey]*quota.Histogram
	joined   map[Process]bool
	demand   demand
	stepped  time.Time
}

// pool is what the controller of a pool works with.
type pool struct {
	quota.Pool
	told       bool // SetFleet was called
	fleet      Fleet
	controller quota.Controller
	windows    [policy.Classes]quota.Histogram
	history    []Moment
}

// histogramKey is one of the histograms that gateways keep since they began.
type histogramKey struct {
	nonce       uint64
	pool, class uint8
}

// Moment is one step of a pool's controller.
type Moment struct {
	At time.Time
	// P99Millis of the last second by class, 0 without any; Count of the first tokens.
	P99Millis [policy.Classes]uint32
	Count     [policy.Classes]uint64
	Shares    quota.Shares
	// Slots in use and waiting by class; Prefill are the tokens of both.
	InUse, Waiting, Prefill [policy.Classes]uint64
}

// New starts a ledger.
func New(cfg Config) *Admission {
	a := &Admission{
		cfg: cfg, pools: map[uint8]*pool{}, seen: map[histogramKey]*quota.Histogram{}, joined: map[Process]bool{}, stepped: cfg.Now,
		demand: demand{tenants: map[uint16]*asked{}},
	}
	if !cfg.Follows {
		a.Lead(Start{Term: uint64(cfg.Now.UnixNano()), Remembered: cfg.Remembered}, cfg.Now)
	}
	return a
}

// Lead starts a ledger, in place of any before.
func (a *Admission) Lead(s Start, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.start, a.ledger = s, quota.New(s.Term, s.Remembered == nil, a.at(now))
	a.joined, a.stepped = map[Process]bool{}, now
	a.demand = demand{tenants: map[uint16]*asked{}}
	if a.settings == nil {
		return
	}
	pools := make([]quota.Pool, 0, len(a.pools))
	for _, index := range sortedKeys(a.pools) {
		a.pools[index].told = false
		pools = append(pools, a.pools[index].Pool)
	}
	a.configure(pools, now)
	a.goOn()
}

// Follow ends the ledger: another service leads.
func (a *Admission) Follow() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ledger = nil
	clear(a.joined)
	clear(a.seen) // what comes until this one leads again is not of one second
	for _, p := range a.pools {
		p.windows, p.history = [policy.Classes]quota.Histogram{}, nil
	}
}

// goOn takes over what the ledger before left. Requires mu and settings.
func (a *Admission) goOn() {
	for _, p := range a.start.Remembered {
		a.ledger.Remember(p.Name, p.Nonce)
		a.joined[p] = true
	}
	for _, p := range a.pools {
		if open, ok := a.start.Open[p.Name]; ok {
			p.controller.Open = open
			a.ledger.SetShares(p.Index, p.controller.Shares(&a.settings.Classes))
		}
	}
	a.start = Start{}
}

// configure tells the ledger the settings. Requires mu.
func (a *Admission) configure(pools []quota.Pool, now time.Time) {
	a.ledger.Configure(a.settings, pools, a.at(now))
	for index, p := range a.pools {
		a.ledger.SetShares(index, p.controller.Shares(&a.settings.Classes))
	}
}

// at is a time of the ledger's clock. The first nanosecond is kept from it: 0 means never.
func (a *Admission) at(now time.Time) int64 { return now.Sub(a.cfg.Now).Nanoseconds() + 1 }

// Configure takes over settings, nil for none, and the pools of the policy.
func (a *Admission) Configure(settings *policy.Admission, pools []quota.Pool, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	first := a.settings == nil
	a.settings = settings
	if settings == nil {
		return
	}
	before := a.pools
	a.pools = map[uint8]*pool{}
	for _, p := range pools {
		next := &pool{controller: quota.NewController()}
		if a.cfg.Law != nil {
			next.controller.Law = a.cfg.Law()
		}
		for _, old := range before {
			if old.Name == p.Name {
				next = old
			}
		}
		next.Pool = p
		a.pools[p.Index] = next
	}
	if a.ledger == nil {
		return
	}
	a.configure(pools, now)
	if first {
		a.goOn()
	}
}

// Enabled tells whether there is a ledger and the policy has settings.
func (a *Admission) Enabled() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.enabled()
}

func (a *Admission) enabled() bool { return a.settings != nil && a.ledger != nil }

// Fleet is what is known of a pool's workers that may get requests.
type Fleet struct {
	Workers int
	// MaxRunning is the sum of what they run at once, 0 while one's is not known.
	MaxRunning int
	// TokensPerSecond is the sum of their rates of prefill, 0 while none is known.
	TokensPerSecond float64
	// Requests is what they have, running and waiting; -1 unless every one was asked just now.
	Requests int
}

// SetFleet says what a pool's workers can carry.
func (a *Admission) SetFleet(index uint8, f Fleet, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pools[index]
	if !a.enabled() || p == nil {
		return
	}
	p.told, p.fleet = true, f
	a.ledger.SetCapacity(index, capacity(a.settings.Pool(p.Name), f))
	if f.Requests >= 0 {
		a.ledger.Observe(index, uint32(f.Requests), a.at(now))
	}
}

// capacity is a pool's capacity by its settings and its workers.
func capacity(s policy.AdmissionPool, f Fleet) quota.Capacity {
	c := quota.Capacity{Slots: quota.NoLimit, PrefillTokens: quota.NoLimit, TokensPerSecond: f.TokensPerSecond}
	switch {
	case s.Slots > 0:
		c.Slots = uint32(s.Slots)
	case f.MaxRunning > 0 || f.Workers == 0:
		c.Slots = uint32(f.MaxRunning)
	}
	if s.TokensPerSecond > 0 {
		c.TokensPerSecond = float64(s.TokensPerSecond * f.Workers)
	}
	if s.PrefillHorizon > 0 && c.TokensPerSecond > 0 {
		c.PrefillTokens = uint32(min(c.TokensPerSecond*s.PrefillHorizon.Seconds(), quota.NoLimit-1))
	}
	return c
}

// Batch takes over the USAGE and LATENCY payloads of a gateway's batch, either may be nil, and
// appends what belongs into the ack: LEASES, and HINTS while somebody waits. Until SetFleet has
// been called for every pool gateways go on with what they have.
func (a *Admission) Batch(gateway string, usage, latency []byte, now time.Time, ack []byte) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.enabled() {
		return ack, nil
	}
	if len(latency) > 0 {
		if err := wire.ForEachLatency(latency, a.latency); err != nil {
			return ack, err
		}
	}
	if len(usage) == 0 || !a.told() {
		return ack, nil
	}
	u, _, err := wire.DecodeUsage(usage)
	if err != nil {
		return ack, err
	}
	if err := a.join(Process{gateway, u.Nonce}); err != nil {
		return ack, err
	}
	leases, err := a.ledger.Renew(gateway, usage, a.at(now), nil)
	if err != nil || len(leases) == 0 {
		return ack, err
	}
	ack = wire.AppendSection(ack, wire.SectionLeases, leases)
	if a.ledger.Waits(a.at(now)) {
		ack = wire.AppendSection(ack, wire.SectionHints, wire.AppendHints(nil, wire.Hints{BatchMillis: hurryMillis}))
	}
	return ack, nil
}

// told tells whether every pool's workers are known. Requires mu.
func (a *Admission) told() bool {
	for _, p := range a.pools {
		if !p.told {
			return false
		}
	}
	return true
}

// join has a process remembered before it gets anything. Requires mu.
func (a *Admission) join(p Process) error {
	if a.joined[p] {
		return nil
	}
	a.joined[p] = true
	if a.cfg.Remember == nil {
		return nil
	}
	if err := a.cfg.Remember(a.processes()); err != nil {
		delete(a.joined, p)
		return err
	}
	return nil
}

func (a *Admission) processes() []Process {
	return slices.AppendSeq(make([]Process, 0, len(a.joined)), maps.Keys(a.joined))
}

// latency adds one record to its pool's window. Requires mu.
func (a *Admission) latency(l *wire.Latency) error {
	p := a.pools[l.Pool]
	if p == nil {
		return nil
	}
	key := histogramKey{l.Nonce, l.Pool, l.Class}
	now := (*quota.Histogram)(l.Counts)
	before := a.seen[key]
	if before == nil {
		if len(a.seen) >= maxSeen {
			clear(a.seen) // of processes that are gone, mostly: the others' start anew
		}
		before = &quota.Histogram{}
		a.seen[key] = before
		if now.Count() > firstCounts {
			// A service that has just started doesn't take the past for the last second.
			*before = *now
			return nil
		}
	}
	p.windows[l.Class].Add(now, before)
	*before = *now
	return nil
}

// firstCounts is how many times to first token in a process's first report count.
const firstCounts = 1000

// Tick does what time brings. Call it every TickInterval.
func (a *Admission) Tick(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.enabled() {
		return
	}
	a.ledger.Tick(a.at(now))
	if now.Sub(a.stepped) < controlInterval {
		return
	}
	a.stepped = now
	for _, s := range a.ledger.Pools(a.at(now)) {
		a.step(a.pools[s.Index], &s, now)
	}
	a.demand.take(a.ledger.Tenants(a.at(now)))
	a.prune(now)
}

// step is one step of a pool's controller.
func (a *Admission) step(p *pool, s *quota.PoolStatus, now time.Time) {
	p.controller.Step(&p.windows[0], uint32(a.settings.Classes[0].ObjectiveTTFT.Milliseconds()))
	shares := p.controller.Shares(&a.settings.Classes)
	a.ledger.SetShares(p.Index, shares)
	m := Moment{At: now, Shares: shares}
	for c := range p.windows {
		m.P99Millis[c], m.Count[c] = p.windows[c].Quantile(0.99), p.windows[c].Count()
		m.InUse[c], m.Waiting[c] = s.Class[c].InUse, s.Class[c].Waiting
		m.Prefill[c] = s.Class[c].Prefill + s.Class[c].WaitingTokens
		p.windows[c] = quota.Histogram{}
	}
	if len(p.history) == historyLength {
		p.history = append(p.history[:0], p.history[1:]...)
	}
	p.history = append(p.history, m)
}

// prune forgets the processes that the ledger has forgotten. Requires mu.
func (a *Admission) prune(now time.Time) {
	known := map[Process]bool{}
	for _, g := range a.ledger.Gateways(a.at(now)) {
		known[Process{g.Name, g.Nonce}] = true
	}
	before := len(a.joined)
	maps.DeleteFunc(a.joined, func(p Process, _ bool) bool { return !known[p] })
	if len(a.joined) < before && a.cfg.Remember != nil {
		// Failing leaves one too many behind, which costs the next ledger some patience.
		_ = a.cfg.Remember(a.processes())
	}
	nonces := map[uint64]bool{}
	for p := range known {
		nonces[p.Nonce] = true
	}
	for key := range a.seen {
		if !nonces[key.nonce] {
			delete(a.seen, key)
		}
	}
}

// Processes are the gateways to remember.
func (a *Admission) Processes() []Process {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.processes()
}

// Open is how far the controllers let the classes below P0, by pool, for the ledger after this one.
func (a *Admission) Open() map[string]float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make(map[string]float64, len(a.pools))
	for _, p := range a.pools {
		out[p.Name] = p.controller.Open
	}
	return out
}

// Learning tells whether the ledger may follow one of which it doesn't know all.
func (a *Admission) Learning() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ledger != nil && (a.settings == nil || a.ledger.Learning())
}

// Status is a copy of what is known at a time.
type Status struct {
	Term     uint64
	Learning bool
	Settings *policy.Admission
	Pools    []Pool
	Gateways []quota.GatewayStatus
	Tenants  []quota.TenantStatus
}

// Pool is a pool in the status.
type Pool struct {
	quota.PoolStatus
	// Open is how far its controller lets the classes below P0.
	Open float64
	// History is the steps of the last ten minutes, oldest first.
	History []Moment
}

// Status returns a copy; ok is false while there is no ledger, or the policy has no settings.
func (a *Admission) Status(now time.Time) (s Status, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.enabled() {
		return Status{}, false
	}
	at := a.at(now)
	s = Status{
		Term: a.ledger.Term(), Learning: a.ledger.Learning() || a.ledger.Unsettled(), Settings: a.settings,
		Gateways: a.ledger.Gateways(at), Tenants: a.ledger.Tenants(at),
	}
	for _, p := range a.ledger.Pools(at) {
		of := a.pools[p.Index]
		s.Pools = append(s.Pools, Pool{
			PoolStatus: p, Open: of.controller.Open, History: slices.Clone(of.history),
		})
	}
	return s, true
}

// Age is how long ago a time of the status was, -1 for never.
func (a *Admission) Age(at int64, now time.Time) time.Duration {
	if at == 0 {
		return -1
	}
	return time.Duration(a.at(now) - at)
}

func sortedKeys(pools map[uint8]*pool) []uint8 { return slices.Sorted(maps.Keys(pools)) }
