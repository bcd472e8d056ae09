package publish

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
)

// Load is one record of the LOADS section with the times that its ages come
// from.
type Load struct {
	wire.Load
	// Cache is sent beside it, in the CACHES section; its Ref and age are filled in.
	Cache      wire.Cache
	TailAt     time.Time // when what goes next from the cache was used last; zero unknown
	At         time.Time // of the report; zero never
	AvoidUntil time.Time
	EvictUntil time.Time // of the announced eviction; zero none
	EmptyAt    time.Time // when its cache was empty; zero not known
}

type loadSection struct {
	records []Load
	homes   []byte // the HOMES section that goes with them
	copies  []byte // COPIES
	at      uint64
	sent    time.Time
}

// loadsRefresh is how often loads that didn't change are sent again: their ages
// did.
const loadsRefresh = time.Second

// SetRoster replaces the ROSTER section.
func (t *Table) SetRoster(payload []byte) { t.setSection(&t.roster, payload) }

// SetAdmission replaces the ADMISSION section. Gateways get it with the next policy, which goes
// out again.
func (t *Table) SetAdmission(payload []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if bytes.Equal(t.admission, payload) {
		return
	}
	t.bump()
	if t.admission = slices.Clone(payload); t.policy.at > 0 {
		t.policy.at = t.version
	}
	t.wake()
}

// SetPolicy replaces the POLICY and EXACT sections and the OFF flag in one
// version.
func (t *Table) SetPolicy(payload, exact []byte, off bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if bytes.Equal(t.policy.payload, payload) && bytes.Equal(t.exact, exact) && t.off == off && t.policy.at > 0 {
		return
	}
	t.bump()
	t.policy, t.exact = section{payload: slices.Clone(payload), at: t.version}, slices.Clone(exact)
	if t.off != off {
		t.off, t.offAt = off, t.version
	}
	t.wake()
}

func (t *Table) setSection(s *section, payload []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.at > 0 && bytes.Equal(s.payload, payload) {
		return
	}
	t.bump()
	*s = section{payload: slices.Clone(payload), at: t.version}
	t.wake()
}

// SetLoads replaces the LOADS section. Gateways are told when something other
// than an age changed, or when the last telling is a second old.
func (t *Table) SetLoads(records []Load, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := &t.loads
	aged := l.at > 0 && now.Sub(l.sent) >= loadsRefresh
	if l.at > 0 && !aged && slices.EqualFunc(l.records, records, sameLoad) {
		return
	}
	t.bump()
	l.records, l.at, l.sent = slices.Clone(records), t.version, now
	t.wake()
}

// SetHomes replaces the HOMES and COPIES sections. They go with the loads, so these are sent again.
func (t *Table) SetHomes(homes, copies []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := &t.loads
	if bytes.Equal(l.homes, homes) && bytes.Equal(l.copies, copies) {
		return
	}
	l.homes, l.copies = slices.Clone(homes), slices.Clone(copies)
	if l.at > 0 {
		t.bump()
		l.at = t.version
		t.wake()
	}
}

func sameLoad(a, b Load) bool {
	// A tenth of a point of KV share, trust or rate changes no decision.
	near := func(x, y float32) bool { return math.Abs(float64(x-y)) <= 0.001*max(1, float64(x)) }
	return a.Ref == b.Ref && a.State == b.State && a.Running == b.Running && a.Waiting == b.Waiting &&
		a.FleetInFlight == b.FleetInFlight && a.FleetUncachedTokens == b.FleetUncachedTokens &&
		a.AvoidUntil.Equal(b.AvoidUntil) && a.EmptyAt.Equal(b.EmptyAt) && a.EvictUntil.Equal(b.EvictUntil) && near(a.EvictShare, b.EvictShare) && near(a.KVShare, b.KVShare) && near(a.Trust, b.Trust) &&
		near(a.PrefillRate, b.PrefillRate) && near(a.DecodeSecondsPerToken, b.DecodeSecondsPerToken)
}

func (l *loadSection) payload(b []byte, now time.Time) []byte {
	for i := range l.records {
		r := l.records[i]
		r.AgeMillis = wire.Never
		if !r.At.IsZero() {
			r.AgeMillis = millis(now.Sub(r.At))
		}
		r.AvoidMillis = millis(r.AvoidUntil.Sub(now))
		if r.EvictMillis = millis(r.EvictUntil.Sub(now)); r.EvictMillis == 0 {
			r.EvictShare = 0
		}
		b = wire.AppendLoad(b, &r.Load)
	}
	return b
}

// caches is the CACHES section that goes with the loads.
func (l *loadSection) caches(b []byte, now time.Time) []byte {
	for i := range l.records {
		r := &l.records[i]
		c := r.Cache
		c.Ref, c.TailAgeMillis = r.Ref, 0
		if !r.TailAt.IsZero() {
			c.TailAgeMillis = max(1, millis(now.Sub(r.TailAt)))
		}
		if !r.EmptyAt.IsZero() {
			c.EmptyAgeMillis = max(1, millis(now.Sub(r.EmptyAt)))
		}
		b = wire.AppendCache(b, &c)
	}
	return b
}

func millis(d time.Duration) uint32 {
	return uint32(min(max(d.Milliseconds(), 0), math.MaxUint32-1))
}

type frameKey struct {
	epoch, from uint64
	wire        uint8
}

type cachedFrame struct {
	frame []byte
	built time.Time
}

// frameFresh is how long a built frame serves gateways at the same version:
// ages in it are wrong by at most this.
const frameFresh = 20 * time.Millisecond

// Update returns the frame that brings a gateway from (epoch, version) to now,
// or as far as one frame goes, in the newest wire version up to speaks. ok is
// false when there is nothing new. The frame is shared: don't change it.
func (t *Table) Update(epoch, version uint64, speaks uint8, now time.Time) (frame []byte, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	resync := epoch != t.epoch || version < t.logFrom || version > t.version
	if !resync && version == t.version {
		return nil, false
	}
	key := frameKey{epoch, version, min(speaks, wire.Version)}
	if c, hit := t.frames[key]; hit && now.Sub(c.built) < frameFresh {
		return c.frame, true
	}
	if resync {
		frame = t.resync(&key, now)
	} else {
		frame = t.delta(&key, now)
	}
	if t.frames == nil {
		t.frames = map[frameKey]cachedFrame{}
	}
	if len(t.frames) > 64 {
		clear(t.frames)
	}
	t.frames[key] = cachedFrame{frame, now}
	return frame, true
}

func (t *Table) header(key *frameKey, flags uint16) []byte {
	if t.off {
		flags |= wire.FlagOff
	}
	return wire.AppendHeader(make([]byte, 0, 4096), &wire.Header{
		Kind: wire.Update, Wire: key.wire, Flags: flags, Epoch: t.epoch, From: key.from, To: t.version,
	})
}

// resync: everything about the fleet, and the digests to compare pages by.
func (t *Table) resync(key *frameKey, now time.Time) []byte {
	flags := uint16(wire.FlagResync)
	if key.epoch != 0 && !t.own[key.epoch] && now.Before(t.keepEnd) {
		flags |= wire.FlagKeepPages
	}
	b := t.header(key, flags)
	b = wire.AppendSection(b, wire.SectionGeometry, wire.AppendGeometry(nil, wire.Geometry{Bits: t.bits, Entries: uint32(t.entries)}))
	b = t.about(b, now, func(uint64) bool { return true })
	b, mark := wire.BeginSection(b, wire.SectionDigests)
	for _, d := range t.digests {
		b = wire.AppendDigest(b, d)
	}
	return wire.EndSection(b, mark)
}

// about appends the sections about fleet and policy that want says.
func (t *Table) about(b []byte, now time.Time, want func(at uint64) bool) []byte {
	if want(t.roster.at) {
		b = wire.AppendSection(b, wire.SectionRoster, t.roster.payload)
	}
	if want(t.loads.at) {
		b = wire.AppendSection(b, wire.SectionLoads, t.loads.payload(nil, now))
		b = wire.AppendSection(b, wire.SectionCaches, t.loads.caches(nil, now))
		if len(t.loads.homes) > 0 {
			b = wire.AppendSection(b, wire.SectionHomes, t.loads.homes)
		}
		if len(t.loads.copies) > 0 {
			b = wire.AppendSection(b, wire.SectionCopies, t.loads.copies)
		}
	}
	if want(t.policy.at) {
		b = wire.AppendSection(b, wire.SectionPolicy, t.policy.payload)
		if len(t.exact) > 0 {
			b = wire.AppendSection(b, wire.SectionExact, t.exact)
		}
		if len(t.admission) > 0 {
			b = wire.AppendSection(b, wire.SectionAdmission, t.admission)
		}
	}
	if want(t.setsAt) {
		b = wire.AppendSection(b, wire.SectionSets, t.sets.payload(nil))
	}
	return b
}

// delta: what changed after the key's version.
func (t *Table) delta(key *frameKey, now time.Time) []byte {
	b := t.header(key, 0)
	b = t.about(b, now, func(at uint64) bool { return at > key.from })
	fingerprints, to := t.changesSince(key.from, wire.MaxBody-len(b)-2*wire.SectionHeaderBytes)
	binary.LittleEndian.PutUint64(b[24:], to)
	var removes []byte
	if len(fingerprints) > 0 {
		var mark int
		b = slices.Grow(b, len(fingerprints)*table.EntryBytes+wire.SectionHeaderBytes)
		b, mark = wire.BeginSection(b, wire.SectionPuts)
		for _, fp := range fingerprints {
			page, _ := t.page(fp, false)
			if e, ok := page.Lookup(fp); ok {
				b = table.AppendEntry(b, &e)
			} else {
				removes = wire.AppendRemove(removes, fp)
			}
		}
		b = wire.EndSection(b, mark)
	}
	if len(removes) > 0 {
		b = wire.AppendSection(b, wire.SectionRemoves, removes)
	}
	return b
}

// changesSince returns the fingerprints that changed after from, each once, and
// the version they lead to: the current one, or an earlier one when more than
// room bytes of entries would be needed.
func (t *Table) changesSince(from uint64, room int) (fingerprints []uint64, to uint64) {
	at := func(i int) logged { return t.log[(t.logHead+i)%len(t.log)] }
	low, high := 0, t.logLen
	for low < high {
		if middle := (low + high) / 2; at(middle).version <= from {
			low = middle + 1
		} else {
			high = middle
		}
	}
	limit := room / table.EntryBytes
	end := t.logLen
	if end-low > limit {
		for end = low + limit; end > low && at(end).version == at(end-1).version; {
			end--
		}
	}
	to = t.version
	if end < t.logLen {
		to = at(end).version - 1
	}
	fingerprints = make([]uint64, 0, end-low)
	for i := low; i < end; i++ {
		fingerprints = append(fingerprints, at(i).fingerprint)
	}
	slices.Sort(fingerprints)
	return slices.Compact(fingerprints), to
}

// Moved says that the caller asks for pages of an epoch or geometry that is no
// more.
type Moved struct {
	Epoch uint64
	Bits  uint8
}

func (m *Moved) Error() string {
	return fmt.Sprintf("the table moved on to epoch %d, %d bits", m.Epoch, m.Bits)
}

// Fingerprints lists the entries of one page, and how many pages there are. Epoch
// 0 stands for the current one; the error is *Moved when another isn't.
func (t *Table) Fingerprints(epoch uint64, page int) (fingerprints []uint64, at uint64, pages int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if epoch != 0 && epoch != t.epoch {
		return nil, 0, 0, &Moved{t.epoch, t.bits}
	}
	if page < 0 || page >= len(t.pages) {
		return nil, 0, 0, fmt.Errorf("page %d of %d", page, len(t.pages))
	}
	for i := range t.pages[page].Count() {
		fingerprints = append(fingerprints, t.pages[page].At(i).Fingerprint)
	}
	return fingerprints, t.epoch, len(t.pages), nil
}

// Pages returns the frame with the non-empty pages of a range. The error is
// *Moved when epoch or bits aren't the current ones.
func (t *Table) Pages(epoch uint64, bits uint8, r int) ([]byte, error) {
	return t.someOf(epoch, bits, r, wire.OldestVersion, func(_ int, p table.Page) bool { return len(p) > 0 })
}

// Compare returns the frame with the pages of a range that differ from a
// gateway's, of which frame has the digests: one without entries in place of a
// page that only the gateway has. The error is *Moved, too, or *wire.Error.
func (t *Table) Compare(epoch uint64, bits uint8, r int, frame []byte) ([]byte, error) {
	var digests []uint64
	header, err := wire.DecodeHeader(frame)
	if err == nil && header.Kind != wire.Pages {
		err = &wire.Error{Offset: 4, What: "frame: not a comparison of pages"}
	}
	if err == nil {
		err = wire.ForEachSection(frame, func(s wire.Section) error {
			if s.Type != wire.SectionDigests {
				return nil
			}
			return wire.ForEachDigest(s.Payload, func(i int, digest uint64) error {
				if i == table.RangePages {
					return &wire.Error{Offset: 8 * i, What: "digests: more than one range"}
				}
				digests = append(digests, digest)
				return nil
			})
		})
	}
	if err != nil {
		return nil, err
	}
	return t.someOf(epoch, bits, r, wire.Version, func(i int, p table.Page) bool {
		theirs := uint64(0)
		if i < len(digests) {
			theirs = digests[i]
		}
		return p.Digest() != theirs
	})
}

// someOf returns the frame with those pages of a range that want says.
func (t *Table) someOf(epoch uint64, bits uint8, r int, version uint8, want func(i int, p table.Page) bool) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if epoch != t.epoch || bits != t.bits {
		return nil, &Moved{t.epoch, t.bits}
	}
	if r < 0 || r >= len(t.digests) {
		return nil, fmt.Errorf("range %d of %d", r, len(t.digests))
	}
	first := r * table.RangePages
	b := wire.AppendHeader(nil, &wire.Header{Kind: wire.Pages, Wire: version, Epoch: t.epoch, To: t.version})
	b, mark := wire.BeginSection(b, wire.SectionPages)
	for i, p := range t.pages[first:min(first+table.RangePages, len(t.pages))] {
		if !want(i, p) {
			continue
		}
		if p == nil {
			p = make(table.Page, table.PageBytes)
			p.Init(bits, uint32(first+i))
		}
		b = append(b, p...)
	}
	return wire.EndSection(b, mark), nil
}
