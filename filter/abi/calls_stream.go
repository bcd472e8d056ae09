package abi

// Buffer reads up to length bytes of a buffer from start on into s. Hosts say
// OK or NotFound for an empty one.
func Buffer(buffer BufferType, start, length int, s *Scratch) ([]byte, Status) {
	prepare(s)
	return finish(proxyGetBufferBytes(buffer, clamp(start), clamp(length), &outData, &outSize))
}

// BufferSize is how many bytes a buffer holds, without reading it.
func BufferSize(buffer BufferType) (int, Status) {
	outSize, outID = 0, 0
	st := proxyGetBufferStatus(buffer, &outSize, &outID)
	return int(outSize), st
}

// SetBuffer replaces length bytes of a buffer from start on by data.
func SetBuffer(buffer BufferType, start, length int, data []byte) Status {
	return proxySetBufferBytes(buffer, clamp(start), clamp(length), view(data))
}

// Header reads one header into s; of several with the same name, hosts return
// the first or all joined by a comma. Names are lower case.
func Header(headers MapType, key string, s *Scratch) (value []byte, st Status) {
	prepare(s)
	return finish(proxyGetHeaderMapValue(headers, key, &outData, &outSize))
}

// headerScratch serves HeaderString.
var headerScratch Scratch

// HeaderString reads one header as a string of its own, for values that are
// kept; false if it is absent.
func HeaderString(headers MapType, key string) (string, bool) {
	value, st := Header(headers, key, &headerScratch)
	return string(value), st == OK
}

// HeaderPairs reads a whole header map into s, which Pairs refers to.
func HeaderPairs(headers MapType, s *Scratch) (Pairs, Status) {
	prepare(s)
	data, st := finish(proxyGetHeaderMapPairs(headers, &outData, &outSize))
	if st != OK {
		return Pairs{}, st
	}
	return parsePairs(data)
}

// HeaderMapSize is the size of a header map in bytes, without reading it.
func HeaderMapSize(headers MapType) (int, Status) {
	outSize = 0
	st := proxyGetHeaderMapSize(headers, &outSize)
	return int(outSize), st
}

// SetHeader replaces a header, or adds it if it is absent.
func SetHeader(headers MapType, key, value string) Status {
	return proxyReplaceHeaderMapValue(headers, key, value)
}

// AddHeader adds a header beside others of the same name.
func AddHeader(headers MapType, key, value string) Status {
	return proxyAddHeaderMapValue(headers, key, value)
}

// RemoveHeader removes all headers of that name.
func RemoveHeader(headers MapType, key string) Status {
	return proxyRemoveHeaderMapValue(headers, key)
}

// SetHeaderPairs replaces a whole header map.
func SetHeaderPairs(headers MapType, pairs [][2]string) Status {
	pairsBuffer = AppendPairs(pairsBuffer[:0], pairs)
	return proxySetHeaderMapPairs(headers, view(pairsBuffer))
}

// Continue lets a paused stream go on, after SetEffectiveContext if it is not
// the one whose callback runs.
func Continue(stream StreamType) Status { return proxyContinueStream(stream) }

// Close ends a stream.
func Close(stream StreamType) Status { return proxyCloseStream(stream) }

// NoGRPCStatus is the grpcStatus of an answer that is no gRPC.
const NoGRPCStatus int32 = -1

// SendLocalResponse answers the request from the proxy. details appears as
// response code details in access logs. The callback must return
// types.ActionPause afterwards.
func SendLocalResponse(status int, details string, headers [][2]string, body []byte, grpcStatus int32) Status {
	pairsBuffer = AppendPairs(pairsBuffer[:0], headers)
	return proxySendLocalResponse(uint32(status), details, view(body), view(pairsBuffer), grpcStatus)
}

// clamp turns a Go length into the ABI's 32 bits; callers pass math.MaxInt for
// "all".
func clamp(n int) uint32 { return uint32(min(max(n, 0), 1<<31-1)) }
