package hostsim

import "time"

// headerMap is the map that c may see now, and whether it may edit it; nil when
// there is none. Envoy then answers BadArgument, but an empty list of pairs.
func (c callContext) headerMap(kind uint64) (m *HeaderMap, writable bool) {
	if kind == mapCallResponseHeaders || kind == mapCallResponseTrailers {
		if c.root == nil || c.root.reply == nil || c.root.reply.failed {
			return nil, false
		}
		if kind == mapCallResponseHeaders {
			return c.root.reply.headers, true
		}
		return c.root.reply.trailers, true
	}
	s := c.stream
	if s == nil {
		return nil, false
	}
	var open bool
	switch kind {
	case mapRequestHeaders:
		m, open = s.req.headers, s.req.headersOpen
	case mapRequestTrailers:
		m, open = s.req.trailers, s.req.trailersOpen
	case mapResponseHeaders:
		m, open = s.resp.headers, s.resp.headersOpen
	case mapResponseTrailers:
		m, open = s.resp.trailers, s.resp.trailersOpen
	}
	if open || s.logPhase { // the access log sees every map
		return m, open
	}
	return nil, false
}

var headerCalls = []hostCall{
	{"proxy_get_header_map_value", "iiiii", func(in *instance, a []uint64) status {
		key, ok := in.bytes(a[1], a[2])
		if !ok {
			return statusInvalidMemory
		}
		m, _ := in.who().headerMap(a[0])
		if m == nil {
			return statusBadArgument
		}
		value, ok := m.Get(string(key))
		if !ok {
			return statusNotFound
		}
		return in.giveString(value, uint32(a[3]), uint32(a[4]))
	}},
	{"proxy_get_header_map_pairs", "iii", func(in *instance, a []uint64) status {
		m, _ := in.who().headerMap(a[0])
		return in.givePairs(m.Fields(), uint32(a[1]), uint32(a[2]))
	}},
	{"proxy_get_header_map_size", "ii", func(in *instance, a []uint64) status {
		m, writable := in.who().headerMap(a[0])
		if m == nil || !writable { // not in the access log, where it can be read
			return statusBadArgument
		}
		return in.putU32(a[1], uint32(m.ByteSize()))
	}},
	{"proxy_add_header_map_value", "iiiii", func(in *instance, a []uint64) status {
		return in.editHeader(a, (*HeaderMap).Add)
	}},
	{"proxy_replace_header_map_value", "iiiii", func(in *instance, a []uint64) status {
		return in.editHeader(a, (*HeaderMap).Set)
	}},
	{"proxy_remove_header_map_value", "iii", func(in *instance, a []uint64) status {
		key, ok := in.string(a[1], a[2])
		if !ok {
			return statusInvalidMemory
		}
		m, writable := in.who().headerMap(a[0])
		if m == nil || !writable {
			return statusBadArgument
		}
		m.Remove(key)
		return statusOK
	}},
	{"proxy_set_header_map_pairs", "iii", func(in *instance, a []uint64) status {
		b, ok := in.bytes(a[1], a[2])
		if !ok {
			return statusInvalidMemory
		}
		fields, err := parsePairs(b)
		if err != nil {
			return statusInvalidMemory
		}
		m, writable := in.who().headerMap(a[0])
		if m == nil || !writable {
			return statusBadArgument
		}
		m.fields = m.fields[:0]
		for _, f := range fields {
			m.Add(f.Key, f.Value)
		}
		return statusOK
	}},
}

func (in *instance) editHeader(a []uint64, edit func(m *HeaderMap, key, value string)) status {
	key, ok := in.string(a[1], a[2])
	if !ok {
		return statusInvalidMemory
	}
	value, ok := in.string(a[3], a[4])
	if !ok {
		return statusInvalidMemory
	}
	m, writable := in.who().headerMap(a[0])
	if m == nil || !writable {
		return statusBadArgument
	}
	edit(m, key, value)
	return statusOK
}

// buffer is what c may read now. A body that is not there reads as empty, any
// other missing buffer is not found.
func (c callContext) buffer(kind uint64) (b []byte, ok bool) {
	switch kind {
	case bufferVMConfiguration:
		if c.root != nil {
			return c.root.in.vm.cfg.Configuration, true
		}
	case bufferPluginConfiguration:
		if c.root != nil && c.root.starting {
			return c.root.cfg.Configuration, true
		}
	case bufferCallResponseBody:
		if c.root != nil && c.root.reply != nil && !c.root.reply.failed {
			return c.root.reply.body, true
		}
	case bufferRequestBody:
		if c.stream != nil {
			b, _ = c.stream.req.body()
		}
		return b, true
	case bufferResponseBody:
		if c.stream != nil {
			b, _ = c.stream.resp.body()
		}
		return b, true
	}
	return nil, false
}

var bufferCalls = []hostCall{
	{"proxy_get_buffer_bytes", "iiiii", func(in *instance, a []uint64) status {
		b, ok := in.who().buffer(a[0])
		if !ok {
			return statusNotFound
		}
		start, length := a[1], a[2]
		if start+length > 1<<32 {
			return statusBadArgument
		}
		if end := min(start+length, uint64(len(b))); end > start {
			return in.give(b[start:end], uint32(a[3]), uint32(a[4]))
		}
		// Envoy says Ok here and leaves the results alone; zeroes are what every
		// SDK starts them with.
		return in.putOut(0, 0, uint32(a[3]), uint32(a[4]))
	}},
	{"proxy_get_buffer_status", "iii", func(in *instance, a []uint64) status {
		b, ok := in.who().buffer(a[0])
		if !ok {
			return statusNotFound
		}
		if st := in.putU32(a[1], uint32(len(b))); st != statusOK {
			return st
		}
		return in.putU32(a[2], 0)
	}},
	{"proxy_set_buffer_bytes", "iiiii", func(in *instance, a []uint64) status {
		data, ok := in.bytes(a[3], a[4])
		if !ok {
			return statusInvalidMemory
		}
		c := in.who()
		if _, ok := c.buffer(a[0]); !ok {
			return statusNotFound
		}
		if c.stream == nil || a[0] > bufferResponseBody {
			return statusBadArgument
		}
		f := &c.stream.req
		if a[0] == bufferResponseBody {
			f = &c.stream.resp
		}
		old, ok := f.body()
		if !ok {
			return statusBadArgument
		}
		start, length := a[1], a[2]
		// Always a new slice: what the embedder handed in is not ours to change.
		var b []byte
		switch {
		case start == 0: // replace the first length bytes
			rest := old[min(length, uint64(len(old))):]
			b = append(append(make([]byte, 0, len(data)+len(rest)), data...), rest...)
		case start >= uint64(len(old)): // append
			b = append(append(make([]byte, 0, len(old)+len(data)), old...), data...)
		default:
			return statusBadArgument
		}
		f.setBody(b)
		return statusOK
	}},
}

// tooLate says whether a stream is over, and tells of a call that acts on it even
// so: from on_log or on_done.
func (in *instance) tooLate(s *Stream, call string) bool {
	if s.finished {
		in.crashes(call + " for a stream that has ended")
	}
	return s.finished
}

// crashes tells of a call that this host takes in good part and that ends an
// Envoy 1.40 with a segmentation fault.
func (in *instance) crashes(what string) {
	in.host.log(LogEntry{VM: in.vm.cfg.Name, Level: LogError, Message: what + ": this crashes Envoy 1.40"})
}

// flow is the direction of a stream type, nil if c has none.
func (c callContext) flow(kind uint64) *flow {
	if c.stream == nil {
		return nil
	}
	if kind == streamResponse {
		return &c.stream.resp
	}
	return &c.stream.req
}

var streamCalls = []hostCall{
	{"proxy_continue_stream", "i", func(in *instance, a []uint64) status {
		switch {
		case a[0] > streamUpstream:
			return statusBadArgument
		case a[0] == streamUpstream:
			return statusUnimplemented
		case a[0] == streamDownstream: // TCP: there is none
			return statusOK
		}
		c := in.who()
		f := c.flow(a[0])
		if f == nil {
			return statusOK
		}
		switch {
		case f.resuming:
			in.crashes("proxy_continue_stream twice in one callback")
		case !f.started:
			in.crashes("proxy_continue_stream of a response that has not begun")
		}
		f.resuming = true
		// Envoy closes the request's maps for either direction.
		c.stream.req.headersOpen, c.stream.req.trailersOpen = false, false
		in.later(func() {
			f.resuming = false
			c.stream.resume(f)
		})
		return statusOK
	}},
	{"proxy_close_stream", "i", func(in *instance, a []uint64) status {
		if a[0] > streamUpstream {
			return statusBadArgument
		}
		if s := in.who().stream; s != nil && a[0] <= streamResponse && !in.tooLate(s, "proxy_close_stream") {
			if s.Info.ResponseCodeDetails == "" {
				s.Info.ResponseCodeDetails = detailsCloseStream
			}
			in.later(func() { s.cut(detailsCloseStream) })
		}
		return statusOK
	}},
	{"proxy_send_local_response", "iiiiiiii", func(in *instance, a []uint64) status {
		details, ok := in.string(a[1], a[2])
		if !ok {
			return statusInvalidMemory
		}
		body, ok := in.bytes(a[3], a[4])
		if !ok {
			return statusInvalidMemory
		}
		pairs, ok := in.bytes(a[5], a[6])
		if !ok {
			return statusInvalidMemory
		}
		headers, err := parsePairs(pairs)
		if err != nil {
			return statusInvalidMemory
		}
		body = append([]byte(nil), body...)
		s := in.who().stream
		if s == nil || s.answered || in.tooLate(s, "proxy_send_local_response") {
			return statusOK
		}
		s.answered = true
		code := int(a[0])
		in.later(func() { s.localReply(code, headers, body, details) })
		return statusOK
	}},
}

var outCalls = []hostCall{
	{"proxy_http_call", "iiiiiiiiii", func(in *instance, a []uint64) status {
		cluster, ok := in.string(a[0], a[1])
		if !ok {
			return statusInvalidMemory
		}
		var maps [2][]Header
		for i, at := range []int{2, 6} {
			b, ok := in.bytes(a[at], a[at+1])
			if !ok {
				return statusInvalidMemory
			}
			fields, err := parsePairs(b)
			if err != nil {
				return statusInvalidMemory
			}
			maps[i] = fields
		}
		body, ok := in.bytes(a[4], a[5])
		if !ok {
			return statusInvalidMemory
		}
		root := in.who().root
		if root == nil || !root.alive() {
			return statusBadArgument
		}
		timeout := time.Duration(int32(a[8])) * time.Millisecond
		if timeout < 0 {
			return statusBadArgument
		}
		// The place for the id is proven before the call is made.
		if st := in.putU32(a[9], 0); st != statusOK {
			return st
		}
		id, st := root.httpCall(cluster, maps[0], append([]byte(nil), body...), maps[1], timeout)
		if st != statusOK {
			return st
		}
		return in.putU32(a[9], id)
	}},
	{"proxy_grpc_call", "iiiiiiiiiiii", func(*instance, []uint64) status { return statusUnimplemented }},
	{"proxy_grpc_stream", "iiiiiiiii", func(*instance, []uint64) status { return statusUnimplemented }},
	{"proxy_grpc_send", "iiii", func(*instance, []uint64) status { return statusNotFound }},
	{"proxy_grpc_close", "i", func(*instance, []uint64) status { return statusNotFound }},
	{"proxy_grpc_cancel", "i", func(*instance, []uint64) status { return statusNotFound }},
}
