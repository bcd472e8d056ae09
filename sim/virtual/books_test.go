package virtual

import (
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/policy"
)

// TestBooksOfOtherGatewaysAreAsOldAsTheirLastWord: a gateway knows its own dispatches at once, and
// those of the others as they were last told, however seldom workers report.
func TestBooksOfOtherGatewaysAreAsOldAsTheirLastWord(t *testing.T) {
	s, err := FindScenario("seed-16")
	if err != nil {
		t.Fatal(err)
	}
	const every, late = 40 * time.Millisecond, 15 * time.Millisecond
	var f *Fleet
	known := 0 // requests that a gateway knew the other to have
	_, err = Run(Config{
		Seed: 3, Workers: 4, Gateways: 2, Params: s.Params, Policy: policy.Default(policy.Cost),
		Delays: Delays{ReportEvery: time.Hour, BooksEvery: every, Books: late, Hop: time.Millisecond},
		Source: s.Source(3, 20, 300),
		Rule: func(made *Fleet) Rule {
			f = made
			return routeRule{}
		},
		Arrived: func(_ *Request, now time.Duration) {
			if now < late {
				return
			}
			if want := (now - late).Truncate(every); f.books.taken != want {
				t.Fatalf("at %v the word of %v is known, want that of %v", now, f.books.taken, want)
			}
			for g, gateway := range f.gateways {
				for i := range f.workers {
					gateway.refresh(i, now)
					other := f.books.own[(1-g)*len(f.workers)+i].inFlight
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
}
