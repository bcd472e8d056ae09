package conformance

import (
	"fmt"
	"slices"
	"strings"

	"github.com/warmpath/warmpath/hostsim"
)

// simStream is a request between the client, the filter and the upstream. It is
// the filter's sink, and knows what of either side is still open.
type simStream struct {
	p    *simProxy
	name string
	s    *hostsim.Stream
	vm   *hostsim.VM

	stopIdle func()

	sentUp    bool // request headers have gone to the upstream
	upEnded   bool // the request has, whole
	answered  bool // the upstream's response has come, whole
	gaveUp    bool // the upstream was reset, by either side
	replied   bool // response headers have gone to the client
	respEnded bool
	clientEnd bool // the client has sent all
}

// open starts a stream on the plugin that its name begins with, or the only one.
func (p *simProxy) open(a Action) error {
	name, _, _ := strings.Cut(a.Stream, ".")
	for _, f := range p.fleets {
		for i, plugin := range f.plugins {
			if plugin != name && len(p.setup.Plugins) > 1 {
				continue
			}
			s := &simStream{p: p, name: a.Stream, clientEnd: a.End, vm: f.Workers[0]}
			p.streams[a.Stream] = s
			s.s = f.Plugins[0][i].NewStream(s)
			info := &s.s.Info
			info.SourceAddress, info.DestinationAddress = "127.0.0.1:40000", "127.0.0.1:8080"
			info.Protocol = "HTTP/2"
			if p.setup.HTTP1 {
				info.Protocol = "HTTP/1.1"
			}
			info.ClusterName = p.setup.cluster()
			h := p.arriving(a)
			s.route(h)
			s.s.RequestHeaders(h, a.End)
			s.restartIdle()
			return nil
		}
	}
	return fmt.Errorf("stream %q: its name begins with none of the plugins", a.Stream)
}

// arriving are the request headers as the connection manager shows them to the
// filters: with HTTP/1.1 the pseudo headers come in the order of Envoy's codec.
func (p *simProxy) arriving(a Action) *hostsim.HeaderMap {
	h := headerMap(a.Headers)
	if p.setup.HTTP1 {
		h = &hostsim.HeaderMap{}
		for _, key := range []string{":authority", ":path", ":method", ":scheme"} {
			h.Add(key, valueOf(a.Headers, key))
		}
		for _, f := range a.Headers {
			if !strings.HasPrefix(f.Key, ":") {
				h.Add(f.Key, f.Value)
			}
		}
	}
	if cookies := joinCookies(a.Headers); cookies != "" && !p.setup.HTTP1 {
		h.Remove("cookie")
		h.Add("cookie", cookies)
	}
	h.Add("x-forwarded-proto", "http")
	return h
}

// joinCookies makes one field of the crumbs that HTTP/2 sends.
func joinCookies(fields []hostsim.Header) string {
	var all []string
	for _, f := range fields {
		if f.Key == "cookie" {
			all = append(all, f.Value)
		}
	}
	return strings.Join(all, "; ")
}

// answering are the response headers as the codec of the upstream shows them.
func (s *simStream) answering(a Action) *hostsim.HeaderMap {
	h := headerMap(a.Headers)
	if _, known := h.Get("content-length"); s.p.setup.HTTP1 && !known {
		if a.End {
			h.Add("content-length", "0")
		} else {
			h.Add("transfer-encoding", "chunked")
		}
	}
	return h
}

// defaultWindowBytes is Envoy 1.40's initial_stream_window_size.
const defaultWindowBytes = 16 << 20

// bufferLimit is how much of a body a filter may hold. With HTTP/2 it is the
// window of a stream, whatever the listener says; a route may lift it.
func (s *Setup) bufferLimit() int {
	limit := s.WindowBytes
	switch {
	case s.HTTP1:
		limit = s.BufferLimitBytes
		if limit == 0 {
			limit = 1 << 20
		}
	case limit == 0:
		limit = defaultWindowBytes
	}
	return max(limit, s.RouteLimitBytes)
}

// restartIdle is the connection manager's stream_idle_timeout: it counts from
// the last piece in either direction.
func (s *simStream) restartIdle() {
	if s.stopIdle != nil {
		s.stopIdle()
	}
	if limit := s.p.setup.IdleTimeout; limit > 0 && !s.s.Done() {
		s.stopIdle = s.p.clock.AfterFunc(limit, func() {
			s.s.Info.ResponseFlags |= hostsim.FlagStreamIdleTimeout
			s.s.SendLocalReply(504, nil, []byte("stream timeout"), "stream_idle_timeout")
		})
	}
}

func (s *simStream) fromClient(a Action) {
	defer s.restartIdle()
	s.clientEnd = s.clientEnd || a.End
	switch a.Kind {
	case Data:
		s.pieces(a, s.s.RequestData)
	case Trailers:
		s.s.RequestTrailers(headerMap(a.Headers))
	default:
		if a.Kind == Reset && !s.p.setup.HTTP1 {
			s.s.Info.ResponseFlags |= hostsim.FlagDownstreamRemoteReset
		}
		s.s.Close()
		s.giveUp()
	}
	s.over()
}

// pieces feeds data as it arrives: in frames of HTTP/2; with HTTP/1.1 in one
// read and an empty last piece.
func (s *simStream) pieces(a Action, feed func([]byte, bool)) {
	if s.p.setup.HTTP1 {
		if len(a.Data) > 0 {
			feed(a.Data, false)
		}
		if a.End {
			feed(nil, true)
		}
		return
	}
	for rest := a.Data; ; {
		n := min(len(rest), maxFrame)
		last := n == len(rest)
		feed(rest[:n], last && a.End)
		if rest = rest[n:]; last {
			return
		}
	}
}

func (s *simStream) fromUpstream(a Action) error {
	if !s.sentUp || s.answered {
		return fmt.Errorf("the upstream has no open stream %q", s.name)
	}
	if s.gaveUp {
		return nil
	}
	defer s.restartIdle()
	info := &s.s.Info
	info.UpstreamAddress, info.UpstreamLocalAddress, info.UpstreamRequestAttemptCount = "127.0.0.1:9000", "127.0.0.1:41000", 1
	s.answered = a.End
	switch a.Kind {
	case Headers:
		s.s.ResponseHeaders(s.answering(a), a.End)
	case Data:
		s.pieces(a, s.s.ResponseData)
	case Trailers:
		s.s.ResponseTrailers(headerMap(a.Headers))
	case Reset:
		s.gaveUp = true
		s.s.UpstreamReset("remote reset")
	default:
		s.gaveUp = true
		reason := "connection termination"
		if s.p.setup.HTTP1 && s.replied {
			reason = "protocol error" // of a parser whose input ends too early
		}
		s.s.UpstreamReset(reason)
	}
	s.over()
	return nil
}

// over gives the upstream up when the stream has ended before its exchange.
func (s *simStream) over() {
	if s.s.Done() {
		s.giveUp()
	}
}

func (s *simStream) giveUp() {
	if s.sentUp && !s.gaveUp && !(s.answered && s.upEnded) {
		s.gaveUp = true
		s.cut(upstream)
	}
}

// route looks the route up, as it is done before the filters and for the router.
func (s *simStream) route(h *hostsim.HeaderMap) {
	s.s.Info.RouteName = routeName
	if _, ok := h.Get(headerMove); ok {
		s.s.Info.RouteName = routeMoved
	}
}

// cut is how a side learns that a stream is given up: by a frame, or with
// HTTP/1.1 by the end of its connection.
func (s *simStream) cut(actor string) {
	kind := Reset
	if s.p.setup.HTTP1 {
		kind = Disconnect
	}
	s.p.journal.add(event{actor: actor, stream: s.name, Action: Action{Kind: kind}})
}

func (s *simStream) toUpstream(a Action) {
	s.sentUp = true
	s.upEnded = s.upEnded || a.End
	s.p.journal.add(event{actor: upstream, stream: s.name, Action: a})
}

func (s *simStream) toClient(a Action) {
	s.replied = true
	s.respEnded = s.respEnded || a.End
	s.p.journal.add(event{actor: client, stream: s.name, Action: a})
}

// RequestHeaders implements hostsim.Sink.
func (s *simStream) RequestHeaders(h *hostsim.HeaderMap, end bool) {
	fields := h.Clone().Fields()
	if _, ok := h.Get("x-forwarded-proto"); !ok { // the router finds no route without it
		s.s.Info.ResponseFlags |= hostsim.FlagNoRouteFound
		s.vm.Post(func() { s.s.SendLocalReply(404, nil, nil, "route_not_found") })
		return
	}
	s.route(h)
	if s.p.setup.HTTP1 { // a request line and Host
		var line []hostsim.Header
		for _, key := range []string{":method", ":path", ":authority"} {
			line = append(line, hostsim.Header{Key: key, Value: h.Value(key)})
		}
		fields = append(line, slices.DeleteFunc(fields, func(f hostsim.Header) bool { return strings.HasPrefix(f.Key, ":") })...)
	}
	s.toUpstream(Action{Headers: fields, End: end})
}

// RequestData implements hostsim.Sink.
func (s *simStream) RequestData(data []byte, end bool) {
	s.toUpstream(Action{Kind: Data, Data: data, End: end})
}

// RequestTrailers implements hostsim.Sink.
func (s *simStream) RequestTrailers(h *hostsim.HeaderMap) {
	s.toUpstream(Action{Kind: Trailers, Headers: h.Clone().Fields(), End: true})
}

// ResponseHeaders implements hostsim.Sink.
func (s *simStream) ResponseHeaders(h *hostsim.HeaderMap, end bool) {
	s.toClient(Action{Headers: h.Clone().Fields(), End: end})
}

// ResponseData implements hostsim.Sink.
func (s *simStream) ResponseData(data []byte, end bool) {
	s.toClient(Action{Kind: Data, Data: data, End: end})
}

// ResponseTrailers implements hostsim.Sink.
func (s *simStream) ResponseTrailers(h *hostsim.HeaderMap) {
	s.toClient(Action{Kind: Trailers, Headers: h.Clone().Fields(), End: true})
}

// LocalReply implements hostsim.Sink.
func (s *simStream) LocalReply(r hostsim.LocalReply) {
	fields := r.Headers.Clone().Fields()
	closing := s.p.setup.HTTP1 && !s.clientEnd // half a request is on the wire
	if closing {
		fields = append(fields, hostsim.Header{Key: "connection", Value: "close"})
	}
	s.toClient(Action{Headers: fields, End: len(r.Body) == 0})
	if len(r.Body) > 0 {
		s.toClient(Action{Kind: Data, Data: r.Body, End: true})
	}
	if closing {
		s.cut(client)
	}
	s.giveUp()
}

// Reset implements hostsim.Sink.
func (s *simStream) Reset(string) {
	s.cut(client)
	s.giveUp()
}
