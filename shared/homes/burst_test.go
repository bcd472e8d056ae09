package homes

import (
	"testing"
	"time"
)

// TestCopiesOfAPrefixThatComesNoMoreTellNothingOfSlices: a batch of requests is sent at once, and then
// nothing that could bring the tokens to whoever is to make copies.
func TestCopiesOfAPrefixThatComesNoMoreTellNothingOfSlices(t *testing.T) {
	p := NewPlanner()
	for range 600 {
		p.Heat.Add(path(7, 5, 5, 1), 0)
	}
	failed := uint64(0)
	for now := 500 * time.Millisecond; now < 20*time.Second; now += 500 * time.Millisecond {
		p.Plan(now, workers(16, 20), []uint64{11, 12}, unknown, func(_ uint64, ref uint16) bool { return ref == 3 })
		failed = p.Counts().Failed
		if _, alone := p.LeftAlone(); alone {
			t.Fatalf("slices are left alone at %v, after %+v", now, p.Counts())
		}
	}
	if failed == 0 {
		t.Error("no copy was late")
	}
}

// TestAGatewayMakesTheCopiesOfWhatItsClientsSend: one of twenty has the prefix' clients, and only that
// one ever has the tokens.
func TestAGatewayMakesTheCopiesOfWhatItsClientsSend(t *testing.T) {
	p, makers := NewPlanner(), []uint64{}
	for m := range uint64(20) {
		makers = append(makers, m+1)
	}
	now := time.Duration(0)
	for i := range 2000 {
		now += time.Millisecond
		prefix, maker := uint64(7), uint64(5)
		if i%10 == 9 {
			maker = uint64(i)%20 + 1 // some go astray
		}
		if i%2 == 0 {
			prefix, maker = 1000+uint64(i), uint64(i)%20+1
		}
		p.Heat.AddOf(maker, path(prefix, 8, 12, uint64(i)), now)
	}
	p.Plan(now, workers(16, 20), makers, unknown, func(_ uint64, ref uint16) bool { return ref == 3 })
	all := p.Plan(now, workers(16, 20), makers, unknown, func(_ uint64, ref uint16) bool { return ref == 3 })
	if len(all) != 1 || len(all[0].Copies) == 0 {
		t.Fatalf("%+v", all)
	}
	for _, c := range all[0].Copies {
		if c.Maker != 5 {
			t.Errorf("the copy at %d is for %d to make, and 5 has the clients", c.Ref, c.Maker)
		}
	}
	// Without it another is asked.
	all = p.Plan(now+500*time.Millisecond, workers(16, 20), makers[10:], unknown, func(_ uint64, ref uint16) bool { return ref == 3 })
	if len(all) != 1 || len(all[0].Copies) == 0 || all[0].Copies[0].Maker <= 10 {
		t.Errorf("%+v", all)
	}
}
