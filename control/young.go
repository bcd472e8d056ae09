package control

import (
	"sync"
	"time"

	"github.com/warmpath/warmpath/control/discovery"
)

// nearlyAll of a cache that goes leaves it as good as empty.
const nearlyAll = 0.9

// youngBook remembers whose cache was empty when: of the workers that joined or came back while
// the service was looking, and of those that have dropped all. Who was there before it began is
// not young: nobody knows what its cache holds.
type youngBook struct {
	mu    sync.Mutex
	empty map[uint16]time.Time
	evict map[uint16]time.Time // end of an eviction of everything
}

func newYoungBook() *youngBook {
	return &youngBook{empty: map[uint16]time.Time{}, evict: map[uint16]time.Time{}}
}

// joined notes a new ref.
func (b *youngBook) joined(ref uint16, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.empty[ref] = now
}

// retired forgets a ref.
func (b *youngBook) retired(ref uint16) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.empty, ref)
	delete(b.evict, ref)
}

// at is when the worker's cache was empty, zero for not known. Call it with every round of loads:
// the cache of a worker that takes no requests yet stays empty, and an eviction of all of it that
// is over leaves it so.
func (b *youngBook) at(w *discovery.Worker, now time.Time) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.EvictShare >= nearlyAll && w.EvictUntil.After(now) {
		b.evict[w.Ref] = w.EvictUntil
	} else if end, ok := b.evict[w.Ref]; ok {
		delete(b.evict, w.Ref)
		if !end.After(now) || w.EvictUntil.IsZero() { // over, or said to be
			b.empty[w.Ref] = now
		}
	}
	if _, young := b.empty[w.Ref]; young && w.State != discovery.Healthy {
		b.empty[w.Ref] = now
		return time.Time{}
	}
	return b.empty[w.Ref]
}

// workerAdded takes a new ref in. One that comes while the table is handed out is young.
func (s *Service) workerAdded(w discovery.Worker) {
	s.index.AddWorker(workerSpec(w))
	s.restartFeed(w.Ref)
	select {
	case <-s.serving:
		s.young.joined(w.Ref, time.Now())
	default:
	}
	kick(s.dirty)
}
