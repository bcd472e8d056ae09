package table

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// guarded returns PageBytes bytes for a page with known bytes around them, and a check that
// those are still there.
func guarded() (Page, func() bool) {
	const guard = 64
	b := bytes.Repeat([]byte{0xA5}, PageBytes+2*guard)
	return Page(b[guard : guard+PageBytes : guard+PageBytes]), func() bool {
		edge := bytes.Repeat([]byte{0xA5}, guard)
		return bytes.Equal(b[:guard], edge) && bytes.Equal(b[guard+PageBytes:], edge)
	}
}

// in returns a fingerprint of a page.
func in(page uint32, bits uint8, low uint64) uint64 {
	return uint64(page)<<(64-bits) | low&(1<<(64-bits)-1)
}

func TestPageEqualsAMapWhateverTheOrderOfChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		page, intact := guarded()
		bits := rapid.SampledFrom([]uint8{6, 8, 10, 12, 14, 16}).Draw(t, "bits")
		index := rapid.Uint32Range(0, 1<<bits-1).Draw(t, "index")
		page.Init(bits, index)
		oracle := map[uint64]Entry{}
		for range rapid.IntRange(0, 300).Draw(t, "changes") {
			f := in(index, bits, rapid.Uint64Range(0, 120).Draw(t, "fingerprint")*0x9e3779b97f4a7c15)
			if rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
				_, had := oracle[f]
				delete(oracle, f)
				if page.Remove(f) != had {
					t.Fatalf("Remove(%x) does not tell whether it was there", f)
				}
				continue
			}
			e := Entry{Fingerprint: f, Info: rapid.Uint32().Draw(t, "info")}
			for i := range e.Refs {
				e.Refs[i] = rapid.Uint16().Draw(t, "ref")
			}
			_, had := oracle[f]
			fits := had || len(oracle) < 84
			if page.Put(&e) != fits {
				t.Fatalf("Put with %d entries does not tell whether it fits", len(oracle))
			}
			if fits {
				oracle[f] = e
			}
		}
		if err := page.Check(); err != nil {
			t.Fatal(err)
		}
		var digest uint64
		for f, want := range oracle {
			got, found := page.Lookup(f)
			if !found || got != want {
				t.Fatalf("Lookup(%x) = %v, %v, want %v", f, got, found, want)
			}
			digest ^= EntryDigest(&want)
		}
		if page.Count() != len(oracle) || page.Digest() != digest {
			t.Fatalf("count %d digest %x, want %d %x", page.Count(), page.Digest(), len(oracle), digest)
		}
		if _, found := page.Lookup(in(index, bits, 0x1234567)); found {
			t.Fatal("found what was never put")
		}
		if !intact() {
			t.Fatal("wrote outside the page")
		}
	})
}

func TestPageHolds84EntriesAndTheRangeFitsOneResponse(t *testing.T) {
	if PageEntries != 84 {
		t.Errorf("a page holds %d entries", PageEntries)
	}
	if n := RangePages * PageBytes; n > 256<<10 {
		t.Errorf("a range is %d bytes", n)
	}
	for _, c := range []struct {
		bits   uint8
		ranges int
	}{{6, 1}, {8, 2}, {10, 8}, {12, 32}, {14, 128}, {16, 512}} {
		if got := Ranges(c.bits); got != c.ranges {
			t.Errorf("%d bits: %d ranges, want %d", c.bits, got, c.ranges)
		}
	}
}

func TestDamagedPageIsRefusedWithThePlace(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(p Page) Page
		offset int
		what   string
	}{
		{"short", func(p Page) Page { return p[:100] }, 0, "length"},
		{"empty", func(Page) Page { return nil }, 0, "length"},
		{"magic", func(p Page) Page { p[0]++; return p }, 0, "magic"},
		{"wire", func(p Page) Page { p[2] = 9; return p }, 2, "version 9"},
		{"bits", func(p Page) Page { p[3] = 7; return p }, 3, "7 bits"},
		{"index", func(p Page) Page { p[7] = 1; return p }, 4, "index"},
		{"count", func(p Page) Page { p[8] = 85; return p }, 8, "more entries"},
		{"padding", func(p Page) Page { p[12] = 1; return p }, 12, "padding"},
		{"order", func(p Page) Page {
			first, second := slices.Clone(p[24:48]), slices.Clone(p[48:72])
			copy(p[24:], second)
			copy(p[48:], first)
			return p
		}, 48, "ascending"},
		{"twice", func(p Page) Page { copy(p[48:72], p[24:48]); return p }, 48, "ascending"},
		{"stranger", func(p Page) Page { p[31] ^= 0x80; return p }, 24, "another page"},
		{"tail", func(p Page) Page { p[2039] = 1; return p }, 2039, "behind"},
		{"entry", func(p Page) Page { p[33] ^= 1; return p }, 16, "digest"},
	} {
		page := Page(make([]byte, PageBytes))
		page.Init(6, 3)
		for i := range 5 {
			e := Entry{Fingerprint: in(3, 6, uint64(i)<<20), Refs: [6]uint16{uint16(i + 1)}}
			page.Put(&e)
		}
		if err := page.Check(); err != nil {
			t.Fatal(err)
		}
		err, ok := c.damage(page).Check().(*Error)
		if !ok || err.Offset != c.offset || !strings.Contains(err.What, c.what) {
			t.Errorf("%s: error %v, want %q at offset %d", c.name, err, c.what, c.offset)
		}
	}
}

func FuzzPageCheck(f *testing.F) {
	page := Page(make([]byte, PageBytes))
	page.Init(6, 3)
	for i := range 84 {
		if i%28 == 0 {
			f.Add(bytes.Clone(page), in(3, 6, uint64(i)))
		}
		e := Entry{Fingerprint: in(3, 6, uint64(i)<<30), Refs: [6]uint16{1, 2}}
		page.Put(&e)
	}
	f.Add(bytes.Clone(page), uint64(0))
	f.Add([]byte{}, uint64(1))
	f.Fuzz(func(t *testing.T, b []byte, probe uint64) {
		// Readers look before they check: no bytes may make them panic.
		page := Page(b)
		page.Lookup(probe)
		page.Count()
		page.Digest()
		if page.Check() != nil {
			return
		}
		// What passes the check is what the encoder writes.
		again := Page(make([]byte, PageBytes))
		again.Init(page.Bits(), page.Index())
		for i := page.Count() - 1; i >= 0; i-- {
			e := page.At(i)
			if !again.Put(&e) {
				t.Fatal("checked page does not fit a page")
			}
		}
		if !bytes.Equal(again, page) {
			t.Fatalf("checked page is not canonical:\n% x\n% x", again, page)
		}
	})
}

func TestEntryKeepsTheMostRecentHoldersFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var e Entry
		var oracle []uint16
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			ref := rapid.Uint16Range(1, 10).Draw(t, "ref")
			at := slices.Index(oracle, ref)
			if at >= 0 {
				oracle = slices.Delete(oracle, at, at+1)
			}
			if rapid.Bool().Draw(t, "add") {
				oracle = slices.Insert(oracle, 0, ref)
				var dropped uint16
				if len(oracle) > InlineRefs {
					dropped, oracle = oracle[InlineRefs], oracle[:InlineRefs]
				}
				if got := e.Add(ref); got != dropped {
					t.Fatalf("Add(%d) dropped %d, want %d", ref, got, dropped)
				}
			} else if e.Remove(ref) != (at >= 0) {
				t.Fatalf("Remove(%d) does not tell whether it was there", ref)
			}
			var want [InlineRefs]uint16
			copy(want[:], oracle)
			if e.Refs != want || e.Count() != len(oracle) {
				t.Fatalf("refs %v, want %v", e.Refs, want)
			}
			for r := range uint16(12) {
				if e.Holds(r) != slices.Contains(oracle, r) {
					t.Fatalf("Holds(%d) = %v with %v", r, e.Holds(r), oracle)
				}
			}
		}
	})
}

func TestEntryFlagAndSetDoNotDisturbEachOther(t *testing.T) {
	var e Entry
	e.SetOverflow(1<<24 - 1)
	e.SetUniversal(true)
	if !e.Universal() || e.Overflow() != 1<<24-1 {
		t.Errorf("info %x", e.Info)
	}
	e.SetOverflow(5)
	if !e.Universal() || e.Overflow() != 5 {
		t.Errorf("info %x", e.Info)
	}
	e.SetUniversal(false)
	if e.Universal() || e.Overflow() != 5 {
		t.Errorf("info %x", e.Info)
	}
}

func TestEntryBytesAreAsDrawn(t *testing.T) {
	e := Entry{Fingerprint: 0x0123456789abcdef, Refs: [6]uint16{1, 0x0203, 4, 5, 6, 7}, Info: 0x80000009}
	got := AppendEntry(nil, &e)
	want := []byte{
		0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01,
		1, 0, 3, 2, 4, 0, 5, 0, 6, 0, 7, 0,
		9, 0, 0, 0x80,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if DecodeEntry(got) != e {
		t.Errorf("decoded %v", DecodeEntry(got))
	}
}

func TestDigestTellsEveryFieldOfAnEntry(t *testing.T) {
	base := Entry{Fingerprint: 7, Refs: [6]uint16{1, 2, 3, 4, 5, 6}, Info: 8}
	seen := map[uint64]int{EntryDigest(&base): -1}
	encoded := AppendEntry(nil, &base)
	for bit := range 8 * EntryBytes {
		b := slices.Clone(encoded)
		b[bit/8] ^= 1 << (bit % 8)
		e := DecodeEntry(b)
		d := EntryDigest(&e)
		if other, twice := seen[d]; twice {
			t.Errorf("bits %d and %d give the same digest", other, bit)
		}
		seen[d] = bit
	}
}

func TestMetaSurvivesTheTripAndDamageIsRefused(t *testing.T) {
	m := Meta{
		Bits: 12, Off: true, Ready: true, Epoch: 1 << 60, Version: 42, UpdatedUnixNanos: -5,
		RosterVersion: 1, LoadsVersion: 2, PolicyVersion: 3, SetsVersion: 4,
	}
	b := AppendMeta([]byte{0xA5}, &m)
	if b[0] != 0xA5 || len(b) != 1+MetaBytes {
		t.Fatalf("%d bytes", len(b))
	}
	got, err := DecodeMeta(b[1:])
	if err != nil || got != m {
		t.Errorf("decoded %+v, %v", got, err)
	}
	for offset, value := range map[int]byte{0: 'X', 4: 2, 5: 9, 6: 0xF0, 7: 1} {
		bad := slices.Clone(b[1:])
		bad[offset] = value
		if err, ok := func() error { _, err := DecodeMeta(bad); return err }().(*Error); !ok || err.Offset != offset {
			t.Errorf("byte %d = %d: %v", offset, value, err)
		}
	}
	for n := range MetaBytes {
		if _, err := DecodeMeta(b[1 : 1+n]); err == nil {
			t.Errorf("%d bytes are taken for a meta record", n)
		}
	}
}

func BenchmarkPage(b *testing.B) {
	page := Page(make([]byte, PageBytes))
	page.Init(6, 3)
	for i := range 60 {
		e := Entry{Fingerprint: in(3, 6, uint64(i)*0x9e3779b97f4a7c15)}
		page.Put(&e)
	}
	b.Run("Lookup", func(b *testing.B) {
		for b.Loop() {
			page.Lookup(in(3, 6, 1<<40+17))
		}
	})
	b.Run("Check", func(b *testing.B) {
		for b.Loop() {
			if err := page.Check(); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, n := range []int{10, 83} {
		b.Run("PutRemove/"+strconv.Itoa(n), func(b *testing.B) {
			page.Init(6, 3)
			for i := range n {
				e := Entry{Fingerprint: in(3, 6, binary.LittleEndian.Uint64([]byte{byte(i), 1, 2, 3, 4, 5, 6, 7}))}
				page.Put(&e)
			}
			e := Entry{Fingerprint: in(3, 6, 0)}
			for b.Loop() {
				page.Put(&e)
				page.Remove(e.Fingerprint)
			}
		})
	}
}
