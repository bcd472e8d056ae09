package hostsim

import "net/http"

// HTTPDispatcher makes real requests for http_call.
type HTTPDispatcher struct{}

// NewHTTPDispatcher maps cluster names to base URLs ("http://127.0.0.1:9000").
// transport nil: http.DefaultTransport.
func NewHTTPDispatcher(clusters map[string]string, transport http.RoundTripper) (*HTTPDispatcher, error) {
	return nil, nil
}

// HasCluster implements Dispatcher.
func (d *HTTPDispatcher) HasCluster(name string) bool { return false }

// Dispatch implements Dispatcher.
func (d *HTTPDispatcher) Dispatch(call *HTTPCall) (cancel func()) { return nil }
