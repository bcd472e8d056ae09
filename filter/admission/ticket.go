package admission

import "github.com/warmpath/warmpath/shared/quota"

// Ticket is what one request holds. It lives in the request's stream; the zero
// value holds nothing, and neither does one after Done.
type Ticket struct {
	// Tenant and Class are whose the request is.
	Tenant uint16
	Class  uint8
	// Bypass: it passes by the bypass's secret.
	Bypass bool
	// Waited is the time in the queue, ns.
	Waited int64
	// RetryAfter is how many seconds a refused client should wait at least.
	RetryAfter int

	asked    bool         // Arrive has seen it
	known    bool         // and it may still have something
	tenant   bool         // it has a slot of its tenant, or of the bypass
	pending  quota.Reason // it waits for that of its tenant's lease
	denied   quota.Reason // to be said when the pool is known
	slot     bool         // it has a slot of its class
	level    quota.Level  // what was known when it asked for that
	served   bool         // it was sent to a worker
	pool     *pool
	bytes    int    // of the body
	need     uint32 // tokens to prefill, booked with the slot
	reserved uint64 // tokens of the tenant's balance
	waiter   quota.Waiter
	owner    Held
}

// Waits tells whether the request is in a queue.
func (t *Ticket) Waits() bool { return t.waiter.Waits() }

// Asked tells whether the gate has ever seen the request.
func (t *Ticket) Asked() bool { return t.asked }

// Entered tells whether the request has been asked for at its pool.
func (t *Ticket) Entered() bool { return t.pool != nil }

// Queued tells whether it has ever waited there.
func (t *Ticket) Queued() bool { return t.waiter.Owner != nil }

// Known tells whether the gate has seen the request.
func (t *Ticket) Known() bool { return t.known }
