package spread

import "testing"

func TestCoVIsNoneForEqualsAndOneForAllOrNothing(t *testing.T) {
	if got := CoV([]float64{1, 1, 1}); got != 0 {
		t.Error(got)
	}
	if got := CoV([]float64{0, 2}); got != 1 {
		t.Error(got)
	}
	if got := CoV(nil); got != 0 {
		t.Error(got)
	}
}
