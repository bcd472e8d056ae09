package books

import (
	"testing"

	"pgregory.net/rapid"
)

// TestTallyEqualsAMapOfClaims drives claims at random and compares with a
// second book kept the plain way: what each open claim owes, added up.
func TestTallyEqualsAMapOfClaims(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type owed struct {
			ref      uint16
			uncached uint32
		}
		tally := NewTally()
		claims := make([]Claim, 8)
		plain := make([]*owed, len(claims))
		ref := rapid.Uint16Range(1, 5)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			i := rapid.IntRange(0, len(claims)-1).Draw(t, "claim")
			c := &claims[i]
			switch rapid.IntRange(0, 3).Draw(t, "event") {
			case 0:
				o := &owed{ref.Draw(t, "ref"), rapid.Uint32Range(0, 1000).Draw(t, "uncached")}
				if !c.Open(tally, o.ref, o.uncached) {
					t.Fatal("not opened")
				}
				plain[i] = o
			case 1:
				to := ref.Draw(t, "to")
				c.Move(tally, to)
				if plain[i] != nil {
					plain[i].ref = to
				}
			case 2:
				c.FirstToken(tally)
				if plain[i] != nil {
					plain[i].uncached = 0
				}
			case 3:
				if closed := c.Close(tally); closed != (plain[i] != nil) {
					t.Fatalf("closed %v", closed)
				}
				plain[i] = nil
			}
			want := map[uint16]Line{}
			for _, o := range plain {
				if o != nil {
					l := want[o.ref]
					want[o.ref] = Line{o.ref, l.InFlight + 1, l.UncachedTokens + uint64(o.uncached)}
				}
			}
			if len(tally.Lines()) != len(want) {
				t.Fatalf("%v, want %v", tally.Lines(), want)
			}
			for r, l := range want {
				if got := tally.Of(r); got != l {
					t.Fatalf("worker %d: %v, want %v", r, got, l)
				}
			}
		}
	})
}

func TestAFullTallyRefusesNewWorkersOnly(t *testing.T) {
	tally := NewTally()
	for ref := range uint16(MaxWorkers) {
		if !tally.Add(ref+1, 1, 10) {
			t.Fatalf("worker %d refused", ref+1)
		}
	}
	var c Claim
	if c.Open(tally, MaxWorkers+1, 5) || c.Ref() != 0 {
		t.Error("a claim was opened in a full tally")
	}
	if !tally.Add(1, 1, 0) {
		t.Error("a worker that has a line was refused")
	}
	if !c.Open(tally, 2, 5) {
		t.Fatal("a claim on a known worker was refused")
	}
	if c.Move(tally, MaxWorkers+1) || c.Ref() != 0 {
		t.Error("a claim that finds no line must close")
	}
	if got := tally.Of(2); got.InFlight != 1 || got.UncachedTokens != 10 {
		t.Errorf("the failed move left %v", got)
	}
	tally.Reset()
	if len(tally.Lines()) != 0 || tally.Of(1).InFlight != 0 {
		t.Error("reset left something")
	}
}

func TestMoreReturnedThanTakenLeavesZero(t *testing.T) {
	tally := NewTally()
	tally.Add(3, 1, 10)
	tally.Sub(3, 5, 500)
	tally.Sub(4, 1, 1)
	if len(tally.Lines()) != 0 {
		t.Errorf("%v", tally.Lines())
	}
}
