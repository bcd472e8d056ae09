package homes

import (
	"math/rand/v2"
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

// TestGatewaysThatShareAPrefixShareItsCopies: of two with as many requests each none is the sender, in
// whatever order chance brings them; of one with nine in ten it is, and of who had it before no more.
func TestGatewaysThatShareAPrefixShareItsCopies(t *testing.T) {
	h, rng := NewHeat(), rand.New(rand.NewPCG(1, 2))
	now, alone := time.Duration(0), 0
	send := func(share float64) uint64 {
		now += 20 * time.Millisecond
		sender := uint64(11)
		if rng.Float64() >= share {
			sender = 12
		}
		h.AddOf(sender, path(7, 5, 5, 1), now)
		return h.above(1, now)[0].sender
	}
	for i := range 10_000 {
		if send(0.5) != 0 && i > 50 {
			alone++
		}
	}
	if alone > 100 {
		t.Errorf("%d of 10,000 times a gateway with half of the requests is the sender", alone)
	}
	for _, sender := range []uint64{11, 12} {
		share := 0.9
		if sender == 12 {
			share = 0.1
		}
		known := 0
		for i := range 1000 {
			if send(share) == sender && i >= 200 {
				known++
			}
		}
		if known < 700 {
			t.Errorf("%d with nine in ten of the requests is the sender %d of 800 times", sender, known)
		}
	}
}
