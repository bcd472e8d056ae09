package hostsim

import (
	"sync"
	"sync/atomic"
	"time"
)

// Dispatcher carries out http_call. [HandDispatcher] lets a test answer by
// hand; [HTTPDispatcher] makes real requests.
type Dispatcher interface {
	// HasCluster says whether a cluster is configured. A call to an unknown one
	// fails inline, without a callback.
	HasCluster(name string) bool
	// Dispatch starts the call and returns at once. It is called on the VM's
	// thread. The answer goes to call.Reply or call.Fail, from any goroutine.
	// cancel (may be nil) is called when the answer is no longer wanted: the
	// plugin is gone or the call timed out.
	Dispatch(call *HTTPCall) (cancel func())
}

// HTTPCall is one proxy_http_call under way.
type HTTPCall struct {
	VM       string // VMConfig.Name of the caller
	Plugin   string // PluginConfig.Name of the caller
	ID       uint32 // the callout id which the module was given
	Cluster  string
	Headers  *HeaderMap // with :method, :path and :authority
	Body     []byte
	Trailers *HeaderMap // nil when the module gave none; Envoy does not send them
	Timeout  time.Duration

	answered atomic.Bool
	deliver  func(callAnswer)
}

type callAnswer struct {
	headers, trailers *HeaderMap
	body              []byte
	failed            bool
}

// Reply answers the call; headers must hold :status. The first answer counts,
// later ones are dropped. It may be called from any goroutine.
func (c *HTTPCall) Reply(headers *HeaderMap, body []byte, trailers *HeaderMap) {
	if c.answered.CompareAndSwap(false, true) {
		c.deliver(callAnswer{headers: headers, body: body, trailers: trailers})
	}
}

// Fail answers the call as Envoy does when the connection is reset in the middle
// of a reply: on_http_call_response with no header, no body, no trailer.
func (c *HTTPCall) Fail() {
	if c.answered.CompareAndSwap(false, true) {
		c.deliver(callAnswer{failed: true})
	}
}

// HandDispatcher keeps calls until the test answers them.
type HandDispatcher struct {
	mu       sync.Mutex
	clusters map[string]bool
	pending  []*HTTPCall
}

// NewHandDispatcher knows the given clusters and no other.
func NewHandDispatcher(clusters ...string) *HandDispatcher {
	d := &HandDispatcher{clusters: map[string]bool{}}
	for _, c := range clusters {
		d.clusters[c] = true
	}
	return d
}

// HasCluster implements Dispatcher.
func (d *HandDispatcher) HasCluster(name string) bool { return d.clusters[name] }

// Dispatch implements Dispatcher.
func (d *HandDispatcher) Dispatch(call *HTTPCall) func() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pending = append(d.pending, call)
	return func() { d.Remove(call) }
}

// Take removes and returns the oldest unanswered call, or nil.
func (d *HandDispatcher) Take() *HTTPCall {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.pending) == 0 {
		return nil
	}
	c := d.pending[0]
	d.pending = d.pending[1:]
	return c
}

// Pending returns the unanswered calls, oldest first.
func (d *HandDispatcher) Pending() []*HTTPCall {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]*HTTPCall(nil), d.pending...)
}

// deadClusterReply is what Envoy's router answers for a cluster without a
// reachable host.
const deadClusterBody = "upstream connect error or disconnect/reset before headers. reset reason: remote connection failure"

// ReplyDead answers as Envoy does for a cluster whose hosts cannot be reached:
// an ordinary 503 with headers and a body.
func (c *HTTPCall) ReplyDead() {
	c.Reply(NewHeaderMap(":status", "503", "content-length", itoa(len(deadClusterBody)), "content-type", "text/plain"),
		[]byte(deadClusterBody), nil)
}

// Remove takes one call out of those that wait, to be answered by the caller; it
// says whether it was there.
func (d *HandDispatcher) Remove(call *HTTPCall) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, c := range d.pending {
		if c == call {
			d.pending = append(d.pending[:i], d.pending[i+1:]...)
			return true
		}
	}
	return false
}
