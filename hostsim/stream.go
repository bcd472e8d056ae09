package hostsim

import (
	"time"
)

// Sink is the embedder's side of a stream: what the filter lets through. Its
// methods are called on the VM's thread, one at a time, in the order headers,
// data, trailers per direction; the last of a direction says endStream (or is
// the trailers). Data slices are valid during the call only. A Sink must not
// call back into its Stream except for Info and CloseAfter; post that with
// VM.Post.
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
	RequestID, Protocol            string    // request.id, request.protocol ("HTTP/1.1")
	StartTime                      time.Time // request.time; set by NewStream
	SourceAddress                  string    // source.address "ip:port"
	DestinationAddress             string    // destination.address
	ConnectionID                   uint64
	RouteName                      string // xds.route_name, route_name
	ClusterName                    string // xds.cluster_name, cluster_name
	UpstreamAddress                string // upstream.address: the endpoint that really answered
	UpstreamLocalAddress           string
	UpstreamTransportFailureReason string
	UpstreamRequestAttemptCount    uint64        // upstream.request_attempt_count, 0: not found
	BackendLatency                 time.Duration // response.backend_latency, 0: not found
	ResponseCodeDetails            string        // response.code_details; the host sets it for its own replies
	ResponseFlags                  uint64        // response.flags, Envoy's bits
}

// Stream is one HTTP request in a plugin. Feed it what arrives; what the module
// lets through comes out of the Sink. on_log, on_done and on_delete run exactly
// once, in this order, after whichever end comes first.
type Stream struct {
	// Info may be filled in and read on the VM's thread.
	Info StreamInfo
}

// NewStream opens a stream. The module hears of it with the request headers, as
// in Envoy. On a VM that has failed the policy decides: a fresh instance, a
// stream that passes everything, or one that answers 503 to its headers.
func (p *Plugin) NewStream(sink Sink) *Stream { return &Stream{} }

// RequestHeaders starts the request. The stream owns headers from here on.
func (s *Stream) RequestHeaders(headers *HeaderMap, endStream bool) {}

// RequestData feeds a piece of the request body; data may be reused afterwards.
func (s *Stream) RequestData(data []byte, endStream bool) {}

// RequestTrailers ends the request.
func (s *Stream) RequestTrailers(trailers *HeaderMap) {}

// ResponseHeaders starts the upstream's response; headers holds :status.
func (s *Stream) ResponseHeaders(headers *HeaderMap, endStream bool) {}

// ResponseData feeds a piece of the response body; data may be reused
// afterwards. Where the module has no response body callback and nothing is
// held, data goes to the sink without a call into the VM.
func (s *Stream) ResponseData(data []byte, endStream bool) {}

// ResponseTrailers ends the response.
func (s *Stream) ResponseTrailers(trailers *HeaderMap) {}

// SendLocalReply answers in the proxy's name (timeouts, no upstream): through
// the module's response callbacks as in Envoy, 200-style rules as for
// proxy_send_local_response. After response headers it cuts the stream.
func (s *Stream) SendLocalReply(status int, headers *HeaderMap, body []byte, details string) {}

// UpstreamReset tells that the upstream failed and no retry is left: a 503
// before response headers, a cut stream after.
func (s *Stream) UpstreamReset(reason string) {}

// Close tells that the client went away, or that the embedder is done with the
// stream. After the response's end it does nothing; before, response.flags gets
// DownstreamConnectionTermination. The Sink is not called.
func (s *Stream) Close() {}

// Done says whether on_log, on_done and on_delete have run.
func (s *Stream) Done() bool { return false }

// RequestHeld says whether the module holds the request back, and how many body
// bytes wait with it: an embedder stops reading when this grows too large.
func (s *Stream) RequestHeld() (held bool, bytes int) { return false, 0 }

// ResponseHeld is RequestHeld of the response.
func (s *Stream) ResponseHeld() (held bool, bytes int) { return false, 0 }

// SetBufferLimit overrides PluginConfig.BufferLimitBytes (a route's
// request_body_buffer_limit).
func (s *Stream) SetBufferLimit(bytes int) {}

// FilterState returns what the module wrote by proxy_set_property, key without
// the "wasm." prefix.
func (s *Stream) FilterState(key string) (value []byte, ok bool) { return nil, false }
