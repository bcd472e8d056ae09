package virtual

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/policy"
)

// telling plays words of gateways that dispatch at such times, one after the other, and tells after
// how long the others know of each dispatch.
func telling(t *testing.T, d Delays, workers, gateways int, at []time.Duration) (late []time.Duration) {
	t.Helper()
	f := &Fleet{cfg: Config{Delays: d}, workers: make([]*worker, workers)}
	for g := range gateways {
		f.gateways = append(f.gateways, &Gateway{Index: g, own: make([]book, workers)})
	}
	f.books = newBooks(workers, gateways)
	f.speak()
	for _, now := range at {
		f.at(now, event{kind: arrive})
	}
	sent := make([][]time.Duration, gateways)
	known := make([]int, gateways)
	for n := 0; len(f.events.heap) > 0 && len(late) < len(at); {
		e := f.events.pop()
		f.now = e.at
		if e.kind == arrive {
			g := n % gateways
			n++
			f.gateways[g].own[0].inFlight++
			sent[g] = append(sent[g], f.now)
			f.tellBooks(g)
			continue
		}
		f.word(&e)
		for g := range gateways {
			for ; known[g] < f.books.of(g)[0].inFlight; known[g]++ {
				late = append(late, f.now-sent[g][known[g]])
			}
		}
	}
	if len(late) < len(at) {
		t.Fatalf("others heard of %d of %d dispatches", len(late), len(at))
	}
	return late
}

// TestOthersKnowOfADispatchAtOnceUnlessSomethingWasJustSaid: a gateway tells at once and then not
// before its pause is over, and so does control.
func TestOthersKnowOfADispatchAtOnceUnlessSomethingWasJustSaid(t *testing.T) {
	const ms = time.Millisecond
	d := Delays{Books: 4 * ms, BooksEvery: 25 * ms}
	for _, c := range []struct {
		what     string
		gateways int
		at, want []time.Duration
	}{
		{"each alone", 2, []time.Duration{0, 100 * ms, 200 * ms}, []time.Duration{4 * ms, 4 * ms, 4 * ms}},
		{"the gateway has just told", 1, []time.Duration{0, 5 * ms, 20 * ms}, []time.Duration{4 * ms, 24 * ms, 9 * ms}},
		{"control has just passed another's word on", 2, []time.Duration{0, 5 * ms}, []time.Duration{4 * ms, 24 * ms}},
		{"the pause is over", 1, []time.Duration{0, 25 * ms}, []time.Duration{4 * ms, 4 * ms}},
	} {
		if got := telling(t, d, 1, c.gateways, c.at); !slices.Equal(got, c.want) {
			t.Errorf("%s: dispatches at %v are known after %v, want %v", c.what, c.at, got, c.want)
		}
	}
}

// TestInALargeFleetControlTellsOfBooksHalfAsOften: 64 workers' loads go along with every word of control,
// more of them after twice the time. What workers will hold is told as often in either.
func TestInALargeFleetControlTellsOfBooksHalfAsOften(t *testing.T) {
	const ms = time.Millisecond
	d := Delays{Books: 4 * ms, BooksEvery: 25 * ms, Prediction: 6 * ms}
	at := []time.Duration{0, 5 * ms, 60 * ms}
	for workers, want := range map[int][]time.Duration{
		// The word of 5 ms is with control at 7, where one was passed on at 2.
		64: {4 * ms, 24 * ms, 4 * ms},
		65: {4 * ms, 49 * ms, 44 * ms},
	} {
		if got := telling(t, d, workers, 2, at); !slices.Equal(got, want) {
			t.Errorf("with %d workers dispatches at %v are known after %v, want %v", workers, at, got, want)
		}
	}
	for _, workers := range []int{64, 65} {
		f := &Fleet{cfg: Config{Delays: d}, workers: make([]*worker, workers)}
		f.gateways = []*Gateway{{own: make([]book, workers)}}
		f.books = newBooks(workers, 1)
		f.speak()
		var told []time.Duration
		for n := 0; n < 4; {
			f.tellBooks(0)
			e := f.events.pop()
			if f.now = e.at; e.kind == passNews {
				told = append(told, f.now)
				n++
			}
			f.word(&e)
		}
		if want := []time.Duration{2 * ms, 27 * ms, 52 * ms, 77 * ms}; !slices.Equal(told, want) {
			t.Errorf("with %d workers predictions are passed on at %v, want %v", workers, told, want)
		}
	}
}

// TestWordsTakeAsLongAsTheyWereMeasuredLive: with two gateways that dispatch at random. A prediction goes the
// same way, and bench-delays measured it (quartiles 4.6, 15.7, 26.7 ms at -rate 40, and 19.6, 26.8, 32.5 at 149
// with engines that compute nothing).
func TestWordsTakeAsLongAsTheyWereMeasuredLive(t *testing.T) {
	d := DefaultDelays()
	for _, live := range []struct{ rate, median float64 }{{40, 15.7}, {149, 26.8}} {
		rng := rand.New(rand.NewPCG(1, 2))
		var at []time.Duration
		for now := 0.0; len(at) < 4000; now += rng.ExpFloat64() / live.rate {
			at = append(at, time.Duration(now*float64(time.Second)))
		}
		late := telling(t, d, 1, 2, at)
		slices.Sort(late)
		got, want := late[len(late)/2], time.Duration(live.median*float64(time.Millisecond))
		if got < want*3/4 || got > want*5/4 {
			t.Errorf("at %v/s half of the dispatches are known after %v, measured %v", live.rate, got, want)
		}
		if least := late[0]; least != d.Books {
			t.Errorf("the first is known after %v, want %v", least, d.Books)
		}
	}
}

// TestEndsAreToldWithTheNextDispatchOrAfterAWhile: nothing hurries a gateway to tell what has ended.
func TestEndsAreToldWithTheNextDispatchOrAfterAWhile(t *testing.T) {
	const ms = time.Millisecond
	f := &Fleet{cfg: Config{Delays: Delays{Books: 4 * ms, BooksEvery: 25 * ms, EndsEvery: 250 * ms}}, workers: make([]*worker, 1)}
	f.gateways = []*Gateway{{own: []book{{inFlight: 1, uncached: 100}}}}
	f.books = newBooks(1, 1)
	f.speak()
	var seen []time.Duration
	for f.now < 600*ms {
		e := f.events.pop()
		f.now = e.at
		before := f.books.total[0]
		f.word(&e)
		if after := f.books.total[0]; after.inFlight != before.inFlight || after.uncached != before.uncached {
			seen = append(seen, f.now)
			f.gateways[0].own[0] = book{} // ends as soon as it is known
		}
	}
	if want := []time.Duration{4 * ms, 254 * ms}; !slices.Equal(seen, want) {
		t.Errorf("a request and its end are known at %v, want %v", seen, want)
	}
}

// TestAGatewaySeesItsOwnDispatchesAndWhatOthersToldOfTheirs: however seldom workers report.
func TestAGatewaySeesItsOwnDispatchesAndWhatOthersToldOfTheirs(t *testing.T) {
	s, err := FindScenario("seed-16")
	if err != nil {
		t.Fatal(err)
	}
	const every, late = 40 * time.Millisecond, 15 * time.Millisecond
	var f *Fleet
	known, oldest := 0, time.Duration(0) // requests that a gateway knew the other to have
	_, err = Run(Config{
		Seed: 3, Workers: 4, Gateways: 2, Params: s.Params, Policy: policy.Default(policy.Cost),
		Delays: Delays{ReportEvery: time.Hour, BooksEvery: every, EndsEvery: 100 * time.Millisecond, Books: late, Hop: time.Millisecond},
		Source: s.Source(3, 20, 300),
		Rule: func(made *Fleet) Rule {
			f = made
			return routeRule{}
		},
		Arrived: func(_ *Request, now time.Duration) {
			oldest = max(oldest, now-f.books.passed)
			for g, gateway := range f.gateways {
				for i := range f.workers {
					gateway.refresh(i, now)
					other := f.books.of(1 - g)[i].inFlight
					if got := gateway.view.Workers[i].InFlight; got != gateway.own[i].inFlight+other {
						t.Fatalf("gateway %d sees %d at worker %d: its own %d, the other told of %d", g, got, i, gateway.own[i].inFlight, other)
					}
					known += other
				}
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if known == 0 {
		t.Fatal("no gateway ever knew of the other: the test tests nothing")
	}
	if most := 100*time.Millisecond + late + every; oldest > most {
		t.Errorf("a gateway's latest word was %v old, want %v at most", oldest, most)
	}
}
