package publish

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
)

var start = time.Unix(1_700_000_000, 0)

// follower is a gateway: it applies frames to a map.
type follower struct {
	epoch, version uint64
	entries        map[uint64]table.Entry
	sets           []byte
	resyncs, kept  int
	off            bool
	loads          []wire.Load
	frames         int
}

func newFollower() *follower { return &follower{entries: map[uint64]table.Entry{}} }

func (f *follower) catchUp(t failer, x *Table, now time.Time) {
	for {
		frame, ok := x.Update(f.epoch, f.version, wire.Version, now)
		if !ok {
			return
		}
		f.frames++
		if f.frames > 10_000 {
			t.Fatalf("frames without end")
		}
		f.apply(t, x, frame)
	}
}

type failer interface{ Fatalf(string, ...any) }

func (f *follower) apply(t failer, x *Table, frame []byte) {
	h, err := wire.DecodeHeader(frame)
	if err != nil || len(frame) > wire.MaxBody {
		t.Fatalf("frame of %d bytes: %v", len(frame), err)
	}
	if !h.Resync() && (h.From != f.version || h.To <= h.From || h.Epoch != f.epoch) {
		t.Fatalf("frame %+v at epoch %d version %d", h, f.epoch, f.version)
	}
	f.off = h.Off()
	var geometry wire.Geometry
	var digests []uint64
	err = wire.ForEachSection(frame, func(s wire.Section) error {
		switch s.Type {
		case wire.SectionGeometry:
			geometry, err = wire.DecodeGeometry(s.Payload)
			return err
		case wire.SectionPuts:
			return wire.ForEachPut(s.Payload, func(e *table.Entry) error { f.entries[e.Fingerprint] = *e; return nil })
		case wire.SectionRemoves:
			return wire.ForEachRemove(s.Payload, func(fp uint64) error { delete(f.entries, fp); return nil })
		case wire.SectionSets:
			f.sets = bytes.Clone(s.Payload)
			return wire.ForEachSet(f.sets, func(uint32, []byte) error { return nil })
		case wire.SectionLoads:
			f.loads = nil
			return wire.ForEachLoad(s.Payload, func(l *wire.Load) error { f.loads = append(f.loads, *l); return nil })
		case wire.SectionDigests:
			return wire.ForEachDigest(s.Payload, func(_ int, d uint64) error { digests = append(digests, d); return nil })
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%v", err)
	}
	f.epoch, f.version = h.Epoch, h.To
	if !h.Resync() {
		return
	}
	f.resyncs++
	if h.KeepPages() {
		f.kept++
		return
	}
	own := make([]uint64, table.Ranges(geometry.Bits))
	rangeOf := func(fp uint64) int { return table.RangeOf(table.PageIndex(fp, geometry.Bits)) }
	for _, e := range f.entries {
		own[rangeOf(e.Fingerprint)] ^= table.EntryDigest(&e)
	}
	for r, d := range digests {
		if own[r] == d {
			continue
		}
		maps.DeleteFunc(f.entries, func(fp uint64, _ table.Entry) bool { return rangeOf(fp) == r })
		frame, err := x.Pages(h.Epoch, geometry.Bits, r)
		if err != nil {
			t.Fatalf("pages %d: %v", r, err)
		}
		err = wire.ForEachSection(frame, func(s wire.Section) error {
			return wire.ForEachPage(s.Payload, func(p table.Page) error {
				for i := range p.Count() {
					e := p.At(i)
					f.entries[e.Fingerprint] = e
				}
				return nil
			})
		})
		if err != nil || len(frame) > wire.MaxBody {
			t.Fatalf("pages %d: %d bytes, %v", r, len(frame), err)
		}
	}
}

// refs lists all holders that the follower sees.
func (f *follower) refs(fp uint64) []uint16 {
	e := f.entries[fp]
	var out []uint16
	if id := e.Overflow(); id != 0 {
		for at, b := range wire.FindSet(f.sets, id) {
			for bit := range 8 {
				if b>>bit&1 == 1 {
					out = append(out, uint16(at*8+bit))
				}
			}
		}
		return out
	}
	for _, r := range e.Refs {
		if r != 0 {
			out = append(out, r)
		}
	}
	slices.Sort(out)
	return out
}

// TestGatewaysAtAnyLagSeeWhatWasPublished: random batches, gateways that poll
// rarely or hardly ever, a short log, growth on the way.
func TestGatewaysAtAnyLagSeeWhatWasPublished(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := New(Config{MinBits: 6, LogChanges: rapid.SampledFrom([]int{8, 64, 4096}).Draw(t, "log")}, start)
		truth := map[uint64][]uint16{}
		followers := []*follower{newFollower(), newFollower(), newFollower()}
		fp := func() uint64 {
			return rapid.Uint64Range(1, 60).Draw(t, "fp") * 0x9E3779B97F4A7C15
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			var b Batch
			for range rapid.IntRange(1, 8).Draw(t, "changes") {
				f := fp()
				holders := rapid.SliceOfNDistinct(rapid.Uint16Range(1, 20), 0, 12, rapid.ID[uint16]).Draw(t, "holders")
				b.Add(f, holders, 20)
				if len(holders) == 0 {
					delete(truth, f)
				} else {
					truth[f] = holders
				}
			}
			x.Apply(&b, start)
			for _, f := range followers {
				if rapid.IntRange(0, 3).Draw(t, "poll") == 0 {
					f.catchUp(t, x, start)
				}
			}
		}
		for i, f := range followers {
			f.catchUp(t, x, start)
			if len(f.entries) != len(truth) {
				t.Fatalf("follower %d has %d entries, %d are true", i, len(f.entries), len(truth))
			}
			for fp, want := range truth {
				if got := f.refs(fp); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
					t.Fatalf("follower %d sees %v for %x, true is %v", i, got, fp, want)
				}
				e := f.entries[fp]
				if e.Universal() != (len(want) > table.InlineRefs && len(want)*2 > 20) {
					t.Fatalf("universal %v with %d holders of 20", e.Universal(), len(want))
				}
				if !slices.Equal(e.Refs[:min(len(want), 6)], slices.Sorted(slices.Values(want))[:min(len(want), 6)]) {
					t.Fatalf("inline %v of %v", e.Refs, want)
				}
			}
		}
		live := 0
		for _, want := range truth {
			if len(want) > table.InlineRefs {
				live++
			}
		}
		if s := x.Stats(); s.Entries != len(truth) || s.Sets > live {
			t.Fatalf("%+v, %d entries with overflow", s, live)
		}
	})
}

func fill(x *Table, rng *rand.Rand, n int) {
	var b Batch
	for range n {
		b.Add(rng.Uint64()|1, []uint16{uint16(rng.IntN(16) + 1)}, 16)
	}
	x.Apply(&b, start)
}

func TestTheTableGrowsBeforePagesAreFullAndGatewaysFollow(t *testing.T) {
	x := New(Config{MinBits: 6}, start)
	f := newFollower()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		fill(x, rng, 500)
		f.catchUp(t, x, start)
	}
	s := x.Stats()
	if s.Bits != 10 || s.Entries != 20_000 || s.Dropped != 0 || len(f.entries) != 20_000 {
		t.Errorf("%+v, follower has %d", s, len(f.entries))
	}
	if f.resyncs != 3 {
		t.Errorf("%d resyncs", f.resyncs)
	}
	for i, p := range x.pages {
		if p != nil && p.Check() != nil {
			t.Errorf("page %d: %v", i, p.Check())
		}
	}
}

func TestWhatIsPublishedAlreadyWakesNobody(t *testing.T) {
	x := New(Config{}, start)
	var b Batch
	b.Add(7, []uint16{1, 2, 3, 4, 5, 6, 7, 8}, 16)
	b.Add(9, []uint16{1}, 16)
	x.Apply(&b, start)
	version, changed := x.Stats().Version, x.Changed()
	b.Add(11, nil, 16)
	x.Apply(&b, start)
	select {
	case <-changed:
		t.Error("woken for nothing")
	default:
	}
	if s := x.Stats(); s.Version != version || s.Entries != 2 || s.Sets != 1 {
		t.Errorf("version %d before, now %+v", version, s)
	}
}

// HOMES and COPIES go with the loads: in every frame that has those, and in none without.
func TestHomesAndCopiesGoWithTheLoads(t *testing.T) {
	x := New(Config{MinBits: 6}, start)
	sections := func(version uint64) (found map[wire.SectionType]string, to uint64) {
		t.Helper()
		frame, ok := x.Update(x.epoch, version, wire.Version, start)
		if !ok {
			return nil, version
		}
		h, err := wire.DecodeHeader(frame)
		if err != nil {
			t.Fatal(err)
		}
		found = map[wire.SectionType]string{}
		if err := wire.ForEachSection(frame, func(s wire.Section) error { found[s.Type] = string(s.Payload); return nil }); err != nil {
			t.Fatal(err)
		}
		return found, h.To
	}
	x.SetLoads([]Load{{Load: wire.Load{Ref: 1, State: 1}}}, start)
	_, at := sections(0)
	for _, c := range []struct{ homes, copies string }{{"", "c1"}, {"h1", "c1"}, {"h1", ""}, {"h2", "c2"}, {"", ""}} {
		x.SetHomes([]byte(c.homes), []byte(c.copies))
		found, to := sections(at)
		_, loads := found[wire.SectionLoads]
		if !loads || found[wire.SectionHomes] != c.homes || found[wire.SectionCopies] != c.copies {
			t.Errorf("%+v: sections %v", c, found)
		}
		x.SetHomes([]byte(c.homes), []byte(c.copies))
		if found, _ := sections(to); found != nil {
			t.Errorf("%+v is told twice: %v", c, found)
		}
		at = to
	}
	x.SetHomes([]byte("h"), []byte("c"))
	_, at = sections(at)
	x.SetRoster([]byte("r"))
	if found, _ := sections(at); found[wire.SectionRoster] != "r" || len(found) != 1 {
		t.Errorf("a roster brings %v", found)
	}
}

func TestABatchLargerThanTheTableFindsRoomAtOnce(t *testing.T) {
	x := New(Config{}, start)
	rng := rand.New(rand.NewPCG(5, 6))
	fingerprints := make([]uint64, 200_000)
	for i := range fingerprints {
		fingerprints[i] = rng.Uint64() | 1
	}
	slices.Sort(fingerprints) // as the index drains them
	var b Batch
	for _, fp := range fingerprints {
		b.Add(fp, []uint16{1}, 16)
	}
	if !x.Apply(&b, start) {
		t.Error("the table didn't grow")
	}
	// A page may still be full by chance.
	if s := x.Stats(); s.Bits != 12 || s.Dropped > 20 || s.Entries+int(s.Dropped) != len(fingerprints) {
		t.Errorf("%+v", s)
	}
}

func TestAFullPageLosesItsLeastValuableEntry(t *testing.T) {
	value := map[uint64]float64{}
	x := New(Config{MinBits: 6, MaxBits: 6, Value: func(fp uint64) float64 { return value[fp] }}, start)
	f := newFollower()
	f.catchUp(t, x, start)
	put := func(fp uint64, worth float64) {
		value[fp] = worth
		var b Batch
		b.Add(fp, []uint16{1}, 2)
		x.Apply(&b, start)
	}
	for i := range uint64(table.PageEntries) {
		put(i+1, 100+float64(i))
	}
	f.catchUp(t, x, start)
	put(5000, 150)
	put(5001, 1) // worth less than anything there
	f.catchUp(t, x, start)
	if _, ok := f.entries[1]; ok || len(f.entries) != table.PageEntries {
		t.Errorf("the least valuable is still there, %d entries", len(f.entries))
	}
	if _, ok := f.entries[5000]; !ok {
		t.Error("the new one isn't there")
	}
	if _, ok := f.entries[5001]; ok {
		t.Error("the worthless one is there")
	}
	if s := x.Stats(); s.Dropped != 2 || s.Entries != table.PageEntries {
		t.Errorf("%+v", s)
	}
}

func TestAFrameFitsWhatAGatewayTakesWhateverHappened(t *testing.T) {
	x := New(Config{MinBits: 12}, start)
	f := newFollower()
	f.catchUp(t, x, start)
	var roster []byte
	var loads []Load
	for ref := uint16(1); ref <= 1000; ref++ {
		address := fmt.Sprintf("[fd00:1111:2222:3333:4444:5555:6666:%04x]:12345", ref)
		roster = wire.AppendWorker(roster, &wire.Worker{Ref: ref, Address: []byte(address)})
		loads = append(loads, Load{Load: wire.Load{Ref: ref, State: 1}})
	}
	x.SetRoster(roster)
	x.SetLoads(loads, start)
	x.SetPolicy(bytes.Repeat([]byte{'x'}, 32<<10), nil, false)
	rng := rand.New(rand.NewPCG(1, 2))
	var b Batch
	for i := range 40_000 {
		holders := []uint16{1}
		if i%10 == 0 {
			holders = nil
			for range 20 {
				holders = append(holders, uint16(rng.IntN(4000)+1))
			}
		}
		b.Add(rng.Uint64()|1, holders, 1000)
	}
	x.Apply(&b, start)
	f.catchUp(t, x, start)
	if len(f.entries) != 40_000 || f.frames < 5 {
		t.Errorf("%d entries in %d frames", len(f.entries), f.frames)
	}
	late := newFollower()
	late.catchUp(t, x, start)
	if len(late.entries) != 40_000 {
		t.Errorf("%d entries by pages", len(late.entries))
	}
}

func TestOnlyRangesThatDifferAreFetched(t *testing.T) {
	x := New(Config{MinBits: 12}, start)
	rng := rand.New(rand.NewPCG(3, 4))
	fill(x, rng, 10_000)
	f := newFollower()
	f.catchUp(t, x, start)
	before := maps.Clone(f.entries)
	x.NewEpoch(start.Add(time.Second))
	// Something got lost at the gateway.
	for fp := range f.entries {
		delete(f.entries, fp)
		break
	}
	f.catchUp(t, x, start.Add(time.Second))
	if !maps.Equal(before, f.entries) || f.resyncs != 2 {
		t.Errorf("%d entries after, %d before, %d resyncs", len(f.entries), len(before), f.resyncs)
	}
}

func TestPagesOfAnotherEpochAreRefused(t *testing.T) {
	x := New(Config{}, start)
	epoch := x.Stats().Epoch
	for _, c := range []struct {
		epoch uint64
		bits  uint8
	}{{epoch + 1, 10}, {epoch, 12}} {
		var moved *Moved
		if _, err := x.Pages(c.epoch, c.bits, 0); !errors.As(err, &moved) || moved.Epoch != epoch || moved.Bits != 10 {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := x.Pages(epoch, 10, 8); err == nil || !strings.Contains(err.Error(), "range 8 of 8") {
		t.Errorf("%v", err)
	}
}

func TestAGatewayFromBeforeTheRestartKeepsItsPagesWhileControlLearns(t *testing.T) {
	x := New(Config{}, start)
	x.KeepUntil(start.Add(10 * time.Second))
	f := newFollower()
	f.epoch, f.version = 42, 4711 // another process's
	f.entries[77] = table.Entry{Fingerprint: 77, Refs: [6]uint16{3}}
	f.catchUp(t, x, start)
	if f.kept != 1 || len(f.entries) != 1 {
		t.Errorf("kept %d, %d entries", f.kept, len(f.entries))
	}
	fill(x, rand.New(rand.NewPCG(1, 2)), 5)
	f.catchUp(t, x, start)
	if len(f.entries) != 6 || f.resyncs != 1 {
		t.Errorf("%d entries, %d resyncs", len(f.entries), f.resyncs)
	}
	fresh := newFollower() // a gateway without pages has nothing to keep
	fresh.catchUp(t, x, start)
	if fresh.kept != 0 || len(fresh.entries) != 5 {
		t.Errorf("kept %d, %d entries", fresh.kept, len(fresh.entries))
	}
	late := newFollower()
	late.epoch, late.version = 42, 4711
	late.catchUp(t, x, start.Add(11*time.Second))
	if late.kept != 0 {
		t.Error("kept after the learning time")
	}
}

func TestLoadsAreToldWhenTheyChangeAndOnceASecond(t *testing.T) {
	x := New(Config{}, start)
	version := func() uint64 { return x.Stats().Version }
	records := func(running uint16, at time.Time) []Load {
		return []Load{{Load: wire.Load{Ref: 1, State: 1, Running: running}, At: at}}
	}
	x.SetLoads(records(1, start), start)
	v := version()
	x.SetLoads(records(1, start.Add(500*time.Millisecond)), start.Add(600*time.Millisecond))
	if version() != v {
		t.Error("told though only the age changed")
	}
	x.SetLoads(records(2, start.Add(500*time.Millisecond)), start.Add(700*time.Millisecond))
	if version() != v+1 {
		t.Error("not told of a change")
	}
	x.SetLoads(records(2, start.Add(1500*time.Millisecond)), start.Add(1700*time.Millisecond))
	if version() != v+2 {
		t.Error("not told of the new age after a second")
	}
	f := newFollower()
	f.catchUp(t, x, start.Add(1800*time.Millisecond))
	if len(f.loads) != 1 || f.loads[0].AgeMillis != 300 || f.loads[0].AvoidMillis != 0 {
		t.Errorf("%+v", f.loads)
	}
}

func TestTheOffSwitchIsInTheNextFrame(t *testing.T) {
	x := New(Config{}, start)
	x.SetPolicy([]byte("{}"), nil, false)
	f := newFollower()
	f.catchUp(t, x, start)
	changed := x.Changed()
	x.SetPolicy([]byte(`{"off":true}`), nil, true)
	select {
	case <-changed:
	default:
		t.Error("nobody was woken")
	}
	f.catchUp(t, x, start)
	if !f.off {
		t.Error("flag missing")
	}
}

func TestClearEmptiesEveryGateway(t *testing.T) {
	x := New(Config{}, start)
	f := newFollower()
	fill(x, rand.New(rand.NewPCG(1, 2)), 100)
	f.catchUp(t, x, start)
	x.Clear(start.Add(time.Second))
	f.catchUp(t, x, start.Add(time.Second))
	if len(f.entries) != 0 || x.Stats().Entries != 0 {
		t.Errorf("%d entries left", len(f.entries))
	}
}

func BenchmarkApply(b *testing.B) {
	x := New(Config{MinBits: 14}, start)
	rng := rand.New(rand.NewPCG(1, 2))
	var batch Batch
	b.ReportAllocs()
	for b.Loop() {
		batch.Reset()
		for range 1000 {
			batch.Add(rng.Uint64N(800_000)*0x9E3779B97F4A7C15, []uint16{uint16(rng.IntN(16) + 1)}, 16)
		}
		x.Apply(&batch, start)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/change")
}

func BenchmarkMillionEntries(b *testing.B) {
	for b.Loop() {
		x := New(Config{}, start)
		rng := rand.New(rand.NewPCG(1, 2))
		for range 1000 {
			fill(x, rng, 1000)
		}
		s := x.Stats()
		b.ReportMetric(float64(s.Bytes), "table_bytes")
		b.ReportMetric(float64(s.Bits), "bits")
		b.ReportMetric(float64(s.Dropped), "dropped")
	}
}
