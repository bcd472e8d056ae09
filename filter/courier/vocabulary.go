package courier

import (
	"slices"
	"strconv"
	"time"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/route"
	"github.com/warmpath/warmpath/shared/wire"
)

const (
	// fetchSpread spreads the first call for a vocabulary: all gateways of a
	// fleet hear of it at once.
	fetchSpread = 2 * time.Second
	// fetchTimeout ends a call for a piece.
	fetchTimeout = 5 * time.Second
)

// fetch brings the vocabularies of the policy into shared data, piece by piece,
// and takes away those that it names no longer. One call is open at a time,
// beside the poll and the batch.
type fetch struct {
	open       bool
	generation uint32 // answers of an earlier one are dropped
	deadline   int64
	notBefore  int64
	failures   uint

	looked   bool          // the list was read in this term
	list     []wire.Stored // as in shared data
	refusals map[policy.Hash]int
}

// tendVocabularies does one step of the way from what is stored to what the
// policy names.
func (c *Courier) tendVocabularies(now int64) {
	f := &c.fetch
	if !c.lease.held {
		return
	}
	wanted := c.fleet.PolicyVocabularies()
	if !f.looked {
		if len(wanted) == 0 && !c.meta.Ready {
			return // nothing is known yet: what is stored may well be wanted
		}
		c.readVocabularies()
	}
	if f.open && now > f.deadline {
		f.open = false
		c.fetchFailed(now, metrics.PollLost)
	}
	if len(wanted) == 0 && len(f.list) == 0 {
		return
	}
	if c.takeAway(now, wanted) {
		return
	}
	f.add(wanted, now, c.rng)
	if f.open || now < f.notBefore {
		return
	}
	for i := range f.list {
		if s := &f.list[i]; s.Pieces < wire.Shards(s.Vocabulary.Bytes) {
			c.fetchPiece(now, s.Vocabulary, s.Pieces)
			return
		}
	}
	c.shard.Trim(0)
	c.value.Trim(keptAnswer)
}

// add lists what the policy names newly.
func (f *fetch) add(wanted []policy.Vocabulary, now int64, rng *route.Rand) {
	for _, v := range wanted {
		if f.at(v) < 0 && len(f.list) < policy.MaxVocabularies {
			f.list = append(f.list, wire.Stored{Vocabulary: v})
			f.notBefore = max(f.notBefore, now+int64(rng.Uint64()%uint64(fetchSpread)))
		}
	}
}

// at is the place of a vocabulary in the list, -1 for none.
func (f *fetch) at(v policy.Vocabulary) int {
	return slices.IndexFunc(f.list, func(s wire.Stored) bool { return s.Vocabulary == v })
}

// readVocabularies finds what the former courier has stored.
func (c *Courier) readVocabularies() {
	f := &c.fetch
	f.looked, f.list = true, f.list[:0]
	value, _, status := abi.SharedData(c.fleet.Keys.Vocabularies(), &c.value)
	if status != abi.OK || len(value) == 0 {
		return
	}
	list, err := wire.DecodeVocabularies(value, f.list)
	if err != nil {
		c.metrics.Inc(metrics.BadData, metrics.BadVocabularies)
		return
	}
	f.list = list
}

// writeVocabularies puts the list into shared data; false: the lease is lost.
func (c *Courier) writeVocabularies() bool {
	c.out = wire.AppendVocabularies(c.out[:0], c.fetch.list)
	return c.write(c.fleet.Keys.Vocabularies(), c.out)
}

// takeAway empties one piece of a vocabulary that is not wanted, or that this VM
// has found damaged. It answers false when there is none.
func (c *Courier) takeAway(now int64, wanted []policy.Vocabulary) bool {
	f := &c.fetch
	for i := range f.list {
		s := &f.list[i]
		named := slices.Contains(wanted, s.Vocabulary)
		hash := s.Vocabulary.Hash
		refusals := c.fleet.Vocabularies.Refusals(hash)
		if named && (refusals <= f.refusals[hash] || c.fleet.Vocabularies.Get(hash) != nil) {
			continue
		}
		// From one more on than the list says: a courier that was cut off has
		// written the piece first.
		if !c.empty(c.fleet.Keys.Shard(hash, s.Pieces)) {
			return true
		}
		switch {
		case s.Pieces > 0:
			s.Pieces--
		case named:
			if f.refusals == nil {
				f.refusals = map[policy.Hash]int{}
			}
			f.refusals[hash] = refusals
			f.notBefore = now + int64(c.backoff(uint(refusals)))
		default:
			f.list = slices.Delete(f.list, i, i+1)
		}
		c.writeVocabularies()
		return true
	}
	return false
}

// empty gives the memory of a value back; false: the lease is lost.
func (c *Courier) empty(key string) bool {
	value, cas, status := abi.SharedData(key, &c.value)
	return status == abi.NotFound || len(value) == 0 || c.writeOver(key, nil, cas, status)
}

// fetchPiece asks control for a piece.
func (c *Courier) fetchPiece(now int64, v policy.Vocabulary, piece int) {
	f := &c.fetch
	f.generation++
	generation := f.generation
	f.open, f.deadline = true, now+int64(fetchTimeout+lostAfter)
	path := "/v1/vocabulary/" + v.Hash.String() + "?shard=" + strconv.Itoa(piece)
	_, status := abi.HTTPCall(c.config.Control.Cluster, c.headers("GET", path), nil, fetchTimeout,
		func(_, size, _ int) {
			if c.fetch.generation != generation || !c.fetch.open {
				return
			}
			c.fetch.open = false
			c.lease.looked = false
			c.pieceAnswered(v, piece, c.status(), size)
		})
	if status != abi.OK {
		f.open = false
		c.fetchFailed(now, metrics.PollInline)
	}
}

// pieceAnswered stores a piece, unless the vocabulary has gone meanwhile.
func (c *Courier) pieceAnswered(v policy.Vocabulary, piece, status, size int) {
	now, f := abi.Now(), &c.fetch
	switch {
	case !c.lease.held:
		return
	case status == 0:
		c.fetchFailed(now, metrics.PollDead)
		return
	case status != 200:
		c.fetchFailed(now, metrics.PollStatus)
		return
	case size != wire.ShardSize(v.Bytes, piece):
		c.fetchFailed(now, metrics.PollBody)
		return
	}
	i := f.at(v)
	if i < 0 || f.list[i].Pieces != piece {
		return
	}
	value, read := abi.Buffer(abi.HTTPCallBody, 0, size, &c.shard)
	if read != abi.OK || len(value) != size {
		c.fetchFailed(now, metrics.PollBody)
		return
	}
	if !c.write(c.fleet.Keys.Shard(v.Hash, piece), value) {
		return
	}
	f.list[i].Pieces++
	if !c.writeVocabularies() {
		return
	}
	f.failures = 0
	c.metrics.Inc(metrics.VocabularyFetches, metrics.VocabularyFetched)
}

func (c *Courier) fetchFailed(now int64, kind int) {
	f := &c.fetch
	c.metrics.Inc(metrics.VocabularyFetches, metrics.VocabularyFetched+1+kind)
	f.notBefore = now + int64(c.backoff(f.failures))
	f.failures++
	// The next one may be had.
	for i := range f.list {
		if s := f.list[i]; s.Pieces < wire.Shards(s.Vocabulary.Bytes) {
			f.list = append(slices.Delete(f.list, i, i+1), s)
			break
		}
	}
	if f.failures == tellAfter {
		abi.Log(abi.LogWarn, "warmpath: control at cluster "+strconv.Quote(c.config.Control.Cluster)+
			" doesn't hand out a vocabulary of the policy; does the control service have it still? Its pools stay in approximate mode until it does")
	}
}

// appendReady appends how far this gateway has the vocabularies of the policy.
func (c *Courier) appendReady(b []byte) []byte {
	wanted := c.fleet.PolicyVocabularies()
	if len(wanted) == 0 {
		return b
	}
	b, mark := wire.BeginSection(b, wire.SectionReady)
	for i, v := range wanted {
		ready := wire.Ready{Hash: v.Hash, VMs: uint16(c.fleet.VMsReady(i))}
		if at := c.fetch.at(v); at >= 0 {
			ready.Pieces = uint16(c.fetch.list[at].Pieces)
		}
		b = wire.AppendReady(b, ready)
	}
	return wire.EndSection(b, mark)
}

// abandon forgets the call that is open.
func (f *fetch) abandon() {
	f.generation++
	f.open = false
}

// drop forgets the call that is open and, with the term, what was known.
func (f *fetch) drop() {
	*f = fetch{generation: f.generation + 1, list: f.list[:0], refusals: f.refusals}
}
