package abi

import "strconv"

// Status is what every host call answers (proxy_status_t). It is an error in
// waiting: see Err.
type Status uint32

// The statuses of ABI 0.2.1. A host may answer others; they count as failures.
const (
	OK                   Status = 0
	NotFound             Status = 1
	BadArgument          Status = 2
	SerializationFailure Status = 3
	ParseFailure         Status = 4
	InvalidMemoryAccess  Status = 6
	Empty                Status = 7 // the queue has no message
	CASMismatch          Status = 8 // somebody else wrote the key first
	InternalFailure      Status = 10
	Unimplemented        Status = 12
)

// String is the status' name in the specification, in lower case.
func (s Status) String() string {
	switch s {
	case OK:
		return "ok"
	case NotFound:
		return "not found"
	case BadArgument:
		return "bad argument"
	case SerializationFailure:
		return "serialization failure"
	case ParseFailure:
		return "parse failure"
	case InvalidMemoryAccess:
		return "invalid memory access"
	case Empty:
		return "empty"
	case CASMismatch:
		return "cas mismatch"
	case InternalFailure:
		return "internal failure"
	case Unimplemented:
		return "unimplemented"
	}
	return "status " + strconv.Itoa(int(s))
}

// StatusError is a Status other than OK as an error.
type StatusError Status

// Error tells what the host answered.
func (e StatusError) Error() string { return "host answered " + Status(e).String() }

// Err is nil for OK and a StatusError otherwise.
func (s Status) Err() error {
	if s == OK {
		return nil
	}
	return StatusError(s)
}

// LogLevel orders log lines (proxy_log_level_t).
type LogLevel uint32

// The log levels of ABI 0.2.1.
const (
	LogTrace    LogLevel = 0
	LogDebug    LogLevel = 1
	LogInfo     LogLevel = 2
	LogWarn     LogLevel = 3
	LogError    LogLevel = 4
	LogCritical LogLevel = 5
)

// BufferType names a byte buffer of the host (proxy_buffer_type_t). Each can be
// read only inside the callbacks that the specification lists for it.
type BufferType uint32

// The buffers of ABI 0.2.1.
const (
	RequestBody         BufferType = 0
	ResponseBody        BufferType = 1
	DownstreamData      BufferType = 2
	UpstreamData        BufferType = 3
	HTTPCallBody        BufferType = 4
	GRPCMessage         BufferType = 5
	VMConfiguration     BufferType = 6
	PluginConfiguration BufferType = 7
	ForeignArguments    BufferType = 8
)

// MapType names a header map of the host (proxy_map_type_t).
type MapType uint32

// The header maps of ABI 0.2.1.
const (
	RequestHeaders       MapType = 0
	RequestTrailers      MapType = 1
	ResponseHeaders      MapType = 2
	ResponseTrailers     MapType = 3
	GRPCInitialMetadata  MapType = 4
	GRPCTrailingMetadata MapType = 5
	HTTPCallHeaders      MapType = 6
	HTTPCallTrailers     MapType = 7
)

// StreamType names one direction of a stream (proxy_stream_type_t).
type StreamType uint32

// The streams of ABI 0.2.1.
const (
	StreamRequest    StreamType = 0
	StreamResponse   StreamType = 1
	StreamDownstream StreamType = 2
	StreamUpstream   StreamType = 3
)

// MetricKind is the kind of a metric (proxy_metric_type_t).
type MetricKind uint32

// The metric kinds of ABI 0.2.1.
const (
	Counter   MetricKind = 0
	Gauge     MetricKind = 1
	Histogram MetricKind = 2
)
