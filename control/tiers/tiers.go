// Package tiers knows which prefixes workers have in slower memory, on CPU or
// disk, and not whole on the GPU.
//
// A prefix travels through a Book like this: an engine's block map says that it is
// slow ([Book.Set]), [Book.Drain] hands who has it to the table, where it stands
// under a key of its own beside those that are on the GPU (fingerprint.Slow); it
// goes when the map says so, or with its worker ([Book.Forget]).
package tiers

import (
	"slices"
	"sync"

	"github.com/warmpath/warmpath/shared/fingerprint"
)

// MaxPrefixes bounds a Book, which takes some 100 bytes for each. What is more is
// left out, and costs its prefill.
const MaxPrefixes = 1 << 20

// Book is safe for concurrent use.
type Book struct {
	mu      sync.Mutex
	holders map[uint64][]uint16 // by fingerprint, newest first
	dirty   map[uint64]struct{}
	full    uint64
}

// New returns an empty book.
func New() *Book {
	return &Book{holders: map[uint64][]uint16{}, dirty: map[uint64]struct{}{}}
}

// Set says whether worker ref has all up to a checkpoint, some of it in slower
// memory alone.
func (b *Book) Set(ref uint16, checkpoint uint64, on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !on {
		b.remove(ref, checkpoint)
		return
	}
	had := b.holders[checkpoint]
	switch {
	case slices.Contains(had, ref):
	case had == nil && len(b.holders) >= MaxPrefixes:
		b.full++
	default:
		b.holders[checkpoint] = slices.Insert(had, 0, ref)
		b.dirty[checkpoint] = struct{}{}
	}
}

func (b *Book) remove(ref uint16, checkpoint uint64) {
	had := b.holders[checkpoint]
	i := slices.Index(had, ref)
	if i < 0 {
		return
	}
	b.dirty[checkpoint] = struct{}{}
	if len(had) == 1 {
		delete(b.holders, checkpoint)
		return
	}
	b.holders[checkpoint] = slices.Delete(had, i, i+1)
}

// Forget drops what was said of a worker.
func (b *Book) Forget(ref uint16) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for checkpoint := range b.holders {
		b.remove(ref, checkpoint)
	}
}

// Drain calls f for the keys whose holders changed since the last Drain, in
// ascending order; without holders a key is gone. The slice is valid during the
// call only.
func (b *Book) Drain(f func(key uint64, holders []uint16)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	keys := make([]uint64, 0, len(b.dirty))
	for checkpoint := range b.dirty {
		keys = append(keys, fingerprint.Slow(checkpoint))
	}
	slices.Sort(keys)
	var scratch []uint16
	for _, key := range keys {
		scratch = append(scratch[:0], b.holders[fingerprint.Slow(key)]...)
		f(key, scratch)
	}
	clear(b.dirty)
}

// Stats returns how many prefixes are known, and how many were left out.
func (b *Book) Stats() (prefixes int, full uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.holders), b.full
}
