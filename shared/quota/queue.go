package quota

import "container/heap"

// Waiter is one request that waits for a slot. It belongs to the caller, and is
// in one Queue at most.
type Waiter struct {
	Tenant uint16
	// Work is what the request is expected to cost, in uncached tokens.
	Work float64
	// Bytes are held for it outside of the queue.
	Bytes int
	// Arrived and Deadline are times of the caller's clock.
	Arrived, Deadline int64
	// Owner is whatever the caller wants to find the request by.
	Owner any

	start        float64 // virtual time at which its turn comes
	cost         float64 // virtual time that it takes
	sequence     uint64
	queue        *Queue
	prev, next   *Waiter // of its tenant, in the order of their coming
	older, newer *Waiter // of the queue
}

// Waits tells whether the request is in a queue.
func (w *Waiter) Waits() bool { return w.queue != nil }

// Cost is the virtual time that its work takes at its tenant's weight. A caller
// that keeps the tenant's finish time takes it back from there when the request
// gave up: what was not served is not charged.
func (w *Waiter) Cost() float64 { return w.cost }

// Start is the virtual time at which its turn comes: of two that could be
// served, the one with the lower goes first, whichever queue it waits in.
func (w *Waiter) Start() float64 { return w.start }

// Queue is the requests of one class that wait for a slot.
//
// Slots go round by start-time fair queueing (P. Goyal, H. Vin, H. Cheng,
// SIGCOMM 1996): the next request of a tenant starts, in virtual time, when the
// work of those before it is done at the tenant's weight, and not before the
// queue's virtual time, so that nobody saves up by being idle. Over any time in
// which two tenants have requests waiting, the work they get in proportion to
// their weights differs by one request of each at most. Within a tenant the
// order is first come, first served. A tenant that could not use a slot now is
// blocked and steps aside for the others.
//
// Where several queues share their slots (the VMs of one gateway), each of them
// advances Virtual to the others', and the caller keeps the tenants' finish
// times for all of them.
type Queue struct {
	// Virtual is the start of the last request that was taken.
	Virtual float64

	requests, maxRequests int
	bytes, maxBytes       int64
	sequence              uint64
	flows                 map[uint16]*flow
	weights               float64 // of all flows
	ready                 flows
	oldest, newest        *Waiter
}

// flow is the waiting requests of one tenant, never none.
type flow struct {
	first, last *Waiter
	n           int
	weight      float64
	at          int // in Queue.ready, -1 while blocked
}

// NewQueue makes an empty queue of at most so many requests and bytes.
func NewQueue(maxRequests int, maxBytes int64) *Queue {
	q := &Queue{flows: map[uint16]*flow{}}
	q.Bound(maxRequests, maxBytes)
	return q
}

// Bound changes the bounds. Nobody who waits is sent away.
func (q *Queue) Bound(maxRequests int, maxBytes int64) {
	q.maxRequests, q.maxBytes = maxRequests, maxBytes
}

// Len is how many requests wait.
func (q *Queue) Len() int { return q.requests }

// Bytes is what is held for them.
func (q *Queue) Bytes() int64 { return q.bytes }

// Room tells whether one more request with so many bytes may wait.
func (q *Queue) Room(bytes int) bool {
	return q.requests < q.maxRequests && q.bytes+int64(bytes) <= q.maxBytes
}

// Fair tells whether one more request of a tenant may wait, of which so many wait
// elsewhere: who has as many waiting as there is room left has enough. So however
// much one tenant sends, others find room. Source: A. Choudhury, E. Hahne,
// "Dynamic queue length thresholds for shared-memory packet switches", 1998.
func (q *Queue) Fair(tenant uint16, elsewhere int) bool {
	n := elsewhere
	if f := q.flows[tenant]; f != nil {
		n += f.n
	}
	return n == 0 || n < q.maxRequests-q.requests
}

// Ahead is the work that is done before that of a request which comes now, of a
// tenant with this finish time: what the tenant has waiting itself, and meanwhile
// the others, each at its weight.
func (q *Queue) Ahead(finish float64) float64 {
	return max(finish-q.Virtual, 0) * q.weights
}

// Push appends a request. finish is the virtual time at which the tenant's last
// request is done, 0 for a tenant without any; the answer is the new one. The
// caller has asked Room; a request that waits somewhere stays there.
func (q *Queue) Push(w *Waiter, finish, weight float64) float64 {
	if w.queue != nil {
		return finish
	}
	w.start, w.cost = max(q.Virtual, finish), max(w.Work, 1)/weight
	q.sequence++
	w.queue, w.sequence = q, q.sequence
	q.requests++
	q.bytes += int64(w.Bytes)

	w.older, w.newer, q.newest = q.newest, nil, w
	if w.older != nil {
		w.older.newer = w
	} else {
		q.oldest = w
	}
	f := q.flows[w.Tenant]
	if f == nil {
		f = &flow{first: w, last: w, n: 1, weight: weight}
		q.weights += weight
		w.prev, w.next = nil, nil
		q.flows[w.Tenant] = f
		heap.Push(&q.ready, f)
	} else {
		w.prev, w.next = f.last, nil
		f.last.next, f.last = w, w
		f.n++
	}
	return w.start + w.cost
}

// Best is who is next, nil when nobody waits who could use a slot.
func (q *Queue) Best() *Waiter {
	if len(q.ready) == 0 {
		return nil
	}
	return q.ready[0].first
}

// Weight is the weight of all tenants that have somebody waiting who could use a slot.
func (q *Queue) Weight() float64 {
	sum := 0.0
	for _, f := range q.ready {
		sum += f.weight
	}
	return sum
}

// Oldest is who waits longest, blocked or not; nil for nobody.
func (q *Queue) Oldest() *Waiter { return q.oldest }

// Take removes a request that got its slot.
func (q *Queue) Take(w *Waiter) {
	if w.queue == q {
		q.Virtual = max(q.Virtual, w.start)
		q.unlink(w)
	}
}

// Remove removes a request that gave up; those of its tenant that came later
// have their turn earlier by its cost. One that doesn't wait here is none.
func (q *Queue) Remove(w *Waiter) {
	if w.queue != q {
		return
	}
	for later := w.next; later != nil; later = later.next {
		later.start = max(later.start-w.cost, q.Virtual)
	}
	q.unlink(w)
}

func (q *Queue) unlink(w *Waiter) {
	q.requests--
	q.bytes -= int64(w.Bytes)
	if w.older != nil {
		w.older.newer = w.newer
	} else {
		q.oldest = w.newer
	}
	if w.newer != nil {
		w.newer.older = w.older
	} else {
		q.newest = w.older
	}
	f := q.flows[w.Tenant]
	f.n--
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		f.last = w.prev
	}
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		f.first = w.next
		q.changed(w.Tenant, f)
	}
	w.queue, w.prev, w.next, w.older, w.newer = nil, nil, nil, nil, nil
}

// changed puts a flow whose first request is another now in its place.
func (q *Queue) changed(tenant uint16, f *flow) {
	switch {
	case f.first == nil:
		if f.at >= 0 {
			heap.Remove(&q.ready, f.at)
		}
		delete(q.flows, tenant)
		if q.weights -= f.weight; len(q.flows) == 0 {
			q.weights = 0 // and no rounding
		}
	case f.at >= 0:
		heap.Fix(&q.ready, f.at)
	}
}

// Block makes a tenant's requests step aside until Unblock.
func (q *Queue) Block(tenant uint16) {
	if f := q.flows[tenant]; f != nil && f.at >= 0 {
		heap.Remove(&q.ready, f.at)
	}
}

// Unblock lets all tenants' requests have their turn again.
func (q *Queue) Unblock() {
	if len(q.ready) == len(q.flows) {
		return
	}
	for _, f := range q.flows {
		if f.at < 0 {
			heap.Push(&q.ready, f)
		}
	}
}

// Expire removes the requests whose deadline has come, in the order of their
// coming, and hands each to gone, which may take others. The wait of one that came
// later than now, by a clock that was set back, begins anew. A false of gone ends it:
// the rest is for another time.
func (q *Queue) Expire(now int64, gone func(w *Waiter) bool) {
	for w := q.oldest; w != nil; {
		next := w.newer
		if late := w.Arrived - now; late > 0 {
			w.Arrived -= late
			w.Deadline -= late
		}
		if w.Deadline <= now {
			q.Remove(w)
			if !gone(w) {
				return
			}
			if next != nil && !next.Waits() { // gone took it
				next = q.oldest
			}
		}
		w = next
	}
}

// flows is a heap of the tenants whose turn may come, by their first request.
type flows []*flow

func (h flows) Len() int { return len(h) }
func (h flows) Less(i, j int) bool {
	a, b := h[i].first, h[j].first
	return a.start < b.start || a.start == b.start && a.sequence < b.sequence
}

func (h flows) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

func (h *flows) Push(x any) {
	f := x.(*flow)
	f.at = len(*h)
	*h = append(*h, f)
}

func (h *flows) Pop() any {
	old := *h
	f := old[len(old)-1]
	f.at = -1
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return f
}
