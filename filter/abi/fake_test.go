package abi_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm"
	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"github.com/warmpath/warmpath/filter/abi"
)

// A filter as small as can be, in a native build.
type (
	nativeVM     struct{ types.DefaultVMContext }
	nativePlugin struct {
		types.DefaultPluginContext
		replies []string
	}
	nativeStream struct{ types.DefaultHttpContext }
)

func (*nativeVM) NewPluginContext(uint32) types.PluginContext { return &nativePlugin{} }
func (*nativePlugin) NewHttpContext(uint32) types.HttpContext { return &nativeStream{} }

func (p *nativePlugin) OnTick() {
	abi.HTTPCall("control", [][2]string{{":path", "/v1/batch"}}, []byte("report"), time.Second, func(numHeaders, _, _ int) {
		status, _ := abi.HeaderString(abi.HTTPCallHeaders, ":status")
		p.replies = append(p.replies, status)
		abi.Log(abi.LogInfo, "control answered "+status)
	})
}

func (*nativeStream) OnHttpRequestHeaders(int, bool) types.Action {
	if path, _ := proxywasm.GetHttpRequestHeader(":path"); path == "/panic" {
		panic("as asked")
	}
	abi.SetHeader(abi.RequestHeaders, "x-a", "set by the fast call")
	if err := proxywasm.AddHttpRequestHeader("x-b", "added by the SDK"); err != nil {
		panic(err)
	}
	return types.ActionPause
}

func startNative(t *testing.T) *abi.Fake {
	t.Helper()
	f := abi.NewFake()
	t.Cleanup(abi.UseFake(f))
	abi.Start(&nativeVM{})
	abi.OnContextCreate(1, 0)
	abi.OnContextCreate(2, 1)
	t.Cleanup(func() { abi.OnDelete(2); abi.OnDelete(1) })
	return f
}

func TestNativeFilterSeesOneHostByBothWays(t *testing.T) {
	f := startNative(t)
	f.Headers[abi.RequestHeaders] = [][2]string{{":path", "/v1/chat/completions"}, {"x-a", "from the client"}}
	if action := abi.OnRequestHeaders(2, 2, false); action != types.ActionPause {
		t.Errorf("action %v, want Pause", action)
	}
	want := [][2]string{{":path", "/v1/chat/completions"}, {"x-a", "set by the fast call"}, {"x-b", "added by the SDK"}}
	if diff := cmp.Diff(want, f.Headers[abi.RequestHeaders]); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

func TestNativePanicIsRecoveredAsInWasm(t *testing.T) {
	f := startNative(t)
	f.Headers[abi.RequestHeaders] = [][2]string{{":path", "/panic"}}
	before := abi.Panics()
	if action := abi.OnRequestHeaders(2, 1, true); action != types.ActionContinue {
		t.Errorf("action %v, want Continue", action)
	}
	if abi.Panics() != before+1 {
		t.Errorf("Panics() went from %d to %d", before, abi.Panics())
	}
	if len(f.Logs) != 1 || f.Logs[0].Level != abi.LogError || !strings.Contains(f.Logs[0].Message, "as asked") {
		t.Errorf("logs %v", f.Logs)
	}
}

func TestNativeHTTPCallReachesItsCallback(t *testing.T) {
	f := startNative(t)
	abi.OnTick(1)
	if len(f.HTTPCalls) != 1 || f.HTTPCalls[0].Cluster != "control" || string(f.HTTPCalls[0].Body) != "report" {
		t.Fatalf("calls %v", f.HTTPCalls)
	}
	f.Headers[abi.HTTPCallHeaders] = [][2]string{{":status", "200"}}
	abi.OnHTTPCallResponse(1, f.HTTPCalls[0].ID, 1, 0, 0)
	if !slices.Contains(f.Logs, abi.FakeLog{Level: abi.LogInfo, Message: "control answered 200"}) {
		t.Errorf("the callback did not run: %v", f.Logs)
	}

	f.Refuse["proxy_http_call"] = abi.BadArgument // an unknown cluster
	abi.OnTick(1)
	if len(f.HTTPCalls) != 1 {
		t.Error("a refused call was recorded as made")
	}
}

// TestACallOfThePluginContextOutlivesTheStreamThatMadeIt: one of the stream's own is answered to nobody.
func TestACallOfThePluginContextOutlivesTheStreamThatMadeIt(t *testing.T) {
	f := startNative(t)
	for _, c := range []struct {
		call func(func(_, _, _ int))
		want int
	}{
		{func(done func(_, _, _ int)) { abi.HTTPCall("x", nil, nil, time.Second, done) }, 0},
		{func(done func(_, _, _ int)) { abi.HTTPCallOf(1, "x", nil, nil, time.Second, done) }, 1},
	} {
		abi.OnContextCreate(2, 1)
		abi.OnRequestHeaders(2, 0, true)
		answers := 0
		c.call(func(_, _, _ int) { answers++ })
		id := f.HTTPCalls[len(f.HTTPCalls)-1].ID
		abi.OnLog(2)
		abi.OnDone(2)
		abi.OnDelete(2)
		abi.OnHTTPCallResponse(1, id, 0, 0, 0)
		if answers != c.want {
			t.Errorf("%d answers, want %d", answers, c.want)
		}
	}
	// What follows is the stream's again.
	abi.OnContextCreate(2, 1)
	abi.OnRequestHeaders(2, 0, true)
	abi.HTTPCallOf(1, "x", nil, nil, time.Second, func(_, _, _ int) {})
	abi.HTTPCall("x", nil, nil, time.Second, func(_, _, _ int) { t.Error("the stream's own call is answered after its end") })
	abi.OnLog(2)
	abi.OnDone(2)
	abi.OnDelete(2)
	abi.OnHTTPCallResponse(1, f.HTTPCalls[len(f.HTTPCalls)-1].ID, 0, 0, 0)
}

func TestNativeSharedDataComparesAndSets(t *testing.T) {
	startNative(t)
	var s abi.Scratch
	if _, _, st := abi.SharedData("k", &s); st != abi.NotFound {
		t.Errorf("absent key: %v", st)
	}
	if st := abi.SetSharedData("k", []byte("1"), 0xFFFFFFFF); st != abi.OK {
		t.Errorf("any cas creates an absent key, got %v", st)
	}
	if st := abi.SetSharedData("k", []byte("2"), 0xFFFFFFFF); st != abi.CASMismatch {
		t.Errorf("a second creation must lose, got %v", st)
	}
	value, cas, st := abi.SharedData("k", &s)
	if string(value) != "1" || st != abi.OK {
		t.Errorf("got %q, %v", value, st)
	}
	if st := abi.SetSharedData("k", []byte("3"), cas); st != abi.OK {
		t.Errorf("the cas just read must win, got %v", st)
	}
}

func TestNativeQueueKeepsOrder(t *testing.T) {
	startNative(t)
	id, _ := abi.RegisterQueue("q")
	if found, st := abi.ResolveQueue("", "q"); found != id || st != abi.OK {
		t.Errorf("resolved %d, %v, want %d", found, st, id)
	}
	if _, st := abi.ResolveQueue("", "other"); st != abi.NotFound {
		t.Errorf("an unknown queue: %v", st)
	}
	abi.Enqueue(id, []byte("a"))
	abi.Enqueue(id, []byte("b"))
	var s abi.Scratch
	for _, want := range []string{"a", "b"} {
		if got, st := abi.Dequeue(id, &s); string(got) != want || st != abi.OK {
			t.Errorf("got %q, %v, want %q", got, st, want)
		}
	}
	if _, st := abi.Dequeue(id, &s); st != abi.Empty {
		t.Errorf("an empty queue: %v", st)
	}
}

func TestNativeMetricsRefuseWhatEnvoyRefuses(t *testing.T) {
	f := startNative(t)
	counter, _ := abi.DefineMetric(abi.Counter, "c")
	gauge, _ := abi.DefineMetric(abi.Gauge, "g")
	histogram, _ := abi.DefineMetric(abi.Histogram, "h")
	again, _ := abi.DefineMetric(abi.Counter, "c")
	for _, c := range []struct {
		what string
		got  abi.Status
		want abi.Status
	}{
		{"counter +2", counter.Add(2), abi.OK},
		{"counter +0", counter.Add(0), abi.OK},
		{"counter -1", counter.Add(-1), abi.BadArgument},
		{"gauge -1", gauge.Add(-1), abi.OK},
		{"gauge = 5", gauge.Record(5), abi.OK},
		{"histogram 7", histogram.Record(7), abi.OK},
		{"histogram +1", histogram.Add(1), abi.BadArgument},
		{"undefined", abi.Metric(99).Add(1), abi.NotFound},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", c.what, c.got, c.want)
		}
	}
	if v, _ := again.Value(); v != 2 || f.Metrics["g"].Value != 5 || !slices.Equal(f.Metrics["h"].Samples, []uint64{7}) {
		t.Errorf("counter %d, gauge %d, histogram %v", v, f.Metrics["g"].Value, f.Metrics["h"].Samples)
	}
}

func TestNativeHostsNest(t *testing.T) {
	outer, inner := startNative(t), abi.NewFake()
	restore := abi.UseFake(inner)
	abi.Log(abi.LogInfo, "to the inner one")
	restore()
	proxywasm.LogInfo("to the outer one")
	if len(inner.Logs) != 1 || inner.Logs[0].Message != "to the inner one" ||
		len(outer.Logs) != 1 || outer.Logs[0].Message != "to the outer one" {
		t.Errorf("inner %v, outer %v", inner.Logs, outer.Logs)
	}
}

func TestNativeBuildWithoutAHostSaysWhatToDo(t *testing.T) {
	defer func() {
		if v := recover(); v == nil || !strings.Contains(v.(string), "abi.UseFake(abi.NewFake())") {
			t.Errorf("panic %v does not name the remedy", v)
		}
	}()
	abi.Now()
}

func TestStatusIsAnErrorUnlessOK(t *testing.T) {
	if err := abi.OK.Err(); err != nil {
		t.Errorf("OK is %v", err)
	}
	if err := abi.CASMismatch.Err(); err == nil || err.Error() != "host answered cas mismatch" {
		t.Errorf("CASMismatch is %v", err)
	}
	if got := abi.Status(99).String(); got != "status 99" {
		t.Errorf("an unknown status is %q", got)
	}
}
