package books

import (
	"math"
	"testing"
)

const second = int64(1e9)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a)) }

// TestRecentWorkFadesAlikeWhateverTheTimeOfLooking: the ratio of two workers'
// sums is the same as of any time, so a view may keep them as of its reports.
func TestRecentWorkFadesAlikeWhateverTheTimeOfLooking(t *testing.T) {
	r := NewRecent()
	r.Add(1, 1000, 0)
	r.Add(2, 1000, 10*second)
	r.Add(1, 500, 20*second)
	want := (1000*math.Exp(-2) + 500) / (1000 * math.Exp(-1))
	for _, at := range []int64{0, 7 * second, 20 * second, 60 * second} {
		if got := r.Of(1, at) / r.Of(2, at); !near(got, want) {
			t.Errorf("as of %d s: ratio %v, want %v", at/second, got, want)
		}
	}
	if got := r.Of(2, 20*second); !near(got, 1000*math.Exp(-1)) {
		t.Errorf("10 s later %v is left of 1000", got)
	}
}

func TestRecentWorkThatWentElsewhereIsTakenBackToNothingAtMost(t *testing.T) {
	r := NewRecent()
	r.Add(1, -5, 0)
	r.Add(1, 1000, 0)
	r.Add(1, -400, 0)
	if got := r.Of(1, 0); got != 600 {
		t.Errorf("%v left of 1000 - 400", got)
	}
	r.Add(1, -4000, 0)
	if got := r.Of(1, 0); got != 0 {
		t.Errorf("%v left of nothing", got)
	}
}

func TestRecentWorkIsBoundedAndForgetsTheLeast(t *testing.T) {
	r := NewRecent()
	for ref := range uint16(MaxWorkers) {
		r.Add(ref+1, 100+float64(ref), 0)
	}
	r.Add(5000, 1e6, second)
	if r.Of(1, second) != 0 || r.Of(2, second) == 0 || r.Of(5000, second) != 1e6 || len(r.lines) != MaxWorkers {
		t.Errorf("first %v, second %v, new %v, lines %d", r.Of(1, second), r.Of(2, second), r.Of(5000, second), len(r.lines))
	}
	for _, line := range r.lines {
		if r.Of(line.ref, second) != line.worth(second) {
			t.Fatalf("ref %d is not found at its line", line.ref)
		}
	}
}

func TestAClockThatJumpsKeepsRecentWorkFinite(t *testing.T) {
	r := NewRecent()
	r.Add(1, 1000, math.MaxInt64/2)
	for _, at := range []int64{0, math.MaxInt64 / 2, math.MaxInt64} {
		if got := r.Of(1, at); math.IsInf(got, 0) || math.IsNaN(got) || got <= 0 {
			t.Errorf("as of %d: %v", at, got)
		}
	}
}
