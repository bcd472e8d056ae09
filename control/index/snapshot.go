package index

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// A snapshot is the models of all workers, little endian:
//
//	offset size
//	0      8    the latest order
//	8      4    number of workers, then for each worker
//	0      2    ref
//	2      1    length of the pool's name
//	3      1    0
//	4      4    number of nodes
//	8      8    trust, float64
//	16     8    prefill rate, float64, tokens/s
//	24     8    decode time, float64, seconds/token
//	32     8    tokens per unit of the pool, float64
//	40     n    pool's name, then for each node, newest first
//	0      8    fingerprint
//	8      8    touched: order of its last use
//	16     8    born
//	24     4    parent: position of the parent among these nodes + 1; 0 none
//	28     4    end
//	32     4    tail | confirmed << 31
//
// then, where a heat is above a fresh one's,
//
//	offset size
//	0      4    their number, then for each
//	0      8    fingerprint
//	8      4    heat at the time of writing, log2, float32
//
// Newest first puts every parent before its children. The frame around it
// (version, checksum, refs) is the state file's.
const (
	snapshotWorkerBytes = 40
	snapshotNodeBytes   = 36
	snapshotHeatBytes   = 12
)

// AppendSnapshot appends the snapshot of the index, one worker after the other,
// so that reports wait for one worker at most.
func (x *Index) AppendSnapshot(b []byte) []byte {
	x.mu.Lock()
	refs := make([]uint16, 0, len(x.models))
	for ref := range x.models {
		refs = append(refs, ref)
	}
	slices.Sort(refs)
	b = slices.Grow(b, 12+x.store.live*snapshotNodeBytes+len(refs)*(snapshotWorkerBytes+40))
	x.mu.Unlock()
	head := len(b)
	b = append(b, make([]byte, 12)...)
	var position []uint32
	workers := uint32(0)
	for _, ref := range refs {
		if with, ok := x.appendModel(b, ref, &position); ok {
			b = with
			workers++
		}
	}
	x.mu.Lock()
	binary.LittleEndian.PutUint64(b[head:], x.seq)
	x.mu.Unlock()
	binary.LittleEndian.PutUint32(b[head+8:], workers)
	return x.appendHeats(b)
}

func (x *Index) appendHeats(b []byte) []byte {
	head := len(b)
	b = append(b, 0, 0, 0, 0)
	x.eachHeat(func(newest *node, h holding) {
		if now := h.heat - x.store.clock; now > freshHeat {
			b = binary.LittleEndian.AppendUint64(b, newest.fingerprint)
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(now))
		}
	})
	binary.LittleEndian.PutUint32(b[head:], uint32((len(b)-head-4)/snapshotHeatBytes))
	return b
}

// restoreHeats reads the heats; an older snapshot has none.
func restoreHeats(b []byte) (heats map[uint64]float32, ok bool) {
	if len(b) == 0 {
		return nil, true
	}
	if len(b) < 4 || (len(b)-4)%snapshotHeatBytes != 0 || (len(b)-4)/snapshotHeatBytes != int(binary.LittleEndian.Uint32(b)) {
		return nil, false
	}
	heats = map[uint64]float32{}
	for b = b[4:]; len(b) > 0; b = b[snapshotHeatBytes:] {
		heat := math.Float32frombits(binary.LittleEndian.Uint32(b[8:]))
		if !(heat > freshHeat && heat < 64) {
			return nil, false
		}
		heats[binary.LittleEndian.Uint64(b)] = heat
	}
	return heats, true
}

// appendModel appends one worker; ok is false when it has gone. position is
// scratch memory.
func (x *Index) appendModel(b []byte, ref uint16, position *[]uint32) (out []byte, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m, l := x.models[ref], x.learned[ref]
	if m == nil {
		return b, false
	}
	b = binary.LittleEndian.AppendUint16(b, ref)
	b = append(b, byte(len(m.pool)), 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(m.at)))
	for _, f := range []float64{l.trust.value(), l.prefill.rate(), l.decodeSeconds, x.poolOf(m.pool).tokensPerUnit} {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(f))
	}
	b = append(b, m.pool...)
	if n := int(x.store.used); len(*position) < n {
		*position = make([]uint32, n)
	}
	at := uint32(0)
	for id := m.newest; id != 0; id = m.node(id).older {
		at++
		(*position)[id] = at
		node := m.node(id)
		b = binary.LittleEndian.AppendUint64(b, node.fingerprint)
		b = binary.LittleEndian.AppendUint64(b, node.touched)
		b = binary.LittleEndian.AppendUint64(b, node.born)
		parent := uint32(0)
		if node.parent != 0 {
			parent = (*position)[node.parent]
		}
		b = binary.LittleEndian.AppendUint32(b, parent)
		b = binary.LittleEndian.AppendUint32(b, node.end)
		tail := uint32(node.tail)
		if node.confirmed {
			tail |= 1 << 31
		}
		b = binary.LittleEndian.AppendUint32(b, tail)
	}
	return b, true
}

// restoredModel is one worker of a snapshot, until a live worker claims it.
type restoredModel struct {
	pool          string
	learned       learned
	tokensPerUnit float64
	seq           uint64
	nodes         []node // parent is the position + 1
}

// staleTrust is the most that a worker is trusted at first when the snapshot is
// too old to be believed.
const staleTrust = 0.5

// RestoreSnapshot reads a snapshot. Its entries count once AddWorker makes their
// ref live. A damaged snapshot is refused whole. Of one that isn't fresh nothing
// counts as confirmed: engines went on without us, and a miss now says nothing
// about them.
func (x *Index) RestoreSnapshot(b []byte, fresh bool) error {
	restored, heats, err := readSnapshot(b, fresh)
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.restored = restored
	if fresh {
		x.store.remembered = heats
	}
	return nil
}

// readSnapshot checks a snapshot whole.
func readSnapshot(b []byte, fresh bool) (restored map[uint16]*restoredModel, heats map[uint64]float32, err error) {
	all := b
	fail := func(what string) (map[uint16]*restoredModel, map[uint64]float32, error) {
		return nil, nil, fmt.Errorf("read index snapshot at byte %d: %s", len(all)-len(b), what)
	}
	if len(b) < 12 {
		return fail("cut short")
	}
	seq, workers := binary.LittleEndian.Uint64(b), int(binary.LittleEndian.Uint32(b[8:]))
	b = b[12:]
	restored = map[uint16]*restoredModel{}
	for range workers {
		if len(b) < snapshotWorkerBytes {
			return fail("cut short")
		}
		ref, nameLen := binary.LittleEndian.Uint16(b), int(b[2])
		n := int(binary.LittleEndian.Uint32(b[4:]))
		var f [4]float64
		for i := range f {
			f[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8+8*i:]))
			if !(f[i] >= 0 && f[i] < 1e12) {
				return fail("a number is out of range")
			}
		}
		b = b[snapshotWorkerBytes:]
		if len(b) < nameLen || (len(b)-nameLen)/snapshotNodeBytes < n {
			return fail("cut short")
		}
		r := &restoredModel{
			pool: string(b[:nameLen]), seq: seq, tokensPerUnit: f[3],
			learned: learned{trust: trusted(f[0]), prefill: rates{prior: f[1]}, decodeSeconds: f[2]},
			nodes:   make([]node, n),
		}
		if !fresh {
			r.learned.trust = trusted(min(f[0], staleTrust))
		}
		b = b[nameLen:]
		for i := range r.nodes {
			parent, end, tail := binary.LittleEndian.Uint32(b[24:]), binary.LittleEndian.Uint32(b[28:]), binary.LittleEndian.Uint32(b[32:])
			if int(parent) > i || end == 0 || end > 1<<24 || parent > 0 && r.nodes[parent-1].end >= end {
				return fail(fmt.Sprintf("node %d of ref %d contradicts its parent", i, ref))
			}
			r.nodes[i] = node{
				fingerprint: binary.LittleEndian.Uint64(b), touched: binary.LittleEndian.Uint64(b[8:]), born: binary.LittleEndian.Uint64(b[16:]),
				parent: parent, end: end, tail: uint16(min(tail&^(1<<31), math.MaxUint16)), confirmed: fresh && tail>>31 == 1,
			}
			b = b[snapshotNodeBytes:]
		}
		if ref == 0 || restored[ref] != nil {
			return fail(fmt.Sprintf("ref %d twice or zero", ref))
		}
		restored[ref] = r
	}
	heats, ok := restoreHeats(b)
	if !ok {
		return fail("heats contradict themselves")
	}
	return restored, heats, nil
}

// DropRestored forgets what no live worker claimed.
func (x *Index) DropRestored() {
	x.mu.Lock()
	defer x.mu.Unlock()
	clear(x.restored)
	x.store.remembered = nil
}

// into fills the empty model m.
func (r *restoredModel) into(m *model, l *learned) {
	*l = r.learned
	ids := make([]uint32, len(r.nodes))
	touched := uint64(unplaced - 1)
	for i := range r.nodes {
		n := r.nodes[i]
		touched = min(touched, n.touched) // as the order of the nodes has it
		if _, twice := m.at[n.fingerprint]; twice || n.fingerprint == 0 {
			continue
		}
		if n.parent != 0 && ids[n.parent-1] == 0 {
			continue
		}
		id := m.alloc()
		ids[i] = id
		*m.node(id) = node{fingerprint: n.fingerprint, touched: touched, born: n.born, end: n.end, ref: m.ref, predictions: many, confirmed: n.confirmed}
		m.at[n.fingerprint] = id
		m.units += uint64(n.end)
		if n.parent != 0 {
			m.adopt(ids[n.parent-1], id)
		}
		m.setTail(id, uint32(n.tail))
		m.linkRecency(id, 0)
		m.holdInOrder(id)
		m.born = max(m.born, n.born)
	}
}
