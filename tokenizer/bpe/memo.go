package bpe

import (
	"encoding/binary"
	"hash"

	"github.com/minio/highwayhash"
)

const (
	// memoBytes is the shortest text worth a place in the memo: below it, hashing and looking up
	// cost about as much as tokenising.
	memoBytes = 256
	// wholeBytes is the longest text that is remembered as one. A longer one is remembered in
	// stretches of about stretchBytes, so that a document larger than a request's budget gets
	// further with every request, and two that begin alike share their beginning.
	wholeBytes   = 64 << 10
	stretchBytes = 16 << 10
	// memoUnits bytes that the memo is asked for cost one unit.
	memoUnits = 16
	// stretchMark keeps the keys of stretches apart from those of whole texts: the last white
	// space of a text is cut otherwise where more follows.
	stretchMark = 0x5354524554434831
)

// memoHashKey is the key of the content hash. Two texts with equal 128-bit hashes would be
// taken for one another. By chance that does not happen (2^-64 at four billion texts); whoever
// could find such a pair would lead requests to a worker without their prefix, and nothing
// worse: the body that the worker gets is never changed.
var memoHashKey = []byte("warmpath message memo, version 1")

type memoKey struct{ low, high uint64 }

// memo remembers the ids of texts between added tokens, by content. Ids lie one after the
// other in a ring that overwrites its oldest; a hit in the older half moves to the front, so
// that a conversation in use stays.
type memo struct {
	digest  hash.Hash
	sum     [16]byte
	ids     []uint32 // the ring
	written uint64   // ids ever written; the next goes to written % len(ids)
	entries []memoEntry
}

type memoEntry struct {
	key   memoKey
	at    uint64 // value of written when the ids were written
	count uint32
	used  bool
}

// memoWays entries share a place in the table; the one with the oldest ids gives way.
const memoWays = 4

func (m *memo) set(c Config) {
	if c.MemoIDs < 0 {
		return
	}
	if c.MemoIDs == 0 {
		c.MemoIDs = 1 << 18
	}
	if c.MemoEntries <= 0 {
		c.MemoEntries = 4096
	}
	size := memoWays
	for size < c.MemoEntries {
		size *= 2
	}
	digest, err := highwayhash.New128(memoHashKey)
	if err != nil {
		return // never: the key has 32 bytes
	}
	m.digest, m.ids, m.entries = digest, make([]uint32, c.MemoIDs), make([]memoEntry, size)
}

// takes tells whether a text of n bytes has a place in the memo.
func (m *memo) takes(n int) bool {
	return n >= memoBytes && n <= wholeBytes && m.entries != nil
}

func (m *memo) key(text []byte) memoKey {
	m.digest.Reset()
	_, _ = m.digest.Write(text) // a hash does not fail
	sum := m.digest.Sum(m.sum[:0])
	return memoKey{binary.LittleEndian.Uint64(sum), binary.LittleEndian.Uint64(sum[8:])}
}

func (m *memo) ways(key memoKey) []memoEntry {
	at := int(key.low) & (len(m.entries) - 1) &^ (memoWays - 1)
	return m.entries[at : at+memoWays]
}

// alive tells whether the ids of an entry have not been overwritten.
func (m *memo) alive(e *memoEntry) bool {
	return e.used && m.written-e.at <= uint64(len(m.ids))
}

func (m *memo) get(dst []uint32, key memoKey) ([]uint32, bool) {
	ways := m.ways(key)
	for i := range ways {
		e := &ways[i]
		if e.key != key || !m.alive(e) {
			continue
		}
		begin := len(dst)
		at := int(e.at % uint64(len(m.ids)))
		n := int(e.count)
		whole := min(n, len(m.ids)-at)
		dst = append(dst, m.ids[at:at+whole]...)
		dst = append(dst, m.ids[:n-whole]...)
		if m.written-e.at > uint64(len(m.ids))/2 {
			e.at = m.write(dst[begin:])
		}
		return dst, true
	}
	return dst, false
}

func (m *memo) put(key memoKey, ids []uint32) {
	if len(ids) > len(m.ids)/4 {
		return // one text must not push out all the others
	}
	ways := m.ways(key)
	oldest := &ways[0]
	for i := range ways {
		e := &ways[i]
		if e.key == key || !m.alive(e) {
			oldest = e
			break
		}
		if e.at < oldest.at {
			oldest = e
		}
	}
	*oldest = memoEntry{key: key, count: uint32(len(ids)), used: true, at: m.write(ids)}
}

// write appends ids to the ring and returns where they begin.
func (m *memo) write(ids []uint32) uint64 {
	begin := m.written
	at := int(begin % uint64(len(m.ids)))
	n := copy(m.ids[at:], ids)
	copy(m.ids, ids[n:])
	m.written += uint64(len(ids))
	return begin
}

// stretch returns where the next stretch of text ends that begins with a piece at text[at], and
// whether that is certain to be the end of a piece whatever stands before and after. It is at
//
//	letter | space letter       a word takes the space in front of it along, and never one behind it
//	newline | letter            white space with a newline ends at its last one, and nothing that
//	                            begins with or holds a letter takes a newline in front of it along
//
// with letters of ASCII or, after a newline, ideographs. That holds for all kinds of
// pretoken; a test says so for each.
func stretch(text []byte, at int) (end int, certain bool) {
	if len(text)-at <= stretchBytes {
		return len(text), false
	}
	for end = at + stretchBytes; end > at+stretchBytes/2; end-- {
		before, here := text[end-1], text[end]
		if here == ' ' && isLetter(before) && isLetter(text[end+1]) ||
			before == '\n' && (isLetter(here) || here >= 0xe4 && here <= 0xe9) {
			return end, true
		}
	}
	return at + stretchBytes, false
}

func isLetter(c byte) bool { return c|0x20-'a' < 26 }
