package fleet

import (
	"time"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/predicted"
	"github.com/warmpath/warmpath/shared/route"
	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
)

const (
	// coldTokens of a prompt that nobody has is where VMs look at each other's dispatches, and tell of
	// theirs: computing so many takes longer than any number of host calls.
	coldTokens = 512
	// sentRate stands in for a prefill rate that isn't known, in tokens/s.
	sentRate = 10_000
	// noCell is the cell of a prompt that is not told to other VMs.
	noCell = wire.SentCells
)

// sent is what this gateway has sent so lately that the table doesn't know: this VM's own dispatches
// at once, and those of its siblings that put a new prefix somewhere. A sibling is asked only about
// a prompt that nobody has, and told only of one: then a host call each way is cheap.
type sent struct {
	memory  predicted.Memory
	seen    [wire.SentCells]uint32 // compare-and-set tokens of the cells as they were taken in
	cell    uint8                  // that value and cas are of
	cas     uint32
	value   []byte
	scratch abi.Scratch
}

// FindSent appends the longest prefix of a prompt that this gateway has sent to each worker lately.
// matches are the table's.
func (f *Fleet) FindSent(checkpoints []fingerprint.Checkpoint, ringKey uint64, tokens int, matches []table.Match, out []route.Sent) []route.Sent {
	s := &f.sent
	out = s.memory.Find(checkpoints, f.now, out)
	if f.alone() || ringKey == 0 || !cold(tokens, matches, out) {
		return out
	}
	if f.readSent(cellOf(ringKey)) && s.seen[s.cell] != s.cas {
		s.seen[s.cell] = s.cas
		f.takeSent()
		out = s.memory.Find(checkpoints, f.now, out[:0])
	}
	return out
}

// alone tells that this gateway is known to have no other VM.
func (f *Fleet) alone() bool { return f.siblings.live == 1 }

// cold tells whether a prompt's longest match leaves much to compute.
func cold(tokens int, matches []table.Match, sent []route.Sent) bool {
	units := uint32(0)
	for i := range matches {
		units = max(units, matches[i].Units)
	}
	for i := range sent {
		units = max(units, sent[i].Units)
	}
	return tokens-int(units)*fingerprint.UnitTokens >= coldTokens
}

func cellOf(ringKey uint64) uint8 { return uint8(ringKey % wire.SentCells) }

// readSent reads a cell; one that nobody has written yet is empty.
func (f *Fleet) readSent(cell uint8) bool {
	s := &f.sent
	value, cas, status := abi.SharedData(f.Keys.sent[cell], &s.scratch)
	switch status {
	case abi.OK:
	case abi.NotFound:
		cas = wire.CreateCAS
	default:
		return false
	}
	s.cell, s.cas = cell, cas
	s.value = append(s.value[:0], value...)
	return true
}

// takeSent remembers what the siblings wrote into the cell that was read.
func (f *Fleet) takeSent() {
	if len(f.sent.value) == 0 {
		return
	}
	err := wire.ForEachSent(f.sent.value, func(s *wire.Sent, record []byte, n int) {
		if !f.young(s) {
			return
		}
		d := predicted.Dispatch{ID: s.ID, Ref: s.Ref, Sent: s.UnixNanos, Ready: time.Duration(s.ReadyMillis) * time.Millisecond}
		for i := range n {
			f.sent.memory.Put(&d, wire.SentCheckpoint(record, i))
		}
	})
	if err != nil {
		f.bad(metrics.BadRow, err)
	}
}

// young tells whether a record still counts. One from the future doesn't.
func (f *Fleet) young(s *wire.Sent) bool {
	age := f.now - s.UnixNanos
	return age < int64(predicted.Lifetime) && age > -int64(predicted.Lifetime)
}

// NoteSent remembers that a prompt was sent to ref, where the table knew known units of it and
// uncached tokens are to be computed. Cell says where siblings were told, for ForgetSent.
func (f *Fleet) NoteSent(id uint64, ref uint16, checkpoints []fingerprint.Checkpoint, known uint32, uncached int, ringKey uint64) (cell uint8) {
	w := f.workers.of(ref)
	if w == nil || len(checkpoints) == 0 {
		return noCell
	}
	v, rate := &w.pool.View.Workers[w.at], float64(sentRate)
	if v.PrefillRate > 0 {
		rate = v.PrefillRate
	}
	d := predicted.Dispatch{ID: id, Ref: ref, Sent: f.now, Ready: time.Duration(float64(v.UncachedTokens) / rate * float64(time.Second))}
	f.sent.memory.Add(&d, checkpoints, known)
	if f.alone() || ringKey == 0 || uncached < coldTokens {
		return noCell
	}
	cell = cellOf(ringKey)
	f.changeSent(cell, f.sent.cell == cell && len(f.sent.value) > 0, 0, func(b []byte) []byte {
		return wire.AppendSent(b, &wire.Sent{
			ID: id, UnixNanos: d.Sent, ReadyMillis: uint32(d.Ready / time.Millisecond), Ref: ref,
		}, checkpoints, known)
	})
	return cell
}

// ForgetSent takes back what NoteSent has said of a request that failed.
func (f *Fleet) ForgetSent(id uint64, cell uint8) {
	f.sent.memory.Forget(id)
	if cell < wire.SentCells {
		f.changeSent(cell, false, id, func(b []byte) []byte { return b })
	}
}

// changeSent writes a cell anew: the records that are young but for one, of those the last that leave
// room for another one, and what add appends. read tells that the value at hand is the cell's, and
// likely the newest. A sibling that writes at the same time wins once; a record that is lost costs a
// prompt computed twice.
func (f *Fleet) changeSent(cell uint8, read bool, without uint64, add func(b []byte) []byte) {
	s := &f.sent
	for range 2 {
		if !read && !f.readSent(cell) {
			return
		}
		read = false
		// The new value is built behind the old one.
		old := len(s.value)
		s.value = wire.BeginSent(s.value)
		left := old // with the header, so what is kept and the new header are no more than that
		_ = wire.ForEachSent(s.value[:old], func(r *wire.Sent, record []byte, _ int) {
			if left <= wire.MaxSentBytes-wire.MaxSentRecord && f.young(r) && r.ID != without {
				s.value = append(s.value, record...)
			}
			left -= len(record)
		})
		s.value = add(s.value)
		if abi.SetSharedData(f.Keys.sent[cell], s.value[old:], s.cas) == abi.OK {
			break
		}
	}
	s.value = s.value[:0] // what is there now has another token
}
