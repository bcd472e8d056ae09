package publish

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/warmpath/warmpath/shared/table"
)

// Config sizes a Table. Zero values take the defaults.
type Config struct {
	// MinBits is the size class to start with: 6, 8, 10, 12, 14 or 16. 10 (1,024
	// pages, 60,000 entries before it grows).
	MinBits uint8
	// MaxBits is the largest size class. 16 (65,536 pages, 5.5 million entries).
	MaxBits uint8
	// MaxBytes bounds the pages that every proxy keeps: the largest size class that
	// fits, and the least valuable entries go. 0: MaxBits decides.
	MaxBytes int64
	// LogChanges is how many changes a gateway may be behind before it has to
	// compare digests. 131,072 (2 MB).
	LogChanges int
	// Value says what an entry is worth when a page is full and one has to go.
	Value func(fingerprint uint64) float64
}

const (
	// batchChanges per version: a frame may end at any version, so this bounds
	// the smallest frame.
	batchChanges = 512
	// maxLoad of the pages before the table moves to the next size class, which
	// has four times as many. A class of 14 bits takes a million entries (33 MB in
	// every proxy instead of 134), for which 241 entries, each the least used of a
	// full page, were left out (BenchmarkMillionEntries).
	maxLoad = 0.75
	// smallBits: up to here a table rather grows early than lose an entry.
	smallBits = 10
	// maxSetBytes bounds the SETS section. Beyond it an entry lists its six most
	// recent holders, and is universal when more than half of the pool holds it.
	maxSetBytes = 48 << 10
)

// Table is safe for concurrent use. Time comes from the caller.
type Table struct {
	cfg Config

	mu      sync.Mutex
	epoch   uint64
	own     map[uint64]bool // epochs of this process
	version uint64
	bits    uint8
	pages   []table.Page // nil: empty
	digests []uint64     // per range
	entries int
	log     []logged // ring
	logHead int      // position of the oldest
	logLen  int
	logFrom uint64 // the log is complete for every version >= logFrom
	room    int    // changes that the present version may still take

	sets   setTable
	setsAt uint64 // version of the last change, for each section
	roster section
	policy section
	exact  []byte // goes with the policy
	// admission does, too.
	admission []byte
	loads     loadSection
	off       bool
	offAt     uint64
	keepEnd   time.Time

	changed chan struct{}
	holding bool // who waits is woken later
	missed  bool // would have been woken
	frames  map[frameKey]cachedFrame
	dropped uint64 // entries that found no room in their page
}

type logged struct {
	version     uint64
	fingerprint uint64
}

type section struct {
	payload []byte
	at      uint64
}

// New returns an empty table whose epoch is derived from now.
func New(cfg Config, now time.Time) *Table {
	cfg.MinBits = cmp.Or(cfg.MinBits, 10)
	cfg.MaxBits = cmp.Or(cfg.MaxBits, 16)
	for cfg.MaxBytes > 0 && cfg.MaxBits > 6 && table.PageBytes<<cfg.MaxBits > cfg.MaxBytes {
		cfg.MaxBits -= 2
	}
	cfg.MinBits = min(cfg.MinBits, cfg.MaxBits)
	cfg.LogChanges = cmp.Or(cfg.LogChanges, 1<<17)
	if cfg.Value == nil {
		cfg.Value = func(uint64) float64 { return 0 }
	}
	t := &Table{cfg: cfg, changed: make(chan struct{}), own: map[uint64]bool{}, log: make([]logged, cfg.LogChanges)}
	t.sets.init()
	t.bits = cfg.MinBits
	t.startEpoch(now)
	t.allocate()
	return t
}

// KeepUntil sets how long a gateway that comes from another process's epoch is
// told to keep its pages instead of comparing them: this process knows less
// than the gateway does.
func (t *Table) KeepUntil(end time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keepEnd = end
}

// NewEpoch makes every gateway compare digests: what a lost change left behind
// is healed. The table's contents stay.
func (t *Table) NewEpoch(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.startEpoch(now)
	t.bump()
	t.wake()
}

// Requires mu.
func (t *Table) startEpoch(now time.Time) {
	t.epoch = max(t.epoch+1, uint64(now.UnixNano()))
	t.own[t.epoch] = true
	t.logHead, t.logLen, t.logFrom = 0, 0, t.version
}

func (t *Table) allocate() {
	t.pages = make([]table.Page, 1<<t.bits)
	t.digests = make([]uint64, table.Ranges(t.bits))
	t.entries = 0
}

// bump starts a new version. Requires mu.
func (t *Table) bump() {
	t.version++
	clear(t.frames)
}

// wake lets everybody who waits look again. Requires mu.
func (t *Table) wake() {
	if t.missed = t.holding; t.missed {
		return
	}
	close(t.changed)
	t.changed = make(chan struct{})
}

// Together makes several changes one for those who wait: they are woken after the last. Calls don't
// overlap.
func (t *Table) Together(changes func()) {
	hold := func(on bool) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.holding = on; !on && t.missed {
			t.wake()
		}
	}
	hold(true)
	defer hold(false)
	changes()
}

// Changed returns a channel that is closed at the next version. Take it before
// asking for an update.
func (t *Table) Changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed
}

// Batch is a set of changes on its way from the index to the table.
type Batch struct {
	changes []change
	refs    []uint16
}

type change struct {
	fingerprint uint64
	first, n    int // of refs
	poolSize    int
}

// Add copies one change: who holds fingerprint now, newest first; nobody removes
// it. poolSize is the number of live workers of the holders' pool.
func (b *Batch) Add(fingerprint uint64, holders []uint16, poolSize int) {
	b.changes = append(b.changes, change{fingerprint, len(b.refs), len(holders), poolSize})
	b.refs = append(b.refs, holders...)
}

// Len returns the number of changes.
func (b *Batch) Len() int { return len(b.changes) }

// Reset empties b and keeps its memory.
func (b *Batch) Reset() { b.changes, b.refs = b.changes[:0], b.refs[:0] }

// Apply writes a batch, and wakes who waits when anything changed. It reports whether the geometry
// grew, which gave the table a new epoch.
func (t *Table) Apply(b *Batch, now time.Time) (grew bool) {
	if b.Len() == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	sets, epoch, version := t.sets.changes, t.epoch, t.version
	t.room = 0
	// Changes come in order of their pages: without looking ahead the first pages
	// would be full before the whole table seems so.
	for coming := t.coming(b); t.grow(coming, maxLoad, now); {
	}
	for i := range b.changes {
		c := &b.changes[i]
		holders := b.refs[c.first : c.first+c.n]
		if c.n == 0 {
			t.remove(c.fingerprint)
			continue
		}
		e := t.entry(c.fingerprint, holders, c.poolSize)
		t.put(&e, now)
	}
	if t.sets.changes != sets {
		t.setsAt = t.version
	}
	if t.version != version || t.epoch != epoch {
		t.wake()
	}
	return t.epoch != epoch
}

// coming counts the entries that a batch adds.
func (t *Table) coming(b *Batch) (n int) {
	for i := range b.changes {
		c := &b.changes[i]
		page, _ := t.page(c.fingerprint, false)
		switch _, there := page.Lookup(c.fingerprint); {
		case there && c.n == 0:
			n--
		case !there && c.n > 0:
			n++
		}
	}
	return n
}

// entry makes the entry of a fingerprint. The set it names is held for it. What
// is known of the holders alone decides its bytes, not the order in which it came
// to be known: two replicas that know the same have the same pages. Where the set
// doesn't say them all, the most recent are named.
func (t *Table) entry(fingerprint uint64, holders []uint16, poolSize int) table.Entry {
	e := table.Entry{Fingerprint: fingerprint}
	if len(holders) > table.InlineRefs {
		e.SetOverflow(t.sets.take(holders))
		e.SetUniversal(len(holders)*2 > poolSize)
		if e.Overflow() != 0 {
			slices.Sort(holders)
		}
		holders = holders[:table.InlineRefs]
	}
	copy(e.Refs[:], holders)
	slices.Sort(e.Refs[:len(holders)])
	return e
}

func (t *Table) put(e *table.Entry, now time.Time) {
	page, index := t.page(e.Fingerprint, true)
	old, replaced := page.Lookup(e.Fingerprint)
	if replaced {
		// One reference was taken for the new entry; the old one's goes.
		t.sets.release(old.Overflow())
		if old == *e {
			return
		}
	}
	if !replaced && t.grow(1, t.loadLimit(page), now) {
		page, index = t.page(e.Fingerprint, true)
	}
	if !replaced && page.Count() == table.PageEntries && !t.makeRoom(page, index, e) {
		t.dropped++
		t.sets.release(e.Overflow())
		return
	}
	t.edit(page, index, func() { page.Put(e) })
	if !replaced {
		t.entries++
	}
	t.record(e.Fingerprint)
}

func (t *Table) remove(fingerprint uint64) {
	page, index := t.page(fingerprint, false)
	old, ok := page.Lookup(fingerprint)
	if !ok {
		return
	}
	t.sets.release(old.Overflow())
	t.edit(page, index, func() { page.Remove(fingerprint) })
	t.entries--
	t.record(fingerprint)
	if page.Count() == 0 {
		t.pages[index] = nil
	}
}

func (t *Table) page(fingerprint uint64, create bool) (table.Page, uint32) {
	index := table.PageIndex(fingerprint, t.bits)
	if t.pages[index] == nil && create {
		p := make(table.Page, table.PageBytes)
		p.Init(t.bits, index)
		t.pages[index] = p
	}
	return t.pages[index], index
}

// edit keeps the range's digest up while f changes the page.
func (t *Table) edit(page table.Page, index uint32, f func()) {
	before := page.Digest()
	f()
	t.digests[table.RangeOf(index)] ^= before ^ page.Digest()
}

// makeRoom evicts the least valuable entry of a full page, unless that would be
// e itself.
func (t *Table) makeRoom(page table.Page, index uint32, e *table.Entry) bool {
	victim, least := e.Fingerprint, t.cfg.Value(e.Fingerprint)
	for i := range page.Count() {
		old := page.At(i)
		if v := t.cfg.Value(old.Fingerprint); v < least {
			victim, least = old.Fingerprint, v
		}
	}
	t.dropped++
	if victim == e.Fingerprint {
		t.dropped--
		return false
	}
	old, _ := page.Lookup(victim)
	t.sets.release(old.Overflow())
	t.edit(page, index, func() { page.Remove(victim) })
	t.entries--
	t.record(victim)
	return true
}

// loadLimit is the load at which the next entry, bound for page, makes the table
// grow.
func (t *Table) loadLimit(page table.Page) float64 {
	if t.bits <= smallBits && page.Count() == table.PageEntries {
		return maxLoad / 2
	}
	return maxLoad
}

// grow moves to the next size class when so many more entries would make pages
// too full. Gateways have to start anew: a page of one class means nothing in
// another.
func (t *Table) grow(more int, load float64, now time.Time) bool {
	if float64(t.entries+more) <= load*float64(len(t.pages)*table.PageEntries) || t.bits >= t.cfg.MaxBits {
		return false
	}
	old := t.pages
	t.bits += 2
	t.allocate()
	for _, p := range old {
		for i := range p.Count() {
			e := p.At(i)
			page, index := t.page(e.Fingerprint, true)
			t.edit(page, index, func() { page.Put(&e) })
			t.entries++
		}
	}
	t.startEpoch(now)
	return true
}

// record writes the change of a fingerprint into the log, under a new version
// where the last one has its share. Requires mu.
func (t *Table) record(fingerprint uint64) {
	if t.room == 0 {
		t.bump()
		t.room = batchChanges
	}
	t.room--
	if t.logLen == len(t.log) {
		t.logFrom = t.log[t.logHead].version
		t.logHead = (t.logHead + 1) % len(t.log)
		t.logLen--
	}
	t.log[(t.logHead+t.logLen)%len(t.log)] = logged{t.version, fingerprint}
	t.logLen++
}

// Clear empties the table under a new epoch.
func (t *Table) Clear(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bits = t.cfg.MinBits
	t.allocate()
	t.sets.init()
	t.bump()
	t.setsAt = t.version
	t.startEpoch(now)
	t.wake()
}

// Position returns where the table is and whether the fleet is off.
func (t *Table) Position() (epoch, version uint64, off bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.epoch, t.version, t.off
}

// Digest is the number of entries and the exclusive or of the digests of all
// pages: equal for two tables that hold the same.
func (t *Table) Digest() (entries int, digest uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range t.digests {
		digest ^= d
	}
	return t.entries, digest
}

// Stats is the size of the table.
type Stats struct {
	Epoch, Version uint64
	Bits           uint8
	Entries        int
	Bytes          int // of the pages that exist
	Sets           int
	Off            bool
	Dropped        uint64 // entries that found no room in their page
}

// Stats returns the size of the table.
func (t *Table) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Stats{Epoch: t.epoch, Version: t.version, Bits: t.bits, Entries: t.entries, Sets: len(t.sets.byID), Off: t.off, Dropped: t.dropped}
	for _, p := range t.pages {
		s.Bytes += len(p)
	}
	return s
}
