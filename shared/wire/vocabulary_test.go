package wire

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/shared/policy"
)

var (
	exampleHash   = policy.Hash{0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
	exampleStored = Stored{Vocabulary: policy.Vocabulary{Hash: exampleHash, Bytes: 3_000_000}, Pieces: 5}
	exampleReady  = Ready{Hash: exampleHash, VMs: 3, Pieces: 12}
)

func TestShardsCoverAVocabularyWithoutAGap(t *testing.T) {
	for _, size := range []int{1, ShardBytes - 1, ShardBytes, ShardBytes + 1, policy.MaxVocabularyBytes} {
		total := 0
		for n := range Shards(size) {
			piece := ShardSize(size, n)
			if piece < 1 || piece > ShardBytes {
				t.Errorf("%d bytes: piece %d has %d", size, n, piece)
			}
			total += piece
		}
		if total != size || ShardSize(size, Shards(size)) != 0 {
			t.Errorf("%d bytes: the pieces have %d, and then %d", size, total, ShardSize(size, Shards(size)))
		}
	}
}

func TestVocabularyListSurvivesTheTripAndFaultsAreFound(t *testing.T) {
	list := []Stored{exampleStored, {Vocabulary: policy.Vocabulary{Hash: policy.Hash{1}, Bytes: 7}, Pieces: 1}}
	b := guard(t, func(b []byte) []byte { return AppendVocabularies(b, list) })
	got, err := DecodeVocabularies(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(list, got); diff != "" {
		t.Error(diff)
	}
	for _, c := range []struct {
		offset int
		value  byte
		what   string
	}{{0, 'X', "magic"}, {4, 2, "version"}, {5, 3, "count"}, {5, 33, "count"}, {27, 1, "size"}, {28, 13, "pieces"}} {
		bad := bytes.Clone(b)
		bad[c.offset] = c.value
		at := c.offset
		if c.what == "size" {
			at = 24
		}
		wantFault(t, at, c.what, func() error { _, err := DecodeVocabularies(bad, nil); return err })
	}
	for n := range len(b) {
		if _, err := DecodeVocabularies(b[:n], nil); err == nil {
			t.Errorf("cut to %d bytes: no error", n)
		}
	}
	many := make([]Stored, policy.MaxVocabularies+1)
	for i := range many {
		many[i] = exampleStored
	}
	if got, err := DecodeVocabularies(AppendVocabularies(nil, many), nil); err != nil || len(got) != policy.MaxVocabularies {
		t.Errorf("%d records, %v", len(got), err)
	}
}

func TestReadySurvivesTheTrip(t *testing.T) {
	b := guard(t, func(b []byte) []byte { return AppendReady(AppendReady(b, exampleReady), Ready{VMs: 1}) })
	var got []Ready
	if err := ForEachReady(b, func(r Ready) error { got = append(got, r); return nil }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Ready{exampleReady, {VMs: 1}}, got); diff != "" {
		t.Error(diff)
	}
	wantFault(t, 24, "cut short", func() error { return ForEachReady(b[:47], func(Ready) error { return nil }) })
}

// TestARowOfBeforeVocabulariesHasNoneLoaded: its padding was zero.
func TestARowOfBeforeVocabulariesHasNoneLoaded(t *testing.T) {
	b := exampleRowBytes(nil)
	if row, err := DecodeRow(b, nil); err != nil || row.PolicyVersion != 0 || row.Vocabularies != 0 {
		t.Errorf("%+v, %v", row, err)
	}
	with := exampleRow
	with.PolicyVersion, with.Vocabularies = 0x1234, 1<<31|1
	b = EndRow(AppendInFlight(AppendRow(nil, &with), exampleInFlight), 0)
	flights := 0
	if row, err := DecodeRow(b, func(InFlight) { flights++ }); err != nil || row != with || flights != 1 {
		t.Errorf("%+v with %d in flight, %v", row, flights, err)
	}
}

func FuzzVocabularies(f *testing.F) {
	f.Add(AppendVocabularies(nil, []Stored{exampleStored}))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := DecodeVocabularies(b, nil)
		if err != nil {
			if e, ok := err.(*Error); !ok || e.Offset < 0 || e.Offset > len(b) {
				t.Fatalf("error %v for %d bytes", err, len(b))
			}
			return
		}
		again, err := DecodeVocabularies(AppendVocabularies(nil, list), nil)
		if diff := cmp.Diff(list, again); err != nil || diff != "" {
			t.Fatalf("%v %s", err, diff)
		}
	})
}
