package quota

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// slowQueue is the same queue as a list that is searched whole.
type slowQueue struct {
	waiting []*Waiter // in the order of their coming
	blocked map[uint16]bool
}

func (q *slowQueue) best() *Waiter {
	var best *Waiter
	seen := map[uint16]bool{}
	for _, w := range q.waiting {
		if seen[w.Tenant] || q.blocked[w.Tenant] {
			continue
		}
		seen[w.Tenant] = true
		if best == nil || w.start < best.start {
			best = w
		}
	}
	return best
}

func (q *slowQueue) remove(w *Waiter) {
	q.waiting = slices.DeleteFunc(q.waiting, func(o *Waiter) bool { return o == w })
	if !slices.ContainsFunc(q.waiting, func(o *Waiter) bool { return o.Tenant == w.Tenant }) {
		delete(q.blocked, w.Tenant) // who comes next is tried anew
	}
}

func TestTheQueueDoesWhatASearchedListDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := NewQueue(30, 1000)
		slow := &slowQueue{blocked: map[uint16]bool{}}
		finish := map[uint16]float64{}
		now := int64(0)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				w := &Waiter{
					Tenant: rapid.Uint16Range(0, 4).Draw(t, "tenant"), Work: rapid.Float64Range(0, 1000).Draw(t, "work"),
					Bytes: rapid.IntRange(0, 100).Draw(t, "bytes"), Arrived: now, Deadline: now + rapid.Int64Range(1, 50).Draw(t, "deadline"),
				}
				if got, want := q.Room(w.Bytes), len(slow.waiting) < 30 && q.Bytes()+int64(w.Bytes) <= 1000; got != want {
					t.Fatalf("room %t, want %t", got, want)
				}
				if !q.Room(w.Bytes) {
					return
				}
				before := finish[w.Tenant]
				finish[w.Tenant] = q.Push(w, before, 2)
				if w.start != max(before, q.Virtual) || finish[w.Tenant] != w.start+max(w.Work, 1)/2 {
					t.Fatalf("start %v, finish %v", w.start, finish[w.Tenant])
				}
				slow.waiting = append(slow.waiting, w)
			},
			"take": func(t *rapid.T) {
				w := q.Best()
				if w == nil {
					return
				}
				q.Take(w)
				slow.remove(w)
				if q.Virtual < w.start {
					t.Fatal("virtual time stands still")
				}
			},
			"give up": func(t *rapid.T) {
				if len(slow.waiting) == 0 {
					return
				}
				w := rapid.SampledFrom(slow.waiting).Draw(t, "who")
				q.Remove(w)
				q.Remove(w) // once is enough
				slow.remove(w)
			},
			"block": func(t *rapid.T) {
				tenant := rapid.Uint16Range(0, 4).Draw(t, "tenant")
				q.Block(tenant)
				if slices.ContainsFunc(slow.waiting, func(o *Waiter) bool { return o.Tenant == tenant }) {
					slow.blocked[tenant] = true
				}
			},
			"unblock": func(*rapid.T) {
				q.Unblock()
				clear(slow.blocked)
			},
			"expire": func(t *rapid.T) {
				now += rapid.Int64Range(0, 20).Draw(t, "time")
				var gone, want []*Waiter
				q.Expire(now, func(w *Waiter) bool { gone = append(gone, w); return true })
				for _, w := range slices.Clone(slow.waiting) {
					if w.Deadline <= now {
						want = append(want, w)
						slow.remove(w)
					}
				}
				if !slices.Equal(gone, want) {
					t.Fatalf("%d are gone, want %d", len(gone), len(want))
				}
			},
			"": func(t *rapid.T) {
				bytes := 0
				for _, w := range slow.waiting {
					bytes += w.Bytes
					if !w.Waits() {
						t.Fatal("who waits says no")
					}
				}
				if q.Len() != len(slow.waiting) || q.Bytes() != int64(bytes) {
					t.Fatalf("%d requests, %d bytes; want %d, %d", q.Len(), q.Bytes(), len(slow.waiting), bytes)
				}
				if got, want := q.Best(), slow.best(); got != want {
					t.Fatalf("best %+v, want %+v", got, want)
				}
				if len(slow.waiting) > 0 && q.Oldest() != slow.waiting[0] {
					t.Fatal("not the oldest")
				}
			},
		})
	})
}

// TestWorkIsSharedByWeightWhateverTheSizes lets tenants with any weights and any
// sizes of requests wait all the time.
func TestWorkIsSharedByWeightWhateverTheSizes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tenants := rapid.IntRange(2, 5).Draw(t, "tenants")
		q := NewQueue(1000, math.MaxInt64)
		weight, finish, got, largest := make([]float64, tenants), make([]float64, tenants), make([]float64, tenants), make([]float64, tenants)
		push := func(i int) {
			w := &Waiter{Tenant: uint16(i), Work: rapid.Float64Range(1, 5000).Draw(t, "work")}
			largest[i] = max(largest[i], w.Work)
			finish[i] = q.Push(w, finish[i], weight[i])
		}
		for i := range tenants {
			weight[i] = rapid.Float64Range(0.5, 8).Draw(t, "weight")
			push(i)
			push(i)
		}
		for range 60 {
			w := q.Best()
			q.Take(w)
			got[w.Tenant] += w.Work
			push(int(w.Tenant))
			for i := range tenants {
				for j := range i {
					difference := math.Abs(got[i]/weight[i] - got[j]/weight[j])
					if bound := largest[i]/weight[i] + largest[j]/weight[j]; difference > bound+1e-6 {
						t.Fatalf("tenants %d and %d differ by %v, more than %v", i, j, difference, bound)
					}
				}
			}
		}
	})
}

func TestATenantThatWasIdleHasSavedNothing(t *testing.T) {
	q := NewQueue(100, 1<<20)
	busy := 0.0
	for range 10 {
		w := &Waiter{Tenant: 1, Work: 100}
		busy = q.Push(w, busy, 1)
		q.Take(w)
	}
	var order string
	finish := map[uint16]float64{1: busy}
	for i := range 6 {
		tenant := uint16(1 + i%2)
		w := &Waiter{Tenant: tenant, Work: 100}
		finish[tenant] = q.Push(w, finish[tenant], 1)
	}
	for q.Len() > 0 {
		w := q.Best()
		order += fmt.Sprint(w.Tenant)
		q.Take(w)
	}
	if order != "212121" {
		t.Fatalf("the order was %s", order)
	}
}

func TestABlockedTenantStopsNobody(t *testing.T) {
	q := NewQueue(10, 1<<20)
	first, second := &Waiter{Tenant: 1, Work: 1}, &Waiter{Tenant: 2, Work: 1000}
	q.Push(first, 0, 1)
	q.Push(second, 500, 1)
	if q.Best() != first {
		t.Fatal("not in turn")
	}
	q.Block(1)
	if q.Best() != second {
		t.Fatal("one stops the other")
	}
	q.Unblock()
	if q.Best() != first {
		t.Fatal("its turn is lost")
	}
}

func TestASpentRetryBudgetIsEarnedBack(t *testing.T) {
	var b RetryBudget
	for i := range 10 {
		if b.Spent() {
			t.Fatalf("spent after %d", i)
		}
		b.Retried(1)
	}
	if !b.Spent() {
		t.Fatal("ten in a row leave something")
	}
	for range 9 {
		b.Request(0.1)
	}
	if !b.Spent() {
		t.Fatal("nine requests earn a retry at a tenth")
	}
	b.Request(0.1001)
	if b.Spent() {
		t.Fatal("ten requests earn none")
	}
	b.Retried(1000)
	for range 120 {
		b.Request(0.1001)
	}
	if b.Spent() {
		t.Fatal("a debt has no end")
	}
}

// TestWhoIsTakenWhileOthersExpireDoesNotExpire: the end of one request's wait frees
// something, so that the next, whose time has come as well, gets its turn instead.
func TestWhoIsTakenWhileOthersExpireDoesNotExpire(t *testing.T) {
	q := NewQueue(8, 1000)
	waiters := make([]Waiter, 5)
	for i := range waiters {
		waiters[i] = Waiter{Tenant: uint16(i), Deadline: 10}
		q.Push(&waiters[i], 0, 1)
	}
	told := map[uint16]string{}
	q.Expire(10, func(w *Waiter) bool {
		told[w.Tenant] += "expired"
		if w.Tenant == 1 {
			for range 2 {
				best := q.Best()
				q.Take(best)
				told[best.Tenant] += "taken"
			}
		}
		return true
	})
	want := map[uint16]string{0: "expired", 1: "expired", 2: "taken", 3: "taken", 4: "expired"}
	if !maps.Equal(told, want) || q.Len() != 0 {
		t.Fatalf("told %v, %d still wait", told, q.Len())
	}
}

// TestAClockThatIsSetBackMakesNoWaitLongerThanAnother: it begins anew.
func TestAClockThatIsSetBackMakesNoWaitLongerThanAnother(t *testing.T) {
	q := NewQueue(8, 1000)
	w := Waiter{Arrived: 1000, Deadline: 1010}
	q.Push(&w, 0, 1)
	expired := func(now int64) (n int) {
		q.Expire(now, func(*Waiter) bool { n++; return true })
		return n
	}
	if expired(5) != 0 || expired(14) != 0 || expired(15) != 1 {
		t.Errorf("it waits: %v, until %d", w.Waits(), w.Deadline)
	}
}
