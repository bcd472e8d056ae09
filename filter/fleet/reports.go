package fleet

import (
	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/wire"
)

// Reports collects this VM's report records and writes them to shared data in
// chunks, where the courier finds them. The VM's row tells the sequence of the
// last chunk; a ring of wire.ReportChunks chunks bounds what waits.
type Reports struct {
	fleet    *Fleet
	buffer   []byte // the chunk being filled, header included
	sequence uint64 // of the last chunk written
	counter  uint64
}

// chunkHeader is the length of an empty chunk.
const chunkHeader = 16

func (r *Reports) init(f *Fleet) {
	r.fleet = f
	r.buffer = make([]byte, chunkHeader, wire.MaxChunkBytes)
	// Ids must not repeat those of a former VM in the same slot.
	r.counter = f.Nonce
}

// Dispatch reports that a request was released to a worker, which will then
// hold its prefix, and returns the request's id.
func (r *Reports) Dispatch(report *wire.Report, checkpoints []fingerprint.Checkpoint) uint64 {
	r.counter++
	report.ID = wire.ReportID(r.fleet.row.slot, r.counter)
	if n := len(checkpoints); n > 0 {
		report.PromptUnits = max(report.PromptUnits, checkpoints[n-1].End)
	}
	if r.room(wire.MaxReportBytes) {
		r.buffer = wire.AppendDispatch(r.buffer, report, checkpoints)
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

// room makes room for n bytes, writing the full chunk out.
func (r *Reports) room(n int) bool {
	if len(r.buffer)+n <= wire.MaxChunkBytes {
		return true
	}
	r.write()
	if len(r.buffer)+n <= wire.MaxChunkBytes {
		return true
	}
	r.fleet.metrics.Inc(metrics.ReportsLost, 0)
	return false
}

// flush writes what was collected since the last tick.
func (r *Reports) flush() {
	if len(r.buffer) > chunkHeader {
		r.write()
	}
}

// write puts the chunk into shared data. Before the VM has a slot it keeps it.
func (r *Reports) write() {
	slot, ok := r.fleet.Slot()
	if !ok {
		return
	}
	next := wire.Chunk{Sequence: r.sequence + 1, Nonce: r.fleet.Nonce}
	wire.AppendChunk(r.buffer[:0], next)
	if abi.SetSharedData(r.fleet.Keys.Report(slot, next.Sequence), r.buffer, 0) != abi.OK {
		return
	}
	r.sequence = next.Sequence
	r.buffer = r.buffer[:chunkHeader]
}
