package virtual

import (
	"cmp"
	"slices"
	"time"

	"github.com/warmpath/warmpath/shared/route"
)

type eventKind uint8

const (
	arrive eventKind = iota
	submit
	wake
	takeReport
	giveReport
	tellEnds
	takeBooks
	hearBooks
	passNews
	passBooks
	giveBooks
	faultEvent
	countBusy
	planHomes
	giveHomes
	submitSlice
	answerSlice
)

type event struct {
	at      time.Duration
	seq     uint64
	kind    eventKind
	open    bool
	worker  int
	request *Request
	report  *report
	books   *books
	homes   []route.Home
	wanted  []wantedCopy
	copying *copying

	predictions []prediction
}

// eventQueue is a binary heap by time, then by order of setting: equal times
// must not depend on anything else.
type eventQueue struct {
	heap []event
	seq  uint64
}

func (f *Fleet) at(t time.Duration, e event) {
	q := &f.events
	q.seq++
	e.at, e.seq = t, q.seq
	q.heap = append(q.heap, e)
	i := len(q.heap) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !q.heap[i].before(&q.heap[parent]) {
			break
		}
		q.heap[i], q.heap[parent] = q.heap[parent], q.heap[i]
		i = parent
	}
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

func (q *eventQueue) pop() event {
	top := q.heap[0]
	last := len(q.heap) - 1
	q.heap[0] = q.heap[last]
	q.heap[last] = event{}
	q.heap = q.heap[:last]
	for i := 0; ; {
		least := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < last && q.heap[child].before(&q.heap[least]) {
				least = child
			}
		}
		if least == i {
			return top
		}
		q.heap[i], q.heap[least] = q.heap[least], q.heap[i]
		i = least
	}
}

func sortRequests(all []*Request) {
	slices.SortFunc(all, func(a, b *Request) int { return cmp.Compare(a.ID, b.ID) })
}
