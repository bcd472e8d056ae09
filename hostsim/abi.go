package hostsim

import (
	"fmt"
	"strconv"
)

// status is proxy_status_t: what a host call answers.
type status uint32

const (
	statusOK               status = 0
	statusNotFound         status = 1
	statusBadArgument      status = 2
	statusSerialization    status = 3
	statusParse            status = 4
	statusBadExpression    status = 5
	statusInvalidMemory    status = 6
	statusEmpty            status = 7
	statusCasMismatch      status = 8
	statusResultMismatch   status = 9
	statusInternalFailure  status = 10
	statusBrokenConnection status = 11
	statusUnimplemented    status = 12
)

var statusNames = [...]string{
	"Ok", "NotFound", "BadArgument", "SerializationFailure", "ParseFailure", "BadExpression",
	"InvalidMemoryAccess", "Empty", "CasMismatch", "ResultMismatch", "InternalFailure",
	"BrokenConnection", "Unimplemented",
}

func (s status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return fmt.Sprintf("status(%d)", uint32(s))
}

// Header map types (proxy_map_type_t).
const (
	mapRequestHeaders       = 0
	mapRequestTrailers      = 1
	mapResponseHeaders      = 2
	mapResponseTrailers     = 3
	mapGrpcInitialMetadata  = 4
	mapGrpcTrailingMetadata = 5
	mapCallResponseHeaders  = 6
	mapCallResponseTrailers = 7
)

// Buffer types (proxy_buffer_type_t).
const (
	bufferRequestBody         = 0
	bufferResponseBody        = 1
	bufferDownstreamData      = 2
	bufferUpstreamData        = 3
	bufferCallResponseBody    = 4
	bufferGrpcReceive         = 5
	bufferVMConfiguration     = 6
	bufferPluginConfiguration = 7
	bufferCallData            = 8
)

// Stream types (proxy_stream_type_t).
const (
	streamRequest    = 0
	streamResponse   = 1
	streamDownstream = 2
	streamUpstream   = 3
)

// What a headers, body or trailers callback may answer (Envoy's
// FilterHeadersStatus and FilterDataStatus share the first two values).
const (
	actionContinue             = 0
	actionStop                 = 1 // headers: StopIteration; body: StopIterationAndBuffer
	actionDataStopAndWatermark = 2 // body: hold back, no 413
	actionDataStopNoBuffer     = 3 // body: the module has taken the bytes
)

func itoa(n int) string { return strconv.Itoa(n) }
