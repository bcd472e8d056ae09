package hostsim

import (
	"strings"
	"time"
)

// Sink is the embedder's side of a stream: what the filter lets through. Its
// methods are called on the VM's thread, one at a time, in the order headers,
// data, trailers per direction; the last of a direction says endStream (or is
// the trailers). Data slices are valid during the call only. A Sink must not
// call its Stream's methods (fields of Info are fine); post that with VM.Post.
// Nor may it block: the VM's other streams wait. The goroutine may be any that
// holds the VM's thread, that of another stream included.
type Sink interface {
	// RequestHeaders, RequestData, RequestTrailers go on to the upstream.
	RequestHeaders(headers *HeaderMap, endStream bool)
	RequestData(data []byte, endStream bool)
	RequestTrailers(trailers *HeaderMap)
	// ResponseHeaders, ResponseData, ResponseTrailers go on to the client.
	ResponseHeaders(headers *HeaderMap, endStream bool)
	ResponseData(data []byte, endStream bool)
	ResponseTrailers(trailers *HeaderMap)
	// LocalReply answers the client instead of the upstream's response, whole.
	// Nothing was or will be sent by the Response methods; an upstream request
	// under way is to be given up.
	LocalReply(reply LocalReply)
	// Reset cuts the stream: both sides are to be given up. Response headers, if
	// sent, are followed by nothing.
	Reset(details string)
}

// LocalReply is a whole answer made by the proxy or the module.
type LocalReply struct {
	Headers *HeaderMap // with :status
	Body    []byte
	Details string // response.code_details
}

// StreamInfo is what the embedder knows about a stream and the module may read
// as properties. The embedder fills it before the callback in which it may be
// read, on the VM's thread.
type StreamInfo struct {
	RequestID          string    // request.id
	Protocol           string    // request.protocol ("HTTP/1.1")
	StartTime          time.Time // request.time; set by NewStream
	SourceAddress      string    // source.address, "ip:port"
	DestinationAddress string    // destination.address, "ip:port"
	ConnectionID       uint64    // connection.id, connection_id
	RouteName          string    // xds.route_name
	ClusterName        string    // xds.cluster_name

	UpstreamAddress                string        // upstream.address, the endpoint that really answered
	UpstreamLocalAddress           string        // upstream.local_address
	UpstreamTransportFailureReason string        // upstream.transport_failure_reason
	UpstreamRequestAttemptCount    uint64        // upstream.request_attempt_count; 0 reads as NotFound
	BackendLatency                 time.Duration // response.backend_latency; 0 reads as NotFound

	ResponseCodeDetails string        // response.code_details; the host sets it for its own replies
	ResponseFlags       ResponseFlags // response.flags; the host adds to it
}

// ResponseFlags are Envoy's bits (CoreResponseFlag), as response.flags gives
// them.
type ResponseFlags uint64

// The flags that this host sets or an embedding proxy may need.
const (
	FlagNoHealthyUpstream               ResponseFlags = 1 << 1  // UH
	FlagUpstreamRequestTimeout          ResponseFlags = 1 << 2  // UT
	FlagLocalReset                      ResponseFlags = 1 << 3  // LR
	FlagUpstreamRemoteReset             ResponseFlags = 1 << 4  // UR
	FlagUpstreamConnectionFailure       ResponseFlags = 1 << 5  // UF
	FlagUpstreamConnectionTermination   ResponseFlags = 1 << 6  // UC
	FlagUpstreamOverflow                ResponseFlags = 1 << 7  // UO
	FlagNoRouteFound                    ResponseFlags = 1 << 8  // NR
	FlagDownstreamConnectionTermination ResponseFlags = 1 << 14 // DC, seen as 16384 in Envoy 1.40
	FlagUpstreamRetryLimitExceeded      ResponseFlags = 1 << 15 // URX
	FlagStreamIdleTimeout               ResponseFlags = 1 << 16 // SI
	FlagDurationTimeout                 ResponseFlags = 1 << 22 // DT
	FlagUpstreamProtocolError           ResponseFlags = 1 << 23 // UPE
	FlagDownstreamRemoteReset           ResponseFlags = 1 << 28 // DR, the client reset its HTTP/2 stream
)

// response.code_details that the host sets itself.
const (
	detailsFailStream      = "wasm_fail_stream"
	detailsCloseStream     = "wasm_close_stream"
	detailsRequestTooLarge = "request_payload_too_large"
	detailsReplyTooLarge   = "response_payload_too_large"
	detailsClientGone      = "downstream_remote_disconnect"
	detailsClientReset     = "http2.remote_reset"
)

// Stream is one HTTP request in a plugin. Feed it what arrives; what the module
// lets through comes out of the Sink. on_log, on_done and on_delete run exactly
// once, in this order, after whichever end comes first.
type Stream struct {
	// Info may be filled in and read on the VM's thread.
	Info StreamInfo

	vm     *VM
	in     *instance
	root   *rootContext
	sink   Sink
	serial uint64 // order of opening
	id     uint32 // stream context, 0 before on_context_create
	limit  int    // buffer limit in bytes

	bypass   bool // pass everything, without the module
	refuse   bool // answer 503
	replied  bool // a local reply is under way or out
	direct   bool // ... and skips the module
	answered bool // proxy_send_local_response was called: only the first call counts
	finished bool
	code     string // :status of the response as far as the proxy knows it
	logPhase bool
	endTime  time.Time

	req, resp   flow
	reply       LocalReply
	filterState map[string][]byte
}

// NewStream opens a stream. The module hears of it with the request headers, as
// in Envoy. On a VM that has failed the policy decides: a fresh instance, a
// stream that passes everything, or one that answers 503 to its headers.
func (p *Plugin) NewStream(sink Sink) *Stream {
	vm := p.vm
	s := &Stream{vm: vm, sink: sink, limit: p.cfg.BufferLimitBytes}
	s.Info.StartTime = vm.host.Now()
	s.serial = vm.host.streams.Add(1)
	s.resp.dir = response
	if s.limit == 0 {
		s.limit = defaultBufferLimitBytes
	}
	vm.streams[s] = struct{}{}
	vm.active.Add(1)
	switch {
	case vm.draining:
		s.bypass = true
	case vm.ready(p): // a reload makes a new root
		root := p.root()
		root.streams++
		s.root, s.in = root, root.in
	case vm.cfg.FailurePolicy == FailOpen, vm.cfg.PassStreamsOnTrap && !vm.closed:
		s.bypass = true
	default:
		s.refuse = true
	}
	return s
}

// RequestHeaders starts the request. The stream owns headers from here on.
func (s *Stream) RequestHeaders(headers *HeaderMap, endStream bool) {
	if s.refuse && !s.finished {
		s.req.started, s.req.headers = true, headers
		s.failStream()
		return
	}
	if s.over(&s.req) || s.req.started {
		return
	}
	if s.in != nil && !s.in.dead() && s.id == 0 {
		s.id = s.in.newContextID()
		c := callContext{root: s.root, stream: s}
		s.in.contexts[s.id] = c
		if s.in.fn.contextCreate != nil {
			s.in.call(c, s.in.fn.contextCreate, uint64(s.id), uint64(s.root.id))
		}
	}
	s.onHeaders(&s.req, headers, endStream)
}

// RequestData feeds a piece of the request body; data may be reused afterwards.
func (s *Stream) RequestData(data []byte, endStream bool) {
	if !s.over(&s.req) {
		s.onData(&s.req, data, endStream)
	}
}

// RequestTrailers ends the request.
func (s *Stream) RequestTrailers(trailers *HeaderMap) {
	if !s.over(&s.req) {
		s.onTrailers(&s.req, trailers)
	}
}

// ResponseHeaders starts the upstream's response; headers holds :status.
func (s *Stream) ResponseHeaders(headers *HeaderMap, endStream bool) {
	if !s.over(&s.resp) && !s.replied {
		if s.Info.ResponseCodeDetails == "" {
			s.Info.ResponseCodeDetails = "via_upstream"
		}
		s.onHeaders(&s.resp, headers, endStream)
	}
}

// ResponseData feeds a piece of the response body; data may be reused
// afterwards. Where the module has no response body callback and nothing is
// held, data goes to the sink without a call into the VM.
func (s *Stream) ResponseData(data []byte, endStream bool) {
	if !s.over(&s.resp) && !s.replied {
		s.onData(&s.resp, data, endStream)
	}
}

// ResponseTrailers ends the response.
func (s *Stream) ResponseTrailers(trailers *HeaderMap) {
	if !s.over(&s.resp) && !s.replied {
		s.onTrailers(&s.resp, trailers)
	}
}

// over says whether input of a direction comes too late to matter.
func (s *Stream) over(f *flow) bool {
	return s.finished || f.ended || f.dir == request && s.replied
}

// SendLocalReply answers in the proxy's name (timeouts, no upstream), headers
// without :status, by the same rules as proxy_send_local_response: through the
// module's response callbacks if the response has not begun; without them if it
// is still held; after response headers it cuts the stream.
func (s *Stream) SendLocalReply(status int, headers *HeaderMap, body []byte, details string) {
	s.localReply(status, headers.Fields(), body, details)
}

// UpstreamReset tells that the upstream failed and no retry is left: a 503
// before response headers, a cut stream after. reason is Envoy's word for it:
// "connection termination", "remote reset", "remote connection failure",
// "protocol error" (a body that ends before its end).
func (s *Stream) UpstreamReset(reason string) {
	if s.finished || s.replied || s.resp.ended {
		return
	}
	code := strings.ReplaceAll(reason, " ", "_")
	switch {
	case strings.Contains(code, "connection_failure"):
		s.Info.ResponseFlags |= FlagUpstreamConnectionFailure
	case code == "remote_reset":
		s.Info.ResponseFlags |= FlagUpstreamRemoteReset
	case code == "protocol_error":
		s.Info.ResponseFlags |= FlagUpstreamProtocolError
	default:
		s.Info.ResponseFlags |= FlagUpstreamConnectionTermination
	}
	details := "upstream_reset_before_response_started{" + code + "}"
	if s.resp.started {
		details = "upstream_reset_after_response_started{" + code + "}"
	}
	// Once response headers are out this cuts; a response that is still held gives
	// way to the 503, whose text is the same.
	s.localReply(503, nil, []byte("upstream connect error or disconnect/reset before headers. reset reason: "+reason), details)
}

// Close tells that the client went away, or that the embedder is done with the
// stream. After the response's end it does nothing; before, response.flags gets
// DownstreamConnectionTermination, or keeps DownstreamRemoteReset if the
// embedder has set it. The Sink is not called.
func (s *Stream) Close() {
	if s.finished {
		return
	}
	details := detailsClientReset
	if s.Info.ResponseFlags&FlagDownstreamRemoteReset == 0 {
		s.Info.ResponseFlags |= FlagDownstreamConnectionTermination
		details = detailsClientGone
	}
	if s.Info.ResponseCodeDetails == "" || s.Info.ResponseCodeDetails == "via_upstream" {
		s.Info.ResponseCodeDetails = details
	}
	s.finish()
}

// Done says whether the stream is over: on_log, on_done and on_delete have run.
func (s *Stream) Done() bool { return s.finished }

// RequestHeld says whether the module holds the request back, and how many body
// bytes wait with it: an embedder stops reading when this grows too large.
func (s *Stream) RequestHeld() (held bool, bytes int) { return s.req.held() }

// ResponseHeld is RequestHeld of the response.
func (s *Stream) ResponseHeld() (held bool, bytes int) { return s.resp.held() }

// SetBufferLimit overrides PluginConfig.BufferLimitBytes (in Envoy a route's
// request_body_buffer_limit does where it is the larger); negative: no limit.
func (s *Stream) SetBufferLimit(bytes int) { s.limit = bytes }

// FilterState returns what the module wrote by proxy_set_property, key without
// the "wasm." prefix.
func (s *Stream) FilterState(key string) (value []byte, ok bool) {
	value, ok = s.filterState[key]
	return value, ok
}

// ContextID is the stream's context in the module; 0 before request headers.
func (s *Stream) ContextID() uint32 { return s.id }

// localReply answers instead of the upstream.
func (s *Stream) localReply(code int, headers []Header, body []byte, details string) {
	if s.finished {
		return
	}
	if s.resp.sent {
		s.reset(details)
		return
	}
	s.Info.ResponseCodeDetails = details
	h := &HeaderMap{fields: make([]Header, 0, len(headers)+3)}
	h.Add(":status", itoa(code))
	for _, f := range headers {
		h.Add(f.Key, f.Value)
	}
	h.Remove("content-length")
	if len(body) > 0 {
		h.Add("content-length", itoa(len(body)))
		if _, ok := h.Get("content-type"); !ok {
			h.Add("content-type", "text/plain")
		}
	}
	// A response that the module holds is thrown away, and the reply does not
	// pass through the module's callbacks again.
	s.direct = s.direct || s.resp.started
	s.replied = true
	s.req.dropBody()
	s.reply = LocalReply{Details: details}
	s.resp = flow{dir: response}
	s.onHeaders(&s.resp, h, len(body) == 0)
	if len(body) > 0 && !s.finished {
		s.onData(&s.resp, body, true)
	}
}

// failStream ends a stream whose VM has failed: 503 or, if the response has
// begun, a cut.
func (s *Stream) failStream() {
	if s.finished {
		return
	}
	s.direct = true
	s.localReply(503, nil, nil, detailsFailStream)
}

// reset cuts both sides.
func (s *Stream) reset(details string) {
	if s.finished {
		return
	}
	if s.Info.ResponseCodeDetails == "via_upstream" {
		s.Info.ResponseCodeDetails = details
	}
	s.cut(details)
}

// cut is reset, but details are told only if none are known.
func (s *Stream) cut(details string) {
	if s.finished {
		return
	}
	if s.Info.ResponseCodeDetails == "" {
		s.Info.ResponseCodeDetails = details
	}
	s.closeSides()
	s.sink.Reset(details)
	s.finish()
}

func (s *Stream) closeSides() {
	s.req.ended, s.resp.ended = true, true
	s.req.state, s.resp.state = flowing, flowing
}

// finish runs the last callbacks, in Envoy's order (the access log is written
// before filters are destroyed), and forgets the stream.
func (s *Stream) finish() {
	if s.finished {
		return
	}
	s.finished = true
	s.endTime = s.vm.host.Now()
	delete(s.vm.streams, s)
	s.vm.active.Add(-1)
	s.req.dropBody()
	s.resp.dropBody()
	if s.root == nil {
		return
	}
	if s.id != 0 {
		c := callContext{root: s.root, stream: s}
		fn := &s.in.fn
		if fn.log != nil {
			s.logPhase = true
			s.in.call(c, fn.log, uint64(s.id))
			s.logPhase = false
		}
		if fn.done != nil {
			s.in.call(c, fn.done, uint64(s.id)) // the answer only matters for root contexts
		}
		if fn.delete != nil {
			s.in.call(c, fn.delete, uint64(s.id))
		}
		delete(s.in.contexts, s.id)
	}
	s.root.release()
}
