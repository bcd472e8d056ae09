//go:build !bare

package main

import (
	"strconv"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm"

	"github.com/warmpath/warmpath/filter/abi"
)

func sdkBody(size int) ([]byte, error) { return proxywasm.GetHttpRequestBody(0, size) }

// sdkExercises make each host call of the SDK at least once.
var sdkExercises = map[string]func(string) string{
	"LogWarn": func(string) string { proxywasm.LogWarn("careful"); return "logged" },
	"SetTickPeriodMilliSeconds": func(string) string {
		return failure(proxywasm.SetTickPeriodMilliSeconds(100))
	},
	"SetEffectiveContext": func(string) string { return failure(proxywasm.SetEffectiveContext(77)) },
	"PluginDone":          func(string) string { proxywasm.PluginDone(); return "called" },

	"GetVMConfiguration":     func(string) string { return bytesOr(proxywasm.GetVMConfiguration()) },
	"GetPluginConfiguration": func(string) string { return bytesOr(proxywasm.GetPluginConfiguration()) },
	"GetHttpRequestBody":     func(string) string { return bytesOr(proxywasm.GetHttpRequestBody(3, 5)) },
	"AppendHttpRequestBody":  func(string) string { return failure(proxywasm.AppendHttpRequestBody([]byte("end"))) },
	"PrependHttpResponseBody": func(string) string {
		return failure(proxywasm.PrependHttpResponseBody([]byte("start")))
	},
	"ReplaceDownstreamData": func(string) string { return failure(proxywasm.ReplaceDownstreamData(nil)) },

	"GetHttpRequestHeaders": func(string) string {
		pairs, err := proxywasm.GetHttpRequestHeaders()
		line := failure(err)
		for _, p := range pairs {
			line += " " + p[0] + "=" + p[1]
		}
		return line
	},
	"ReplaceHttpRequestHeaders": func(string) string {
		return failure(proxywasm.ReplaceHttpRequestHeaders([][2]string{{"a", "1"}}))
	},
	"GetHttpRequestHeader": func(string) string { return stringOr(proxywasm.GetHttpRequestHeader("x-a")) },
	"AddHttpRequestHeader": func(string) string { return failure(proxywasm.AddHttpRequestHeader("x-a", "1")) },
	"ReplaceHttpResponseHeader": func(string) string {
		return failure(proxywasm.ReplaceHttpResponseHeader("x-a", "2"))
	},
	"RemoveHttpResponseTrailer": func(string) string { return failure(proxywasm.RemoveHttpResponseTrailer("x-a")) },
	"ResumeHttpRequest":         func(string) string { return failure(proxywasm.ResumeHttpRequest()) },
	"CloseUpstream":             func(string) string { return failure(proxywasm.CloseUpstream()) },
	"SendHttpResponse": func(string) string {
		return failure(proxywasm.SendHttpResponse(503, [][2]string{{"a", "1"}}, []byte("no"), -1))
	},

	"DispatchHttpCall": func(string) string {
		id, err := proxywasm.DispatchHttpCall("control", [][2]string{{":method", "GET"}}, nil, nil, 5000,
			func(numHeaders, bodySize, numTrailers int) {
				called("proxy_on_http_call_response", numHeaders, bodySize, numTrailers)
			})
		return num(id) + " " + failure(err)
	},
	"CallForeignFunction": func(string) string { return bytesOr(proxywasm.CallForeignFunction("compress", []byte("in"))) },

	"GetProperty": func(string) string { return bytesOr(proxywasm.GetProperty([]string{"upstream", "address"})) },
	"SetProperty": func(string) string { return failure(proxywasm.SetProperty([]string{"gw", "dest"}, []byte("v"))) },

	"GetSharedData": func(string) string {
		v, cas, err := proxywasm.GetSharedData("key")
		return bytesOr(v, err) + " cas " + num(cas)
	},
	"SetSharedData": func(string) string { return failure(proxywasm.SetSharedData("key", []byte("value"), 3)) },
	"RegisterSharedQueue": func(string) string {
		id, err := proxywasm.RegisterSharedQueue("q")
		return num(id) + " " + failure(err)
	},
	"ResolveSharedQueue": func(string) string {
		id, err := proxywasm.ResolveSharedQueue("vm", "q")
		return num(id) + " " + failure(err)
	},
	"EnqueueSharedQueue": func(string) string { return failure(proxywasm.EnqueueSharedQueue(5, []byte("message"))) },
	"DequeueSharedQueue": func(string) string { return bytesOr(proxywasm.DequeueSharedQueue(5)) },

	"DefineCounterMetric": func(string) string { return num(proxywasm.DefineCounterMetric("c")) },
	"CounterIncrement":    func(string) string { proxywasm.MetricCounter(9).Increment(2); return "added" },
	"CounterIncrementZero": func(string) string {
		proxywasm.MetricCounter(9).Increment(0)
		return "nothing to add"
	},
	"HistogramRecord": func(string) string { proxywasm.MetricHistogram(9).Record(3); return "recorded" },
	"GaugeValue":      func(string) string { return strconv.FormatInt(proxywasm.MetricGauge(9).Value(), 10) },

	"keptValue": keptValue,
}

func failure(err error) string {
	if err != nil {
		return err.Error()
	}
	return "ok"
}

func bytesOr(b []byte, err error) string { return stringOr(string(b), err) }

func stringOr(s string, err error) string { return strconv.Quote(s) + " " + failure(err) }

// keptValue shows that a small SDK result is the caller's to keep, whatever is
// read and allocated afterwards.
func keptValue(string) string {
	kept, _ := proxywasm.GetHttpRequestHeader("x-a")
	for range 10_000 {
		if _, err := proxywasm.GetHttpRequestHeader("x-b"); err != nil {
			return err.Error()
		}
		abi.HeaderString(abi.RequestHeaders, "x-b")
	}
	return kept
}
