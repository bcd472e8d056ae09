package index

import (
	"cmp"
	"math"
	"slices"
)

// Proof is why a worker is believed to hold a checkpoint.
type Proof uint8

// Proofs, from the weakest.
const (
	Predicted Proof = iota // a request was sent there
	Confirmed              // it answered, or its cached_tokens proved it
	Reported               // its engine said so, and hasn't taken it back
)

func (p Proof) String() string { return [...]string{"predicted", "confirmed", "reported"}[p] }

// Holder is a worker that holds a checkpoint.
type Holder struct {
	Ref   uint16
	Proof Proof
}

// Entry is what is known about one checkpoint.
type Entry struct {
	Fingerprint uint64
	Pool        string
	Units       uint32
	Tokens      float64 // of the prefix that ends there, as far as the pool's text is known
	// Heat is the number of requests whose longest match it was, each fading by
	// half in five minutes.
	Heat     float64
	Holders  []Holder // newest first
	PoolSize int      // live workers of the pool
}

// Entries calls f for those of the fingerprints that somebody holds. The entry
// is valid during the call.
func (x *Index) Entries(fingerprints []uint64, f func(*Entry)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	var e Entry
	for _, fp := range fingerprints {
		if x.entry(fp, &e) {
			f(&e)
		}
	}
}

func (x *Index) entry(fp uint64, e *Entry) bool {
	h, ok := x.store.holders[fp]
	if !ok {
		return false
	}
	first := x.store.node(h.first)
	*e = Entry{
		Fingerprint: fp, Units: first.end, Holders: e.Holders[:0],
		Heat: math.Exp2(float64(h.heat - x.store.clock)),
	}
	if m := x.models[first.ref]; m != nil {
		e.Pool, e.PoolSize = m.pool, x.poolSize[m.pool]
		e.Tokens = float64(first.end) * x.poolOf(m.pool).tokensPerUnit
	}
	for id := h.first; id != 0; id = x.store.node(id).same {
		n := x.store.node(id)
		proof := Predicted
		switch {
		case n.reported:
			proof = Reported
		case n.confirmed:
			proof = Confirmed
		}
		e.Holders = append(e.Holders, Holder{n.ref, proof})
	}
	return true
}

// warm is a fingerprint with its heat.
type warm struct {
	fingerprint uint64
	heat        float32
}

// Top returns the n hottest checkpoints of a pool ("" for all), hottest first.
// Reports go on meanwhile, so it is true for no single moment.
func (x *Index) Top(pool string, n int) []Entry {
	var top []warm
	x.eachHeat(func(newest *node, h holding) {
		if m := x.models[newest.ref]; pool != "" && (m == nil || m.pool != pool) {
			return
		}
		// Few of many are kept, so most come no further than here.
		if len(top) == n && top[n-1].heat >= h.heat {
			return
		}
		at, _ := slices.BinarySearchFunc(top, h.heat, func(w warm, heat float32) int { return cmp.Compare(heat, w.heat) })
		top = slices.Insert(top, at, warm{newest.fingerprint, h.heat})
		top = top[:min(len(top), n)]
	})
	fingerprints := make([]uint64, 0, len(top))
	for i := range top {
		fingerprints = append(fingerprints, top[i].fingerprint)
	}
	var out []Entry
	x.Entries(fingerprints, func(e *Entry) {
		kept := *e
		kept.Holders = slices.Clone(e.Holders)
		out = append(out, kept)
	})
	return out
}
