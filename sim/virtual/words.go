package virtual

import (
	"slices"
	"time"
)

// What a gateway has in flight reaches the others by the control service, as live. A dispatch has
// its gateway say at once what it has in flight, but so long after its last word at the earliest
// (Delays.BooksEvery); what has ended since is part of it, and by itself it is told more seldom
// (Delays.EndsEvery). Control passes on at once what it hears, with the same pause between two
// words, or twice that in a large fleet (betweenBooks). So in a quiet fleet a dispatch is known after
// Delays.Books, and in a busy one the pauses come on top. What the worker will hold goes with the same
// words of the gateway, is passed on with the same pause in fleets of all sizes, and is in the tables
// Delays.Prediction after a dispatch.

// books is what all gateways have at all workers, as they told control of it.
type books struct {
	passed time.Duration // when control passed it on
	total  []book        // by worker
	own    []book        // of gateway g at worker i: g times the number of workers, plus i
}

func newBooks(workers, gateways int) *books {
	return &books{total: make([]book, workers), own: make([]book, workers*gateways)}
}

// of is what control heard of gateway g, by worker.
func (b *books) of(g int) []book { return b.own[g*len(b.total):][:len(b.total)] }

// others is what gateways but g have at worker i.
func (b *books) others(g, i int) (out book) {
	total, own := &b.total[i], &b.of(g)[i]
	return book{
		inFlight: max(0, total.inFlight-own.inFlight), uncached: max(0, total.uncached-own.uncached),
		recent: max(0, total.recent-own.recent),
	}
}

// words is how gateways tell control of their books, and control the gateways.
type words struct {
	heard    *books // by control
	gateways []pause
	// Control's: before it passes on predictions, and before books.
	news, books pause
	fader       fader
	// What nobody was told yet is with its gateway, or with control.
	predictions [][]prediction
	passing     []prediction
}

// pause is what lies between two words of one side.
type pause struct {
	next time.Duration // when the next may be
	due  bool          // it is on its way
}

// word says when something that is to be told now is told; false if a word is due anyway.
func (p *pause) word(now, every time.Duration) (at time.Duration, ok bool) {
	if p.due {
		return 0, false
	}
	at = max(now, p.next)
	p.next, p.due = at+every, true
	return at, true
}

// fewWorkers have loads that control publishes along with table entries. They weigh little beside these,
// and the books are in them.
const fewWorkers = 64

// betweenBooks is the least time between two words of control that tell of books. With the intervals that
// it is shipped with it is 50 ms where that between two of entries is 25.
func (f *Fleet) betweenBooks() time.Duration {
	if len(f.workers) > fewWorkers {
		return 2 * f.cfg.Delays.BooksEvery
	}
	return f.cfg.Delays.BooksEvery
}

// speak lets gateways tell control of their books from now on.
func (f *Fleet) speak() {
	f.words = &words{heard: newBooks(len(f.workers), len(f.gateways)), gateways: make([]pause, len(f.gateways)), predictions: make([][]prediction, len(f.gateways))}
	if every := f.cfg.Delays.EndsEvery; every > 0 {
		for g := range f.gateways {
			f.at(every*time.Duration(g)/time.Duration(len(f.gateways)), event{kind: tellEnds, worker: g})
		}
	}
}

// tellBooks has a gateway tell control what it has in flight, as soon as may be.
func (f *Fleet) tellBooks(gateway int) {
	if f.words == nil {
		return
	}
	if at, ok := f.words.gateways[gateway].word(f.now, f.cfg.Delays.BooksEvery); ok {
		f.at(at, event{kind: takeBooks, worker: gateway})
	}
}

// predict has a gateway tell what a worker will hold with its next word.
func (f *Fleet) predict(gateway int, p prediction) {
	switch {
	case len(p.positions) == 0:
	case f.words == nil:
		f.index.tell(f.now+f.cfg.Delays.Prediction, []prediction{p})
	default:
		f.words.predictions[gateway] = append(f.words.predictions[gateway], p)
	}
}

// word takes a word on: from a gateway to control, and from there to all gateways.
func (f *Fleet) word(e *event) {
	d, w := &f.cfg.Delays, f.words
	half := d.Books / 2
	switch e.kind {
	case tellEnds:
		f.tellBooks(e.worker)
		f.at(f.now+d.EndsEvery, event{kind: tellEnds, worker: e.worker})
	case takeBooks:
		w.gateways[e.worker].due = false
		f.at(f.now+half, event{
			kind: hearBooks, worker: e.worker, books: &books{own: slices.Clone(f.gateways[e.worker].own)},
			predictions: w.predictions[e.worker],
		})
		w.predictions[e.worker] = nil
	case hearBooks:
		copy(w.heard.of(e.worker), e.books.own)
		w.passing = append(w.passing, e.predictions...)
		if at, ok := w.news.word(f.now, d.BooksEvery); ok {
			f.at(at, event{kind: passNews})
		}
		if at, ok := w.books.word(f.now, f.betweenBooks()); ok {
			f.at(at, event{kind: passBooks})
		}
	case passNews:
		w.news.due = false
		if len(w.passing) > 0 {
			f.index.tell(f.now+max(0, d.Prediction-half), w.passing)
			w.passing = w.passing[:0]
		}
	case passBooks:
		w.books.due = false
		f.at(f.now+d.Books-half, event{kind: giveBooks, books: w.pass(f.now)})
	case giveBooks:
		f.books = e.books
	}
}

// pass is what control has heard, added up.
func (w *words) pass(now time.Duration) *books {
	b := &books{passed: now, total: make([]book, len(w.heard.total)), own: slices.Clone(w.heard.own)}
	for at := range b.own {
		own, total := &b.own[at], &b.total[at%len(b.total)]
		own.fade(now, &w.fader)
		total.inFlight += own.inFlight
		total.uncached += own.uncached
		total.recent += own.recent
	}
	return b
}
