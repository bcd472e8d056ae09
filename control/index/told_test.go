package index

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestWhatAWorkerNamesIsHeldAndProven(t *testing.T) {
	x := fleet(2)
	x.Told(1, pathOf("abc"), epoch)
	x.Told(9, pathOf("abc"), epoch) // nobody
	wantHolders(t, x, "abc", 1)
	// It was proven, so that a miss is one.
	d := complete(x.request(1, "abc"), 1)
	d.PredictedTokens, d.CachedTokens, d.PromptTokens = 192, 0, 192
	x.Done(d, epoch)
	if s, _ := x.Worker(1, epoch); s.Trust >= 1 {
		t.Errorf("%+v", s)
	}
	x.ToldGone(1, fingerprintOf("ab"))
	wantHolders(t, x, "abc")
	wantHolders(t, x, "ab")
	wantHolders(t, x, "a", 1)
	x.ToldEmpty(1)
	if s := x.Stats(); s.Nodes != 0 || s.Told != 3 || s.Withdrawn != 3 {
		t.Errorf("%+v", s)
	}
	x.Told(1, []Checkpoint{{Fingerprint: 5, End: 0}}, epoch)
	if s := x.Stats(); s.Malformed != 1 || s.Nodes != 0 {
		t.Errorf("%+v", s)
	}
}

func TestACompleteListIsTheTruthForAWhile(t *testing.T) {
	x := fleet(1)
	x.ToldAll(1, [][]Checkpoint{pathOf("abc")}, epoch)
	if s := x.Stats(); s.Nodes != 0 {
		t.Error("taken without Reporting")
	}
	x.Reporting(1, true, epoch)
	x.ToldAll(1, [][]Checkpoint{pathOf("abc"), pathOf("abd"), pathOf("xy")}, epoch)
	x.request(1, "abcq") // on its way while the next list was written
	x.ToldAll(1, [][]Checkpoint{pathOf("abd")}, epoch)
	for text, held := range map[string]bool{"abd": true, "ab": true, "a": true, "abc": true, "abcq": true, "xy": false, "x": false} {
		if got := len(x.holders(text)) == 1; got != held {
			t.Errorf("%q held: %v", text, got)
		}
	}
	x.Tick(epoch.Add(unansweredFor))
	wantHolders(t, x, "abcq")
	x.ToldAll(1, [][]Checkpoint{pathOf("abd")}, epoch)
	wantHolders(t, x, "abc")
	wantHolders(t, x, "abd", 1)
}

// Whatever lists come, the last one is what is held, with all that is before it.
func TestTheLastCompleteListIsWhatIsHeld(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := fleet(1)
		x.Reporting(1, true, epoch)
		text := rapid.StringMatching(`[ab]{1,5}`)
		want := map[string]bool{}
		for range rapid.IntRange(1, 6).Draw(t, "lists") {
			clear(want)
			var paths [][]Checkpoint
			for _, s := range rapid.SliceOfN(text, 0, 6).Draw(t, "list") {
				paths = append(paths, pathOf(s))
				for end := 1; end <= len(s); end++ {
					want[s[:end]] = true
				}
			}
			x.ToldAll(1, paths, epoch.Add(time.Second))
		}
		if got := x.Stats().Nodes; got != len(want) {
			t.Fatalf("%d held, want %d", got, len(want))
		}
		for s := range want {
			if len(x.holders(s)) != 1 {
				t.Fatalf("%q isn't held", s)
			}
		}
	})
}
