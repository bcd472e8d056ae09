//go:build wasip1

package main

import (
	"strconv"
	"strings"
	"unsafe"
)

//go:wasmimport env proxy_log
func proxyLog(level uint32, p unsafe.Pointer, n uint32) uint32

//go:wasmimport env proxy_get_log_level
func proxyGetLogLevel(out unsafe.Pointer) uint32

//go:wasmimport env proxy_get_current_time_nanoseconds
func proxyGetCurrentTime(out unsafe.Pointer) uint32

//go:wasmimport env proxy_get_status
func proxyGetStatus(code, p, n unsafe.Pointer) uint32

//go:wasmimport env proxy_get_header_map_value
func proxyGetHeader(kind uint32, k unsafe.Pointer, kn uint32, p, n unsafe.Pointer) uint32

//go:wasmimport env proxy_get_header_map_pairs
func proxyGetPairs(kind uint32, p, n unsafe.Pointer) uint32

//go:wasmimport env proxy_set_header_map_pairs
func proxySetPairs(kind uint32, p unsafe.Pointer, n uint32) uint32

//go:wasmimport env proxy_get_header_map_size
func proxyGetHeaderMapSize(kind uint32, out unsafe.Pointer) uint32

//go:wasmimport env proxy_replace_header_map_value
func proxyReplaceHeader(kind uint32, k unsafe.Pointer, kn uint32, v unsafe.Pointer, vn uint32) uint32

//go:wasmimport env proxy_add_header_map_value
func proxyAddHeader(kind uint32, k unsafe.Pointer, kn uint32, v unsafe.Pointer, vn uint32) uint32

//go:wasmimport env proxy_remove_header_map_value
func proxyRemoveHeader(kind uint32, k unsafe.Pointer, kn uint32) uint32

//go:wasmimport env proxy_get_buffer_bytes
func proxyGetBuffer(kind, start, length uint32, p, n unsafe.Pointer) uint32

//go:wasmimport env proxy_get_buffer_status
func proxyGetBufferStatus(kind uint32, size, flags unsafe.Pointer) uint32

//go:wasmimport env proxy_set_buffer_bytes
func proxySetBuffer(kind, start, length uint32, p unsafe.Pointer, n uint32) uint32

//go:wasmimport env proxy_send_local_response
func proxySendLocalResponse(code uint32, d unsafe.Pointer, dn uint32, b unsafe.Pointer, bn uint32, h unsafe.Pointer, hn uint32, grpc int32) uint32

//go:wasmimport env proxy_continue_stream
func proxyContinueStream(kind uint32) uint32

//go:wasmimport env proxy_close_stream
func proxyCloseStream(kind uint32) uint32

//go:wasmimport env proxy_set_effective_context
func proxySetEffectiveContext(id uint32) uint32

//go:wasmimport env proxy_done
func proxyDone() uint32

//go:wasmimport env proxy_get_property
func proxyGetProperty(k unsafe.Pointer, kn uint32, p, n unsafe.Pointer) uint32

//go:wasmimport env proxy_set_property
func proxySetProperty(k unsafe.Pointer, kn uint32, v unsafe.Pointer, vn uint32) uint32

//go:wasmimport env proxy_get_shared_data
func proxyGetSharedData(k unsafe.Pointer, kn uint32, p, n, cas unsafe.Pointer) uint32

//go:wasmimport env proxy_set_shared_data
func proxySetSharedData(k unsafe.Pointer, kn uint32, v unsafe.Pointer, vn, cas uint32) uint32

//go:wasmimport env proxy_register_shared_queue
func proxyRegisterQueue(k unsafe.Pointer, kn uint32, out unsafe.Pointer) uint32

//go:wasmimport env proxy_resolve_shared_queue
func proxyResolveQueue(vm unsafe.Pointer, vmn uint32, k unsafe.Pointer, kn uint32, out unsafe.Pointer) uint32

//go:wasmimport env proxy_enqueue_shared_queue
func proxyEnqueue(token uint32, v unsafe.Pointer, vn uint32) uint32

//go:wasmimport env proxy_dequeue_shared_queue
func proxyDequeue(token uint32, p, n unsafe.Pointer) uint32

//go:wasmimport env proxy_define_metric
func proxyDefineMetric(kind uint32, k unsafe.Pointer, kn uint32, out unsafe.Pointer) uint32

//go:wasmimport env proxy_increment_metric
func proxyIncrementMetric(id uint32, by int64) uint32

//go:wasmimport env proxy_record_metric
func proxyRecordMetric(id uint32, value uint64) uint32

//go:wasmimport env proxy_get_metric
func proxyGetMetric(id uint32, out unsafe.Pointer) uint32

//go:wasmimport env proxy_set_tick_period_milliseconds
func proxySetTickPeriod(ms uint32) uint32

//go:wasmimport env proxy_http_call
func proxyHTTPCall(c unsafe.Pointer, cn uint32, h unsafe.Pointer, hn uint32, b unsafe.Pointer, bn uint32, t unsafe.Pointer, tn uint32, ms uint32, out unsafe.Pointer) uint32

//go:wasmimport env proxy_call_foreign_function
func proxyForeign(f unsafe.Pointer, fn uint32, a unsafe.Pointer, an uint32, p, n unsafe.Pointer) uint32

//go:wasmimport env proxy_grpc_call
func proxyGrpcCall(s unsafe.Pointer, sn uint32, n unsafe.Pointer, nn uint32, m unsafe.Pointer, mn uint32, i unsafe.Pointer, in uint32, b unsafe.Pointer, bn, ms uint32, out unsafe.Pointer) uint32

//go:wasmimport env proxy_grpc_stream
func proxyGrpcStream(s unsafe.Pointer, sn uint32, n unsafe.Pointer, nn uint32, m unsafe.Pointer, mn uint32, i unsafe.Pointer, in uint32, out unsafe.Pointer) uint32

//go:wasmimport env proxy_grpc_send
func proxyGrpcSend(token uint32, p unsafe.Pointer, n, end uint32) uint32

//go:wasmimport env proxy_grpc_close
func proxyGrpcClose(token uint32) uint32

//go:wasmimport env proxy_grpc_cancel
func proxyGrpcCancel(token uint32) uint32

// Results land in package variables: a goroutine's stack may move.
var (
	outPtr, outSize, out32, outFlags uint32
	out64                            uint64
	recent                           [8][]byte // what the host is filling
	recentAt                         int
)

//go:wasmexport proxy_on_memory_allocate
func allocate(size uint32) unsafe.Pointer {
	b := make([]byte, max(size, 1))
	recent[recentAt] = b
	recentAt = (recentAt + 1) % len(recent)
	return unsafe.Pointer(&b[0])
}

func ptr(s string) unsafe.Pointer { return unsafe.Pointer(unsafe.StringData(s)) }
func size(s string) uint32        { return uint32(len(s)) }

// result is the block that the host allocated and filled.
func result() string {
	if outSize == 0 {
		return ""
	}
	return strings.Clone(unsafe.String((*byte)(unsafe.Pointer(uintptr(outPtr))), outSize))
}

func log(s string) { proxyLog(2, ptr(s), size(s)) }

func buffer(kind, start, length uint32) string {
	outPtr, outSize = 0, 0
	if proxyGetBuffer(kind, start, length, unsafe.Pointer(&outPtr), unsafe.Pointer(&outSize)) != 0 {
		return ""
	}
	return result()
}

var statusNames = []string{
	"Ok", "NotFound", "BadArgument", "SerializationFailure", "ParseFailure", "BadExpression",
	"InvalidMemoryAccess", "Empty", "CasMismatch", "ResultMismatch", "InternalFailure",
	"BrokenConnection", "Unimplemented",
}

var mapKinds = map[string]uint32{
	"request": 0, "request-trailers": 1, "response": 2, "response-trailers": 3, "call": 6, "call-trailers": 7,
}

var bufferKinds = map[string]uint32{"request": 0, "response": 1, "call": 4, "vm": 6, "plugin": 7}

func hasHeader(kind, key string) bool {
	return proxyGetHeader(mapKinds[kind], ptr(key), size(key), unsafe.Pointer(&outPtr), unsafe.Pointer(&outSize)) == 0
}

// pairs encodes k, v, k, v... in the ABI's form.
func pairs(kv ...string) string {
	var head, tail []byte
	put := func(n int) { head = append(head, byte(n), byte(n>>8), byte(n>>16), byte(n>>24)) }
	put(len(kv) / 2)
	for _, s := range kv {
		put(len(s))
		tail = append(append(tail, s...), 0)
	}
	return string(append(head, tail...))
}

func printPairs(b string) string {
	if len(b) < 4 {
		return "{}"
	}
	u32 := func(at int) int {
		return int(b[at]) | int(b[at+1])<<8 | int(b[at+2])<<16 | int(b[at+3])<<24
	}
	n := u32(0)
	at := 4 + 8*n
	var parts []string
	for i := range n {
		k, v := u32(4+8*i), u32(8+8*i)
		parts = append(parts, b[at:at+k]+": "+b[at+k+1:at+k+1+v])
		at += k + v + 2
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// perform is one host call; it logs the words and what came back.
func perform(id uint32, w []string) {
	what := strings.Join(w, " ")
	say := func(status uint32, value ...string) {
		line := what + " -> " + statusNames[status]
		if status == 0 && len(value) > 0 {
			line += " " + strings.Join(value, " ")
		}
		log(line)
	}
	p, n := unsafe.Pointer(&outPtr), unsafe.Pointer(&outSize)
	outPtr, outSize = 0, 0
	switch w[0] {
	case "log":
		log(strings.Join(w[1:], " "))
	case "level":
		say(proxyGetLogLevel(unsafe.Pointer(&out32)), itoa(out32))
	case "time":
		st := proxyGetCurrentTime(unsafe.Pointer(&out64))
		say(st, strconv.FormatUint(out64, 10))
	case "status":
		st := proxyGetStatus(unsafe.Pointer(&out32), p, n)
		say(st, itoa(out32), strconv.Quote(result()))
	case "get":
		st := proxyGetHeader(mapKinds[w[1]], ptr(w[2]), size(w[2]), p, n)
		say(st, strconv.Quote(result()))
	case "pairs":
		st := proxyGetPairs(mapKinds[w[1]], p, n)
		say(st, printPairs(result()))
	case "setpairs":
		b := pairs(w[2:]...)
		say(proxySetPairs(mapKinds[w[1]], ptr(b), size(b)))
	case "mapsize":
		st := proxyGetHeaderMapSize(mapKinds[w[1]], unsafe.Pointer(&out32))
		say(st, itoa(out32))
	case "set":
		say(proxyReplaceHeader(mapKinds[w[1]], ptr(w[2]), size(w[2]), ptr(w[3]), size(w[3])))
	case "add":
		say(proxyAddHeader(mapKinds[w[1]], ptr(w[2]), size(w[2]), ptr(w[3]), size(w[3])))
	case "remove":
		say(proxyRemoveHeader(mapKinds[w[1]], ptr(w[2]), size(w[2])))
	case "body":
		start, length := uint32(0), uint32(0xffffffff)
		if len(w) > 3 {
			start, length = number(w[2]), number(w[3])
		}
		st := proxyGetBuffer(bufferKinds[w[1]], start, length, p, n)
		say(st, strconv.Quote(result()))
	case "bodysize":
		st := proxyGetBufferStatus(bufferKinds[w[1]], unsafe.Pointer(&out32), unsafe.Pointer(&outFlags))
		say(st, itoa(out32), itoa(outFlags))
	case "setbody":
		text := strings.Join(w[4:], " ")
		say(proxySetBuffer(bufferKinds[w[1]], number(w[2]), number(w[3]), ptr(text), size(text)))
	case "reply":
		code, text := number(w[1]), strings.Join(w[2:], " ")
		details, h := "guest_reply", pairs("retry-after", "1")
		say(proxySendLocalResponse(code, ptr(details), size(details), ptr(text), size(text), ptr(h), size(h), -1))
	case "resume":
		say(proxyContinueStream(streamKind(w)))
	case "close":
		say(proxyCloseStream(streamKind(w)))
	case "effective":
		if w[1] == "held" {
			if len(held) == 0 {
				log("effective held: none")
				return
			}
			say(proxySetEffectiveContext(held[0]))
			held = held[1:]
			return
		}
		say(proxySetEffectiveContext(number(w[1])))
	case "finished":
		say(proxyDone())
	case "prop", "prop64":
		key := strings.ReplaceAll(w[1], "/", "\x00")
		st := proxyGetProperty(ptr(key), size(key), p, n)
		v := result()
		if w[0] == "prop64" && len(v) == 8 {
			var x uint64
			for i := range 8 {
				x |= uint64(v[i]) << (8 * i)
			}
			say(st, strconv.FormatUint(x, 10))
			return
		}
		say(st, strconv.Quote(v))
	case "propsize":
		key := strings.ReplaceAll(w[1], "/", "\x00")
		st := proxyGetProperty(ptr(key), size(key), p, n)
		say(st, itoa(outSize), "bytes")
	case "setprop":
		say(proxySetProperty(ptr(w[1]), size(w[1]), ptr(w[2]), size(w[2])))
	case "sget":
		out32 = 0
		st := proxyGetSharedData(ptr(w[1]), size(w[1]), p, n, unsafe.Pointer(&out32))
		say(st, strconv.Quote(result()), "cas", itoa(out32))
	case "sset":
		say(proxySetSharedData(ptr(w[1]), size(w[1]), ptr(w[2]), size(w[2]), number(w[3])))
	case "sadd": // sadd KEY [cas]: count up, blindly or until the CAS holds
		for {
			proxyGetSharedData(ptr(w[1]), size(w[1]), p, n, unsafe.Pointer(&out32))
			cas := uint32(0)
			if len(w) > 2 {
				cas = out32
			}
			sum := "1"
			if outSize > 0 {
				sum = itoa(number(result()) + 1)
			}
			if proxySetSharedData(ptr(w[1]), size(w[1]), ptr(sum), size(sum), cas) == 0 {
				return
			}
		}
	case "qreg":
		st := proxyRegisterQueue(ptr(w[1]), size(w[1]), unsafe.Pointer(&out32))
		queues[w[1]] = out32
		say(st, "queue", itoa(out32))
	case "qresolve":
		st := proxyResolveQueue(ptr(w[1]), size(w[1]), ptr(w[2]), size(w[2]), unsafe.Pointer(&out32))
		queues[w[2]] = out32
		say(st, "queue", itoa(out32))
	case "qput":
		say(proxyEnqueue(queues[w[1]], ptr(w[2]), size(w[2])))
	case "qget":
		st := proxyDequeue(queues[w[1]], p, n)
		say(st, strconv.Quote(result()))
	case "counter", "gauge", "histogram":
		kind := map[string]uint32{"counter": 0, "gauge": 1, "histogram": 2}[w[0]]
		st := proxyDefineMetric(kind, ptr(w[1]), size(w[1]), unsafe.Pointer(&out32))
		metrics[w[1]] = out32
		say(st, "id", itoa(out32))
	case "inc":
		by, _ := strconv.ParseInt(w[2], 10, 64)
		say(proxyIncrementMetric(metrics[w[1]], by))
	case "rec":
		say(proxyRecordMetric(metrics[w[1]], uint64(number(w[2]))))
	case "metric":
		st := proxyGetMetric(metrics[w[1]], unsafe.Pointer(&out64))
		say(st, strconv.FormatUint(out64, 10))
	case "tick":
		say(proxySetTickPeriod(number(w[1])))
	case "call": // call CLUSTER PATH MILLISECONDS; without a path: no pseudo headers
		h := pairs(":method", "GET", ":path", w[2], ":authority", w[1])
		if w[2] == "none" {
			h = pairs("x-a", "b")
		}
		st := proxyHTTPCall(ptr(w[1]), size(w[1]), ptr(h), size(h), nil, 0, nil, 0, number(w[3]), unsafe.Pointer(&out32))
		say(st, "call", itoa(out32))
	case "post": // post CLUSTER PATH MILLISECONDS BODY...
		text := strings.Join(w[4:], " ")
		h := pairs(":method", "POST", ":path", w[2], ":authority", w[1], "x-kind", "post")
		t := pairs("x-trailer", "last")
		st := proxyHTTPCall(ptr(w[1]), size(w[1]), ptr(h), size(h), ptr(text), size(text), ptr(t), size(t), number(w[3]), unsafe.Pointer(&out32))
		say(st, "call", itoa(out32))
	case "foreign":
		say(proxyForeign(ptr(w[1]), size(w[1]), nil, 0, p, n))
	case "grpc":
		o := unsafe.Pointer(&out32)
		what = "grpc_call"
		say(proxyGrpcCall(nil, 0, nil, 0, nil, 0, nil, 0, nil, 0, 0, o))
		what = "grpc_stream"
		say(proxyGrpcStream(nil, 0, nil, 0, nil, 0, nil, 0, o))
		what = "grpc_send"
		say(proxyGrpcSend(1, nil, 0, 1))
		what = "grpc_close"
		say(proxyGrpcClose(1))
		what = "grpc_cancel"
		say(proxyGrpcCancel(1))
	case "print":
		print(strings.Join(w[1:], " "), "\n")
	case "trap":
		var none *uint32
		*none = 1
	case "exhaust":
		for {
			hoard = append(hoard, make([]byte, 16<<20))
		}
	case "recurse":
		log("depth " + itoa(recurse(1)))
	default:
		panic("unknown statement: " + what)
	}
}

func recurse(n uint32) uint32 {
	var block [512]byte
	block[n%512] = byte(n)
	return recurse(n+1) + uint32(block[n%7])
}

func streamKind(w []string) uint32 {
	if len(w) > 1 && w[1] == "response" {
		return 1
	}
	if len(w) > 1 && w[1] != "request" {
		return number(w[1])
	}
	return 0
}
