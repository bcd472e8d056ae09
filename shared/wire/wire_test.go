package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/table"
)

// The examples are the ones of docs/formats.md; the doc test compares the hex.
var (
	exampleHeader = Header{Kind: Update, Wire: OldestVersion, Flags: FlagResync | FlagOff, Epoch: 7, From: 41, To: 44}
	exampleWorker = Worker{
		Ref: 3, Pool: 1, Generation: 0x1122334455667788, BlockTokens: 16, MaxRunning: 256,
		QueueLimit: 64, Address: []byte("10.0.0.7:8000"),
	}
	exampleLoad = Load{
		Ref: 3, State: 1, Running: 17, Waiting: 2, KVShare: 0.5, PrefillRate: 8192, Trust: 1,
		FleetInFlight: 19, FleetUncachedTokens: 4096, AgeMillis: 120, AvoidMillis: 0,
		DecodeSecondsPerToken: 0.03125, EvictShare: 1, EvictMillis: 2500,
	}
	exampleCache    = Cache{Ref: 3, FreeTokens: 4096, TailAgeMillis: 42_000, RecentTokens: 90_000, EmptyAgeMillis: 1500}
	exampleHome     = Home{Fingerprint: 0x1122334455667788, Units: 128, Bitmap: []byte{0x18, 0x01}}
	exampleCopy     = Copy{Fingerprint: 0x1122334455667788, Units: 128, Ref: 3, Maker: MakerOf(exampleGateway.Name)}
	exampleRow      = Row{Slot: 2, Nonce: 0xabcdef, TickUnixNanos: 1_800_000_000_000_000_000, ReportSequence: 9}
	exampleInFlight = InFlight{Ref: 3, Requests: 5, UncachedTokens: 2048}
	exampleDispatch = Report{Pool: 1, Chosen: 3, ID: ReportID(2, 77), PromptUnits: 40, MatchedUnits: 16}
	exampleCPs      = []fingerprint.Checkpoint{{Fingerprint: 0x0123456789abcdef, End: 16, TurnEnd: true}, {Fingerprint: 0xfedcba9876543210, End: 40}}
	exampleDone     = Report{
		Pool: 1, Chosen: 3, Served: 4, ID: ReportID(2, 77), Status: 200, Outcome: Complete, Attempts: 2,
		PredictedTokens: 256, CachedTokens: 240, PromptTokens: 655, OutputTokens: UnknownTokens,
		TTFTMillis: 85, TotalMillis: 1900,
	}
	exampleGateway = Gateway{
		Nonce: 0xabcdef, Epoch: 7, Version: 44, SentUnixNanos: 1_800_000_000_000_000_000,
		LiveRows: 4, FailedBatches: 1, Name: "gw-1",
	}
	exampleAcked   = Acked{Slot: 2, Nonce: 0xabcdef, Sequence: 9}
	exampleHints   = Hints{BatchMillis: 500, PollMillis: 0}
	exampleCourier = Courier{Slot: 2, Nonce: 0xabcdef, Epoch: 3, ExpiryUnixNanos: 1_800_000_002_000_000_000}
	exampleEntry   = table.Entry{Fingerprint: 0x0123456789abcdef, Refs: [6]uint16{3, 4}}
)

func exampleRowBytes(b []byte) []byte {
	start := len(b)
	b = AppendRow(b, &exampleRow)
	b = AppendInFlight(b, exampleInFlight)
	return EndRow(b, start)
}

// guard appends behind known bytes and checks that they stay.
func guard(t *testing.T, append func(b []byte) []byte) []byte {
	t.Helper()
	edge := bytes.Repeat([]byte{0xA5}, 32)
	b := append(bytes.Clone(edge))
	if !bytes.Equal(b[:32], edge) {
		t.Error("wrote before its place")
	}
	return b[32:]
}

func TestHeaderSurvivesTheTrip(t *testing.T) {
	b := guard(t, func(b []byte) []byte { return AppendHeader(b, &exampleHeader) })
	got, err := DecodeHeader(b)
	if err != nil || got != exampleHeader || !got.Resync() || !got.Off() {
		t.Errorf("%+v, %v", got, err)
	}
	for offset, value := range map[int]byte{0: 'X', 4: 9, 5: Version + 1} {
		bad := bytes.Clone(b)
		bad[offset] = value
		wantFault(t, offset, "frame", func() error { _, err := DecodeHeader(bad); return err })
	}
	for n := range HeaderBytes {
		wantFault(t, n, "cut short", func() error { _, err := DecodeHeader(b[:n]); return err })
	}
}

func wantFault(t *testing.T, offset int, what string, decode func() error) {
	t.Helper()
	var e *Error
	if err := decode(); !errors.As(err, &e) || e.Offset != offset || !strings.Contains(e.What, what) {
		t.Errorf("error %v, want %q at offset %d", err, what, offset)
	}
}

func TestSectionsComeBackInOrderAndUnknownOnesAreSkippable(t *testing.T) {
	frame := AppendHeader(nil, &exampleHeader)
	frame = AppendSection(frame, SectionPolicy, []byte(`{}`))
	frame = AppendSection(frame, 200, nil)
	frame, mark := BeginSection(frame, SectionRemoves)
	frame = AppendRemove(frame, 5)
	frame = EndSection(frame, mark)
	var got []string
	if err := ForEachSection(frame, func(s Section) error {
		if !bytes.Equal(frame[s.Offset:s.Offset+len(s.Payload)], s.Payload) {
			t.Error("offset does not lead to the payload")
		}
		got = append(got, hex.EncodeToString([]byte{byte(s.Type)})+":"+hex.EncodeToString(s.Payload))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"04:7b7d", "c8:", "06:0500000000000000"}, got); diff != "" {
		t.Error(diff)
	}
	ends := map[int]bool{32: true, 42: true, 50: true}
	for n := range len(frame) {
		err := ForEachSection(frame[:n], func(Section) error { return nil })
		if ends[n] != (err == nil) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
}

func TestErrorInsideASectionNamesThePlaceInTheFrame(t *testing.T) {
	frame := AppendHeader(nil, &exampleHeader)
	loads := AppendLoad(AppendLoad(nil, &exampleLoad), &exampleLoad)
	loads[42] = 9
	frame = AppendSection(frame, SectionLoads, loads)
	wantFault(t, HeaderBytes+SectionHeaderBytes+42, "unknown state", func() error {
		return ForEachSection(frame, func(s Section) error { return ForEachLoad(s.Payload, func(*Load) error { return nil }) })
	})
	mine := errors.New("mine")
	if err := ForEachSection(frame, func(Section) error { return mine }); !errors.Is(err, mine) {
		t.Errorf("the callback's own error is gone: %v", err)
	}
}

func TestRosterSurvivesTheTrip(t *testing.T) {
	second := Worker{Ref: 65535, Address: bytes.Repeat([]byte("x"), 300)}
	b := guard(t, func(b []byte) []byte { return AppendWorker(AppendWorker(b, &exampleWorker), &second) })
	second.Address = second.Address[:MaxAddress]
	var got []Worker
	if err := ForEachWorker(b, func(w *Worker) error { got = append(got, *w); return nil }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Worker{exampleWorker, second}, got); diff != "" {
		t.Error(diff)
	}
	wantFault(t, 0, "ref 0", func() error { return ForEachWorker(make([]byte, 30), nil) })
	empty := bytes.Clone(b)
	empty[18] = 0
	wantFault(t, 18, "empty address", func() error { return ForEachWorker(empty, nil) })
}

func TestLoadsSurviveTheTripAndOddNumbersAreClamped(t *testing.T) {
	b := guard(t, func(b []byte) []byte { return AppendLoad(b, &exampleLoad) })
	odd := Load{Ref: 1, State: 77, KVShare: 1.5, PrefillRate: float32(math.Inf(1)), Trust: float32(math.NaN()), DecodeSecondsPerToken: -1, EvictShare: float32(math.NaN()), EvictMillis: math.MaxUint32}
	b = AppendLoad(b, &odd)
	var got []Load
	if err := ForEachLoad(b, func(l *Load) error { got = append(got, *l); return nil }); err != nil {
		t.Fatal(err)
	}
	want := []Load{exampleLoad, {Ref: 1, State: 3, KVShare: 1, PrefillRate: math.MaxFloat32, EvictMillis: 655_350}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, offset := range []int{8, 12, 16, 36} {
		for _, bad := range []uint32{0x7fc00000, 0x7f800000, 0xbf800000} { // NaN, +Inf, -1
			damaged := bytes.Clone(b)
			copy(damaged[offset:], []byte{byte(bad), byte(bad >> 8), byte(bad >> 16), byte(bad >> 24)})
			wantFault(t, offset, "out of range", func() error { return ForEachLoad(damaged, nil) })
		}
	}
	wantFault(t, 40, "cut short", func() error { return ForEachLoad(b[:79], nil) })
}

func TestSetsSurviveTheTripAndAreFound(t *testing.T) {
	b := guard(t, func(b []byte) []byte {
		return AppendSet(AppendSet(b, 1, []byte{1, 2}), 1<<24-1, bytes.Repeat([]byte{7}, 9000))
	})
	n := 0
	if err := ForEachSet(b, func(id uint32, bitmap []byte) error {
		n += len(bitmap)
		if !bytes.Equal(FindSet(b, id), bitmap) {
			t.Errorf("set %d is not found", id)
		}
		return nil
	}); err != nil || n != 2+8192 {
		t.Errorf("%d bytes, %v", n, err)
	}
	if FindSet(b, 2) != nil || FindSet(b[:9], 1) != nil || FindSet(nil, 1) != nil {
		t.Error("found a set that is not there")
	}
	wantFault(t, 0, "id", func() error { return ForEachSet(make([]byte, 8), nil) })
	long := bytes.Clone(b)
	long[5] = 0x21
	wantFault(t, 4, "longer than all refs", func() error { return ForEachSet(long, nil) })
}

func TestRowSurvivesTheTripAndHoldsAThousandWorkers(t *testing.T) {
	b := guard(t, exampleRowBytes)
	var got []InFlight
	row, err := DecodeRow(b, func(r InFlight) { got = append(got, r) })
	if err != nil || row != exampleRow {
		t.Errorf("%+v, %v", row, err)
	}
	if diff := cmp.Diff([]InFlight{exampleInFlight}, got); diff != "" {
		t.Error(diff)
	}

	for _, n := range []int{512, 1019, 1020, 5000} {
		b := AppendRow(nil, &exampleRow)
		for i := range n {
			b = AppendInFlight(b, InFlight{Ref: uint16(i + 1), Requests: 1})
		}
		b = EndRow(b, 0)
		count := 0
		if _, err := DecodeRow(b, func(InFlight) { count++ }); err != nil || count != min(n, MaxRowWorkers) || len(b) > MaxRowBytes {
			t.Errorf("%d workers: %d records in %d bytes, %v", n, count, len(b), err)
		}
	}
	if MaxRowWorkers < 512 {
		t.Errorf("a row holds %d workers", MaxRowWorkers)
	}
}

func TestReportsSurviveTheTrip(t *testing.T) {
	b := guard(t, func(b []byte) []byte {
		return AppendDone(AppendDispatch(b, &exampleDispatch, exampleCPs), &exampleDone)
	})
	var kinds []ReportKind
	if err := ForEachReport(b, func(r *Report) error {
		kinds = append(kinds, r.Kind)
		if r.Kind == Dispatch {
			for i, want := range exampleCPs {
				want.TurnEnd = false
				if r.Checkpoint(i) != want {
					t.Errorf("checkpoint %d: %+v", i, r.Checkpoint(i))
				}
			}
			if r.Checkpoints() != 2 || r.PromptUnits != 40 || r.MatchedUnits != 16 || r.ID != 2<<48|77 {
				t.Errorf("%+v", r)
			}
			return nil
		}
		want := exampleDone
		want.Kind = Done
		if diff := cmp.Diff(want, *r, cmp.AllowUnexported(Report{})); diff != "" {
			t.Error(diff)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]ReportKind{Dispatch, Done}, kinds); diff != "" {
		t.Error(diff)
	}
}

func TestLargestReportFitsAChunkTenTimes(t *testing.T) {
	cps := make([]fingerprint.Checkpoint, 300)
	for i := range cps {
		cps[i].End = uint32(i + 1)
	}
	b := AppendDispatch(nil, &Report{PromptUnits: 300}, cps)
	if len(b) != MaxReportBytes || 10*len(b)+chunkHeader > MaxChunkBytes {
		t.Errorf("%d bytes", len(b))
	}
	if err := ForEachReport(b, func(r *Report) error {
		if r.Checkpoints() != 256 || r.Checkpoint(0).End != 45 {
			t.Errorf("%d checkpoints from %d", r.Checkpoints(), r.Checkpoint(0).End)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func TestDamagedReportIsRefusedWithThePlace(t *testing.T) {
	done, dispatch := AppendDone(nil, &exampleDone), AppendDispatch(nil, &exampleDispatch, exampleCPs)
	for _, c := range []struct {
		name   string
		report []byte
		at     int
		value  byte
		offset int
		what   string
	}{
		{"length 0", done, 0, 0, 0, "below the header"},
		{"length beyond", done, 0, 200, 0, "longer than what is left"},
		{"kind", done, 2, 7, 2, "unknown kind"},
		{"outcome", done, 18, 6, 18, "unknown outcome"},
		{"tokens", done, 27, 0x80, 24, "below -1"},
		{"count", dispatch, 24, 1, 24, "does not match"},
		{"too many", dispatch, 25, 3, 24, "more than 256"},
		{"order", dispatch, 36, 50, 36, "ascend"},
		{"beyond the prompt", dispatch, 48, 41, 48, "ascend"},
	} {
		prefix := AppendDone(nil, &exampleDone)
		bad := bytes.Clone(c.report)
		bad[c.at] = c.value
		t.Run(c.name, func(t *testing.T) {
			wantFault(t, len(prefix)+c.offset, c.what, func() error {
				return ForEachReport(append(prefix, bad...), func(*Report) error { return nil })
			})
		})
	}
}

func TestBatchSurvivesTheTrip(t *testing.T) {
	chunk := AppendDone(AppendChunk(nil, Chunk{Sequence: 9, Nonce: 0xabcdef}), &exampleDone)
	frame := AppendHeader(nil, &Header{Kind: Batch})
	frame, mark := BeginSection(frame, SectionGateway)
	frame = AppendGateway(frame, &exampleGateway)
	frame = EndSection(frame, mark)
	frame = AppendReports(frame, 2, chunk)
	frame = AppendReports(frame, 3, chunk)
	reports := 0
	if err := ForEachSection(frame, func(s Section) error {
		switch s.Type {
		case SectionGateway:
			g, err := DecodeGateway(s.Payload)
			if g != exampleGateway {
				t.Errorf("%+v", g)
			}
			return err
		case SectionReports:
			slot, c, records, err := DecodeReports(s.Payload)
			if c.Sequence != 9 || c.Nonce != 0xabcdef || slot != uint16(2+reports) {
				t.Errorf("slot %d chunk %+v", slot, c)
			}
			reports++
			if err == nil {
				err = ForEachReport(records, func(*Report) error { return nil })
			}
			return err
		}
		return nil
	}); err != nil || reports != 2 {
		t.Errorf("%d reports, %v", reports, err)
	}

	var acked []Acked
	if err := ForEachAcked(AppendAcked(nil, exampleAcked), func(a Acked) error { acked = append(acked, a); return nil }); err != nil || len(acked) != 1 || acked[0] != exampleAcked {
		t.Errorf("%v, %v", acked, err)
	}
	if h, err := DecodeHints(AppendHints(nil, exampleHints)); err != nil || h != exampleHints {
		t.Errorf("%v, %v", h, err)
	}
	var flight []InFlight
	if err := ForEachInFlight(AppendInFlight(nil, exampleInFlight), func(f InFlight) error { flight = append(flight, f); return nil }); err != nil || len(flight) != 1 || flight[0] != exampleInFlight {
		t.Errorf("%v, %v", flight, err)
	}
}

func TestChangesSurviveTheTrip(t *testing.T) {
	if g, err := DecodeGeometry(AppendGeometry(nil, Geometry{Bits: 12, Entries: 77})); err != nil || g != (Geometry{12, 77}) {
		t.Errorf("%v, %v", g, err)
	}
	wantFault(t, 0, "size class", func() error { _, err := DecodeGeometry(AppendGeometry(nil, Geometry{Bits: 13})); return err })
	puts := table.AppendEntry(table.AppendEntry(nil, &exampleEntry), &table.Entry{Fingerprint: 9})
	var got []table.Entry
	if err := ForEachPut(puts, func(e *table.Entry) error { got = append(got, *e); return nil }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]table.Entry{exampleEntry, {Fingerprint: 9}}, got); diff != "" {
		t.Error(diff)
	}
	wantFault(t, 24, "cut short", func() error { return ForEachPut(puts[:47], func(*table.Entry) error { return nil }) })

	var removed []uint64
	if err := ForEachRemove(AppendRemove(AppendRemove(nil, 5), 6), func(f uint64) error { removed = append(removed, f); return nil }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]uint64{5, 6}, removed); diff != "" {
		t.Error(diff)
	}
	if err := ForEachDigest(AppendDigest(AppendDigest(nil, 50), 51), func(i int, d uint64) error {
		if d != uint64(50+i) {
			t.Errorf("digest %d of range %d", d, i)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestPagesAreCheckedAndARangeFitsTheBody(t *testing.T) {
	frame := AppendHeader(nil, &Header{Kind: Pages})
	frame, mark := BeginSection(frame, SectionPages)
	for i := range table.RangePages {
		p := table.Page(make([]byte, table.PageBytes))
		p.Init(8, uint32(i))
		frame = append(frame, p...)
	}
	frame = EndSection(frame, mark)
	if len(frame) > MaxBody {
		t.Errorf("a range of pages is %d bytes", len(frame))
	}
	decode := func(b []byte) (n int, err error) {
		err = ForEachSection(b, func(s Section) error {
			return ForEachPage(s.Payload, func(p table.Page) error { n++; return nil })
		})
		return n, err
	}
	if n, err := decode(frame); err != nil || n != 128 {
		t.Errorf("%d pages, %v", n, err)
	}
	bad := bytes.Clone(frame)
	bad[40+2*table.PageBytes+8] = 1 // a count without an entry
	var e *Error
	if n, err := decode(bad); n != 2 || !errors.As(err, &e) || e.Offset < 40+2*table.PageBytes {
		t.Errorf("%d pages before %v", n, err)
	}
	wantFault(t, 128*table.PageBytes, "more than one range", func() error {
		return ForEachPage(make([]byte, 129*table.PageBytes), nil)
	})
}

func TestCourierSurvivesTheTrip(t *testing.T) {
	b := guard(t, func(b []byte) []byte { return AppendCourier(b, &exampleCourier) })
	if c, err := DecodeCourier(b); err != nil || c != exampleCourier {
		t.Errorf("%+v, %v", c, err)
	}
	b[5] = 1
	wantFault(t, 4, "slot", func() error { _, err := DecodeCourier(b); return err })
	b[0] = 0
	wantFault(t, 0, "magic", func() error { _, err := DecodeCourier(b); return err })
}

func TestKeysCarryDeploymentAndWireVersion(t *testing.T) {
	k := NewKeys("default")
	got := []string{
		k.Courier(), k.Meta(), k.Roster(), k.Loads(), k.Policy(), k.Sets(), k.Row(7), k.Report(127, 33),
		k.Page(6, 0x3f), k.Page(16, 0xbeef),
	}
	want := []string{
		"wp.default.1.courier", "wp.default.1.meta", "wp.default.1.roster", "wp.default.1.loads",
		"wp.default.1.policy", "wp.default.1.sets", "wp.default.1.row.7", "wp.default.1.rep.127.1",
		"wp.default.1.p06.003f", "wp.default.1.p16.beef",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDecodingDoesNotAllocatePerRecord(t *testing.T) {
	roster, loads, reports, puts := []byte(nil), []byte(nil), []byte(nil), []byte(nil)
	for range 200 {
		roster = AppendWorker(roster, &exampleWorker)
		loads = AppendLoad(loads, &exampleLoad)
		reports = AppendDispatch(reports, &exampleDispatch, exampleCPs)
		puts = table.AppendEntry(puts, &exampleEntry)
	}
	n := testing.AllocsPerRun(10, func() {
		for _, err := range []error{
			ForEachWorker(roster, func(*Worker) error { return nil }),
			ForEachLoad(loads, func(*Load) error { return nil }),
			ForEachReport(reports, func(*Report) error { return nil }),
			ForEachPut(puts, func(*table.Entry) error { return nil }),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	if n > 8 {
		t.Errorf("%v allocations for 800 records", n)
	}
}

func TestCachesSurviveTheTrip(t *testing.T) {
	b := guard(t, func(b []byte) []byte { return AppendCache(AppendCache(b, &exampleCache), &Cache{Ref: 9}) })
	var got []Cache
	if err := ForEachCache(b, func(c *Cache) error { got = append(got, *c); return nil }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Cache{exampleCache, {Ref: 9}}, got); diff != "" {
		t.Error(diff)
	}
	for millis, want := range map[uint32]uint32{1: 10, 11: 20, 655_350: 655_350, 655_351: 0} { // nothing is young at 0
		_ = ForEachCache(AppendCache(nil, &Cache{EmptyAgeMillis: millis}), func(c *Cache) error {
			if c.EmptyAgeMillis != want {
				t.Errorf("%d ms arrive as %d, want %d", millis, c.EmptyAgeMillis, want)
			}
			return nil
		})
	}
	for _, n := range []int{1, cacheBytes - 1, cacheBytes + 1} {
		wantFault(t, n/cacheBytes*cacheBytes, "caches", func() error { return ForEachCache(b[:n], func(*Cache) error { return nil }) })
	}
}

func TestHomesSurviveTheTrip(t *testing.T) {
	none := Home{Fingerprint: 5, Units: 1, Pool: 7, Bitmap: []byte{}}
	b := guard(t, func(b []byte) []byte { return AppendHome(AppendHome(b, &exampleHome), &none) })
	var got []Home
	var refs []uint16
	if err := ForEachHome(b, func(h *Home) error {
		got = append(got, *h)
		h.Refs(func(ref uint16) { refs = append(refs, ref) })
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Home{exampleHome, none}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]uint16{3, 4, 8}, refs); diff != "" {
		t.Error(diff)
	}
	nothing := func(*Home) error { return nil }
	for n := 1; n < len(b); n++ {
		if n != homeFixed+2 {
			wantFault(t, n, "homes", func() error { return ForEachHome(b[:n], nothing) })
		}
	}
	zero := AppendHome(nil, &Home{Fingerprint: 5})
	wantFault(t, 8, "homes", func() error { return ForEachHome(zero, nothing) })
	long := AppendHome(nil, &exampleHome)
	long[15] = 0x20
	wantFault(t, 14, "homes", func() error { return ForEachHome(long, nothing) })
}

func TestCopiesSurviveTheTrip(t *testing.T) {
	other := Copy{Fingerprint: 5, Units: 1, Pool: 7, Ref: 65535}
	b := guard(t, func(b []byte) []byte { return AppendCopy(AppendCopy(b, &exampleCopy), &other) })
	var got []Copy
	if err := ForEachCopy(b, func(c *Copy) error { got = append(got, *c); return nil }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Copy{exampleCopy, other}, got); diff != "" {
		t.Error(diff)
	}
	nothing := func(*Copy) error { return nil }
	for n := 1; n < len(b); n++ {
		if n != copyBytes {
			wantFault(t, n/copyBytes*copyBytes, "copies", func() error { return ForEachCopy(b[:n], nothing) })
		}
	}
	short := AppendCopy(AppendCopy(nil, &other), &Copy{Ref: 1})
	wantFault(t, copyBytes+8, "copies", func() error { return ForEachCopy(short, nothing) })
	nobody := AppendCopy(nil, &Copy{Units: 1})
	wantFault(t, 14, "copies", func() error { return ForEachCopy(nobody, nothing) })
}

// A batch cuts a name that is too long, and whoever reads it must name the same maker.
func TestAMakerIsNamedAsItsBatchesNameTheGateway(t *testing.T) {
	for _, name := range []string{"g", "gateway-1", strings.Repeat("g", MaxGatewayName), strings.Repeat("g", MaxGatewayName+9)} {
		told, err := DecodeGateway(AppendGateway(nil, &Gateway{Name: name}))
		if err != nil || MakerOf(told.Name) != MakerOf(name) {
			t.Errorf("a name of %d bytes: %v, another maker than %q", len(name), err, told.Name)
		}
	}
	if MakerOf("gateway-1") == MakerOf("gateway-2") {
		t.Error("two gateways are one maker")
	}
}

// Whoever doesn't know COPIES leaves the byte 0, and whoever doesn't know the flag reads the same.
func TestAGatewayTellsThatItMakesCopies(t *testing.T) {
	plain, makes := exampleGateway, exampleGateway
	makes.Copies = true
	a, b := AppendGateway(nil, &plain), AppendGateway(nil, &makes)
	for _, c := range []struct {
		b    []byte
		want Gateway
	}{{a, plain}, {b, makes}} {
		if got, err := DecodeGateway(c.b); err != nil || got != c.want {
			t.Errorf("%+v, %v, want %+v", got, err, c.want)
		}
	}
	if b[39] = 0; !bytes.Equal(a, b) {
		t.Error("more than a flag differs")
	}
}
