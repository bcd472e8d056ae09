// Package admit plays a fleet's admission in virtual time.
//
// A request travels through it as through the real thing. It comes to one of several gateways,
// which asks its lease and its credit, and takes a slot, waits in its class's queue, or is refused
// with the time after which to try again. An engine (package sim/engine) queues, prefills and
// decodes it. Every 250 ms a gateway sends what it has in use to the ledger, which answers with a
// lease; each of these takes its time on the way.
//
// What is real: the ledger, the lease, its grants and credits, the queue, the controllers and
// the formats between them (packages shared/quota, shared/wire and control/admission). What is
// modelled: the engines, delays, and a choice of worker by the least prefill work, as seen by
// each gateway with its delay.
package admit

import (
	"container/heap"
	"time"
)

// clock is virtual time with what is due when.
type clock struct {
	now      time.Duration
	due      due
	sequence int
}

type task struct {
	at       time.Duration
	sequence int
	do       func()
}

type due []task

func (d due) Len() int { return len(d) }
func (d due) Less(i, j int) bool {
	return d[i].at < d[j].at || d[i].at == d[j].at && d[i].sequence < d[j].sequence
}
func (d due) Swap(i, j int) { d[i], d[j] = d[j], d[i] }
func (d *due) Push(x any)   { *d = append(*d, x.(task)) }
func (d *due) Pop() any {
	old := *d
	last := old[len(old)-1]
	old[len(old)-1] = task{}
	*d = old[:len(old)-1]
	return last
}

// at has something done at a time, now at the earliest.
func (c *clock) at(t time.Duration, do func()) {
	c.sequence++
	heap.Push(&c.due, task{max(t, c.now), c.sequence, do})
}

func (c *clock) after(d time.Duration, do func()) { c.at(c.now+d, do) }

// every has something done again and again, first after one period.
func (c *clock) every(d time.Duration, do func()) {
	c.after(d, func() { do(); c.every(d, do) })
}

// run does what is due until end.
func (c *clock) run(end time.Duration) {
	for len(c.due) > 0 && c.due[0].at <= end {
		t := heap.Pop(&c.due).(task)
		c.now = t.at
		t.do()
	}
	c.now = end
}
