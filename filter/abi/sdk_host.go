package abi

import "unsafe"

// sdkHost is the SDK's internal.ProxyWasmHost with our names for its types.
// Both have the same methods with the same parameters in memory, in the same
// order (Go sorts them by name), so a value of one serves as the other.
type sdkHost interface {
	ProxyLog(level LogLevel, message *byte, messageSize int) Status
	ProxySetProperty(path *byte, pathSize int, value *byte, valueSize int) Status
	ProxyGetProperty(path *byte, pathSize int, value **byte, valueSize *int) Status
	ProxySendLocalResponse(status uint32, details *byte, detailsSize int, body *byte, bodySize int, headers *byte, headersSize int, grpcStatus int32) Status
	ProxyGetSharedData(key *byte, keySize int, value **byte, valueSize *int, cas *uint32) Status
	ProxySetSharedData(key *byte, keySize int, value *byte, valueSize int, cas uint32) Status
	ProxyRegisterSharedQueue(name *byte, nameSize int, queueID *uint32) Status
	ProxyResolveSharedQueue(vmID *byte, vmIDSize int, name *byte, nameSize int, queueID *uint32) Status
	ProxyDequeueSharedQueue(queueID uint32, message **byte, messageSize *int) Status
	ProxyEnqueueSharedQueue(queueID uint32, message *byte, messageSize int) Status
	ProxyGetHeaderMapValue(headers MapType, key *byte, keySize int, value **byte, valueSize *int) Status
	ProxyAddHeaderMapValue(headers MapType, key *byte, keySize int, value *byte, valueSize int) Status
	ProxyReplaceHeaderMapValue(headers MapType, key *byte, keySize int, value *byte, valueSize int) Status
	ProxyContinueStream(stream StreamType) Status
	ProxyCloseStream(stream StreamType) Status
	ProxyRemoveHeaderMapValue(headers MapType, key *byte, keySize int) Status
	ProxyGetHeaderMapPairs(headers MapType, pairs **byte, pairsSize *int) Status
	ProxySetHeaderMapPairs(headers MapType, pairs *byte, pairsSize int) Status
	ProxyGetBufferBytes(buffer BufferType, start, length int, data **byte, dataSize *int) Status
	ProxySetBufferBytes(buffer BufferType, start, length int, data *byte, dataSize int) Status
	ProxyHttpCall(cluster *byte, clusterSize int, headers *byte, headersSize int, body *byte, bodySize int, trailers *byte, trailersSize int, timeoutMillis uint32, callID *uint32) Status
	ProxyCallForeignFunction(name *byte, nameSize int, arguments *byte, argumentsSize int, answer **byte, answerSize *int) Status
	ProxySetTickPeriodMilliseconds(period uint32) Status
	ProxySetEffectiveContext(contextID uint32) Status
	ProxyDone() Status
	ProxyDefineMetric(kind MetricKind, name *byte, nameSize int, metricID *uint32) Status
	ProxyIncrementMetric(metricID uint32, offset int64) Status
	ProxyRecordMetric(metricID uint32, value uint64) Status
	ProxyGetMetric(metricID uint32, value *uint64) Status
}

// bridge answers the SDK's host calls with the host's.
type bridge struct{}

// text is an SDK argument as the imports take it.
func text(data *byte, size int) string { return unsafe.String(data, size) }

// give hands a result to the SDK, which looks at it only if the status is OK.
func give(st Status, data **byte, size *int) Status {
	b, st := finish(st)
	*data, *size = unsafe.SliceData(b), len(b)
	return st
}

// giveID hands a number to the SDK.
func giveID(st Status, id *uint32) Status {
	*id, st = idOf(st)
	return st
}

func (bridge) ProxyLog(level LogLevel, message *byte, messageSize int) Status {
	return proxyLog(level, text(message, messageSize))
}

func (bridge) ProxySetProperty(path *byte, pathSize int, value *byte, valueSize int) Status {
	return proxySetProperty(text(path, pathSize), text(value, valueSize))
}

func (bridge) ProxyGetProperty(path *byte, pathSize int, value **byte, valueSize *int) Status {
	prepare(nil)
	return give(proxyGetProperty(text(path, pathSize), &outData, &outSize), value, valueSize)
}

func (bridge) ProxySendLocalResponse(status uint32, details *byte, detailsSize int, body *byte, bodySize int, headers *byte, headersSize int, grpcStatus int32) Status {
	return proxySendLocalResponse(status, text(details, detailsSize), text(body, bodySize), text(headers, headersSize), grpcStatus)
}

func (bridge) ProxyGetSharedData(key *byte, keySize int, value **byte, valueSize *int, cas *uint32) Status {
	prepare(nil)
	outCAS = 0
	st := give(proxyGetSharedData(text(key, keySize), &outData, &outSize, &outCAS), value, valueSize)
	*cas = outCAS
	return st
}

func (bridge) ProxySetSharedData(key *byte, keySize int, value *byte, valueSize int, cas uint32) Status {
	return proxySetSharedData(text(key, keySize), text(value, valueSize), cas)
}

func (bridge) ProxyRegisterSharedQueue(name *byte, nameSize int, queueID *uint32) Status {
	return giveID(proxyRegisterSharedQueue(text(name, nameSize), &outID), queueID)
}

func (bridge) ProxyResolveSharedQueue(vmID *byte, vmIDSize int, name *byte, nameSize int, queueID *uint32) Status {
	return giveID(proxyResolveSharedQueue(text(vmID, vmIDSize), text(name, nameSize), &outID), queueID)
}

func (bridge) ProxyDequeueSharedQueue(queueID uint32, message **byte, messageSize *int) Status {
	prepare(nil)
	return give(proxyDequeueSharedQueue(queueID, &outData, &outSize), message, messageSize)
}

func (bridge) ProxyEnqueueSharedQueue(queueID uint32, message *byte, messageSize int) Status {
	return proxyEnqueueSharedQueue(queueID, text(message, messageSize))
}

func (bridge) ProxyGetHeaderMapValue(headers MapType, key *byte, keySize int, value **byte, valueSize *int) Status {
	prepare(nil)
	return give(proxyGetHeaderMapValue(headers, text(key, keySize), &outData, &outSize), value, valueSize)
}

func (bridge) ProxyAddHeaderMapValue(headers MapType, key *byte, keySize int, value *byte, valueSize int) Status {
	return proxyAddHeaderMapValue(headers, text(key, keySize), text(value, valueSize))
}

func (bridge) ProxyReplaceHeaderMapValue(headers MapType, key *byte, keySize int, value *byte, valueSize int) Status {
	return proxyReplaceHeaderMapValue(headers, text(key, keySize), text(value, valueSize))
}

func (bridge) ProxyContinueStream(stream StreamType) Status { return proxyContinueStream(stream) }

func (bridge) ProxyCloseStream(stream StreamType) Status { return proxyCloseStream(stream) }

func (bridge) ProxyRemoveHeaderMapValue(headers MapType, key *byte, keySize int) Status {
	return proxyRemoveHeaderMapValue(headers, text(key, keySize))
}

func (bridge) ProxyGetHeaderMapPairs(headers MapType, pairs **byte, pairsSize *int) Status {
	prepare(nil)
	return give(proxyGetHeaderMapPairs(headers, &outData, &outSize), pairs, pairsSize)
}

func (bridge) ProxySetHeaderMapPairs(headers MapType, pairs *byte, pairsSize int) Status {
	return proxySetHeaderMapPairs(headers, text(pairs, pairsSize))
}

func (bridge) ProxyGetBufferBytes(buffer BufferType, start, length int, data **byte, dataSize *int) Status {
	prepare(nil)
	return give(proxyGetBufferBytes(buffer, clamp(start), clamp(length), &outData, &outSize), data, dataSize)
}

func (bridge) ProxySetBufferBytes(buffer BufferType, start, length int, data *byte, dataSize int) Status {
	return proxySetBufferBytes(buffer, clamp(start), clamp(length), text(data, dataSize))
}

func (bridge) ProxyHttpCall(cluster *byte, clusterSize int, headers *byte, headersSize int, body *byte, bodySize int, trailers *byte, trailersSize int, timeoutMillis uint32, callID *uint32) Status {
	return giveID(proxyHTTPCall(text(cluster, clusterSize), text(headers, headersSize), text(body, bodySize),
		text(trailers, trailersSize), timeoutMillis, &outID), callID)
}

func (bridge) ProxyCallForeignFunction(name *byte, nameSize int, arguments *byte, argumentsSize int, answer **byte, answerSize *int) Status {
	prepare(nil)
	return give(proxyCallForeignFunction(text(name, nameSize), text(arguments, argumentsSize), &outData, &outSize), answer, answerSize)
}

func (bridge) ProxySetTickPeriodMilliseconds(period uint32) Status {
	return proxySetTickPeriodMilliseconds(period)
}

func (bridge) ProxySetEffectiveContext(contextID uint32) Status {
	return proxySetEffectiveContext(contextID)
}

func (bridge) ProxyDone() Status { return proxyDone() }

func (bridge) ProxyDefineMetric(kind MetricKind, name *byte, nameSize int, metricID *uint32) Status {
	return giveID(proxyDefineMetric(kind, text(name, nameSize), &outID), metricID)
}

func (bridge) ProxyIncrementMetric(metricID uint32, offset int64) Status {
	return Metric(metricID).Add(offset)
}

func (bridge) ProxyRecordMetric(metricID uint32, value uint64) Status {
	return proxyRecordMetric(metricID, value)
}

func (bridge) ProxyGetMetric(metricID uint32, value *uint64) (st Status) {
	*value, st = Metric(metricID).Value()
	return st
}

// reachSDKHost calls every method once through our interface, which is what
// makes the linker keep them (see the package comment). It never runs.
func reachSDKHost(h sdkHost) {
	h.ProxyLog(0, nil, 0)
	h.ProxySetProperty(nil, 0, nil, 0)
	h.ProxyGetProperty(nil, 0, nil, nil)
	h.ProxySendLocalResponse(0, nil, 0, nil, 0, nil, 0, 0)
	h.ProxyGetSharedData(nil, 0, nil, nil, nil)
	h.ProxySetSharedData(nil, 0, nil, 0, 0)
	h.ProxyRegisterSharedQueue(nil, 0, nil)
	h.ProxyResolveSharedQueue(nil, 0, nil, 0, nil)
	h.ProxyDequeueSharedQueue(0, nil, nil)
	h.ProxyEnqueueSharedQueue(0, nil, 0)
	h.ProxyGetHeaderMapValue(0, nil, 0, nil, nil)
	h.ProxyAddHeaderMapValue(0, nil, 0, nil, 0)
	h.ProxyReplaceHeaderMapValue(0, nil, 0, nil, 0)
	h.ProxyContinueStream(0)
	h.ProxyCloseStream(0)
	h.ProxyRemoveHeaderMapValue(0, nil, 0)
	h.ProxyGetHeaderMapPairs(0, nil, nil)
	h.ProxySetHeaderMapPairs(0, nil, 0)
	h.ProxyGetBufferBytes(0, 0, 0, nil, nil)
	h.ProxySetBufferBytes(0, 0, 0, nil, 0)
	h.ProxyHttpCall(nil, 0, nil, 0, nil, 0, nil, 0, 0, nil)
	h.ProxyCallForeignFunction(nil, 0, nil, 0, nil, nil)
	h.ProxySetTickPeriodMilliseconds(0)
	h.ProxySetEffectiveContext(0)
	h.ProxyDone()
	h.ProxyDefineMetric(0, nil, 0, nil)
	h.ProxyIncrementMetric(0, 0)
	h.ProxyRecordMetric(0, 0)
	h.ProxyGetMetric(0, nil)
}
