// Package replicas reaches a control service of which there are several: what a
// gateway and an agent do, and a proxy does by a cluster that hashes.
//
// A request's way through the package: a [Set] is an http.RoundTripper. It sends
// the request to the replica that it keeps to; one that can't be reached, or whose
// answer says that nobody is behind it, is left for the next, which gets the same
// request. A replica that failed is asked again when its time is over, and nobody
// moves back to it before the new one fails or HomeAfter has passed.
package replicas

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	// backoffLeast and backoffMost bound the time for which a replica that failed is
	// passed over while another is left.
	backoffLeast = 250 * time.Millisecond
	backoffMost  = 10 * time.Second
	// HomeAfter is how long after a failure the replica that was chosen first is
	// tried again, give or take half: replicas that restart one after the other would
	// else leave all gateways at the last one.
	HomeAfter = 2 * time.Minute
)

// Set is one control service behind several URLs. It is safe for concurrent use.
type Set struct {
	transport http.RoundTripper
	now       func() time.Time
	home      int

	mu       sync.Mutex
	at       int
	homeAt   time.Time // when home is tried again; zero: it is kept to
	replicas []replica
	moves    uint64
}

type replica struct {
	base     *url.URL
	failures uint
	until    time.Time // it is passed over
	// life ends when a request finds the replica gone: the others that wait for it
	// needn't.
	life context.Context
	end  context.CancelFunc
}

func (r *replica) revive() { r.life, r.end = context.WithCancel(context.Background()) }

var errLeft = errors.New("the replica failed meanwhile")

// New returns the set of the replicas at urls (http://host:port, a path may
// follow), beginning with any of them: gateways spread over all. transport nil: one of
// its own that gives a host a second to accept a connection.
func New(urls []string, transport http.RoundTripper) (*Set, error) {
	if len(urls) == 0 {
		return nil, errors.New("no URL: give at least one, such as http://127.0.0.1:8780")
	}
	if transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.Proxy = nil
		t.DialContext = (&net.Dialer{Timeout: time.Second, KeepAlive: 15 * time.Second}).DialContext
		transport = t
	}
	s := &Set{transport: transport, now: time.Now}
	for _, text := range urls {
		u, err := url.Parse(strings.TrimSuffix(text, "/"))
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return nil, fmt.Errorf("%q is not a base URL: write http://host:port", text)
		}
		r := replica{base: u}
		r.revive()
		s.replicas = append(s.replicas, r)
	}
	s.home = rand.N(len(urls))
	s.at = s.home
	return s, nil
}

// URL is the base of the requests that are given to the set, wherever they go.
func (s *Set) URL() string { return s.replicas[0].base.String() }

// At is the URL of the replica that is kept to now, and Moves how often another
// was left for it.
func (s *Set) At() (at string, moves uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replicas[s.at].base.String(), s.moves
}

// Close closes idle connections.
func (s *Set) Close() {
	if t, ok := s.transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// RoundTrip sends a request, whose URL begins with that of the set, to one replica
// after the other until one answers. With every replica gone it returns what the
// last one did.
func (s *Set) RoundTrip(req *http.Request) (*http.Response, error) {
	var resp *http.Response
	var err error
	for tried := range s.replicas {
		if resp != nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
			_ = resp.Body.Close()
		}
		at := s.choose()
		resp, err = s.try(req, at)
		if s.judge(at, resp, err) || req.Context().Err() != nil {
			return resp, err
		}
		if tried == len(s.replicas)-1 {
			return resp, err
		}
		if req.Body != nil && req.Body != http.NoBody {
			if req.GetBody == nil {
				return resp, err
			}
			body, bodyErr := req.GetBody()
			if bodyErr != nil {
				return resp, err
			}
			req = req.Clone(req.Context())
			req.Body = body
		}
	}
	return resp, err
}

// choose returns the replica to ask: the one kept to, the next one that isn't
// passed over, or the one whose time ends first.
func (s *Set) choose() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if !s.homeAt.IsZero() && now.After(s.homeAt) {
		s.homeAt = time.Time{}
		s.move(s.home)
	}
	soonest := s.at
	for i := range s.replicas {
		at := (s.at + i) % len(s.replicas)
		if !s.replicas[at].until.After(now) {
			s.move(at)
			return at
		}
		if s.replicas[at].until.Before(s.replicas[soonest].until) {
			soonest = at
		}
	}
	s.move(soonest)
	return soonest
}

// move keeps to another replica from now on. Requires mu.
func (s *Set) move(to int) {
	if to == s.at {
		return
	}
	s.at = to
	s.moves++
	if to != s.home && s.homeAt.IsZero() {
		s.homeAt = s.now().Add(HomeAfter/2 + rand.N(HomeAfter))
	}
}

// try sends a request to one replica. It ends early when another request finds
// out that the replica is gone: a long-poll at a host that fell silent would wait
// for its whole time.
func (s *Set) try(req *http.Request, at int) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	r := &s.replicas[at]
	s.mu.Lock()
	wait := context.AfterFunc(r.life, func() { cancel(errLeft) })
	s.mu.Unlock()
	out := req.Clone(ctx)
	out.URL.Scheme, out.URL.Host = r.base.Scheme, r.base.Host
	out.URL.Path = r.base.Path + strings.TrimPrefix(req.URL.Path, s.replicas[0].base.Path)
	if req.Host == req.URL.Host || req.Host == "" {
		out.Host = r.base.Host
	}
	resp, err := s.transport.RoundTrip(out)
	wait()
	if err != nil {
		if errors.Is(context.Cause(ctx), errLeft) {
			err = errLeft
		}
		cancel(nil)
		return nil, fmt.Errorf("%s: %w", r.base.Host, err)
	}
	resp.Body = &bodyEnd{resp.Body, cancel}
	return resp, nil
}

// bodyEnd gives back what an attempt holds once its answer was read.
type bodyEnd struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (b *bodyEnd) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}

// judge notes how a replica did, and tells whether it has answered.
func (s *Set) judge(at int, resp *http.Response, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &s.replicas[at]
	gone := err != nil
	if !gone {
		switch resp.StatusCode {
		case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		default:
			r.failures, r.until = 0, time.Time{}
			return true
		}
	}
	d := min(backoffLeast<<min(r.failures, 10), backoffMost)
	r.until = s.now().Add(d/2 + rand.N(d))
	r.failures++
	if gone {
		r.end()
		r.revive()
	}
	return false
}
