package quota

// Reason is why a request is turned away.
type Reason uint8

const (
	// None: it isn't.
	None Reason = iota
	// TenantConcurrency, TenantRequests, TenantTokens: the tenant's own limits.
	TenantConcurrency
	TenantRequests
	TenantTokens
	// BypassConcurrency: more requests with the bypass's secret than it is for.
	BypassConcurrency
	// NoLease: the tenant's limit is shared out by control, which this gateway
	// hasn't heard for longer than a lease.
	NoLease
	// QueueFull: no slot, and no room to wait.
	QueueFull
	// QueueWait: the wait would be longer than the class may wait.
	QueueWait
	// QueueTimeout: it waited for as long as its class may.
	QueueTimeout
	// Reasons is how many there are.
	Reasons
)

var reasons = [Reasons]string{
	"none", "tenant_concurrency", "tenant_requests", "tenant_tokens", "bypass_concurrency",
	"no_lease", "queue_full", "queue_wait", "queue_timeout",
}

// String is the value of the header x-warmpath-reason and of the metrics' label.
func (r Reason) String() string { return reasons[r] }

// Yours tells whether the limit is the client's own (429) and not the fleet's (503).
func (r Reason) Yours() bool { return r >= TenantConcurrency && r <= BypassConcurrency }

// ForRoom tells whether the pool had no room, and not that the request was beyond a limit.
func (r Reason) ForRoom() bool { return r >= QueueFull && r < Reasons }

// ReasonNames are the labels of the metrics, without None.
func ReasonNames() []string { return reasons[1:] }
