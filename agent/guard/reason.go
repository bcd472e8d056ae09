package guard

// Reason is why a request is turned away, the value of x-warmpath-refused.
type Reason uint8

const (
	none Reason = iota
	// draining: the guard was told to end.
	draining
	// queueFull: no room to wait, in requests or in bytes.
	queueFull
	// tenantQueue: this tenant has as many waiting as there is room for others.
	tenantQueue
	// queueWait: the prompts before it take longer than its class may wait.
	queueWait
	// queueTimeout: it has waited for as long as its class may.
	queueTimeout
	// engineDown: the engine takes no connection.
	engineDown
	reasons
)

var reasonNames = [reasons]string{"none", "draining", "queue_full", "tenant_queue", "queue_wait", "queue_timeout", "engine_down"}

var reasonMessages = [reasons]string{
	draining:     "This worker is about to end; another one serves.",
	queueFull:    "This worker is busy and its queue is full; retry later.",
	tenantQueue:  "Too many requests of this tenant wait at this worker; retry later.",
	queueWait:    "This worker is busy and the wait would be too long; retry later.",
	queueTimeout: "This worker was busy for as long as the request may wait; retry later.",
	engineDown:   "The engine of this worker can't be reached; another one serves.",
}

func (r Reason) String() string { return reasonNames[r] }

// status is 429 where the limit is the tenant's own, else 503.
func (r Reason) status() int {
	if r == tenantQueue {
		return 429
	}
	return 503
}
