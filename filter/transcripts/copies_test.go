package transcripts

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/hostsim"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/wire"
)

// hot is a proxy whose clients all begin with the same system prompt.
type hot struct {
	*exactProxy
	prefix []uint32 // whole units of the system prompt's tokens
	fp     uint64
	holder uint16 // the worker that has it
	turns  int

	session string // whose requests must copy nothing
	late    func() // what happens once the plan is there
}

const slice = 400

// startHot starts two VMs of the gateway gw-a with four workers, of which one has the prefix.
func startHot(t *testing.T, config string) *hot {
	t.Helper()
	return hotOf(t, startExactWith(t, `{"explain":true,"gateway":"gw-a"`+config+`}`, 2))
}

func hotOf(t *testing.T, p *exactProxy) *hot {
	t.Helper()
	h := &hot{exactProxy: p}
	h.control.pool(0)["policy"] = map[string]any{"name": "cost", "copy_slice_tokens": slice}
	h.control.changed()
	h.advance(200 * time.Millisecond)
	ids, ends := h.ids(t, h.next())
	h.prefix = ids[:ends[0]/fingerprint.UnitTokens*fingerprint.UnitTokens]
	h.fp = h.fingerprint("")
	x := h.request(0)
	h.holder = h.refOf(strings.Split(x.endpoint(), ",")[0])
	for i := range h.control.workers {
		if w := &h.control.workers[i]; w.Ref != h.holder {
			w.load.FleetUncachedTokens = 50_000 // so that no request goes there
		}
	}
	h.control.changed()
	h.advance(300 * time.Millisecond)
	return h
}

// fingerprint is the prefix', with a salt.
func (h *hot) fingerprint(salt string) uint64 {
	var chain fingerprint.Chain
	chain.Reset(fingerprint.Salt("default", "m", 0, salt, fingerprint.Exact))
	chain.WriteTokens(h.prefix)
	found := chain.Finish()
	return found[len(found)-1].Fingerprint
}

// next is a client's request that begins with the prefix.
func (h *hot) next() []byte {
	h.turns++
	return conversation("m", words(10+h.turns, 20))
}

// request sends it through a VM and ends it.
func (h *hot) request(vm int, headers ...string) *exchange {
	return h.whole(h.send(vm, post("/v1/chat/completions", headers...), h.next(), 0))
}

func (h *hot) whole(x *exchange) *exchange {
	x.answer(strings.Split(x.endpoint(), ",")[0], 200, 1, "application/json", `{"usage":{"prompt_tokens":900,"completion_tokens":3}}`)
	x.Close()
	h.settle()
	return x
}

func (h *hot) refOf(address string) uint16 {
	for _, w := range h.control.workers {
		if string(w.Address) == address {
			return w.Ref
		}
	}
	h.t.Fatalf("no worker at %q", address)
	return 0
}

func (h *hot) addressOf(ref uint16) string { return string(h.control.workers[ref-1].Address) }

// others are n workers that don't have the prefix.
func (h *hot) others(n int) (refs []uint16) {
	for ref := uint16(1); len(refs) < n; ref++ {
		if ref != h.holder {
			refs = append(refs, ref)
		}
	}
	return refs
}

// plan has control publish copies to be made by a gateway.
func (h *hot) plan(maker string, refs ...uint16) {
	h.control.copies = nil
	for _, ref := range refs {
		h.control.copies = append(h.control.copies, wire.Copy{
			Fingerprint: h.fp, Units: uint32(len(h.prefix) / fingerprint.UnitTokens), Ref: ref, Maker: wire.MakerOf(maker),
		})
	}
	h.control.changed()
	h.advance(200 * time.Millisecond)
}

// calls takes the calls to the workers, by the address that they name.
func (h *hot) calls() map[string]*hostsim.HTTPCall {
	h.t.Helper()
	h.settle()
	out := map[string]*hostsim.HTTPCall{}
	for _, call := range h.engines {
		address := call.Headers.Value("x-gateway-destination-endpoint")
		if out[address] != nil {
			h.t.Errorf("two calls at once to %s", address)
		}
		out[address] = call
	}
	h.engines = nil
	return out
}

// call takes the only one.
func (h *hot) call() *hostsim.HTTPCall {
	h.t.Helper()
	calls := h.calls()
	if len(calls) != 1 {
		h.t.Fatalf("%d calls, want 1: %v", len(calls), h.logs)
	}
	for _, call := range calls {
		return call
	}
	return nil
}

func usage(tokens, cached int) []byte {
	return fmt.Appendf(nil, `{"id":"x","choices":[{"text":"a"}],"usage":{"prompt_tokens":%d,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":%d}}}`, tokens, cached)
}

// inFlight is what the gateway has booked, by ref.
func (h *hot) inFlight() map[uint16]wire.InFlight {
	h.advance(150 * time.Millisecond)
	out := map[uint16]wire.InFlight{}
	for _, lines := range h.rows() {
		for _, l := range lines {
			sum := out[l.Ref]
			sum.Ref = l.Ref
			sum.Requests += l.Requests
			sum.UncachedTokens += l.UncachedTokens
			out[l.Ref] = sum
		}
	}
	return out
}

// counted checks the counters of copies.
func (h *hot) counted(want map[string]uint64) {
	h.t.Helper()
	h.advance(150 * time.Millisecond)
	got := map[string]uint64{}
	for _, name := range []string{
		"copies_begun", "copies_made", "copy_slices", "copy_tokens",
		"copies_failed.no_cluster", "copies_failed.refused", "copies_failed.timeout", "copies_failed.not_exact", "copies_failed.gone",
	} {
		if n := h.counter(name); n > 0 {
			got[name] = n
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		h.t.Error(diff)
	}
}

// slices are the lengths of a whole prefix' requests.
func (h *hot) slices() (out []int) {
	for n := slice; n < len(h.prefix); n += slice {
		out = append(out, n)
	}
	return append(out, len(h.prefix))
}

// TestAHotPrefixIsComputedInSlicesWhereItShallLive: the first request that begins with it, of whichever
// VM, starts a series of requests for each of the workers, side by side. Each is a bit longer than the one
// before and is sent when that was answered; the last is the whole prefix, and control is told.
func TestAHotPrefixIsComputedInSlicesWhereItShallLive(t *testing.T) {
	h := startHot(t, "")
	refs := h.others(2)
	if len(h.slices()) < 3 || len(h.prefix)%slice == 0 {
		t.Fatalf("a prefix of %d tokens tests too little", len(h.prefix))
	}
	h.plan("gw-a", refs...)
	if !h.control.copiers["gw-a"] {
		t.Error("the gateway doesn't say that it makes copies")
	}
	// A request that begins otherwise begins nothing.
	h.whole(h.send(0, post("/v1/chat/completions"), []byte(`{"model":"m","messages":[{"role":"user","content":"`+words(77, 300)+`"}]}`), 0))
	if n := len(h.calls()); n != 0 {
		t.Fatalf("%d calls for another's prompt", n)
	}
	h.advance(200 * time.Millisecond)
	before := map[string]uint64{}
	for _, name := range []string{"dispatched", "released", "outcomes.complete", "lookups.1k_4k", "requests.chat_completions"} {
		before[name] = h.counter(name)
	}
	requests := uint64(0)
	for step, tokens := range h.slices() {
		for vm := range 2 {
			requests++
			h.request(vm, "authorization", "Bearer "+strconv.Itoa(vm)) // its end doesn't end the slices
		}
		calls := h.calls()
		if len(calls) != 2 {
			t.Fatalf("step %d: calls to %v, want both", step, slices.Collect(maps.Keys(calls)))
		}
		uncached := uint32(tokens - step*slice)
		booked := h.inFlight()
		for _, ref := range refs {
			address := h.addressOf(ref)
			call := calls[address]
			var got []string
			for _, f := range call.Headers.Fields() {
				got = append(got, f.Key+": "+f.Value)
			}
			want := []string{
				":method: POST", ":path: /v1/completions", ":authority: " + address, "content-type: application/json",
				"x-gateway-destination-endpoint: " + address, "x-warmpath-pool: default", "authorization: Bearer 0",
				fmt.Sprintf("content-length: %d", len(call.Body)),
			}
			if diff := cmp.Diff(want, got); diff != "" || call.Cluster != "pool-default" || call.Timeout != 5*time.Second {
				t.Errorf("step %d, cluster %s, timeout %v: %s", step, call.Cluster, call.Timeout, diff)
			}
			ids, err := json.Marshal(h.prefix[:tokens])
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(`{"prompt":`+string(ids)+`,"max_tokens":1,"temperature":0,"model":"m"}`, string(call.Body)); diff != "" {
				t.Errorf("step %d: %s", step, diff)
			}
			if b := booked[ref]; b.Requests != 1 || b.UncachedTokens != uncached {
				t.Errorf("step %d: booked at %d: %+v, want one with %d tokens", step, ref, b, uncached)
			}
			call.Reply(status(200), usage(tokens, step*slice), nil)
		}
	}
	h.advance(300 * time.Millisecond)
	h.request(0)
	h.request(1)
	requests += 2
	if n := len(h.calls()); n != 0 {
		t.Errorf("%d more calls", n)
	}
	var want []string
	for _, ref := range refs {
		want = append(want, fmt.Sprintf("%x at %d: %d units, 0 matched, ", h.fp, ref, len(h.prefix)/16))
	}
	slices.Sort(h.control.copied)
	for i, line := range h.control.copied {
		var checkpoints int
		if i >= len(want) || !strings.HasPrefix(line, want[i]) {
			t.Errorf("told %q, want %q", h.control.copied, want)
		} else if fmt.Sscan(line[len(want[i]):], &checkpoints); checkpoints < 10 {
			t.Errorf("%d checkpoints", checkpoints)
		}
	}
	if len(h.control.copied) != 2 {
		t.Errorf("told %q", h.control.copied)
	}
	done := 0
	for _, line := range h.control.reports {
		if strings.Contains(line, fmt.Sprintf("status 200, outcome 1, attempts 1, predicted %d, cached %d, prompt %d, output 1, ttft -1", (len(h.slices())-1)*slice, (len(h.slices())-1)*slice, len(h.prefix))) {
			done++
		}
	}
	if done != 2 {
		t.Errorf("%d ends of copies told: %v", done, h.control.reports)
	}
	// The table has it by that report: no event came.
	_, entries := h.stored()
	for _, ref := range refs {
		if e, ok := entries[h.fp]; !ok || !slices.Contains(e.Refs[:], ref) {
			t.Errorf("the table doesn't have worker %d: %v", ref, e)
		}
	}
	h.advance(200 * time.Millisecond)
	for name, n := range before {
		if got := h.counter(name) - n; got != requests {
			t.Errorf("%s rose by %d with %d requests", name, got, requests)
		}
	}
	h.counted(map[string]uint64{"copies_begun": 2, "copies_made": 2, "copy_slices": uint64(2 * len(h.slices())), "copy_tokens": uint64(2 * len(h.prefix))})
	h.idle()
}

// TestASliceThatFailsEndsItsCopyUntilTheClaimHasEnded: then the next request begins it again. The other
// copy goes on.
func TestASliceThatFailsEndsItsCopyUntilTheClaimHasEnded(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(h *hot, call *hostsim.HTTPCall)
		reason string
	}{
		"429":     {func(_ *hot, call *hostsim.HTTPCall) { call.Reply(status(429), nil, nil) }, "refused"},
		"404":     {func(_ *hot, call *hostsim.HTTPCall) { call.Reply(status(404), []byte(`{"detail":"Not Found"}`), nil) }, "refused"},
		"dead":    {func(_ *hot, call *hostsim.HTTPCall) { call.ReplyDead() }, "refused"},
		"reset":   {func(_ *hot, call *hostsim.HTTPCall) { call.Fail() }, "refused"},
		"silent":  {func(h *hot, _ *hostsim.HTTPCall) { h.advance(5 * time.Second) }, "timeout"},
		"longer":  {func(_ *hot, call *hostsim.HTTPCall) { call.Reply(status(200), usage(slice+1, 0), nil) }, "not_exact"},
		"garbage": {func(_ *hot, call *hostsim.HTTPCall) { call.Reply(status(200), usage(7, 0), nil) }, "not_exact"},
	} {
		t.Run(name, func(t *testing.T) {
			h := startHot(t, "")
			refs := h.others(2)
			h.plan("gw-a", refs...)
			h.request(0)
			calls := h.calls()
			for _, tokens := range h.slices() {
				calls[h.addressOf(refs[1])].Reply(status(200), usage(tokens, max(0, tokens-slice)), nil)
				calls = h.merge(calls)
			}
			c.answer(h, calls[h.addressOf(refs[0])])
			h.settle()
			if name != "silent" {
				for range 20 {
					h.request(0)
					h.request(1)
					h.advance(200 * time.Millisecond)
				}
				if n := len(h.calls()); n != 0 {
					t.Fatalf("%d calls though the claim has not ended", n)
				}
			}
			if booked := h.inFlight(); len(booked) != 0 {
				t.Errorf("still booked: %v", booked)
			}
			made := uint64(len(h.slices()))
			h.counted(map[string]uint64{"copies_begun": 2, "copies_made": 1, "copy_slices": made, "copy_tokens": uint64(len(h.prefix)), "copies_failed." + c.reason: 1})
			h.advance(2 * time.Second)
			h.request(1)
			call := h.call()
			if got := call.Headers.Value("x-gateway-destination-endpoint"); got != h.addressOf(refs[0]) {
				t.Errorf("begun again at %s", got)
			}
			call.Reply(status(500), nil, nil)
			h.idle()
		})
	}
}

// merge are the calls that came since, and those that are open.
func (h *hot) merge(open map[string]*hostsim.HTTPCall) map[string]*hostsim.HTTPCall {
	for address, call := range h.calls() {
		open[address] = call
	}
	return open
}

// TestNothingIsCopiedThatIsNotThisGatewaysToCopy or must not be.
func TestNothingIsCopiedThatIsNotThisGatewaysToCopy(t *testing.T) {
	for name, c := range map[string]struct {
		config string
		change func(h *hot)
		maker  string
		send   func(h *hot)
	}{
		"another gateway's": {maker: "gw-b"},
		"switched off here": {config: `,"worker_cluster":""`},
		"slices off":        {change: func(h *hot) { h.control.pool(0)["policy"].(map[string]any)["copy_slice_tokens"] = 0 }},
		"observe":           {change: func(h *hot) { h.control.pool(0)["mode"] = "observe" }},
		"off":               {change: func(h *hot) { h.control.off = true }},
		"draining":          {change: func(h *hot) { h.state(2) }},
		"down":              {change: func(h *hot) { h.state(3) }},
		"gone": {change: func(h *hot) {
			h.control.workers = slices.DeleteFunc(h.control.workers, func(w worker) bool { return w.Ref != h.holder })
		}},
		"of the control group": {change: func(h *hot) {
			h.control.pool(0)["control_group"] = map[string]any{"share": 0.5, "policy": map[string]any{"name": "least_load"}}
			h.control.changed()
			h.advance(200 * time.Millisecond)
			for i := 0; !strings.Contains(h.request(0, "x-session-id", h.session).out.Response.Value("x-warmpath-explain"), "group=control"); i++ {
				h.session = strconv.Itoa(i)
			}
		}},
		"of an old plan": {change: func(h *hot) {
			h.late = func() { h.control.dead = "503"; h.advance(31 * time.Second) }
		}},
		"approximate": {change: func(h *hot) { h.control.exact[0]["active"] = false }},
		"by text of another model": {send: func(h *hot) {
			h.whole(h.send(0, post("/v1/chat/completions"), conversation("other", words(1, 20)), 0))
		}},
		"by an embedding": {send: func(h *hot) {
			body, _ := json.Marshal(map[string]any{"model": "m", "input": h.prefix})
			h.whole(h.send(0, post("/v1/embeddings"), body, 0))
		}},
		"by a part of it": {send: func(h *hot) {
			body, _ := json.Marshal(map[string]any{"model": "m", "prompt": h.prefix[:len(h.prefix)-1]})
			h.whole(h.send(0, post("/v1/completions"), body, 0))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := startHot(t, c.config)
			if c.change != nil {
				c.change(h)
			}
			maker := "gw-a"
			if c.maker != "" {
				maker = c.maker
			}
			h.plan(maker, h.others(3)...)
			if c.send == nil {
				c.send = func(h *hot) {
					h.request(0, "x-session-id", h.session)
					h.request(1, "x-session-id", h.session)
				}
			}
			if h.late != nil {
				h.late()
			}
			c.send(h)
			if n := len(h.calls()); n != 0 {
				t.Errorf("%d calls", n)
			}
			if c.config != "" && h.control.copiers["gw-a"] {
				t.Error("the gateway says that it makes copies")
			}
			h.counted(map[string]uint64{})
			if value, _, ok := h.host.SharedData(vmID, wire.NewKeys("default").Copying()); ok {
				t.Errorf("claimed: %x", value)
			}
		})
	}
}

// state is that of all workers without the prefix.
func (h *hot) state(s uint8) {
	for i := range h.control.workers {
		if w := &h.control.workers[i]; w.Ref != h.holder {
			w.load.State = s
		}
	}
}

// TestACopyEndsBetweenTwoSlicesWhenItIsNotWantedAnyMore.
func TestACopyEndsBetweenTwoSlicesWhenItIsNotWantedAnyMore(t *testing.T) {
	for name, change := range map[string]func(h *hot){
		"the plan has changed":    func(h *hot) { h.control.copies = nil },
		"the worker drains":       func(h *hot) { h.state(2) },
		"the worker is a new one": func(h *hot) { h.control.workers[h.others(1)[0]-1].Generation++ },
		"all is off":              func(h *hot) { h.control.off = true },
		"slices are off":          func(h *hot) { h.control.pool(0)["policy"].(map[string]any)["copy_slice_tokens"] = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			h := startHot(t, "")
			h.plan("gw-a", h.others(1)...)
			h.request(0)
			h.call().Reply(status(200), usage(slice, 0), nil)
			call := h.call()
			change(h)
			h.control.changed()
			h.advance(200 * time.Millisecond)
			call.Reply(status(200), usage(2*slice, slice), nil)
			if n := len(h.calls()); n != 0 {
				t.Errorf("%d calls", n)
			}
			h.counted(map[string]uint64{"copies_begun": 1, "copies_failed.gone": 1, "copy_slices": 2, "copy_tokens": 2 * slice})
			h.idle()
		})
	}
}

// TestASwapOfTheConfigurationEndsCopies: their calls go with the plugin context that made them, and what
// it is still answered counts no more. The next claim is the new context's.
func TestASwapOfTheConfigurationEndsCopies(t *testing.T) {
	h := startHot(t, "")
	h.plan("gw-a", h.others(1)...)
	old := h.send(0, post("/v1/chat/completions"), h.next(), 0) // keeps the old context alive
	call := h.call()
	held := &exchange{}
	held.Stream = h.fleet.Plugins[0][0].NewStream(&held.out)
	held.RequestHeaders(post("/v1/chat/completions"), false)
	next := h.config
	next.Configuration = []byte(`{"explain":true,"gateway":"gw-a","expose_worker":true}`)
	if err := h.fleet.Reconfigure(t.Context(), []hostsim.PluginConfig{next}); err != nil {
		t.Fatal(err)
	}
	call.Reply(status(200), usage(slice, 0), nil)
	if n := len(h.calls()); n != 0 {
		t.Errorf("%d calls go on", n)
	}
	h.counted(map[string]uint64{"copies_begun": 1, "copies_failed.gone": 1})
	h.whole(old)
	if booked := h.inFlight(); len(booked) != 0 {
		t.Errorf("still booked: %v", booked)
	}
	h.advance(5 * time.Second)
	held.body(h.next(), 0)
	h.whole(held)
	if n := len(h.calls()); n != 0 {
		t.Errorf("%d calls of a context that is going", n)
	}
	h.request(0)
	for _, tokens := range h.slices() {
		h.call().Reply(status(200), usage(tokens, max(0, tokens-slice)), nil)
	}
	h.settle()
	if len(h.control.copied) != 0 {
		h.t.Error("told before the tick")
	}
	h.counted(map[string]uint64{
		"copies_begun": 2, "copies_made": 1, "copies_failed.gone": 1,
		"copy_slices": uint64(len(h.slices())), "copy_tokens": uint64(len(h.prefix)),
	})
	h.idle()
}

// TestAProxyWithoutTheClusterSaysSoOnce, and serves requests as before.
func TestAProxyWithoutTheClusterSaysSoOnce(t *testing.T) {
	h := startHot(t, `,"worker_cluster":"outbound|8000||{pool}.llm"`)
	h.plan("gw-a", h.others(3)...)
	for range 3 {
		h.request(0)
		h.advance(6 * time.Second)
	}
	if n := h.logged(`no cluster "outbound|8000||default.llm": set worker_cluster`); n != 1 {
		t.Errorf("told %d times: %v", n, h.logs)
	}
	h.counted(map[string]uint64{"copies_begun": 9, "copies_failed.no_cluster": 9})
	h.idle()
}

// TestAClusterThatCannotTakeASliceIsNotSaidToBeMissing: Envoy refuses the call itself where it would answer
// 503 at once, as for a cluster without a healthy worker.
func TestAClusterThatCannotTakeASliceIsNotSaidToBeMissing(t *testing.T) {
	h := startHot(t, "")
	h.plan("gw-a", h.others(2)...)
	fault, err := hostsim.ParseFault("proxy_http_call@proxy_on_request_body:1+=InternalFailure")
	if err == nil {
		err = h.host.Inject(fault)
	}
	if err != nil {
		t.Fatal(err)
	}
	h.request(0)
	h.host.ClearFaults()
	if n := h.logged("no cluster"); n != 0 || len(h.calls()) != 0 {
		t.Error(h.logs)
	}
	h.counted(map[string]uint64{"copies_begun": 2, "copies_failed.refused": 2})
	h.idle()
}

// TestTheClusterIsTheConfiguredOne with the pool's name in its place.
func TestTheClusterIsTheConfiguredOne(t *testing.T) {
	for config, want := range map[string]string{
		`,"worker_cluster":"pool-{pool}"`:    "pool-default",
		`,"worker_cluster":"plain"`:          "plain",
		`,"worker_cluster":"a{pool}b{pool}"`: "adefaultb{pool}",
		`,"worker_cluster":"{pool"`:          "{pool",
	} {
		h := startHot(t, config)
		h.plan("gw-a", h.others(1)...)
		h.request(0)
		if want == "pool-default" {
			h.call()
		} else if n := h.logged(`no cluster "` + want + `"`); n != 1 {
			t.Errorf("%q: %v", config, h.logs)
		}
	}
}

// TestACopyHasTheModelAndTheSaltOfTheRequestThatBroughtIt, as they stood there, and names a rank.
func TestACopyHasTheModelAndTheSaltOfTheRequestThatBroughtIt(t *testing.T) {
	h := startHot(t, "")
	h.fp = h.fingerprint("s\n1")
	for i := range h.control.workers {
		h.control.workers[i].Rank = uint8(i + 1)
	}
	h.plan("gw-a", h.others(1)...)
	body := strings.Replace(string(h.next()), `{`, `{"cache_salt":"s\u000a1",`, 1)
	h.whole(h.send(0, post("/v1/chat/completions"), []byte(strings.Replace(body, `"model":"m"`, `"model":"\u006d"`, 1)), 0))
	call := h.call()
	var got map[string]any
	if err := json.Unmarshal(call.Body, &got); err != nil {
		t.Fatal(err)
	}
	delete(got, "prompt")
	if diff := cmp.Diff(map[string]any{"model": "m", "cache_salt": "s\n1", "max_tokens": 1.0, "temperature": 0.0}, got); diff != "" {
		t.Error(diff)
	}
	if rank := call.Headers.Value("x-data-parallel-rank"); rank != fmt.Sprint(h.others(1)[0]-1) {
		t.Errorf("rank %q", rank)
	}
	if _, has := call.Headers.Get("authorization"); has {
		t.Error("an authorization that nobody gave")
	}
}

// TestAPromptOfTokenIDsBringsItsOwn.
func TestAPromptOfTokenIDsBringsItsOwn(t *testing.T) {
	h := startHot(t, "")
	h.plan("gw-a", h.others(1)...)
	body, err := json.Marshal(map[string]any{"model": "m", "prompt": append(slices.Clone(h.prefix), 1, 2, 3)})
	if err != nil {
		t.Fatal(err)
	}
	h.whole(h.send(0, post("/v1/completions"), body, 0))
	for _, tokens := range h.slices() {
		call := h.call()
		var got struct{ Prompt []uint32 }
		if err := json.Unmarshal(call.Body, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(h.prefix[:tokens], got.Prompt); diff != "" {
			t.Error(diff)
		}
		call.Reply(status(200), nil, nil) // an engine that counts nothing
	}
	h.counted(map[string]uint64{"copies_begun": 1, "copies_made": 1, "copy_slices": uint64(len(h.slices())), "copy_tokens": uint64(len(h.prefix))})
	h.idle()
}

// TestAVMThatDiesLeavesItsClaimForFiveSeconds: then another VM begins anew.
func TestAVMThatDiesLeavesItsClaimForFiveSeconds(t *testing.T) {
	h := startHot(t, "")
	h.plan("gw-a", h.others(1)...)
	h.request(0)
	h.call()
	fault, err := hostsim.ParseFault("proxy_on_request_headers:1=trap")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.host.Inject(fault); err != nil {
		t.Fatal(err)
	}
	h.send(0, post("/v1/chat/completions"), h.next(), 0)
	h.host.ClearFaults()
	h.advance(4500 * time.Millisecond)
	h.request(1)
	if n := len(h.calls()); n != 0 {
		t.Errorf("%d calls while the claim counts", n)
	}
	h.advance(time.Second)
	h.request(1)
	h.call()
}

// TestASlowCopyIsNotBegunAgain: its claim is renewed for as long as slices are answered.
func TestASlowCopyIsNotBegunAgain(t *testing.T) {
	h := startHot(t, "")
	h.plan("gw-a", h.others(1)...)
	h.request(0)
	for _, tokens := range h.slices() {
		call := h.call()
		for range 4 {
			h.advance(1200 * time.Millisecond)
			h.request(0)
			h.request(1)
		}
		call.Reply(status(200), usage(tokens, max(0, tokens-slice)), nil)
	}
	h.counted(map[string]uint64{"copies_begun": 1, "copies_made": 1, "copy_slices": uint64(len(h.slices())), "copy_tokens": uint64(len(h.prefix))})
	h.idle()
}

// TestAWorkerThatARequestFillsIsLeftToIt: the one that is just sent there, and one of a moment ago.
func TestAWorkerThatARequestFillsIsLeftToIt(t *testing.T) {
	h := startHot(t, "")
	h.control.doubts = true // so that the table never knows
	h.fp = h.fingerprint("new")
	h.plan("gw-a", append(h.others(1), h.holder)...)
	send := func() *exchange {
		return h.send(0, post("/v1/chat/completions"), []byte(strings.Replace(string(h.next()), `{`, `{"cache_salt":"new",`, 1)), 0)
	}
	h.whole(send())
	if got := h.call().Headers.Value("x-gateway-destination-endpoint"); got == h.addressOf(h.holder) {
		t.Error("a copy where the request goes")
	}
	h.whole(send())
	if n := len(h.calls()); n != 0 {
		t.Errorf("%d copies where a request went", n)
	}
	h.advance(2 * time.Second) // what became of it is not known: it may have been evicted, or refused
	h.control.workers[h.holder-1].load.FleetUncachedTokens = 200_000
	h.control.changed()
	h.advance(200 * time.Millisecond)
	h.whole(send())
	if got := h.call().Headers.Value("x-gateway-destination-endpoint"); got != h.addressOf(h.holder) {
		t.Errorf("a copy at %s", got)
	}
}

// TestAVMHoldsSoManyTokensOfPrefixesAtATime: a prefix that is longer, or comes while others take the room,
// is left to later requests.
func TestAVMHoldsSoManyTokensOfPrefixesAtATime(t *testing.T) {
	h := startHot(t, "")
	h.control.pool(0)["policy"].(map[string]any)["copy_slice_tokens"] = 8192
	ids := func(first uint32, units int) []uint32 {
		out := make([]uint32, units*fingerprint.UnitTokens)
		for i := range out {
			out[i] = (first + uint32(i)) % 9
		}
		return out
	}
	send := func() {
		body, err := json.Marshal(map[string]any{"model": "m", "prompt": append(slices.Clone(h.prefix), 1)})
		if err != nil {
			t.Fatal(err)
		}
		h.whole(h.send(0, post("/v1/completions"), body, 0))
	}
	begin := func(first uint32, units int) (calls int) {
		h.prefix = ids(first, units)
		h.fp = h.fingerprint("")
		h.plan("gw-a", h.others(2)...)
		send()
		return len(h.calls())
	}
	if n := begin(1, 4097); n != 0 {
		t.Errorf("%d copies of 65,552 tokens", n)
	}
	h.prefix = ids(2, 4096)
	h.fp = h.fingerprint("")
	h.plan("gw-a", h.others(2)...)
	send()
	open := h.calls()
	if len(open) != 2 {
		t.Fatalf("%d copies of 65,536 tokens", len(open))
	}
	if n := begin(3, 64); n != 0 {
		t.Errorf("%d more copies", n)
	}
	for _, call := range open {
		call.Reply(status(503), nil, nil)
	}
	if n := begin(3, 64); n != 2 {
		t.Errorf("%d copies when there is room again", n)
	}
}

// TestAPrefixThatCannotBeTokenisedAgainIsNotCopied: what is known of a long prompt's beginning is where its
// chain stands, and its text is more than one request may cost.
func TestAPrefixThatCannotBeTokenisedAgainIsNotCopied(t *testing.T) {
	h := startHot(t, "")
	letters := strings.NewReplacer(" ", "", "0", "k", "1", "l", "2", "m", "3", "n", "4", "o", "5", "p", "6", "q", "7", "r", "8", "s", "9", "t")
	text := func(seed int, as *strings.Replacer) []byte {
		var turns []string
		for i := range 41 {
			turns = append(turns, as.Replace(words(seed+i, 800)))
		}
		return conversation("m", turns...)
	}
	long := text(100, letters) // of long words, which take twelve times their bytes
	send := func(body []byte) string {
		return h.whole(h.send(0, post("/v1/chat/completions"), body, 0)).out.Response.Value("x-warmpath-explain")
	}
	for whole := false; !whole; {
		whole = !strings.Contains(send(long), " capped")
	}
	for i := range 10 {
		send(text(1000*(i+1), strings.NewReplacer())) // pushes its tokens out of the memo
	}
	ids, _ := h.ids(t, long)
	if h.prefix = ids[:3072*fingerprint.UnitTokens]; len(ids) < 3200*fingerprint.UnitTokens {
		t.Fatalf("%d tokens", len(ids))
	}
	h.fp = h.fingerprint("")
	h.plan("gw-a", h.others(2)...)
	if explained := send(long); strings.Contains(explained, " capped") {
		t.Error("the chain doesn't know the prompt any more: the test tests nothing")
	}
	if n := len(h.calls()); n != 0 {
		t.Errorf("%d calls", n)
	}
	h.counted(map[string]uint64{"copies_begun": 2, "copies_failed.not_exact": 2})
	h.idle()
}
