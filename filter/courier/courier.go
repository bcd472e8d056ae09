// Package courier is the one VM of a gateway that talks to the control service.
//
// Every VM has a Courier and ticks it; the one that holds the lease (lease.go)
// works. It long-polls the table (poll.go), writes what arrives into shared
// data in slices of at most 2 ms (apply.go), compares digests range by range
// and fetches what differs when control can't tell the changes (resync.go),
// sends the report chunks of all VMs in batches (batch.go), and brings the
// vocabularies of the policy within every VM's reach (vocabulary.go).
//
// Nothing here waits: a call's answer arrives in a callback, which does one
// slice of work and leaves the rest to the next tick. A former courier that
// stood still can't write: every write re-reads the lease after reading the
// value it replaces, and replaces it by compare-and-set.
package courier

import (
	"cmp"
	"encoding/binary"
	"time"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/admission"
	"github.com/warmpath/warmpath/filter/config"
	"github.com/warmpath/warmpath/filter/fleet"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/route"
	"github.com/warmpath/warmpath/shared/table"
)

const (
	// sliceTime bounds the work of one callback.
	sliceTime = 2 * time.Millisecond
	// slicePages bounds it where the clock is coarse or stands still.
	slicePages = 512
	// busyTick is the tick while work waits.
	busyTick = 10 * time.Millisecond
)

// Courier is one VM's courier of one deployment, working or waiting.
type Courier struct {
	fleet   *fleet.Fleet
	gate    *admission.Gate
	config  *config.Config
	metrics *metrics.Set
	rng     *route.Rand

	lease      lease
	meta       table.Meta // as this courier last read or wrote it
	poll       poll
	update     update
	resync     resync
	sweep      sweep
	batch      batch
	fetch      fetch
	known      knownPages
	busy       bool          // work waits for the next tick
	period     time.Duration // of the tick, 0 as configured
	ask        bool          // the changes don't fit our table: ask for the whole
	inside     bool          // a slice is running; still true in the next one: it panicked
	late       uint32        // token of what a late writer left behind; 0 for nothing
	told       uint32
	pollStatus int    // of the last answer that was no success
	replica    uint32 // of control: how often one was left for another

	value abi.Scratch // page or record that is about to be replaced
	reply abi.Scratch // body of the poll's answer, in use until it is applied
	acks  abi.Scratch // body of a batch's answer
	shard abi.Scratch // piece of a vocabulary
	page  [table.PageBytes]byte
	out   []byte
	mark  []byte // taken record
}

// New makes a VM's courier. It does nothing before its first Tick.
func New(f *fleet.Fleet, gate *admission.Gate, m *metrics.Set, rng *route.Rand) *Courier {
	c := &Courier{fleet: f, gate: gate, metrics: m, rng: rng}
	c.lease.courier = c
	return c
}

// Working tells whether this VM holds the lease.
func (c *Courier) Working() bool { return c.lease.held }

// Ahead tells that the next tick is the courier's alone: it comes before its
// time because a batch is due.
func (c *Courier) Ahead() bool { return c.period != 0 && !c.busy }

// Tick does a slice of the courier's work, if this VM is the courier.
func (c *Courier) Tick(now int64) {
	c.config = c.fleet.Config()
	c.lease.looked = false
	state := c.lease.keep(now)
	c.fleet.Reports.Courier(c.lease.holder)
	switch state {
	case leaseNone:
		return
	case leaseTaken:
		c.begin()
	}
	if c.inside {
		// What was being applied has no end: forget it and compare anew.
		c.update.drop()
		c.resync.drop()
		c.sweep = sweep{}
		c.ask = true
	}
	c.inside = true
	c.work(now)
	c.startPoll(now)
	c.announce()
	c.startBatch(now)
	c.tendVocabularies(now)
	c.pace(now)
	c.inside = false
}

// Abandon forgets the calls that are open: their plugin context is going, and
// what answers with it. The next tick, in another context, makes them again.
func (c *Courier) Abandon() {
	c.poll = poll{generation: c.poll.generation + 1}
	open := c.batch.open
	c.batch.generation++
	c.batch.open = false
	if open {
		c.batch.last, c.batch.whole = 0, 0
	}
	c.fetch.abandon()
	c.busy, c.period = false, 0
}

// Resign gives the lease back, so that the gateway's next courier need not
// wait for its end: this VM will not be ticked again.
func (c *Courier) Resign() {
	if c.lease.held && c.lease.resign() {
		c.lease.held = false
	}
}

// begin takes up the work where the former courier left it: at the meta record.
func (c *Courier) begin() {
	c.forget()
	c.ask = false
	c.meta = table.Meta{Bits: 6}
	value, _, status := abi.SharedData(c.fleet.Keys.MetaKey, &c.value)
	if status == abi.OK && len(value) > 0 {
		if meta, err := table.DecodeMeta(value); err == nil {
			c.meta = meta
		}
	}
}

// lose ends the work of a courier whose lease is another's.
func (c *Courier) lose() {
	if !c.lease.held {
		return
	}
	c.lease.held = false
	c.metrics.Inc(metrics.CourierLost, 0)
	c.forget()
}

// forget drops all that belongs to one term. Answers that are still on their
// way are dropped by their generation.
func (c *Courier) forget() {
	c.poll = poll{generation: c.poll.generation + 1}
	c.batch = batch{generation: c.batch.generation + 1}
	c.fetch.drop()
	c.update.drop()
	c.resync.drop()
	c.sweep = sweep{}
	c.known.forget()
}

// work does one slice of whatever waits.
func (c *Courier) work(now int64) {
	s := slice{began: now}
	switch {
	case c.update.frame != nil:
		c.applyUpdate(&s)
	case c.resync.active:
		c.continueResync(&s)
	case c.sweep.active:
		c.continueSweep(&s)
	default:
		return
	}
	c.metrics.Slice(uint64(max(0, abi.Now()-now)) / 1000)
}

// pace shortens the tick while work waits, or a call is due before the next
// tick, and restores it after.
func (c *Courier) pace(now int64) {
	c.busy = c.lease.held && (c.update.frame != nil || c.resync.active && !c.poll.open || c.sweep.active || c.batch.sooner > 0)
	period := c.config.Tick
	if c.busy {
		period = min(period, busyTick)
	}
	if due := c.due(); due > 0 {
		// Not before it is due: the tick would only set the next.
		period = min(period, max(time.Duration(due-now+999_999).Truncate(time.Millisecond), time.Millisecond))
	}
	if period == c.config.Tick {
		period = 0
	}
	if period == c.period {
		return
	}
	c.period = period
	abi.SetTickPeriod(cmp.Or(period, c.config.Tick))
}

// due is when the next call may be made that waits for nothing but its time, 0
// for none.
func (c *Courier) due() (at int64) {
	if !c.lease.held {
		return 0
	}
	if b := &c.batch; b.news && !b.open {
		at = max(b.last+int64(c.newsInterval()), b.notBefore)
	}
	if p := &c.poll; p.resting && !p.open && c.update.frame == nil && !c.resync.active && (at == 0 || p.notBefore < at) {
		at = p.notBefore
	}
	return at
}

// slice is the budget of one callback.
type slice struct {
	began int64
	pages int
}

// spent tells that the slice is over.
func (s *slice) spent() bool { return s.spentAt(abi.Now()) }

// spentAt is spent at a time that was just looked at.
func (s *slice) spentAt(now int64) bool {
	s.pages++
	return s.pages > slicePages || now-s.began > int64(sliceTime)
}

// writeMeta replaces the meta record. It answers false when the lease is lost.
func (c *Courier) writeMeta() bool {
	c.out = table.AppendMeta(c.out[:0], &c.meta)
	return c.write(c.fleet.Keys.MetaKey, c.out)
}

// write replaces a value under the lease: the value's token is read first, the
// lease second, so that a successor's write between the two is never undone.
func (c *Courier) write(key string, value []byte) bool {
	_, cas, status := abi.SharedData(key, &c.value)
	return c.writeOver(key, value, cas, status)
}

// writeOver is write for a value that the caller has just read.
func (c *Courier) writeOver(key string, value []byte, cas uint32, read abi.Status) bool {
	return c.replace(key, value, cas, read) && c.onTime()
}

// replace is writeOver without the look at the clock behind it: the next replace looks, or the caller
// calls onTime before anything else.
func (c *Courier) replace(key string, value []byte, cas uint32, read abi.Status) bool {
	if read != abi.OK {
		cas = createCAS
	}
	if !c.lease.valid() {
		c.lose()
		return false
	}
	if status := abi.SetSharedData(key, value, cas); status != abi.OK {
		// Only a courier writes these keys: somebody else is one.
		c.lose()
		return false
	}
	c.lease.wrote = true
	return true
}

// onTime tells whether the lease had not ended when the last value was replaced.
func (c *Courier) onTime() bool {
	if c.lease.late(abi.Now()) {
		c.lose()
		return false
	}
	return true
}

// tellLate says that a value was replaced after the lease had ended, between
// the look at it and the write. A successor that has written the same key would
// have won; one that has passed it by, because nothing was to be changed there,
// doesn't know.
func (c *Courier) tellLate(now int64) {
	c.out = binary.LittleEndian.AppendUint64(c.out[:0], c.fleet.Nonce)
	c.out = binary.LittleEndian.AppendUint64(c.out, uint64(now))
	abi.SetSharedData(c.fleet.Keys.LateKey, c.out, 0)
}

// lateWrite tells whether a former courier has written late and no table was
// compared since.
func (c *Courier) lateWrite() bool {
	value, cas, status := abi.SharedData(c.fleet.Keys.LateKey, &c.value)
	c.late = 0
	if status == abi.OK && len(value) > 0 {
		c.late = cas
	}
	return c.late != 0
}

// compared clears what late writers had left behind when this comparison was
// asked for.
func (c *Courier) compared() {
	if c.late != 0 {
		abi.SetSharedData(c.fleet.Keys.LateKey, nil, c.late)
		c.late = 0
	}
}
