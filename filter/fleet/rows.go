package fleet

import (
	"time"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/books"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/wire"
)

const (
	// noSlot is the slot of a VM that has not found one.
	noSlot = wire.MaxSlots
	// scanPerRead is how many slots beyond the known ones each look at the
	// siblings tries: all are seen within eight looks.
	scanPerRead = 16
	// lookApart is the least time between two looks at the siblings, of a courier
	// that has heard of news.
	lookApart = 5 * time.Millisecond
)

// row is this VM's own row.
type row struct {
	slot    uint16 // noSlot until claimed
	at      int64  // unix ns that the row as last written says
	counted int    // requests in flight in it
	value   []byte
	scratch abi.Scratch
}

func (r *row) init(*Fleet) {
	r.slot = noSlot
	r.value = make([]byte, 0, wire.MaxRowBytes)
}

// Slot is the VM's slot; ok is false before one is claimed.
func (f *Fleet) Slot() (slot uint16, ok bool) { return f.row.slot, f.row.slot != noSlot }

// EnsureRow claims a slot now if there is none yet: a request has come before
// the first tick, so this VM is no canary.
func (f *Fleet) EnsureRow(now int64) (slot uint16, ok bool) {
	if f.row.slot == noSlot {
		f.writeRow(now)
	}
	return f.Slot()
}

// heldSlot is the VM's slot for what is written beside the row. After a time as
// long as a row lives it looks whether it still has it: a successor that has
// taken the slot writes there too.
func (f *Fleet) heldSlot() (slot uint16, ok bool) {
	if f.row.slot != noSlot && f.now-f.row.at >= int64(f.rowLife()) {
		f.writeRow(f.now)
	}
	return f.Slot()
}

// Alive tells whether a VM is there, by its slot and boot nonce. Rows that were
// seen alive within half a row's life are not read again.
func (f *Fleet) Alive(slot uint16, nonce uint64, now int64) bool {
	s := &f.siblings
	switch {
	case nonce == f.Nonce:
		return true
	case slot >= wire.MaxSlots:
		return false
	case s.alive[slot] && s.rows[slot].Nonce == nonce && now-s.at < int64(f.rowLife())/2:
		return true
	}
	value, _, status := abi.SharedData(f.Keys.RowKey(slot), &f.row.scratch)
	if status != abi.OK {
		return status != abi.NotFound // what can't be read now may be there
	}
	held, err := wire.DecodeRow(value, nil)
	return err == nil && held.Nonce == nonce && f.live(slot, &held, now)
}

// rowLife is how long a row counts after its last tick.
func (f *Fleet) rowLife() time.Duration { return 3*f.config.Tick + time.Second }

// patience is how many ticks of its own a VM waits for another's.
func (f *Fleet) patience() uint32 { return uint32(f.rowLife() / f.config.Tick) }

// Tick renews the VM's row and writes its reports. It is never called in a
// VM's start-up: the canary must not claim anything. An idle VM leaves the
// sibling rows alone, unless it is the courier.
func (f *Fleet) Tick(now int64, courier bool) {
	asked := f.asked
	f.setClock(now)
	f.checkedAt, f.asked, f.courier = now, false, courier
	f.ticks++
	f.readMeta()
	f.Vocabularies.Tick(now)
	if asked || courier {
		f.look(now)
	}
	f.metrics.Add(metrics.PageGets, 0, f.Pages.gets)
	f.metrics.Add(metrics.PageCacheHits, 0, f.Pages.hits)
	f.Pages.gets, f.Pages.hits = 0, 0
	f.Reports.flush()
	f.writeRow(now)
}

// Orphan tells that no plugin context ticks this VM any more, or that one does
// again. Streams that are still open then write their reports themselves.
func (f *Fleet) Orphan(now int64, orphaned bool) {
	f.orphaned = orphaned
	if orphaned {
		f.Reports.flush()
		f.writeRow(now)
	}
}

// StreamEnded is told of the end of every stream, after its report: nothing
// else will come by to say what a VM without ticks has counted.
func (f *Fleet) StreamEnded() {
	if f.orphaned {
		f.Orphan(abi.Now(), true)
		f.metrics.Flush()
	}
}

// writeRow writes the row, and claims a slot first where there is none or a
// successor has taken it over. A VM whose row was only swept keeps its slot:
// its chunks are there.
func (f *Fleet) writeRow(now int64) {
	r := &f.row
	for tries := 1; r.slot != noSlot; tries++ {
		value, cas, status := abi.SharedData(f.Keys.RowKey(r.slot), &r.scratch)
		held, err := wire.DecodeRow(value, nil)
		mine := status == abi.OK && err == nil && held.Nonce == f.Nonce
		if !mine || held.TickUnixNanos == sweptTick {
			f.returned()
		}
		if mine && f.putRow(r.slot, cas, now) {
			return
		}
		// Somebody has written there since: swept it, or taken the slot.
		if !mine || tries == rowTries {
			f.returned()
			r.slot = noSlot
		}
	}
	for slot := range uint16(wire.MaxSlots) {
		if f.claim(slot, now) {
			return
		}
	}
	f.metrics.Inc(metrics.RowsFull, 0)
}

// rowTries is how often a VM tries to write a row that is still its own.
const rowTries = 3

// returned says that this VM stood still for longer than its row lives, and what
// it had in flight was counted as returned.
func (f *Fleet) returned() {
	f.metrics.Add(metrics.Dispatched, 0, uint64(f.row.counted))
	f.row.counted = 0
}

// claim takes a slot that nobody has or whose VM is gone.
func (f *Fleet) claim(slot uint16, now int64) bool {
	left := 0
	value, cas, status := abi.SharedData(f.Keys.RowKey(slot), &f.row.scratch)
	switch {
	case status == abi.NotFound:
		cas = wire.CreateCAS
	case status != abi.OK:
		return false
	default:
		held, err := wire.DecodeRow(value, func(r wire.InFlight) { left += int(r.Requests) })
		if err == nil && f.live(slot, &held, now) {
			return false
		}
	}
	if !f.putRow(slot, cas, now) {
		return false
	}
	f.row.slot = slot
	f.orphans(left)
	return true
}

// putRow writes the row into a slot unless somebody else has written there.
func (f *Fleet) putRow(slot uint16, cas uint32, now int64) bool {
	value, counted := f.encodeRow(slot, now)
	if abi.SetSharedData(f.Keys.RowKey(slot), value, cas) != abi.OK {
		return false
	}
	f.row.at, f.row.counted = now, counted
	// Should this VM die before its next tick, who sweeps the row counts what it says as returned.
	f.metrics.Say(metrics.Dispatched)
	f.metrics.Say(metrics.Released)
	return true
}

// sweptTick marks a row whose requests in flight were counted as returned.
const sweptTick = 0

// sweep empties the row of a VM that is gone, so that the requests that went
// with it count as returned, once. Its reports can still be collected.
func (f *Fleet) sweep(slot uint16, held *wire.Row, left int, cas uint32) {
	held.TickUnixNanos = sweptTick
	f.swept = wire.EndRow(wire.AppendRow(f.swept[:0], held), 0)
	if abi.SetSharedData(f.Keys.RowKey(slot), f.swept, cas) == abi.OK {
		f.orphans(left)
	}
}

func (f *Fleet) orphans(n int) {
	f.metrics.Add(metrics.Orphaned, 0, uint64(n))
	f.metrics.Add(metrics.Released, 0, uint64(n))
}

// encodeRow returns the row and the number of requests in flight that it says.
func (f *Fleet) encodeRow(slot uint16, now int64) (value []byte, counted int) {
	r := &f.row
	b := wire.AppendRow(r.value[:0], &wire.Row{
		Slot: slot, Nonce: f.Nonce, TickUnixNanos: now, ReportSequence: f.Reports.sequence,
		PolicyVersion: uint16(f.policyAt), Vocabularies: f.Vocabularies.Ready(),
	})
	for _, line := range f.Own.Lines() {
		b = wire.AppendInFlight(b, inFlight(line))
		counted += int(line.InFlight)
	}
	r.value = wire.EndRow(b, 0)
	return r.value, counted
}

func inFlight(line books.Line) wire.InFlight {
	return wire.InFlight{
		Ref:            line.Ref,
		Requests:       uint16(min(line.InFlight, 1<<16-1)),
		UncachedTokens: uint32(min(line.UncachedTokens, 1<<32-1)),
	}
}

// forgottenAfter is the age at which a row is dead whoever looks.
const forgottenAfter = time.Minute

// live tells whether a slot's row is of a VM that is there. The clock alone doesn't
// tell: when a whole process has stood still, or its clock was set forward, all rows
// are old to whoever goes on first. So this VM must have ticked itself for as long
// as a row lives, and seen nothing of the other's.
func (f *Fleet) live(slot uint16, r *wire.Row, now int64) bool {
	age := now - r.TickUnixNanos
	if r.TickUnixNanos == sweptTick || age >= int64(forgottenAfter) || age <= -int64(forgottenAfter) {
		return false
	}
	s := &f.siblings.seen[slot]
	if s.nonce != r.Nonce || s.tick != r.TickUnixNanos {
		*s = sighting{r.Nonce, r.TickUnixNanos, f.ticks}
	}
	// A row of the future is one from before the clock was set back.
	return age >= 0 && age < int64(f.rowLife()) || f.ticks-s.at < f.patience()
}

// sighting is the last tick of another VM that this one has seen, and when it was
// seen first, in ticks of this one.
type sighting struct {
	nonce uint64
	tick  int64
	at    uint32
}

// siblings is what the other VMs of this gateway have in flight.
type siblings struct {
	tally   *books.Tally
	at      int64 // unix ns of the last look
	scanned int64 // and of the last one at other slots than the known ones
	alive   [wire.MaxSlots]bool
	rows    [wire.MaxSlots]rowState
	seen    [wire.MaxSlots]sighting
	next    uint16 // slot to try next
	live    int
	changed []uint16
	ready   [policy.MaxVocabularies]int // live VMs that have a vocabulary loaded
	scratch abi.Scratch
}

// rowState is what a slot's row said about reports.
type rowState struct {
	Nonce    uint64
	Sequence uint64
}

// readSiblings adds up the live rows of the other VMs, and looks at a few slots more.
func (f *Fleet) readSiblings(now int64) {
	f.siblings.scanned = now
	f.readKnown(now, scanPerRead)
}

// readKnown adds up the live rows of the other VMs. Known slots are read each
// time, so many of the others in turns.
func (f *Fleet) readKnown(now int64, others int) {
	s := &f.siblings
	s.at = now
	s.changed = s.changed[:0]
	for _, line := range s.tally.Lines() {
		s.changed = append(s.changed, line.Ref)
	}
	s.tally.Reset()
	s.live = 0
	clear(s.ready[:])
	for slot := range uint16(wire.MaxSlots) {
		if s.alive[slot] {
			f.readRow(slot, now)
		}
	}
	for range others {
		slot := s.next
		s.next = (s.next + 1) % wire.MaxSlots
		if !s.alive[slot] {
			f.readRow(slot, now)
		}
	}
	for _, line := range s.tally.Lines() {
		f.Touched(line.Ref)
	}
	for _, ref := range s.changed {
		f.Touched(ref)
	}
}

func (f *Fleet) readRow(slot uint16, now int64) {
	s := &f.siblings
	s.alive[slot] = false
	value, cas, status := abi.SharedData(f.Keys.RowKey(slot), &s.scratch)
	if status != abi.OK || len(value) == 0 {
		return
	}
	left := 0
	held, err := wire.DecodeRow(value, func(r wire.InFlight) { left += int(r.Requests) })
	if err != nil {
		f.bad(metrics.BadRow, err)
		return
	}
	// The reports of a VM that died are still worth collecting.
	next := rowState{Nonce: held.Nonce, Sequence: held.ReportSequence}
	if known := &s.rows[slot]; known.Nonce == next.Nonce {
		next.Sequence = max(next.Sequence, known.Sequence) // it told more than its row says yet
	}
	s.rows[slot] = next
	if !f.live(slot, &held, now) {
		if f.courier && left > 0 {
			f.sweep(slot, &held, left, cas)
		}
		return
	}
	s.alive[slot] = true
	s.live++
	f.countReady(&held)
	if held.Nonce == f.Nonce {
		return
	}
	_, _ = wire.DecodeRow(value, func(r wire.InFlight) {
		s.tally.Add(r.Ref, uint32(r.Requests), uint64(r.UncachedTokens))
	})
}

// News notes a chunk that a VM has told of. Of a VM whose row has not been seen
// nothing is known but what the next look finds.
func (f *Fleet) News(n wire.News) bool {
	r := &f.siblings.rows[n.Slot]
	if r.Nonce != n.Nonce {
		return false
	}
	r.Sequence = max(r.Sequence, n.Sequence)
	return true
}

// LookNow reads the rows of the siblings that are known, unless that was done a
// moment ago.
func (f *Fleet) LookNow(now int64) {
	if now-f.siblings.at >= int64(lookApart) {
		f.readKnown(now, 0)
	}
}

// Rows calls do for every slot whose row is known, with what it says about its
// report chunks.
func (f *Fleet) Rows(do func(slot uint16, nonce, sequence uint64)) {
	for slot := range f.siblings.rows {
		if r := &f.siblings.rows[slot]; r.Nonce != 0 {
			do(uint16(slot), r.Nonce, r.Sequence)
		}
	}
}

// LiveRows is the number of live VMs of this gateway, this one included, as of
// the last look.
func (f *Fleet) LiveRows() int { return f.siblings.live }

// AppendInFlight appends what the whole gateway has in flight, as an INFLIGHT
// payload.
func (f *Fleet) AppendInFlight(b []byte) []byte {
	for _, line := range f.Own.Lines() {
		sibling := f.siblings.tally.Of(line.Ref)
		line.InFlight += sibling.InFlight
		line.UncachedTokens += sibling.UncachedTokens
		b = wire.AppendInFlight(b, inFlight(line))
	}
	for _, line := range f.siblings.tally.Lines() {
		if own := f.Own.Of(line.Ref); own.InFlight == 0 && own.UncachedTokens == 0 {
			b = wire.AppendInFlight(b, inFlight(line))
		}
	}
	return b
}
