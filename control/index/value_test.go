package index

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// plainHeat is a heat as plain numbers: so much, at some time.
type plainHeat struct {
	value float64
	at    time.Time
}

func (h plainHeat) now(now time.Time) float64 {
	return h.value * math.Exp2(-float64(now.Sub(h.at))/float64(heatHalf))
}

// weightedPath is pathOf where a is 4 units long and b 12.
func weightedPath(text string, turnEnd int) (out []Checkpoint) {
	end := uint32(0)
	for i, c := range text {
		end += 4
		if c == 'b' {
			end += 8
		}
		out = append(out, Checkpoint{Fingerprint: fingerprintOf(text[:i+1]), End: end, TurnEnd: i == turnEnd})
	}
	return out
}

func TestAnEntryIsWorthItsRequestsItsTokensAndTheLuckOfDoingWithoutIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const workers = 4
		x := New(Config{})
		holders := map[string]map[uint16]bool{}
		heats := map[string]plainHeat{}
		for ref := uint16(1); ref <= workers; ref++ {
			x.AddWorker(WorkerSpec{Ref: ref, Pool: "p", CapacityTokens: 1 << 24})
		}
		now := epoch
		for i := range rapid.IntRange(1, 50).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(20*time.Minute)).Draw(t, "pause")))
			ref := rapid.Uint16Range(1, workers).Draw(t, "ref")
			if rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
				x.RemoveWorker(ref)
				x.AddWorker(WorkerSpec{Ref: ref, Pool: "p", CapacityTokens: 1 << 24})
				for text, refs := range holders {
					if delete(refs, ref); len(refs) == 0 {
						delete(holders, text)
						delete(heats, text)
					}
				}
				continue
			}
			text := rapid.StringMatching("[ab]{1,6}").Draw(t, "text")
			turn := rapid.IntRange(-1, len(text)-1).Draw(t, "turn end")
			x.Dispatch(Dispatch{Request: RequestID{1, uint64(i)}, Chosen: ref, PromptUnits: 1, Path: weightedPath(text, turn)}, now)
			for n := len(text); n > 0; n-- {
				if h, ok := heats[text[:n]]; ok {
					heats[text[:n]] = plainHeat{h.now(now) + 1, now}
					break
				}
			}
			for n := range len(text) {
				prefix := text[:n+1]
				if holders[prefix] == nil {
					holders[prefix], heats[prefix] = map[uint16]bool{}, plainHeat{1.0 / 32, now}
				}
				holders[prefix][ref] = true
			}
			next := text
			if turn >= 0 {
				next = text[:turn+1]
			}
			if heats[next].now(now) < 1 {
				heats[next] = plainHeat{1, now}
			}
		}
		clock := float64(now.Sub(x.store.began)) / float64(heatHalf)
		for text, refs := range holders {
			units := 4.0
			if text[len(text)-1] == 'b' {
				units = 12
			}
			want := heats[text].now(now) * units * (1 - 0.9*float64(len(refs))/workers)
			if got := math.Exp2(x.Value(fingerprintOf(text)) - clock); math.Abs(got-want) > 0.01*want {
				t.Fatalf("%q is worth %g, want %g", text, got, want)
			}
		}
		if v := x.Value(fingerprintOf("nobody")); !math.IsInf(v, -1) {
			t.Fatalf("what nobody holds is worth %g", v)
		}
	})
}

// Of the checkpoints that may go, the one that is worth least does, though it
// was used later.
func TestAtTheCapTheLeastValuableGoesFirst(t *testing.T) {
	x := New(Config{})
	for ref := uint16(1); ref <= 2; ref++ {
		x.AddWorker(WorkerSpec{Ref: ref, Pool: "p", CapacityTokens: 1 << 24})
	}
	request := func(ref uint16, text string, now time.Time) {
		lastID++
		x.Dispatch(Dispatch{Request: RequestID{1, lastID}, Chosen: ref, PromptUnits: 1, Path: pathOf(text)}, now)
	}
	for range 5 {
		request(1, "a", epoch)
	}
	request(2, "b", epoch.Add(time.Second))
	if !x.evictOldest(1) {
		t.Fatal("nothing went")
	}
	wantHolders(t, x, "a", 1)
	wantHolders(t, x, "b")
}

func TestHeatSurvivesARestart(t *testing.T) {
	x := fleet(2)
	for range 7 {
		x.request(1, "a")
	}
	x.request(2, "ab")
	snapshot := x.AppendSnapshot(nil)
	heats := func(x *Index) (out map[uint64]float64) {
		out = map[uint64]float64{}
		for _, e := range x.Top("", 10) {
			out[e.Fingerprint] = e.Heat
		}
		return out
	}
	want := heats(x)
	for _, fresh := range []bool{true, false} {
		y := New(Config{})
		if err := y.RestoreSnapshot(snapshot, fresh); err != nil {
			t.Fatal(err)
		}
		for ref := uint16(1); ref <= 2; ref++ {
			y.AddWorker(WorkerSpec{Ref: ref, Pool: "p", CapacityTokens: 1 << 20})
		}
		got := heats(y)
		if same := maps.Equal(got, want); same != fresh || len(got) != len(want) || got[fingerprintOf("a")] > 1 != fresh {
			t.Errorf("fresh %v: %v, want %v", fresh, got, want)
		}
	}
	for _, wrong := range [][]byte{snapshot[:len(snapshot)-1], append(slices.Clone(snapshot), 0)} {
		if err := New(Config{}).RestoreSnapshot(wrong, true); err == nil {
			t.Error("a damaged snapshot was taken")
		}
	}
	nan := slices.Clone(snapshot)
	binary.LittleEndian.PutUint32(nan[len(nan)-4:], math.Float32bits(float32(math.NaN())))
	if err := New(Config{}).RestoreSnapshot(nan, true); err == nil {
		t.Error("a heat that is no number was taken")
	}
}

// A table at its cap may have left an entry out: with every request that it would have served it is
// offered again, though nobody new holds it.
func TestAnEntryThatIsAskedForIsOfferedToTheTableAgain(t *testing.T) {
	x := New(Config{})
	x.AddWorker(WorkerSpec{Ref: 1, Pool: "p", CapacityTokens: 1 << 24})
	offered := func() (all []uint64) {
		x.Drain(func(c Change) { all = append(all, c.Fingerprint) })
		return all
	}
	ask := func(id uint64, text string) {
		x.Dispatch(Dispatch{Request: RequestID{1, id}, Chosen: 1, PromptUnits: 1, Path: weightedPath(text, 0)}, epoch)
	}
	ask(1, "aab")
	if n := len(offered()); n != 3 {
		t.Fatalf("%d entries offered of 3", n)
	}
	ask(2, "aab")
	if all := offered(); !slices.Equal(all, []uint64{fingerprintOf("aab")}) {
		t.Errorf("%x are offered again, want %x: the longest match", all, fingerprintOf("aab"))
	}
}
