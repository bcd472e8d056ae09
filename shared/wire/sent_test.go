package wire

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/shared/fingerprint"
)

var exampleSent = Sent{ID: ReportID(2, 77), UnixNanos: 1_800_000_000_000_000_000, ReadyMillis: 700, Ref: 3}

func exampleSentBytes(b []byte) []byte { return AppendSent(BeginSent(b), &exampleSent, exampleCPs, 0) }

func TestSentReadsBackAndIsThinned(t *testing.T) {
	b := guard(t, exampleSentBytes)
	var long []fingerprint.Checkpoint
	for i := range uint32(100) {
		long = append(long, fingerprint.Checkpoint{Fingerprint: uint64(i + 1), End: 4 * (i + 1)})
	}
	b = AppendSent(b, &exampleSent, long, 40) // 90 are beyond
	var got [][]uint64
	err := ForEachSent(b, func(s *Sent, record []byte, n int) {
		if *s != exampleSent {
			t.Errorf("%+v", s)
		}
		var all []uint64
		for i := range n {
			all = append(all, SentCheckpoint(record, i))
		}
		got = append(got, all)
	})
	if err != nil || len(got) != 2 {
		t.Fatalf("%v, %v", got, err)
	}
	if diff := cmp.Diff([]uint64{exampleCPs[1].Fingerprint, exampleCPs[0].Fingerprint}, got[0]); diff != "" {
		t.Error(diff)
	}
	if n := len(got[1]); n != 30 || got[1][0] != 100 || got[1][1] != 97 || got[1][29] != 13 {
		t.Errorf("%v", got[1])
	}
}

func TestADamagedSentCellIsAnError(t *testing.T) {
	b := exampleSentBytes(nil)
	for n := range len(b) {
		seen := 0
		if err := ForEachSent(b[:n], func(*Sent, []byte, int) { seen++ }); err == nil && n != sentHeaderBytes || seen > 0 {
			t.Errorf("cut to %d bytes: %v, %d records", n, err, seen)
		}
	}
	wantFault(t, 0, "magic", func() error { return ForEachSent(make([]byte, 8), nil) })
	wantFault(t, MaxSentBytes, "longer", func() error { return ForEachSent(make([]byte, MaxSentBytes+1), nil) })
	b[30] = 33
	wantFault(t, 30, "room", func() error { return ForEachSent(b, nil) })
}
