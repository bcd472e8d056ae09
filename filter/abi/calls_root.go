package abi

import (
	"math"
	"time"
)

// Now is the host's clock: nanoseconds since 1970.
func Now() int64 {
	outValue = 0
	proxyGetCurrentTimeNanoseconds(&outValue)
	return int64(outValue)
}

// Log writes one line to the host's log, if level is enabled there.
func Log(level LogLevel, message string) Status { return proxyLog(level, message) }

// EnabledLogLevel is the least level that the host's log keeps, so that a
// costly message need not be built in vain.
func EnabledLogLevel() (LogLevel, Status) {
	level, st := idOf(proxyGetLogLevel(&outID))
	return LogLevel(level), st
}

// SetTickPeriod makes the host call OnTick of the current plugin context every
// d, in whole milliseconds; 0 stops it.
func SetTickPeriod(d time.Duration) Status { return proxySetTickPeriodMilliseconds(millis(d)) }

// SetEffectiveContext makes the host apply what follows to another context, to
// edit and continue a held stream from a tick.
func SetEffectiveContext(contextID uint32) Status { return proxySetEffectiveContext(contextID) }

// Done tells the host that a plugin context whose OnPluginDone said false may
// now be deleted.
func Done() Status { return proxyDone() }

// HTTPCall sends a request to a cluster of the host. headers need :method,
// :path and :authority. done runs once, with numHeaders 0 if there was no
// answer; inside, Header(HTTPCallHeaders, ...) and Buffer(HTTPCallBody, ...)
// read it. It belongs to the context whose callback makes the call and is not
// run if that has ended. An unknown cluster fails at once, without done.
func HTTPCall(cluster string, headers [][2]string, body []byte, timeout time.Duration,
	done func(numHeaders, bodySize, numTrailers int),
) (callID uint32, st Status) {
	pairsBuffer = AppendPairs(pairsBuffer[:0], headers)
	trailersBuffer = AppendPairs(trailersBuffer[:0], nil)
	callID, st = idOf(proxyHTTPCall(cluster, view(pairsBuffer), view(body), view(trailersBuffer), millis(timeout), &outID))
	if st == OK {
		sdkRegisterHTTPCallout(callID, done)
	}
	return callID, st
}

// HTTPCallOf is HTTPCall from the callback of any stream of the plugin context rootID: the call outlives
// the stream. Proxies take every call for the plugin context's; the SDK would forget with the stream who
// made it, and drop the answer.
func HTTPCallOf(rootID uint32, cluster string, headers [][2]string, body []byte, timeout time.Duration,
	done func(numHeaders, bodySize, numTrailers int),
) (callID uint32, st Status) {
	active := sdkActiveContext()
	sdkSetActiveContext(rootID)
	callID, st = HTTPCall(cluster, headers, body, timeout, done)
	sdkSetActiveContext(active)
	return callID, st
}

// GRPCCall sends one gRPC request. Its answer comes to GRPC.
func GRPCCall(cluster, service, method string, metadata [][2]string, message []byte, timeout time.Duration) (callID uint32, st Status) {
	pairsBuffer = AppendPairs(pairsBuffer[:0], metadata)
	return idOf(proxyGRPCCall(cluster, service, method, view(pairsBuffer), view(message), millis(timeout), &outID))
}

// GRPCStream opens a gRPC stream. What it receives comes to GRPC.
func GRPCStream(cluster, service, method string, metadata [][2]string) (streamID uint32, st Status) {
	pairsBuffer = AppendPairs(pairsBuffer[:0], metadata)
	return idOf(proxyGRPCStream(cluster, service, method, view(pairsBuffer), &outID))
}

// GRPCSend sends one message on a stream, the last one with end.
func GRPCSend(streamID uint32, message []byte, end bool) Status {
	var last uint32
	if end {
		last = 1
	}
	return proxyGRPCSend(streamID, view(message), last)
}

// GRPCCancel cancels a call or resets a stream.
func GRPCCancel(id uint32) Status { return proxyGRPCCancel(id) }

// GRPCClose closes a call or stream.
func GRPCClose(id uint32) Status { return proxyGRPCClose(id) }

// CallStatus is the status code and message of the call that the running
// callback is about; the message is in s.
func CallStatus(s *Scratch) (code uint32, message []byte, st Status) {
	prepare(s)
	outID = 0
	message, st = finish(proxyGetStatus(&outID, &outData, &outSize))
	return outID, message, st
}

// millis is d in the ABI's unit, rounded up: a positive time never becomes 0,
// which means "never" for a tick.
func millis(d time.Duration) uint32 {
	ms := (max(d, 0) + time.Millisecond - 1) / time.Millisecond
	return uint32(min(int64(ms), math.MaxUint32))
}
