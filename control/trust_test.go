package control

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/wire"
)

// ask reports a request to ref and its answer, which names cached tokens; -1: no
// usage.
func (g *gateway) ask(ref uint16, path []fingerprint.Checkpoint, predicted, cached int) {
	g.b.t.Helper()
	units := path[len(path)-1].End
	id, record := g.dispatch(ref, path)
	g.send(nil, record, done(id, ref, ref, func(r *wire.Report) {
		r.PredictedTokens, r.CachedTokens, r.PromptTokens = uint32(predicted), int32(cached), int32(units*fingerprint.UnitTokens)
		if cached < 0 {
			r.PromptTokens = wire.UnknownTokens
		}
	}))
}

func TestAWorkerWhoseHitsDoNotComeTrueIsTrustedLessAndComesBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, g := serving(t, newEngines(alpha, beta), Config{Workers: specs(alpha, beta)})
		ref, other := g.refOf(alpha), g.refOf(beta)
		trust := func() float32 {
			settle()
			g.catchUp()
			if l := g.loads[other]; l.Trust != 1 {
				t.Errorf("another worker's trust is %v", l.Trust)
			}
			return g.loads[ref].Trust
		}
		path := prompt("system", "user")
		tokens := int(path[len(path)-1].End) * fingerprint.UnitTokens
		g.ask(ref, path, 0, 0) // proves what it holds from now on
		g.ask(ref, path, tokens, tokens)
		g.ask(ref, path, tokens, -1)
		if h := b.worker(alpha).Hits; h != (api.Hits{Dispatches: 3, Answers: 3, Unnamed: 1, PromptTokens: 2 * uint64(tokens), PredictedTokens: uint64(tokens), CachedTokens: uint64(tokens)}) {
			t.Errorf("%+v", h)
		}
		if got := trust(); got != 1 || b.s.Status().Counters.UsageMissing != 1 {
			t.Errorf("trust %v after a hit and an answer without usage", got)
		}
		for range 8 {
			g.ask(ref, path, tokens, 0)
		}
		low := trust()
		w := b.worker(alpha)
		if low > 0.4 || !slices.ContainsFunc(w.Degraded, func(s string) bool {
			return strings.HasPrefix(s, fmt.Sprintf("trust %.2f: of 9.0 answers", low)) && strings.HasSuffix(s, "1.0 had what had been proven")
		}) {
			t.Errorf("trust %v, %q", low, w.Degraded)
		}
		time.Sleep(time.Minute)
		if got := trust(); got < low+0.15 {
			t.Errorf("a minute later %v, was %v", got, low)
		}
		time.Sleep(7 * time.Minute)
		if got := trust(); got < 0.99 || len(b.worker(alpha).Degraded) != 0 {
			t.Errorf("eight minutes later %v, %q", got, b.worker(alpha).Degraded)
		}
	})
}

func TestAnEngineThatNeverNamesWhatWasCachedIsNamed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, g := serving(t, newEngines(alpha), Config{Workers: specs(alpha)})
		ref, path := g.refOf(alpha), prompt("system")
		says := func() bool {
			return slices.ContainsFunc(b.worker(alpha).Degraded, func(s string) bool { return strings.Contains(s, "--enable-prompt-tokens-details") })
		}
		for range fewUnnamed - 1 {
			g.ask(ref, path, 0, -1)
		}
		if says() {
			t.Error("told too soon")
		}
		g.ask(ref, path, 0, -1)
		if !says() {
			t.Errorf("%q", b.worker(alpha).Degraded)
		}
		g.ask(ref, path, 0, 0)
		if says() {
			t.Error("told though the last answer named it")
		}
	})
}

func TestMoreThanWasPredictedIsKnownFromThen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, g := serving(t, newEngines(alpha), Config{Workers: specs(alpha)})
		ref := g.refOf(alpha)
		path := prompt("stored before we came")
		tokens := int(path[len(path)-1].End) * fingerprint.UnitTokens
		g.ask(ref, path, 0, tokens-16)
		settle()
		g.catchUp()
		for _, c := range path {
			if !slices.Equal(g.holders(c.Fingerprint), []uint16{ref}) {
				t.Errorf("unit %d: %v", c.End, g.holders(c.Fingerprint))
			}
		}
		if c := b.s.Status().Counters; c.MoreTokens != uint64(tokens-16) || c.CameTrueTokens != 0 || c.Shortfalls != 0 {
			t.Errorf("%+v", c)
		}
		if w := b.worker(alpha); w.Trust != 1 {
			t.Errorf("trust %v: more than predicted is no fault", w.Trust)
		}
	})
}

func TestPrefillRatesAreLearnedWhereNobodyWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		list := specs(alpha)
		list[0].PrefillTokensPerSecond = 20_000 // it is 10,000
		e := newEngines(alpha)
		b, g := serving(t, e, Config{Workers: list})
		ref := g.refOf(alpha)
		round := 0
		rate := func() float64 { return b.worker(alpha).PrefillRate }
		// answer plays a prompt of its own that is computed at 10,000 tokens/s after a
		// wait; others is what stands in the books beside it.
		answer := func(others uint32, wait time.Duration) {
			round++
			path := prompt(fmt.Sprint("prompt ", round), "a", "b", "c")
			tokens := path[len(path)-1].End * fingerprint.UnitTokens
			id, record := g.dispatch(ref, path)
			g.send([]wire.InFlight{{Ref: ref, Requests: 1, UncachedTokens: tokens + others}}, record)
			ttft := wait + time.Duration(tokens)*time.Second/10_000
			time.Sleep(ttft)
			g.send([]wire.InFlight{}, done(id, ref, ref, func(r *wire.Report) {
				r.PromptTokens, r.TTFTMillis, r.TotalMillis = int32(tokens), uint32(ttft.Milliseconds()), uint32(ttft.Milliseconds()+100)
			}))
			time.Sleep(time.Second)
		}
		if rate() != 20_000 {
			t.Errorf("begins with %v", rate())
		}
		for name, c := range map[string]struct {
			page   string
			others uint32
		}{
			"somebody else's prompt is before it":  {"", 5000},
			"the engine has a queue":               {"vllm:num_requests_waiting{engine=\"1\"} 3\n", 0},
			"more than half of its batch is taken": {"vllm:num_requests_running{engine=\"1\"} 5\n", 0},
		} {
			e.measure(alpha, c.page)
			time.Sleep(time.Second)
			for range 5 { // enough to move a median
				answer(c.others, 300*time.Millisecond)
			}
			if rate() != 20_000 {
				t.Fatalf("learned although %s: %v", name, rate())
			}
		}
		e.measure(alpha, "vllm:num_requests_running{engine=\"1\"} 4\n")
		time.Sleep(time.Second)
		for range 4 {
			answer(0, 0)
		}
		if got := rate(); got < 9_900 || got > 10_100 {
			t.Errorf("after four answers of an idle worker: %v", got)
		}
		// Two in one batch: one of them waited for the other, and nobody can tell.
		one, two := prompt("x", "a", "b", "c"), prompt("y", "a", "b", "c")
		tokens := one[len(one)-1].End * fingerprint.UnitTokens
		for range 20 {
			first, a := g.dispatch(ref, one)
			second, c := g.dispatch(ref, two)
			slow := func(r *wire.Report) { r.PromptTokens, r.TTFTMillis, r.TotalMillis = int32(tokens), 2000, 2100 }
			g.send(nil, a, c, done(first, ref, ref, slow), done(second, ref, ref, slow))
		}
		if got := rate(); got < 9_900 || got > 10_100 {
			t.Errorf("learned from two that were sent together: %v", got)
		}
	})
}

func TestAnEngineWithoutMetricsHasARateToo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, g := serving(t, newEngines(alpha), Config{Workers: specs(alpha), Health: discovery.HealthConfig{MetricsPath: "-"}})
		ref, path := g.refOf(alpha), prompt("system", "user")
		tokens := path[len(path)-1].End * fingerprint.UnitTokens
		answer := func(requests uint16, millis uint32) {
			id, record := g.dispatch(ref, path)
			g.send([]wire.InFlight{{Ref: ref, Requests: requests, UncachedTokens: tokens}}, record)
			g.send([]wire.InFlight{}, done(id, ref, ref, func(r *wire.Report) {
				r.PromptTokens, r.TTFTMillis, r.TotalMillis = int32(tokens), millis, millis+100
			}))
		}
		answer(2, 1000) // another one is there, whatever it does
		if rate := b.worker(alpha).PrefillRate; rate != 0 {
			t.Errorf("%v", rate)
		}
		answer(1, 100)
		if rate, want := b.worker(alpha).PrefillRate, float64(tokens)*10; rate != want {
			t.Errorf("%v, want %v", rate, want)
		}
	})
}

// An engine whose metrics say that it keeps no prefixes holds none, whatever
// requests imply; that it names no cached tokens either proves nothing.
func TestAnEngineWithoutAPrefixCacheHoldsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := newEngines(alpha, beta)
		b, g := serving(t, e, Config{Workers: specs(alpha, beta)})
		ref, path := g.refOf(alpha), prompt("system", "user")
		g.ask(ref, path, 0, -1)
		settle()
		if w := b.worker(alpha); w.Entries == 0 {
			t.Fatal("nothing is predicted of an engine that says nothing of its cache")
		}
		e.measure(alpha, "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"1000\",enable_prefix_caching=\"False\"} 1\n")
		time.Sleep(2 * time.Second)
		settle()
		g.ask(ref, path, 0, -1)
		settle()
		if w := b.worker(alpha); w.Entries != 0 || len(w.Degraded) != 1 || !strings.HasPrefix(w.Degraded[0], "prefix caching is off") {
			t.Errorf("%d entries, %q", w.Entries, w.Degraded)
		}
		g.catchUp()
		if got := g.holders(path[len(path)-1].Fingerprint); len(got) != 0 {
			t.Errorf("gateways hear of %v", got)
		}
	})
}
