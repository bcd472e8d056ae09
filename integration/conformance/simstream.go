package conformance

import (
	"fmt"
	"strings"

	"github.com/warmpath/warmpath/hostsim"
)

// simStream is a request between the client, the filter and the upstream. It is
// the filter's sink, and knows what of either side is still open.
type simStream struct {
	p    *simProxy
	name string
	s    *hostsim.Stream

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
			s := &simStream{p: p, name: a.Stream, clientEnd: a.End}
			p.streams[a.Stream] = s
			s.s = f.Plugins[0][i].NewStream(s)
			info := &s.s.Info
			info.SourceAddress, info.DestinationAddress = "127.0.0.1:40000", "127.0.0.1:8080"
			info.Protocol = "HTTP/2"
			if p.setup.HTTP1 {
				info.Protocol = "HTTP/1.1"
			}
			info.RouteName, info.ClusterName = routeName, p.setup.cluster()
			s.s.RequestHeaders(p.arriving(a), a.End)
			return nil
		}
	}
	return fmt.Errorf("stream %q: its name begins with none of the plugins", a.Stream)
}

// arriving are the request headers as the connection manager shows them to the
// filters.
func (p *simProxy) arriving(a Action) *hostsim.HeaderMap {
	h := headerMap(a.Headers)
	if p.setup.HTTP1 && !a.End {
		if _, ok := h.Get("content-length"); !ok {
			h.Add("transfer-encoding", "chunked")
		}
	}
	h.Add("x-forwarded-proto", "http")
	return h
}

func (s *simStream) fromClient(a Action) {
	s.clientEnd = s.clientEnd || a.End
	switch a.Kind {
	case Data:
		s.pieces(a, s.s.RequestData)
	case Trailers:
		s.s.RequestTrailers(headerMap(a.Headers))
	default:
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
	info := &s.s.Info
	info.UpstreamAddress, info.UpstreamLocalAddress, info.UpstreamRequestAttemptCount = "127.0.0.1:9000", "127.0.0.1:41000", 1
	s.answered = a.End
	switch a.Kind {
	case Headers:
		s.s.ResponseHeaders(headerMap(a.Headers), a.End)
	case Data:
		s.pieces(a, s.s.ResponseData)
	case Trailers:
		s.s.ResponseTrailers(headerMap(a.Headers))
	case Reset:
		s.gaveUp = true
		s.s.UpstreamReset("remote reset")
	default:
		s.gaveUp = true
		s.s.UpstreamReset("connection termination")
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
		s.p.journal.add(event{actor: upstream, stream: s.name, Action: Action{Kind: Reset}})
	}
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
	s.toUpstream(Action{Headers: h.Clone().Fields(), End: end})
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
	s.toClient(Action{Headers: r.Headers.Clone().Fields(), End: len(r.Body) == 0})
	if len(r.Body) > 0 {
		s.toClient(Action{Kind: Data, Data: r.Body, End: true})
	}
	s.giveUp()
}

// Reset implements hostsim.Sink.
func (s *simStream) Reset(string) {
	s.p.journal.add(event{actor: client, stream: s.name, Action: Action{Kind: Reset}})
	s.giveUp()
}
