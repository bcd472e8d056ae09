package fleet

import (
	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/wire"
)

// Reports collects this VM's report records and writes them to shared data in
// chunks, where the courier finds them. A ring of wire.ReportChunks chunks
// bounds what waits.
//
// A dispatch is news: it is written at once, and a message in the courier's
// shared queue says so. Until the courier takes that chunk, what follows is
// written into it and needs no message: there is at most one under way for each
// VM. Before the courier reads a chunk it writes into the VM's taken record that
// it does; the VM looks there after each write, and what it may have written too
// late it writes again, into the next chunk. The end of a request waits for the
// next dispatch or tick. The VM's row tells the sequence of the last chunk, for a
// courier that no message has reached.
type Reports struct {
	fleet    *Fleet
	buffer   []byte // the last chunk while it is open, header included, then what is not written yet
	written  int    // bytes of the buffer that are in shared data
	open     bool   // the last chunk isn't taken, as far as is known
	told     bool   // the courier knows of it
	slot     uint16 // that it was written to
	sequence uint64 // of the last chunk written
	counter  uint64
	courier  uint64 // nonce of the courier's VM, 0 unknown
	message  []byte
	scratch  abi.Scratch
}

// chunkHeader is the length of an empty chunk.
const chunkHeader = 16

func (r *Reports) init(f *Fleet) {
	r.fleet = f
	r.buffer = make([]byte, chunkHeader, wire.MaxChunkBytes)
	r.written = chunkHeader
	// Ids must not repeat those of a former VM in the same slot.
	r.counter = f.Nonce
}

// Dispatch reports that a request was released to a worker, which will then
// hold its prefix, and returns the request's id.
func (r *Reports) Dispatch(report *wire.Report, checkpoints []fingerprint.Checkpoint) uint64 {
	r.counter++
	report.ID = wire.ReportID(r.fleet.row.slot, r.counter)
	news := false
	if n := len(checkpoints); n > 0 {
		report.PromptUnits = max(report.PromptUnits, checkpoints[n-1].End)
		news = report.MatchedUnits < checkpoints[n-1].End
	}
	if r.room(wire.MaxReportBytes) {
		r.buffer = wire.AppendDispatch(r.buffer, report, checkpoints)
		if news {
			r.tell()
		}
	}
	return report.ID
}

// Done reports the end of a dispatched request.
func (r *Reports) Done(report *wire.Report) {
	if r.room(doneRoom) {
		r.buffer = wire.AppendDone(r.buffer, report)
	}
}

const doneRoom = 64

// Courier says whose VM is the courier, by its nonce.
func (r *Reports) Courier(nonce uint64) { r.courier = nonce }

// room makes room for n bytes, ending the full chunk.
func (r *Reports) room(n int) bool {
	if len(r.buffer)+n <= wire.MaxChunkBytes {
		return true
	}
	r.flush()
	if r.written == len(r.buffer) {
		r.end(r.written)
	}
	if len(r.buffer)+n <= wire.MaxChunkBytes {
		return true
	}
	r.fleet.metrics.Inc(metrics.ReportsLost, 0)
	return false
}

// tell writes what is new where the courier says what it takes, and wakes it
// unless it knows of the chunk.
func (r *Reports) tell() {
	slot, ok := r.fleet.heldSlot()
	if !ok {
		return
	}
	taken, known := r.taken(slot)
	if !known || !r.put(slot, taken, known) {
		return // the tick does it
	}
	// Control judges what a dispatch met by what is in flight beside it.
	r.fleet.writeRow(r.fleet.now)
	if taken.Queue == 0 || r.told {
		return
	}
	r.message = wire.AppendNews(r.message[:0], &wire.News{Slot: slot, Nonce: r.fleet.Nonce, Sequence: r.sequence})
	r.told = abi.Enqueue(taken.Queue, r.message) == abi.OK
}

// flush writes what was collected. Before the VM has a slot it keeps it.
func (r *Reports) flush() {
	if len(r.buffer) == r.written {
		return
	}
	slot, ok := r.fleet.heldSlot()
	if !ok {
		return
	}
	taken, known := r.taken(slot)
	r.put(slot, taken, known)
}

// put writes the buffer: into the open chunk, or as the next one.
func (r *Reports) put(slot uint16, taken wire.Taken, known bool) bool {
	switch {
	case !r.open:
	case slot != r.slot:
		// The courier finds no more what was written to the slot before.
		r.written, r.open, r.told = chunkHeader, false, false
	case !known || taken.Sequence >= r.sequence:
		r.end(r.written)
	}
	extends, before := r.open, r.written
	if !r.write(slot, extends) {
		return false
	}
	if extends {
		if taken, known := r.taken(slot); !known || taken.Sequence >= r.sequence {
			// The courier has read the chunk before this, or after.
			r.end(before)
			if !r.write(slot, false) {
				return false
			}
		}
	}
	if !known {
		r.end(r.written) // nobody says what it takes
	}
	return true
}

// end ends the open chunk after n bytes of the buffer; what follows begins the
// next.
func (r *Reports) end(n int) {
	rest := copy(r.buffer[chunkHeader:], r.buffer[n:])
	r.buffer = r.buffer[:chunkHeader+rest]
	r.written, r.open, r.told = chunkHeader, false, false
}

// write puts the buffer into shared data, in place of the open chunk or as the
// next.
func (r *Reports) write(slot uint16, extends bool) bool {
	next := wire.Chunk{Sequence: r.sequence, Nonce: r.fleet.Nonce}
	if !extends {
		next.Sequence++
	}
	wire.AppendChunk(r.buffer[:0], next)
	if abi.SetSharedData(r.fleet.Keys.Report(slot, next.Sequence), r.buffer, 0) != abi.OK {
		return false
	}
	r.slot, r.sequence, r.written, r.open = slot, next.Sequence, len(r.buffer), true
	return true
}

// taken is how far the courier has taken this VM's chunks; known is false when
// the courier, another one or of another version, has not said so.
func (r *Reports) taken(slot uint16) (taken wire.Taken, known bool) {
	value, _, status := abi.SharedData(r.fleet.Keys.TakenKey(slot), &r.scratch)
	if status != abi.OK || r.courier == 0 {
		return wire.Taken{}, false
	}
	taken, err := wire.DecodeTaken(value)
	if err != nil || taken.Nonce != r.fleet.Nonce || taken.Courier != r.courier {
		return wire.Taken{}, false
	}
	return taken, true
}
