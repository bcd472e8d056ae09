package kvevents

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cespare/xxhash/v2"
)

// A saved source, little endian:
//
//	offset size
//	0      4    magic "WPEV"
//	4      4    version, 2
//	8      8    time of writing, unix ns
//	16     8    sequence number of the next batch
//	24     8    the engine's time of the youngest batch applied, float64, seconds
//	32     1    flags: 1 next is known, 2 a batch was applied, 4 batches were lost
//	33     1    0
//	34     2    n, length of the identity
//	36     4    tokens of a block
//	40     4    group of the cache that counts, -1 none seen
//	44     4    number of blocks
//	48     n    identity: whose blocks they are, and what their fingerprints begin with
//	       4    number of adapters, then for each, from number 1
//	0      8    generation
//	8      1    length of the name
//	9           name
//
// then for each block, a parent before its children:
//
//	offset size
//	0      8    name of the block
//	8      1    flags: 1 its parent is the block before, 2 it has tokens, 4 opaque, 16 it has copies
//	9      1    media
//	10     2    number of checkpoints
//	12     4    unless flag 1: position of the parent + 1, 0 none
//	       2    with flag 16: further blocks of the same name
//	       12   each checkpoint: fingerprint, then units | turn << 27, or for the salt
//	            the number of the adapter, 0 the base model, | 1 << 28
//	       3    each token
//
// and at the very end 8 bytes: xxHash64 of all before. A block of 16 tokens in
// the middle of a segment takes 60 bytes.
const (
	saveMagic   = "WPEV"
	saveVersion = 2
	saveFixed   = 48
	saveAdapter = 9
	saveBlock   = 12
	savePoint   = 12

	savedKnown, savedAny, savedUnsure = 1, 2, 4

	savedNext, savedTokens, savedOpaque, savedCopies = 1, 2, 4, 16
)

// Saved is what a restored source begins with.
type Saved struct {
	At     time.Time
	Next   uint64 // sequence number of the batch to go on from
	Blocks int
}

// AppendSave appends the source's blocks and where it stands in the stream, for
// Restore under the same identity. Batches wait meanwhile: some 50 ns a block.
// ok is false, and nothing appended, when no batch was applied since the last
// AppendSave.
func (s *Source) AppendSave(b []byte, identity string, now time.Time) (out []byte, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := &s.stream
	if !st.known || st.counts == s.savedCounts || len(identity) > math.MaxUint16 {
		return b, false
	}
	s.savedCounts = st.counts
	start := len(b)
	b = append(b, saveMagic...)
	b = binary.LittleEndian.AppendUint32(b, saveVersion)
	b = binary.LittleEndian.AppendUint64(b, uint64(now.UnixNano()))
	b = binary.LittleEndian.AppendUint64(b, st.next)
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(st.last))
	b = append(b, bitIf(st.known, savedKnown)|bitIf(st.any, savedAny)|bitIf(st.unsure, savedUnsure), 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(identity)))
	b = binary.LittleEndian.AppendUint32(b, uint32(st.m.tokens.size))
	b = binary.LittleEndian.AppendUint32(b, uint32(int32(st.m.group)))
	b = binary.LittleEndian.AppendUint32(b, uint32(st.m.byHash.count))
	b = append(b, identity...)
	b = st.m.appendAdapters(b)
	b = st.m.appendBlocks(b)
	return binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b[start:])), true
}

// Unsaved says that what AppendSave gave last came to nothing.
func (s *Source) Unsaved() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.savedCounts = StreamCounts{}
}

func bitIf(on bool, bit uint8) uint8 {
	if on {
		return bit
	}
	return 0
}

func (m *Map) appendAdapters(b []byte) []byte {
	named := m.adapters[min(len(m.adapters), 1):]
	b = binary.LittleEndian.AppendUint32(b, uint32(len(named)))
	for _, a := range named {
		b = binary.LittleEndian.AppendUint64(b, a.generation)
		b = append(append(b, byte(len(a.name))), a.name...)
	}
	return b
}

// restoreAdapters comes before the blocks, whose salts name them.
func (m *Map) restoreAdapters(b []byte) (rest []byte, err error) {
	cut := errors.New("adapters cut short")
	if len(b) < 4 {
		return nil, cut
	}
	n, b := binary.LittleEndian.Uint32(b), b[4:]
	if n >= maxAdapters {
		return nil, fmt.Errorf("%d adapters", n)
	}
	m.adapters = append(m.adapters[:0], adapter{current: true})
	for range n {
		if len(b) < saveAdapter || len(b) < saveAdapter+int(b[8]) {
			return nil, cut
		}
		end := saveAdapter + int(b[8])
		a := adapter{name: string(b[saveAdapter:end]), generation: binary.LittleEndian.Uint64(b)}
		a.current = m.generations[a.name] == a.generation
		m.adapters, b = append(m.adapters, a), b[end:]
	}
	return b, nil
}

// appendBlocks walks from every root: so a parent comes before its children, and
// mostly right before.
func (m *Map) appendBlocks(b []byte) []byte {
	position := make([]uint32, m.nodes.used)
	n := uint32(0)
	for root := range m.roots {
		stack := append(m.stack[:0], root)
		for len(stack) > 0 {
			id := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			n++
			position[id] = n
			b = m.appendBlock(b, id, position)
			for c := m.nodes.at(id).child; c != 0; c = m.nodes.at(c).next {
				stack = append(stack, c)
			}
		}
		m.stack = stack
	}
	return b
}

func (m *Map) appendBlock(b []byte, id uint32, position []uint32) []byte {
	n := m.nodes.at(id)
	var parent uint32
	if n.parent != 0 {
		parent = position[n.parent]
	}
	follows := parent != 0 && parent == position[id]-1
	points := uint16(0) // at most 80
	for at := n.points; at != 0; at = m.points.at(at).next {
		points++
	}
	b = binary.LittleEndian.AppendUint64(b, n.hash)
	b = append(b, bitIf(follows, savedNext)|bitIf(n.tokens != 0, savedTokens)|bitIf(n.flags&opaque != 0, savedOpaque)|bitIf(n.more > 0, savedCopies),
		byte(n.media))
	b = binary.LittleEndian.AppendUint16(b, points)
	if !follows {
		b = binary.LittleEndian.AppendUint32(b, parent)
	}
	if n.more > 0 {
		b = binary.LittleEndian.AppendUint16(b, n.more)
	}
	for at := n.points; at != 0; at = m.points.at(at).next {
		p := m.points.at(at)
		b = binary.LittleEndian.AppendUint64(b, p.fingerprint)
		b = binary.LittleEndian.AppendUint32(b, p.end)
	}
	if n.tokens != 0 {
		b = append(b, m.tokens.slot(n.tokens)...)
	}
	return b
}

// Restore takes over what AppendSave wrote, before Run, and tells the sink what
// is held. The stream goes on from there: Run asks for what was published since.
// Anything wrong with b leaves the source as new.
func (s *Source) Restore(b []byte, identity string) (Saved, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	saved, err := s.stream.restore(b, identity)
	if err != nil {
		m := NewMap(s.stream.m.cfg, s.stream.m.sink)
		m.generations = s.stream.m.generations
		s.stream = stream{m: m}
		return Saved{}, err
	}
	s.savedCounts = s.stream.counts
	return saved, nil
}

func (s *stream) restore(b []byte, identity string) (Saved, error) {
	switch {
	case len(b) < saveFixed+8:
		return Saved{}, errors.New("cut short")
	case string(b[:4]) != saveMagic:
		return Saved{}, errors.New("not a file of saved KV events")
	case binary.LittleEndian.Uint32(b[4:]) != saveVersion:
		return Saved{}, fmt.Errorf("version %d, this program reads %d", binary.LittleEndian.Uint32(b[4:]), saveVersion)
	}
	body, sum := b[:len(b)-8], binary.LittleEndian.Uint64(b[len(b)-8:])
	if xxhash.Sum64(body) != sum {
		return Saved{}, errors.New("checksum doesn't match")
	}
	names := int(binary.LittleEndian.Uint16(body[34:]))
	if len(body) < saveFixed+names || string(body[saveFixed:saveFixed+names]) != identity {
		return Saved{}, errors.New("it is of another process of the engine, or of other settings")
	}
	size, group := binary.LittleEndian.Uint32(body[36:]), int32(binary.LittleEndian.Uint32(body[40:]))
	if size > MaxBlockTokens || group < -1 {
		return Saved{}, errors.New("block size or group is out of range")
	}
	blocks := int(binary.LittleEndian.Uint32(body[44:]))
	s.m.tokens.size, s.m.group = int(size), int(group)
	rest, err := s.m.restoreAdapters(body[saveFixed+names:])
	if err != nil {
		return Saved{}, err
	}
	if err := s.m.restoreBlocks(rest, blocks); err != nil {
		return Saved{}, err
	}
	s.next, s.last = binary.LittleEndian.Uint64(body[16:]), math.Float64frombits(binary.LittleEndian.Uint64(body[24:]))
	s.known, s.any, s.unsure = body[32]&savedKnown != 0, body[32]&savedAny != 0, body[32]&savedUnsure != 0
	s.m.tellAll()
	return Saved{At: time.Unix(0, int64(binary.LittleEndian.Uint64(body[8:]))), Next: s.next, Blocks: s.m.counts.Blocks}, nil
}

// restoreBlocks makes the blocks known. Nothing is told yet: what is wrong at the
// end must not have been believed at the beginning.
func (m *Map) restoreBlocks(b []byte, n int) error {
	if n > m.cfg.MaxBlocks {
		return fmt.Errorf("%d blocks, at most %d are kept", n, m.cfg.MaxBlocks)
	}
	all := len(b)
	for i := range n {
		rest, err := m.restoreBlock(b, uint32(i))
		if err != nil {
			return fmt.Errorf("block %d at byte %d of the blocks: %w", i, all-len(b), err)
		}
		b = rest
	}
	if len(b) > 0 {
		return errors.New("bytes behind the end")
	}
	return nil
}

// restoreBlock reads the block behind i others. Nodes are numbered in the order
// of the file, from 1: a position + 1 is the node's number.
func (m *Map) restoreBlock(b []byte, i uint32) (rest []byte, err error) {
	cut := errors.New("cut short")
	if len(b) < saveBlock {
		return nil, cut
	}
	hash, flags, media, points := binary.LittleEndian.Uint64(b), b[8], Medium(b[9]), int(binary.LittleEndian.Uint16(b[10:]))
	b = b[saveBlock:]
	parent := i
	if flags&savedNext == 0 {
		if len(b) < 4 {
			return nil, cut
		}
		parent, b = binary.LittleEndian.Uint32(b), b[4:]
	}
	var more uint16
	if flags&savedCopies != 0 {
		if len(b) < 2 {
			return nil, cut
		}
		more, b = binary.LittleEndian.Uint16(b), b[2:]
	}
	tokens := 0
	if flags&savedTokens != 0 {
		tokens = 3 * m.tokens.size
	}
	switch {
	case len(b) < points*savePoint+tokens:
		return nil, cut
	case parent > i || flags&savedNext != 0 && i == 0:
		return nil, errors.New("its parent comes later")
	case more > 0 && media&GPU == 0:
		return nil, errors.New("copies of nothing")
	case media&^(GPU|CPU|Disk) != 0:
		return nil, errors.New("no such medium")
	case m.byHash.find(&m.nodes, hash) != 0:
		return nil, errors.New("told twice")
	}
	id := m.add(hash, parent)
	node := m.nodes.at(id)
	node.more = more
	node.flags = bitIf(flags&savedOpaque != 0, opaque)
	for range points {
		m.addPoint(id, point{fingerprint: binary.LittleEndian.Uint64(b), end: binary.LittleEndian.Uint32(b[8:])})
		b = b[savePoint:]
	}
	if tokens > 0 {
		node.tokens = m.tokens.take()
		copy(m.tokens.slot(node.tokens), b[:tokens])
	}
	if err := m.checkRestored(id); err != nil {
		return nil, err
	}
	if node.media = media; media != 0 {
		m.counts.Gone--
		m.counts.Blocks++
		m.countMedia(0, media)
	}
	return b[tokens:], nil
}

// checkRestored: a prompt must be able to go on behind the block.
func (m *Map) checkRestored(id uint32) error {
	n := m.nodes.at(id)
	end := int(n.depth) * m.tokens.size
	for at := n.points; at != 0; at = m.points.at(at).next {
		p := m.points.at(at)
		switch {
		case p.salt() && (n.parent != 0 || int(p.end&endMask) >= len(m.adapters)), p.salt() && p.isTurn():
			return errors.New("a salt is not of this block")
		case !p.salt() && (p.units() == 0 || int(p.units())*unit >= end+m.tokens.size):
			return errors.New("a checkpoint is not of this block")
		}
	}
	if n.flags&opaque != 0 {
		return nil
	}
	if n.parent != 0 && m.nodes.at(n.parent).flags&opaque != 0 {
		return errors.New("it is of another kind than its parent")
	}
	last, ok := m.segment(id)
	if n.tokens == 0 && (!ok || int(last.units())*unit != end) || n.parent == 0 && !ok {
		return errors.New("nothing says what comes before")
	}
	return nil
}

// tellAll marks what is held with all before it, and tells it.
func (m *Map) tellAll() {
	for root := range m.roots {
		if m.current(root) {
			m.begin(root)
		}
	}
	m.flush()
}
