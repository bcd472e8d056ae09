package hostsim

import "github.com/tetratelabs/wazero/api"

// direction is the way a flow goes through the filter.
type direction uint8

const (
	request direction = iota
	response
)

// flowState is whether a flow goes on, in Envoy's terms (IterationState).
type flowState uint8

const (
	flowing    flowState = iota
	stopSingle           // held at headers, body or trailers; later pieces still reach the module
	stopAll              // held at headers; later pieces wait and reach the module on resumption
)

// flow is one direction of a stream: what has arrived, what is held, what is
// out. A piece arrives, the module is asked, and either everything held goes on
// with it or it is held too.
type flow struct {
	dir     direction
	state   flowState
	started bool // headers have arrived
	out     bool // headers have left the filter
	sent    bool // ... and gone to the sink; a local reply goes there whole, at its end
	ended   bool // the last piece has arrived

	headers, trailers *HeaderMap
	// What the module may read and edit: from the callback until a Continue from
	// that callback or a resumption, as in Envoy.
	headersOpen, trailersOpen bool
	// resumed: proxy_continue_stream came during the very callback that then
	// answers Stop.
	inCallback, resumed bool
	resuming            bool // proxy_continue_stream came and waits for the callback's end
	forced              bool // the piece in hand goes on, whatever the callback answers

	buffered  []byte
	hasBuffer bool // also with 0 bytes: an empty last piece is held
	buffering bool // the last body callback said stop-and-buffer
	taken     bool // the module has kept some of the body for itself

	view     []byte // the body during a body callback
	viewOpen bool

	bodyBytes int // of a request: arrived; of a response: gone to the client
}

// bodyEnds says whether the last piece of body is also the end of the stream.
func (f *flow) bodyEnds() bool { return f.ended && f.trailers == nil }

func (f *flow) held() (bool, int) { return f.state != flowing, len(f.buffered) }

func (f *flow) dropBody() { f.buffered, f.hasBuffer, f.view, f.viewOpen = nil, false, nil, false }

// body is what get_buffer_bytes sees now; ok is false outside of a body
// callback unless the body is buffered.
func (f *flow) body() (b []byte, ok bool) {
	if f.viewOpen {
		return f.view, true
	}
	return f.buffered, f.hasBuffer && f.buffering
}

func (f *flow) setBody(b []byte) {
	if f.viewOpen {
		f.view = b
	} else {
		f.buffered = b
	}
}

// blocked says whether the module may be asked about f: not if the stream
// passes it by; and a stream whose VM has failed ends here.
func (s *Stream) blocked(f *flow) (skip, stop bool) {
	switch {
	case s.bypass, f.dir == response && s.direct:
		return true, false
	case s.in.dead():
		s.failStream()
		return false, true
	case f.dir == response && s.id == 0:
		return true, false // no request headers, no callbacks
	}
	return false, false
}

// aborted says, after a callback, whether the stream took another turn in it: a
// local reply, a reset, a trap.
func (s *Stream) aborted(f *flow, before bool) bool {
	if s.finished || f.dir == request && s.replied || s.replied != before {
		return true
	}
	if s.in.dead() && s.vm.cfg.PassStreamsOnTrap {
		s.passBy()
		f.forced = true // the piece in hand goes on, whatever the module said
		return s.finished
	}
	if s.in.dead() {
		s.failStream()
		return true
	}
	return false
}

func (s *Stream) onHeaders(f *flow, headers *HeaderMap, end bool) {
	f.started, f.headers, f.ended = true, headers, end
	if f.dir == response {
		s.code = headers.Value(":status")
	}
	if skip, stop := s.blocked(f); stop {
		return
	} else if skip {
		s.emitHeaders(f, end)
		return
	}
	fn := s.in.fn.requestHeaders
	if f.dir == response {
		fn = s.in.fn.responseHeaders
	}
	action := uint64(actionContinue)
	if fn != nil {
		f.headersOpen, f.inCallback = true, true
		replied := s.replied
		action, _ = s.in.call(callContext{root: s.root, stream: s}, fn, uint64(s.id), uint64(headers.Len()), b2u(end))
		f.inCallback = false
		if s.aborted(f, replied) {
			return
		}
	}
	if uint32(action) == actionContinue || f.forced {
		f.headersOpen, f.resumed, f.forced = false, false, false
		s.emitHeaders(f, end)
		return
	}
	if f.resumed { // the headers go on; the answer is for what follows
		f.resumed = false
		s.emitHeaders(f, end)
		if end {
			return
		}
	}
	f.state = stopAll
	if uint32(action) == actionStop && s.root.cfg.AllowOnHeadersStopIteration {
		f.state = stopSingle
	}
}

func (s *Stream) onData(f *flow, data []byte, end bool) {
	if !f.started {
		return
	}
	f.ended = end
	if f.dir == request {
		f.bodyBytes += len(data)
	}
	if f.state == stopAll {
		if skip, stop := s.blocked(f); !skip && !stop {
			f.hold(data)
		}
		return
	}
	s.filterData(f, data)
}

// filterData asks the module about a piece of body.
func (s *Stream) filterData(f *flow, data []byte) {
	if skip, stop := s.blocked(f); stop {
		return
	} else if skip {
		s.passData(f, data)
		return
	}
	fn := s.in.fn.requestBody
	if f.dir == response {
		fn = s.in.fn.responseBody
	}
	if fn == nil {
		s.passData(f, data)
		return
	}
	// While the module buffers it is shown everything so far; otherwise only the
	// new piece.
	cumulative := f.buffering
	tooLarge := false
	if cumulative {
		f.hold(data)
		tooLarge = s.overLimit(f)
		if tooLarge && f.dir == response {
			s.refuseTooLarge(f)
			return
		}
		data = f.buffered
		f.buffered, f.hasBuffer = nil, false
	}
	f.view, f.viewOpen, f.inCallback = data, true, true
	replied := s.replied
	action, _ := s.in.call(callContext{root: s.root, stream: s}, fn, uint64(s.id), uint64(len(data)), b2u(f.bodyEnds()))
	data = f.view
	f.view, f.viewOpen, f.inCallback = nil, false, false
	if s.aborted(f, replied) {
		return
	}
	if tooLarge { // the request's callback runs all the same, its answer is void
		s.refuseTooLarge(f)
		return
	}
	if uint32(action) == actionContinue || f.forced {
		f.buffering, f.resumed, f.forced = false, false, false
		s.passData(f, data)
		return
	}
	if f.resumed { // what was held goes on; the answer is for the new piece
		f.resumed = false
		if cumulative || f.ended {
			s.passData(f, data)
			if f.ended {
				return
			}
			data = nil
		} else {
			s.release(f)
		}
	}
	f.state = stopSingle
	f.buffering = uint32(action) == actionStop
	switch uint32(action) {
	case actionStop, actionDataStopAndWatermark:
		if cumulative {
			f.buffered, f.hasBuffer = data, true // ours already
		} else {
			f.hold(data)
		}
		if f.buffering && s.overLimit(f) {
			s.refuseTooLarge(f)
		}
	default: // the module has taken the bytes; the end of the stream still waits
		f.taken = f.taken || len(data) > 0
		if f.ended && !f.hasBuffer {
			f.hasBuffer = true
		}
	}
}

// passData lets a piece go on, behind whatever is held.
func (s *Stream) passData(f *flow, data []byte) {
	if f.state == flowing {
		s.emitData(f, data, f.bodyEnds())
		return
	}
	if f.hasBuffer {
		f.hold(data)
		data = nil
	}
	f.state = flowing
	f.buffering = false
	s.flushHeaders(f, false)
	if f.hasBuffer {
		data = f.buffered
		f.dropBody()
	}
	s.emitData(f, data, f.bodyEnds())
}

func (s *Stream) onTrailers(f *flow, trailers *HeaderMap) {
	if !f.started {
		return
	}
	f.ended, f.trailers = true, trailers
	if f.state == stopAll {
		s.blocked(f)
		return
	}
	s.filterTrailers(f)
}

func (s *Stream) filterTrailers(f *flow) {
	skip, stop := s.blocked(f)
	if stop {
		return
	}
	action := uint64(actionContinue)
	if fn := s.trailersCallback(f); fn != nil && !skip {
		f.trailersOpen, f.inCallback = true, true
		replied := s.replied
		action, _ = s.in.call(callContext{root: s.root, stream: s}, fn, uint64(s.id), uint64(f.trailers.Len()))
		f.inCallback = false
		if s.aborted(f, replied) {
			return
		}
	}
	if uint32(action) == actionContinue || f.resumed || f.forced {
		f.trailersOpen, f.resumed, f.forced = false, false, false
		s.release(f)
		return
	}
	f.state = stopSingle
}

func (s *Stream) trailersCallback(f *flow) api.Function {
	switch {
	case s.in == nil:
		return nil
	case f.dir == request:
		return s.in.fn.requestTrailers
	default:
		return s.in.fn.responseTrailers
	}
}

// resume is proxy_continue_stream: what is held goes on. After stopAll the held
// body and trailers are shown to the module first, since it has not seen them.
func (s *Stream) resume(f *flow) {
	switch {
	case s.finished, f.dir == request && s.replied:
		return
	case f.inCallback:
		f.resumed = true
		return
	case f.state == flowing:
		return
	case f.state == stopSingle:
		s.release(f)
		return
	}
	f.state = flowing
	s.flushHeaders(f, f.bodyEnds() && !f.hasBuffer)
	if f.hasBuffer && !s.finished {
		data := f.buffered
		f.dropBody()
		s.filterData(f, data)
	}
	if f.trailers != nil && !s.finished && !(f.dir == request && s.replied) {
		s.filterTrailers(f)
	}
}

// release sends everything that is held.
func (s *Stream) release(f *flow) {
	f.state, f.buffering = flowing, false
	s.flushHeaders(f, f.bodyEnds() && !f.hasBuffer)
	if f.hasBuffer && !s.finished {
		data := f.buffered
		f.dropBody()
		s.emitData(f, data, f.bodyEnds())
	}
	if f.trailers != nil && !s.finished {
		s.emitTrailers(f)
	}
}

func (s *Stream) flushHeaders(f *flow, end bool) {
	if !f.out {
		s.emitHeaders(f, end)
	}
}

func (s *Stream) overLimit(f *flow) bool { return s.limit >= 0 && len(f.buffered) > s.limit }

// refuseTooLarge answers 413 (a request) or 500 (a response) when more is held
// than the limit allows.
func (s *Stream) refuseTooLarge(f *flow) {
	if f.dir == request {
		s.localReply(413, nil, []byte("Payload Too Large"), detailsRequestTooLarge)
	} else {
		s.localReply(500, nil, []byte("Internal Server Error"), detailsReplyTooLarge)
	}
}

// hold keeps a copy of data.
func (f *flow) hold(data []byte) {
	f.buffered = append(f.buffered, data...)
	f.hasBuffer = true
}

func b2u(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
