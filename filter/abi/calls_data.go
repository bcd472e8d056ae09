package abi

// SharedData reads a key of the process-wide store. The value is in s. An
// absent key is NotFound; cas is for SetSharedData.
func SharedData(key string, s *Scratch) (value []byte, cas uint32, st Status) {
	prepare(s)
	outCAS = 0
	st = proxyGetSharedData(key, &outData, &outSize, &outCAS)
	value, st = finish(st)
	return value, outCAS, st
}

// SetSharedData writes a key of the process-wide store. With cas 0 it always
// does; otherwise only if cas is the value that the last read returned, and
// CASMismatch tells that somebody else was first. Envoy accepts any cas for an
// absent key, so a cas that no read ever returns (0xFFFFFFFF) creates a key
// with exactly one winner.
func SetSharedData(key string, value []byte, cas uint32) Status {
	return proxySetSharedData(key, view(value), cas)
}

// RegisterQueue creates a shared queue, or takes it over: messages wake the
// plugin context that registered last (OnQueueReady).
func RegisterQueue(name string) (queueID uint32, st Status) {
	st = proxyRegisterSharedQueue(name, &outID)
	return idOf(st)
}

// ResolveQueue finds a queue registered by a VM with that vm_id.
func ResolveQueue(vmID, name string) (queueID uint32, st Status) {
	st = proxyResolveSharedQueue(vmID, name, &outID)
	return idOf(st)
}

// Enqueue appends a message to a queue. A dead reader is not noticed: the
// message waits for its successor.
func Enqueue(queueID uint32, message []byte) Status {
	return proxyEnqueueSharedQueue(queueID, view(message))
}

// Dequeue takes the oldest message of a queue into s; Empty if there is none.
func Dequeue(queueID uint32, s *Scratch) (message []byte, st Status) {
	prepare(s)
	return finish(proxyDequeueSharedQueue(queueID, &outData, &outSize))
}

// Metric is a metric of the host, by the number that DefineMetric got.
type Metric uint32

// DefineMetric finds or creates a metric. Not before OnVMStart: earlier calls
// have no effect in Envoy.
func DefineMetric(kind MetricKind, name string) (Metric, Status) {
	id, st := idOf(proxyDefineMetric(kind, name, &outID))
	return Metric(id), st
}

// Add changes a counter or gauge by n. 0 is a no-op here, as Envoy refuses it;
// a counter refuses n < 0 (BadArgument).
func (m Metric) Add(n int64) Status {
	if n == 0 {
		return OK
	}
	return proxyIncrementMetric(uint32(m), n)
}

// Record sets a gauge or adds a sample to a histogram.
func (m Metric) Record(value uint64) Status { return proxyRecordMetric(uint32(m), value) }

// Value reads a counter or gauge.
func (m Metric) Value() (uint64, Status) {
	outValue = 0
	st := proxyGetMetric(uint32(m), &outValue)
	return outValue, st
}

// Property reads an attribute of the stream or the node into s. Segments of
// the path are joined by a zero byte: "upstream\x00address". Numbers are 8
// bytes, little endian. An unknown path is NotFound.
func Property(path string, s *Scratch) (value []byte, st Status) {
	prepare(s)
	return finish(proxyGetProperty(path, &outData, &outSize))
}

// SetProperty writes an attribute; in Envoy it becomes filter state under the
// key "wasm." + path.
func SetProperty(path string, value []byte) Status {
	return proxySetProperty(path, view(value))
}

// CallForeign calls a function that only this host has. The answer is in s.
func CallForeign(name string, arguments []byte, s *Scratch) (answer []byte, st Status) {
	prepare(s)
	return finish(proxyCallForeignFunction(name, view(arguments), &outData, &outSize))
}

// idOf pairs a status with the number the host wrote, which means nothing
// unless the status is OK.
func idOf(st Status) (uint32, Status) {
	if st != OK {
		return 0, st
	}
	return outID, OK
}
