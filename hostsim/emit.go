package hostsim

// What leaves the filter: to the upstream, to the client, or, if the response is
// a local reply, into one LocalReply.

func (s *Stream) emitHeaders(f *flow, end bool) {
	f.out = true
	if f.dir == response { // the module may have changed it
		s.code = f.headers.Value(":status")
	}
	switch {
	case f.dir == request:
		f.sent = true
		s.sink.RequestHeaders(f.headers, end)
		return
	case s.replied:
		s.reply.Headers = f.headers
	default:
		f.sent = true
		s.sink.ResponseHeaders(f.headers, end)
	}
	s.responseEnded(end)
}

func (s *Stream) emitData(f *flow, data []byte, end bool) {
	if len(data) == 0 && !end {
		return
	}
	switch {
	case f.dir == request:
		s.sink.RequestData(data, end)
		return
	case s.replied:
		f.bodyBytes += len(data)
		s.reply.Body = append(s.reply.Body, data...)
	default:
		f.bodyBytes += len(data)
		s.sink.ResponseData(data, end)
	}
	s.responseEnded(end)
}

func (s *Stream) emitTrailers(f *flow) {
	if f.dir == request {
		s.sink.RequestTrailers(f.trailers)
		return
	}
	if !s.replied {
		s.sink.ResponseTrailers(f.trailers)
	}
	s.responseEnded(true)
}

func (s *Stream) responseEnded(end bool) {
	if !end || s.finished {
		return
	}
	s.closeSides()
	if s.replied {
		s.resp.sent = true
		s.sink.LocalReply(s.reply)
	}
	s.finish()
}
