// Package recent keeps what was made of the most recent texts, in memory of a fixed size.
//
// A result travels through it like this: Put appends its items to a ring, over the oldest ones,
// and notes where they lie, and what else belongs to it, in a table by the text's hash; Get finds
// them there for as long as nothing was written over them. What is asked for and lies in the older
// half is put again by the caller, so that what is in use stays.
package recent

import "github.com/warmpath/warmpath/shared/texthash"

// Store holds results: a note and any number of items for each. The zero Store takes nothing.
type Store[Note, Item any] struct {
	items   []Item // the ring
	written uint64 // items ever written; the next goes to written % len(items)
	entries []entry[Note]
}

type entry[Note any] struct {
	key   texthash.Sum
	at    uint64 // value of written when the items were written
	count uint32
	used  bool
	note  Note
}

// ways entries share a place in the table; the one with the oldest items gives way.
const ways = 4

// New makes a Store with room for so many items, and entries for at least so many results.
func New[Note, Item any](entries, items int) Store[Note, Item] {
	size := ways
	for size < entries {
		size *= 2
	}
	return Store[Note, Item]{items: make([]Item, items), entries: make([]entry[Note], size)}
}

// Takes tells whether the Store keeps anything.
func (s *Store[Note, Item]) Takes() bool { return s.entries != nil }

// Result is what Get found. It holds until the next Put.
type Result[Note, Item any] struct {
	Note *Note
	// First and Rest are the items: those up to the ring's end, and those from its beginning.
	First, Rest []Item
	// Old tells that the result lies in the older half of what is kept.
	Old bool
}

// Get returns what was put under key, false if that is gone.
func (s *Store[Note, Item]) Get(key texthash.Sum) (r Result[Note, Item], ok bool) {
	places := s.places(key)
	for i := range places {
		e := &places[i]
		if e.key != key || !s.alive(e) {
			continue
		}
		at := int(e.at % uint64(len(s.items)))
		r.Note = &e.note
		r.First = s.items[at:min(at+int(e.count), len(s.items))]
		r.Rest = s.items[:int(e.count)-len(r.First)]
		r.Old = s.written-e.at > uint64(len(s.items))/2
		return r, true
	}
	return r, false
}

// Put keeps a result, unless it has more items than a quarter of the ring: one text must not push
// out all the others. The items are copied.
func (s *Store[Note, Item]) Put(key texthash.Sum, note *Note, items []Item) {
	if len(items) > len(s.items)/4 {
		return
	}
	places := s.places(key)
	oldest := &places[0]
	for i := range places {
		e := &places[i]
		if e.key == key || !s.alive(e) {
			oldest = e
			break
		}
		if e.at < oldest.at {
			oldest = e
		}
	}
	*oldest = entry[Note]{key: key, at: s.written, count: uint32(len(items)), used: true, note: *note}
	at := int(s.written % uint64(len(s.items)))
	n := copy(s.items[at:], items)
	copy(s.items, items[n:])
	s.written += uint64(len(items))
}

func (s *Store[Note, Item]) places(key texthash.Sum) []entry[Note] {
	at := int(key.Low) & (len(s.entries) - 1) &^ (ways - 1)
	return s.entries[at : at+ways]
}

// alive tells whether nothing was written over an entry's items.
func (s *Store[Note, Item]) alive(e *entry[Note]) bool {
	return e.used && s.written-e.at <= uint64(len(s.items))
}
