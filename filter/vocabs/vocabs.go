// Package vocabs is the vocabularies that one VM has in its own memory.
//
// A vocabulary is named by the policy, brought into shared data piece by piece
// by the courier, and copied from there by every VM: Tick takes a few pieces into
// memory that is set aside for the whole when the first one is there, and once
// all are, the next Tick checks it and one more makes its encoder. From then on
// Get answers with it, until the policy names it no longer.
//
// What arrived damaged is refused and counted, and copied again later: the
// courier, which has refused it too, brings new pieces meanwhile.
package vocabs

import (
	"time"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/route"
	"github.com/warmpath/warmpath/shared/wire"
	"github.com/warmpath/warmpath/tokenizer/bpe"
	"github.com/warmpath/warmpath/tokenizer/vocab"
)

const (
	// retryLeast and retryMost bound the wait after a refusal.
	retryLeast = 5 * time.Second
	retryMost  = 5 * time.Minute
	// tickPieces and tickTime bound the copying of one Tick. A VM that starts
	// while its pool is exact runs in approximate mode until it has copied all.
	tickPieces = 4
	tickTime   = time.Millisecond
)

// Set is the vocabularies of one VM and deployment.
type Set struct {
	keys    wire.Keys
	metrics *metrics.Set
	rng     *route.Rand
	wanted  []*entry // in the order of the policy
	piece   abi.Scratch
	told    uint32
}

// entry is one vocabulary that the policy names.
type entry struct {
	policy.Vocabulary
	loader    *vocab.Loader
	next      int          // piece to copy next
	checked   *vocab.Vocab // whole, and without an encoder yet
	loaded    *Loaded
	refusals  int
	notBefore int64 // unix ns
}

// Loaded is a vocabulary that can be used, with the encoder that all requests of
// the VM share: a VM has one thread.
type Loaded struct {
	Vocabulary *vocab.Vocab
	Encoder    *bpe.Encoder
}

// New makes the empty set of a VM.
func New(keys wire.Keys, m *metrics.Set, rng *route.Rand) *Set {
	return &Set{keys: keys, metrics: m, rng: rng}
}

// Want sets what the policy names. What is loaded and still named stays.
func (s *Set) Want(list []policy.Vocabulary) {
	before := s.wanted
	s.wanted = make([]*entry, len(list))
	for i, v := range list {
		for j, e := range before {
			if e != nil && e.Vocabulary == v {
				s.wanted[i], before[j] = e, nil
			}
		}
		if s.wanted[i] == nil {
			s.wanted[i] = &entry{Vocabulary: v}
		}
	}
	s.pace()
}

// Get is a vocabulary that is loaded, nil for one that isn't.
func (s *Set) Get(hash policy.Hash) *Loaded {
	for _, e := range s.wanted {
		if e.Hash == hash {
			return e.loaded
		}
	}
	return nil
}

// Ready has bit i set when vocabulary i of the policy is loaded.
func (s *Set) Ready() (bits uint32) {
	for i, e := range s.wanted {
		if e.loaded != nil {
			bits |= 1 << i
		}
	}
	return bits
}

// Refusals counts how often this VM found a vocabulary damaged since it was
// named.
func (s *Set) Refusals(hash policy.Hash) int {
	for _, e := range s.wanted {
		if e.Hash == hash {
			return e.refusals
		}
	}
	return 0
}

// Tick brings the first vocabulary that isn't loaded on: copies pieces, checks
// the whole, or makes its encoder.
func (s *Set) Tick(now int64) {
	for _, e := range s.wanted {
		if e.loaded != nil || now < e.notBefore || !s.step(e, now) {
			continue
		}
		for n := 1; n < tickPieces && e.copying() && abi.Now()-now < int64(tickTime) && s.step(e, now); n++ {
			continue
		}
		return
	}
	s.piece.Trim(0)
}

// copying tells that the next step is another piece.
func (e *entry) copying() bool { return e.loader != nil && e.next < wire.Shards(e.Bytes) }

// step answers false when the next piece isn't there.
func (s *Set) step(e *entry, now int64) bool {
	switch {
	case e.checked != nil:
		e.loaded, e.checked = &Loaded{e.checked, bpe.New(e.checked, bpe.Config{})}, nil
		s.metrics.Inc(metrics.VocabularyLoads, metrics.VocabularyLoaded)
		return true
	case e.loader != nil && e.next == wire.Shards(e.Bytes):
		s.check(e, now)
		return true
	}
	value, _, status := abi.SharedData(s.keys.Shard(e.Hash, e.next), &s.piece)
	if status != abi.OK || len(value) == 0 {
		return false
	}
	if e.loader == nil {
		loader, err := vocab.NewLoader(e.Bytes)
		if err != nil {
			s.refuse(e, now, err.Error())
			return true
		}
		e.loader = loader
		s.pace()
	}
	switch err := e.loader.Write(value); {
	case err != nil:
		s.refuse(e, now, err.Error())
	case len(value) != wire.ShardSize(e.Bytes, e.next):
		s.refuse(e, now, "a piece of another size")
	default:
		e.next++
	}
	return true
}

// check looks at a vocabulary whose pieces are all there.
func (s *Set) check(e *entry, now int64) {
	v, err := e.loader.Finish()
	switch {
	case err != nil:
		s.refuse(e, now, err.Error())
	case v.Hash() != e.Hash.String():
		s.refuse(e, now, "it is "+v.Hash())
	default:
		e.loader, e.checked = nil, v
	}
}

// refuse begins anew later.
func (s *Set) refuse(e *entry, now int64, why string) {
	s.metrics.Inc(metrics.VocabularyLoads, metrics.VocabularyRefused)
	wait := min(retryLeast<<min(e.refusals, 10), retryMost)
	e.notBefore = now + int64(wait/2) + int64(s.rng.Uint64()%uint64(wait))
	e.refusals++
	e.next, e.loader = 0, nil
	if s.told++; s.told&(s.told-1) == 0 {
		abi.Log(abi.LogError, "warmpath: vocabulary "+e.Hash.String()+" arrived damaged and is fetched again: "+why+
			"; its pools stay in approximate mode here (counted in warmpath.vocabulary_loads.refused)")
	}
}

// pace tells the garbage collector how much memory lies still, so that a block
// of megabytes doesn't let as many megabytes of garbage pile up beside it.
func (s *Set) pace() {
	still := 0
	for _, e := range s.wanted {
		if e.loader != nil || e.checked != nil || e.loaded != nil {
			still += e.Bytes
		}
	}
	keepPace(still)
}
