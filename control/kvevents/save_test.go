package kvevents

import (
	"encoding/binary"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/google/go-cmp/cmp"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// reborn saves a map and restores it into a new one.
func reborn(t interface{ Fatal(...any) }, m *Map, held Sink) *Map {
	before := Source{stream: stream{m: m, known: true}, savedCounts: StreamCounts{Batches: 1}}
	saved, ok := before.AppendSave(nil, "me", benchTime)
	if !ok {
		t.Fatal("not saved")
	}
	after := NewSource(Endpoint{}, m.cfg, held, nil, quiet)
	after.SetAdapters(m.generations)
	if _, err := after.Restore(saved, "me"); err != nil {
		t.Fatal(err)
	}
	return after.stream.m
}

// saved is a source that followed a recording, and what it saves.
func saved(t testing.TB) (*Source, []byte) {
	s := NewSource(Endpoint{}, Config{Pool: "pool", TurnEnds: []uint32{7}}, newLedger(), nil, quiet)
	for i, name := range recorded(t, "evict/*.bin")[:12] {
		if v, err := s.stream.take(uint64(i), payload(t, name), false); v != applied || err != nil {
			t.Fatal(name, v, err)
		}
	}
	b, ok := s.AppendSave(nil, "me", benchTime)
	if !ok {
		t.Fatal("not saved")
	}
	return s, b
}

func TestARestoredSourceGoesOnWhereItStood(t *testing.T) {
	before, b := saved(t)
	held := newLedger()
	after := NewSource(Endpoint{}, before.stream.m.cfg, held, nil, quiet)
	from, err := after.Restore(b, "me")
	if err != nil {
		t.Fatal(err)
	}
	was, is := before.Status(), after.Status()
	if !from.At.Equal(benchTime) || from.Next != 12 || from.Blocks != was.Map.Blocks || is.Next != 12 || is.Map.Held != was.Map.Held || is.Map.BlockTokens != 32 {
		t.Errorf("%+v, %+v, was %+v", from, is, was)
	}
	for i, name := range recorded(t, "evict/*.bin")[12:] {
		if v, err := after.stream.take(uint64(12+i), payload(t, name), false); v != applied || err != nil {
			t.Fatal(name, v, err)
		}
	}
	if c := after.Status().Map; c.UnknownParent+c.UnknownRemoved != 0 || c.Blocks != 4 || held.bad != "" || len(held.held) != 2 {
		t.Errorf("%+v, %d held, %s", c, len(held.held), held.bad)
	}
}

func TestNothingIsSavedTwice(t *testing.T) {
	s, b := saved(t)
	if _, ok := s.AppendSave(nil, "me", benchTime); ok {
		t.Error("saved again though nothing happened")
	}
	after := NewSource(Endpoint{}, s.stream.m.cfg, nobody{}, nil, quiet)
	if _, ok := after.AppendSave(nil, "me", benchTime); ok {
		t.Error("saved though nothing is known")
	}
	if _, err := after.Restore(b, "me"); err != nil {
		t.Fatal(err)
	}
	if _, ok := after.AppendSave(nil, "me", benchTime); ok {
		t.Error("saved though the file says the same")
	}
}

func TestADamagedSaveIsRefusedWholeAndTheSourceIsAsNew(t *testing.T) {
	_, b := saved(t)
	refuses := func(what, identity, want string, b []byte) {
		t.Helper()
		held := newLedger()
		s := NewSource(Endpoint{}, Config{Pool: "pool"}, held, nil, quiet)
		_, err := s.Restore(b, identity)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", what, err)
		}
		if st := s.Status(); st.Next != 0 || st.Map.Blocks != 0 || len(held.held) != 0 || s.stream.known {
			t.Errorf("%s: something stayed: %+v", what, st)
		}
	}
	refuses("another process", "you", "another process", b)
	for n := range len(b) {
		refuses("cut", "me", "", b[:n])
	}
	for i := range b {
		flipped := slices.Clone(b)
		flipped[i] ^= 0x10
		refuses("a bit flipped", "me", "", flipped)
	}
	future := slices.Clone(b)
	future[4] = 9
	refuses("version 9", "me", "version 9, this program reads 2", future)
	// With a checksum that is right, as a wrong program would write it.
	sum := func(b []byte) []byte {
		return binary.LittleEndian.AppendUint64(b[:len(b)-8], xxhash.Sum64(b[:len(b)-8]))
	}
	adapters := saveFixed + len("me")
	first := adapters + 4
	for what, c := range map[string]struct {
		at   int
		to   byte
		want string
	}{
		"adapters": {adapters + 1, 200, "adapters"},
		"salt":     {first + saveBlock + 4 + 8, 9, "a salt is not of this block"},
		"medium":   {first + 9, 64, "no such medium"},
		"parent":   {first + 8, savedNext, "its parent comes later"},
		"tokens":   {first + 8, 0, ""},
		"more":     {44, 200, ""},
		"fewer":    {44, 1, "bytes behind the end"},
		"too many": {46, 200, "at most"},
	} {
		wrong := slices.Clone(b)
		wrong[c.at] = c.to
		refuses(what, "me", c.want, sum(wrong))
	}
}

func TestWhatWasLostForGoodIsKeptAndDoubted(t *testing.T) {
	e := newEngine(t)
	s := NewSource(e.endpoint(), Config{Pool: "pool"}, newLedger(), nil, quiet)
	for i := range 2 {
		e.publish(prompt(float64(i+1), i), true)
		if _, err := s.stream.take(uint64(i), prompt(float64(i+1), i), false); err != nil {
			t.Fatal(err)
		}
	}
	b, _ := s.AppendSave(nil, "me", benchTime)
	// Meanwhile more is published than the replay reaches back.
	for i := 2; i < 9; i++ {
		e.publish(prompt(float64(i+1), i), true)
	}
	for i := range 5 {
		e.buffer[i] = nil
	}
	told := make(chan struct{}, 1)
	doubts := 0
	after := NewSource(e.endpoint(), s.stream.m.cfg, newLedger(), func() {
		select {
		case told <- struct{}{}:
		default:
		}
	}, quiet)
	after.OnDoubt(func() { doubts++ })
	if _, err := after.Restore(b, "me"); err != nil {
		t.Fatal(err)
	}
	run(t, after)
	st := until(t, after, told, "the replay", func(st SourceStatus) bool { return st.Next == 9 })
	if st.Lost != 3 || st.Map.Held != 4*6 || st.Problem == "" || doubts != 1 {
		t.Errorf("%d doubts, %+v", doubts, st)
	}
	if diff := cmp.Diff([]uint64{1}, e.asked); diff != "" {
		t.Error("asked for another batch than the last one applied:", diff)
	}
}

func TestARestoredSourceSeesThatTheEngineIsAnother(t *testing.T) {
	for name, published := range map[string]int{"fewer batches": 1, "as many": 2, "more": 4} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			before := NewSource(e.endpoint(), Config{Pool: "pool"}, newLedger(), nil, quiet)
			for i := range 2 {
				if _, err := before.stream.take(uint64(i), prompt(float64(i+1), i), false); err != nil {
					t.Fatal(err)
				}
			}
			b, _ := before.AppendSave(nil, "me", benchTime)
			for i := range published {
				e.publish(prompt(10+float64(i), 10+i), true)
			}
			held := newLedger()
			told := make(chan struct{}, 1)
			s := NewSource(e.endpoint(), before.stream.m.cfg, held, func() {
				select {
				case told <- struct{}{}:
				default:
				}
			}, quiet)
			if _, err := s.Restore(b, "me"); err != nil {
				t.Fatal(err)
			}
			run(t, s)
			st := until(t, s, told, "the new process", func(st SourceStatus) bool { return st.Restarts == 1 && st.Next == uint64(published) })
			if st.Map.Held != 4*published || len(held.held) != published {
				t.Errorf("%+v, %d held", st, len(held.held))
			}
		})
	}
}

// FuzzRestore: whatever a file says under a right checksum, it is refused or the
// map can be used.
func FuzzRestore(f *testing.F) {
	_, b := saved(f)
	f.Add(b[8 : len(b)-8])
	f.Add(b[8 : saveFixed+2])
	tokens := make([]uint32, 64)
	f.Fuzz(func(t *testing.T, middle []byte) {
		b := binary.LittleEndian.AppendUint32([]byte(saveMagic), saveVersion)
		b = append(b, middle...)
		b = binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b))
		s := NewSource(Endpoint{}, Config{Pool: "pool", MaxBlocks: 1 << 16}, nobody{}, nil, quiet)
		if _, err := s.Restore(b, "me"); err != nil {
			return
		}
		m := s.stream.m
		size := m.tokens.size
		for id := uint32(1); id < m.nodes.used && id < 64 && size > 0; id++ {
			e := Event{Kind: Stored, Hashes: []uint64{1<<60 + uint64(id)}, HasParent: true, Parent: m.nodes.at(id).hash, Tokens: slices.Repeat(tokens[:1], size), BlockSize: size, Medium: GPU, FullAttention: true, Group: -1, Opaque: 1}
			m.Apply(&Batch{Events: []Event{e, {Kind: Removed, Hashes: []uint64{e.Parent}, Medium: GPU, Group: -1}}})
		}
	})
}

// BenchmarkSave reports what a save of 60,000 blocks takes: the time in which
// batches wait, and the bytes of a block on disk.
func BenchmarkSave(b *testing.B) {
	s := NewSource(Endpoint{}, Config{Pool: "pool"}, nobody{}, nil, quiet)
	for i, data := range traffic(2000, 16) {
		if _, err := s.stream.take(uint64(i), data, false); err != nil {
			b.Fatal(err)
		}
	}
	var out []byte
	b.Run("save", func(b *testing.B) {
		for b.Loop() {
			s.savedCounts = StreamCounts{}
			out, _ = s.AppendSave(out[:0], "me", time.Time{})
		}
		b.ReportMetric(float64(len(out))/60_000, "bytes/block")
	})
	b.Run("restore", func(b *testing.B) {
		for b.Loop() {
			if _, err := NewSource(Endpoint{}, s.stream.m.cfg, nobody{}, nil, quiet).Restore(out, "me"); err != nil {
				b.Fatal(err)
			}
		}
	})
}
