//go:build !wasm

package abi

import (
	"slices"
	"strings"
	"time"
)

// word is how the host writes an address or a length.
type word = uintptr

// The host functions of ABI 0.2.1 on the Fake, one for one with
// imports_wasm.go.

func proxyLog(level LogLevel, message string) Status {
	f := host()
	f.Logs = append(f.Logs, FakeLog{level, strings.Clone(message)})
	return OK
}

func proxyGetLogLevel(level *uint32) Status {
	*level = uint32(host().MinLevel)
	return OK
}

func proxyGetCurrentTimeNanoseconds(unixNanos *uint64) Status {
	*unixNanos = uint64(host().Clock)
	return OK
}

func proxySetTickPeriodMilliseconds(period uint32) Status {
	host().TickPeriod = time.Duration(period) * time.Millisecond
	return OK
}

func proxySetEffectiveContext(contextID uint32) Status {
	f := host()
	if st, refused := f.refused("proxy_set_effective_context"); refused {
		return st
	}
	f.EffectiveContext = contextID
	return OK
}

func proxyDone() Status {
	host().DoneCalls++
	return OK
}

func proxyGetBufferBytes(buffer BufferType, start, length uint32, data, size *word) Status {
	f := host()
	if st, refused := f.refused("proxy_get_buffer_bytes"); refused {
		return st
	}
	b, ok := f.Buffers[buffer]
	if !ok {
		return NotFound
	}
	from := min(int(start), len(b))
	return deliver(string(b[from:min(from+int(length), len(b))]), data, size)
}

func proxySetBufferBytes(buffer BufferType, start, length uint32, data string) Status {
	f := host()
	b, ok := f.Buffers[buffer]
	if !ok {
		return NotFound
	}
	from := min(int(start), len(b))
	to := min(from+int(length), len(b))
	f.Buffers[buffer] = slices.Concat(b[:from], []byte(data), b[to:])
	return OK
}

func proxyGetBufferStatus(buffer BufferType, size *word, unused *uint32) Status {
	b, ok := host().Buffers[buffer]
	if !ok {
		return NotFound
	}
	*size, *unused = word(len(b)), 0
	return OK
}

func proxyGetHeaderMapSize(headers MapType, size *word) Status {
	n := 0
	for _, p := range host().Headers[headers] {
		n += len(p[0]) + len(p[1])
	}
	*size = word(n)
	return OK
}

func proxyGetHeaderMapPairs(headers MapType, data, size *word) Status {
	pairs := host().Headers[headers]
	if len(pairs) == 0 {
		return deliver("", data, size)
	}
	return deliver(string(AppendPairs(nil, pairs)), data, size)
}

func proxySetHeaderMapPairs(headers MapType, pairs string) Status {
	host().Headers[headers] = pairsOf(pairs)
	return OK
}

func proxyGetHeaderMapValue(headers MapType, key string, data, size *word) Status {
	f := host()
	if st, refused := f.refused("proxy_get_header_map_value"); refused {
		return st
	}
	for _, p := range f.Headers[headers] {
		if p[0] == key {
			return deliver(p[1], data, size)
		}
	}
	return NotFound
}

func proxyAddHeaderMapValue(headers MapType, key, value string) Status {
	f := host()
	f.Headers[headers] = append(f.Headers[headers], [2]string{strings.Clone(key), strings.Clone(value)})
	return OK
}

func proxyReplaceHeaderMapValue(headers MapType, key, value string) Status {
	f := host()
	for i, p := range f.Headers[headers] {
		if p[0] == key {
			f.Headers[headers][i][1] = strings.Clone(value)
			return OK
		}
	}
	return proxyAddHeaderMapValue(headers, key, value)
}

func proxyRemoveHeaderMapValue(headers MapType, key string) Status {
	f := host()
	f.Headers[headers] = slices.DeleteFunc(f.Headers[headers], func(p [2]string) bool { return p[0] == key })
	return OK
}

func proxyGetProperty(path string, data, size *word) Status {
	value, ok := host().Properties[path]
	if !ok {
		return NotFound
	}
	return deliver(string(value), data, size)
}

func proxySetProperty(path, value string) Status {
	host().Properties[strings.Clone(path)] = []byte(value)
	return OK
}

func proxyContinueStream(stream StreamType) Status {
	f := host()
	f.Continued = append(f.Continued, stream)
	return OK
}

func proxyCloseStream(stream StreamType) Status {
	f := host()
	f.Closed = append(f.Closed, stream)
	return OK
}

func proxyGetStatus(code *uint32, data, size *word) Status {
	f := host()
	*code = f.CallStatusCode
	return deliver(f.CallStatusMessage, data, size)
}

func proxySendLocalResponse(status uint32, details, body, headers string, grpcStatus int32) Status {
	f := host()
	f.LocalResponses = append(f.LocalResponses, FakeLocalResponse{
		int(status), strings.Clone(details), pairsOf(headers), strings.Clone(body), grpcStatus,
	})
	return OK
}

func proxyHTTPCall(cluster, headers, body, trailers string, timeoutMillis uint32, callID *uint32) Status {
	f := host()
	if st, refused := f.refused("proxy_http_call"); refused {
		return st
	}
	*callID = f.nextID()
	f.HTTPCalls = append(f.HTTPCalls, FakeHTTPCall{
		*callID, strings.Clone(cluster), pairsOf(headers), []byte(body), pairsOf(trailers),
		time.Duration(timeoutMillis) * time.Millisecond,
	})
	return OK
}

func proxyGRPCCall(cluster, service, method, metadata, message string, timeoutMillis uint32, callID *uint32) Status {
	f := host()
	*callID = f.nextID()
	f.GRPC = append(f.GRPC, FakeGRPC{
		Call: "proxy_grpc_call", ID: *callID, Cluster: strings.Clone(cluster), Service: strings.Clone(service), Method: strings.Clone(method),
		Metadata: pairsOf(metadata), Message: []byte(message), End: true, Timeout: time.Duration(timeoutMillis) * time.Millisecond,
	})
	return OK
}

func proxyGRPCStream(cluster, service, method, metadata string, streamID *uint32) Status {
	f := host()
	*streamID = f.nextID()
	f.GRPC = append(f.GRPC, FakeGRPC{
		Call: "proxy_grpc_stream", ID: *streamID, Cluster: strings.Clone(cluster), Service: strings.Clone(service), Method: strings.Clone(method),
		Metadata: pairsOf(metadata),
	})
	return OK
}

func proxyGRPCSend(streamID uint32, message string, endOfStream uint32) Status {
	f := host()
	f.GRPC = append(f.GRPC, FakeGRPC{Call: "proxy_grpc_send", ID: streamID, Message: []byte(message), End: endOfStream != 0})
	return OK
}

func proxyGRPCCancel(id uint32) Status {
	f := host()
	f.GRPC = append(f.GRPC, FakeGRPC{Call: "proxy_grpc_cancel", ID: id})
	return OK
}

func proxyGRPCClose(id uint32) Status {
	f := host()
	f.GRPC = append(f.GRPC, FakeGRPC{Call: "proxy_grpc_close", ID: id})
	return OK
}

func proxyGetSharedData(key string, data, size *word, cas *uint32) Status {
	entry, ok := host().Shared[key]
	if !ok {
		return NotFound
	}
	*cas = entry.CAS
	return deliver(string(entry.Value), data, size)
}

func proxySetSharedData(key, value string, cas uint32) Status {
	f := host()
	if st, refused := f.refused("proxy_set_shared_data"); refused {
		return st
	}
	if entry, ok := f.Shared[key]; ok && cas != 0 && cas != entry.CAS {
		return CASMismatch
	}
	f.lastCAS++
	f.Shared[strings.Clone(key)] = FakeShared{Value: []byte(value), CAS: f.lastCAS}
	return OK
}

func proxyRegisterSharedQueue(name string, queueID *uint32) Status {
	f := host()
	id, ok := f.queueByName(name)
	if !ok {
		id = f.nextID()
		f.Queues[id] = &FakeQueue{Name: strings.Clone(name)}
	}
	*queueID = id
	return OK
}

func proxyResolveSharedQueue(_, name string, queueID *uint32) Status {
	id, ok := host().queueByName(name)
	if !ok {
		return NotFound
	}
	*queueID = id
	return OK
}

func proxyEnqueueSharedQueue(queueID uint32, message string) Status {
	q := host().Queues[queueID]
	if q == nil {
		return NotFound
	}
	q.Messages = append(q.Messages, []byte(message))
	return OK
}

func proxyDequeueSharedQueue(queueID uint32, data, size *word) Status {
	q := host().Queues[queueID]
	if q == nil {
		return NotFound
	}
	if len(q.Messages) == 0 {
		return Empty
	}
	message := q.Messages[0]
	q.Messages = q.Messages[1:]
	return deliver(string(message), data, size)
}

func proxyDefineMetric(kind MetricKind, name string, metricID *uint32) Status {
	f := host()
	m := f.Metrics[name]
	if m == nil {
		m = &FakeMetric{Kind: kind}
		f.Metrics[strings.Clone(name)] = m
	}
	f.defined = append(f.defined, m)
	*metricID = uint32(len(f.defined))
	return OK
}

func proxyIncrementMetric(metricID uint32, offset int64) Status {
	m := host().metric(metricID)
	if m == nil {
		return NotFound
	}
	if offset == 0 || m.Kind == Histogram || m.Kind == Counter && offset < 0 {
		return BadArgument
	}
	m.Value += uint64(offset)
	return OK
}

func proxyRecordMetric(metricID uint32, value uint64) Status {
	m := host().metric(metricID)
	switch {
	case m == nil:
		return NotFound
	case m.Kind == Histogram:
		m.Samples = append(m.Samples, value)
	default:
		m.Value = value
	}
	return OK
}

func proxyGetMetric(metricID uint32, value *uint64) Status {
	m := host().metric(metricID)
	if m == nil {
		return NotFound
	}
	*value = m.Value
	return OK
}

func proxyCallForeignFunction(name, arguments string, data, size *word) Status {
	call := host().Foreign[name]
	if call == nil {
		return NotFound
	}
	answer, st := call([]byte(arguments))
	if st != OK {
		return st
	}
	return deliver(string(answer), data, size)
}
