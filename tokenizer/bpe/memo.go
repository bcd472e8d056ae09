package bpe

import (
	"github.com/warmpath/warmpath/shared/texthash"
	"github.com/warmpath/warmpath/tokenizer/recent"
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

// memo remembers the ids of texts between added tokens, by content.
type memo struct {
	hash  texthash.Hasher
	store recent.Store[struct{}, uint32]
}

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
	m.store = recent.New[struct{}, uint32](c.MemoEntries, c.MemoIDs)
}

// takes tells whether a text of n bytes has a place in the memo.
func (m *memo) takes(n int) bool {
	return n >= memoBytes && n <= wholeBytes && m.store.Takes()
}

func (m *memo) key(text []byte) texthash.Sum {
	m.hash.Reset()
	m.hash.Write(text)
	return m.hash.Sum()
}

// get appends the ids that are known under key.
func (m *memo) get(dst []uint32, key texthash.Sum) ([]uint32, bool) {
	known, ok := m.store.Get(key)
	if !ok {
		return dst, false
	}
	begin := len(dst)
	dst = append(append(dst, known.First...), known.Rest...)
	if known.Old {
		m.put(key, dst[begin:])
	}
	return dst, true
}

func (m *memo) put(key texthash.Sum, ids []uint32) { m.store.Put(key, &struct{}{}, ids) }

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
