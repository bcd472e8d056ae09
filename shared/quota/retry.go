package quota

// retryBurst is how many requests in a row may be tried again before the budget
// binds: a quiet gateway whose worker restarts loses none of its few requests.
const retryBurst = 10

// RetryBudget bounds the share of requests that are tried at another worker, so
// that a fleet in trouble is not given twice the work. It is spent when a retry
// has been seen: requests that were under way together can overdraw it, and
// those that follow pay that back.
type RetryBudget struct {
	spent float64
}

// Request notes a request, which earns share of a retry.
func (b *RetryBudget) Request(share float64) { b.spent = max(0, b.spent-share) }

// Retried notes retries.
func (b *RetryBudget) Retried(n int) { b.spent = min(b.spent+float64(n), 2*retryBurst) }

// Spent tells that no request should be tried again now.
func (b *RetryBudget) Spent() bool { return b.spent > retryBurst-1 }
