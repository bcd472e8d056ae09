package hostsim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
)

// maxReplyBytes is Envoy's cap for the reply to an http_call.
const maxReplyBytes = 32 << 20

// HTTPDispatcher makes real requests for http_call. As in Envoy a cluster that
// cannot be reached answers an ordinary 503 with headers and a body.
type HTTPDispatcher struct {
	transport http.RoundTripper
	mu        sync.RWMutex
	clusters  map[string]httpCluster
}

type httpCluster struct {
	base   *url.URL
	client *http.Client
}

// NewHTTPDispatcher maps cluster names to base URLs ("http://127.0.0.1:9000").
// transport nil: http.DefaultTransport.
func NewHTTPDispatcher(clusters map[string]string, transport http.RoundTripper) (*HTTPDispatcher, error) {
	d := &HTTPDispatcher{transport: transport, clusters: map[string]httpCluster{}}
	for name, base := range clusters {
		if err := d.SetCluster(name, base); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// SetCluster adds a cluster or moves it to another base URL.
func (d *HTTPDispatcher) SetCluster(name, base string) error {
	return d.SetClusterTransport(name, base, d.transport)
}

// SetClusterTransport is SetCluster for one that is reached in a way of its own, such
// as several hosts of which one is chosen.
func (d *HTTPDispatcher) SetClusterTransport(name, base string, transport http.RoundTripper) error {
	u, err := url.Parse(base)
	if err != nil {
		return fmt.Errorf("cluster %s: base URL %q: %w", name, base, err)
	}
	if u.Scheme == "" || u.Host == "" {
		return fmt.Errorf("cluster %s: base URL %q needs a scheme and a host, as in http://127.0.0.1:9000", name, base)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clusters[name] = httpCluster{u, &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	return nil
}

// HasCluster implements Dispatcher.
func (d *HTTPDispatcher) HasCluster(name string) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.clusters[name].base != nil
}

// Dispatch implements Dispatcher.
func (d *HTTPDispatcher) Dispatch(call *HTTPCall) func() {
	d.mu.RLock()
	cluster := d.clusters[call.Cluster]
	d.mu.RUnlock()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		cluster.carryOut(ctx, call)
	}()
	return cancel
}

func (c *httpCluster) carryOut(ctx context.Context, call *HTTPCall) {
	req, err := newCallRequest(ctx, c.base, call)
	if err != nil {
		call.ReplyDead()
		return
	}
	resp, err := c.client.Do(req)
	if err != nil {
		// Before headers: the router's 503. The caller's own timeout has already
		// answered in this case.
		call.ReplyDead()
		return
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxReplyBytes+1))
	if err != nil || len(body) > maxReplyBytes {
		call.Fail() // in the middle of the reply
		return
	}
	headers := NewHeaderMap(":status", itoa(resp.StatusCode))
	addHTTPHeader(headers, resp.Header)
	var trailers *HeaderMap
	if len(resp.Trailer) > 0 {
		trailers = &HeaderMap{}
		addHTTPHeader(trailers, resp.Trailer)
	}
	call.Reply(headers, body, trailers)
}

var errNoHost = errors.New("no :authority")

func newCallRequest(ctx context.Context, base *url.URL, call *HTTPCall) (*http.Request, error) {
	target, err := url.Parse(call.Headers.Value(":path"))
	if err != nil {
		return nil, fmt.Errorf("http_call path: %w", err)
	}
	u := *base
	u.Path = strings.TrimSuffix(base.Path, "/") + target.Path
	u.RawQuery = target.RawQuery
	req, err := http.NewRequestWithContext(ctx, call.Headers.Value(":method"), u.String(), bytes.NewReader(call.Body))
	if err != nil {
		return nil, fmt.Errorf("http_call: %w", err)
	}
	if req.Host = call.Headers.Value(":authority"); req.Host == "" {
		if req.Host = call.Headers.Value("host"); req.Host == "" {
			return nil, errNoHost
		}
	}
	for _, f := range call.Headers.Fields() {
		if !strings.HasPrefix(f.Key, ":") && f.Key != "content-length" && f.Key != "host" {
			req.Header.Add(f.Key, f.Value)
		}
	}
	return req, nil
}

func addHTTPHeader(m *HeaderMap, h http.Header) {
	for key, values := range h {
		for _, v := range values {
			m.Add(key, v)
		}
	}
}
