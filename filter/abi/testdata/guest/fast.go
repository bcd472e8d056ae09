//go:build !bare

package main

import (
	"bytes"
	"math"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm"

	"github.com/warmpath/warmpath/filter/abi"
)

var s abi.Scratch

// exercises are what proxy_on_foreign_function can ask for, by name.
var exercises map[string]func(argument string) string

func init() {
	exercises = map[string]func(string) string{
		// the machinery of the tests
		"panic": func(a string) string {
			kind, callback, _ := strings.Cut(a, " ")
			panicIn[callback] = kind
			return "ok"
		},
		"calm":   func(string) string { clear(panicIn); return "ok" },
		"panics": func(string) string { return strconv.FormatUint(abi.Panics(), 10) },
		"memory": memory,
		"nothing": func(string) string {
			return "done"
		},

		// one per call
		"Log":             func(string) string { return abi.Log(abi.LogCritical, "burning").String() },
		"EnabledLogLevel": func(string) string { level, st := abi.EnabledLogLevel(); return num(level) + " " + st.String() },
		"Now":             func(string) string { return strconv.FormatInt(abi.Now(), 10) },
		"SetTickPeriod":   func(string) string { return abi.SetTickPeriod(1500 * time.Microsecond).String() },
		"SetEffectiveContext": func(string) string {
			return abi.SetEffectiveContext(77).String()
		},
		"Done":           func(string) string { return abi.Done().String() },
		"Buffer":         func(string) string { return data(abi.Buffer(abi.RequestBody, 3, math.MaxInt, &s)) },
		"BufferNegative": func(string) string { return data(abi.Buffer(abi.RequestBody, -1, -1, &s)) },
		"BufferSize":     func(string) string { n, st := abi.BufferSize(abi.ResponseBody); return num(n) + " " + st.String() },
		"SetBuffer":      func(string) string { return abi.SetBuffer(abi.ResponseBody, 1, 2, []byte("new")).String() },
		"Header":         func(string) string { return data(abi.Header(abi.RequestHeaders, "x-a", &s)) },
		"HeaderString": func(string) string {
			v, ok := abi.HeaderString(abi.ResponseHeaders, "x-a")
			return v + " " + strconv.FormatBool(ok)
		},
		"HeaderPairs": headerPairs,
		"HeaderMapSize": func(string) string {
			n, st := abi.HeaderMapSize(abi.RequestTrailers)
			return num(n) + " " + st.String()
		},
		"SetHeader":    func(string) string { return abi.SetHeader(abi.ResponseHeaders, "x-a", "1").String() },
		"AddHeader":    func(string) string { return abi.AddHeader(abi.ResponseTrailers, "x-a", "").String() },
		"RemoveHeader": func(string) string { return abi.RemoveHeader(abi.RequestHeaders, "x-a").String() },
		"SetHeaderPairs": func(string) string {
			return abi.SetHeaderPairs(abi.RequestHeaders, [][2]string{{"a", "1"}, {"b", ""}}).String()
		},
		"Property":    func(string) string { return data(abi.Property("upstream\x00address", &s)) },
		"SetProperty": func(string) string { return abi.SetProperty("gw.dest", []byte("10.0.0.1:8000")).String() },
		"Continue":    func(string) string { return abi.Continue(abi.StreamRequest).String() },
		"Close":       func(string) string { return abi.Close(abi.StreamDownstream).String() },
		"SendLocalResponse": func(string) string {
			return abi.SendLocalResponse(429, "over quota", [][2]string{{"retry-after", "2"}}, []byte("{}"), abi.NoGRPCStatus).String()
		},
		"CallStatus": func(string) string {
			code, message, st := abi.CallStatus(&s)
			return num(code) + " " + data(message, st)
		},
		"HTTPCall": func(string) string {
			id, st := abi.HTTPCall("control", [][2]string{{":method", "POST"}, {":path", "/v1/batch"}}, []byte("body"), 2*time.Second,
				func(numHeaders, bodySize, numTrailers int) {
					called("proxy_on_http_call_response", numHeaders, bodySize, numTrailers)
				})
			return num(id) + " " + st.String()
		},
		"GRPCCall": func(string) string {
			id, st := abi.GRPCCall("c", "pkg.Service", "Method", [][2]string{{"k", "v"}}, []byte("msg"), time.Second)
			return num(id) + " " + st.String()
		},
		"GRPCStream": func(string) string {
			id, st := abi.GRPCStream("c", "pkg.Service", "Method", nil)
			return num(id) + " " + st.String()
		},
		"GRPCSend":   func(string) string { return abi.GRPCSend(7, []byte("msg"), true).String() },
		"GRPCCancel": func(string) string { return abi.GRPCCancel(7).String() },
		"GRPCClose":  func(string) string { return abi.GRPCClose(7).String() },
		"SharedData": func(string) string {
			v, cas, st := abi.SharedData("key", &s)
			return data(v, st) + " cas " + num(cas)
		},
		"SetSharedData": func(string) string { return abi.SetSharedData("key", []byte("value"), math.MaxUint32).String() },
		"RegisterQueue": func(string) string { id, st := abi.RegisterQueue("q"); return num(id) + " " + st.String() },
		"ResolveQueue":  func(string) string { id, st := abi.ResolveQueue("vm", "q"); return num(id) + " " + st.String() },
		"Enqueue":       func(string) string { return abi.Enqueue(5, []byte("message")).String() },
		"EnqueueEmpty":  func(string) string { return abi.Enqueue(5, nil).String() },
		"Dequeue":       func(string) string { return data(abi.Dequeue(5, &s)) },
		"DefineMetric":  func(string) string { m, st := abi.DefineMetric(abi.Histogram, "h"); return num(m) + " " + st.String() },
		"MetricAdd":     func(string) string { return abi.Metric(9).Add(-3).String() },
		"MetricAddZero": func(string) string { return abi.Metric(9).Add(0).String() },
		"MetricRecord":  func(string) string { return abi.Metric(9).Record(1 << 40).String() },
		"MetricValue": func(string) string {
			v, st := abi.Metric(9).Value()
			return strconv.FormatUint(v, 10) + " " + st.String()
		},
		"CallForeign": func(string) string { return data(abi.CallForeign("compress", []byte("in"), &s)) },

		"twoResults":  twoResults,
		"sameScratch": sameScratch,
		"readBodies":  readBodies,
		"repeat":      repeat,
	}
	for name, exercise := range sdkExercises {
		exercises["sdk."+name] = exercise
	}
}

func num[T ~int | ~uint32](n T) string { return strconv.Itoa(int(n)) }

// data shows a result.
func data(b []byte, st abi.Status) string { return strconv.Quote(string(b)) + " " + st.String() }

func headerPairs(string) string {
	pairs, st := abi.HeaderPairs(abi.RequestHeaders, &s)
	line := num(pairs.Len()) + " " + st.String()
	for {
		key, value, ok := pairs.Next()
		if !ok {
			return line
		}
		line += " " + string(key) + "=" + string(value)
	}
}

// twoResults shows that results in different Scratches do not disturb each
// other, sameScratch that those in the same one do.
func twoResults(string) string {
	var a, b abi.Scratch
	first, _, _ := abi.SharedData("one", &a)
	second, _ := abi.Header(abi.RequestHeaders, "two", &b)
	return string(first) + " " + string(second)
}

func sameScratch(string) string {
	var a abi.Scratch
	first, _, _ := abi.SharedData("one", &a)
	before := string(first)
	second, _ := abi.Header(abi.RequestHeaders, "two", &a)
	return before + " " + string(second) + " " + strconv.FormatBool(string(first) == before)
}

// readBodies reads the request body n times, by the SDK too, and compares.
func readBodies(n string) string {
	times, _ := strconv.Atoi(n)
	for range times {
		size, _ := abi.BufferSize(abi.RequestBody)
		body, st := abi.Buffer(abi.RequestBody, 0, size, &s)
		if st != abi.OK || len(body) != size {
			return "fast read: " + st.String()
		}
		copied, err := sdkBody(size)
		if err != nil {
			return "sdk read: " + err.Error()
		}
		if !bytes.Equal(body, copied) {
			return "the two reads differ"
		}
	}
	return "equal"
}

// repeat runs another exercise n times and reports its last result.
func repeat(a string) string {
	n, name, _ := strings.Cut(a, " ")
	times, _ := strconv.Atoi(n)
	result := ""
	for range times {
		result = bench[name]()
	}
	return result
}

// bench are the reads whose cost is measured: by this package and by the SDK.
var bench = map[string]func() string{
	"nothing":        func() string { return "" },
	"SharedData":     func() string { v, _, st := abi.SharedData("key", &s); return check(v, st == abi.OK) },
	"sdk.SharedData": func() string { v, _, err := proxywasm.GetSharedData("key"); return check(v, err == nil) },
	"Header":         func() string { v, st := abi.Header(abi.RequestHeaders, "x-a", &s); return check(v, st == abi.OK) },
	"sdk.Header": func() string {
		v, err := proxywasm.GetHttpRequestHeader("x-a")
		return check([]byte(v[:1]), err == nil)
	},
	"Body":     func() string { v, st := abi.Buffer(abi.RequestBody, 0, math.MaxInt, &s); return check(v, st == abi.OK) },
	"sdk.Body": func() string { v, err := proxywasm.GetHttpRequestBody(0, math.MaxInt32); return check(v, err == nil) },
}

func check(v []byte, ok bool) string {
	if !ok || len(v) == 0 {
		return "failed"
	}
	return "ok"
}

// memory is the number of collections, the heap in use and the memory got from
// the host, in KiB.
func memory(string) string {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return num(int(m.NumGC)) + " " + num(int(m.HeapInuse>>10)) + " " + num(int(m.Sys>>10))
}
