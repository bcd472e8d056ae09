package transcripts

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/hostsim"
)

// callbacks are those of a request's way through the module.
var callbacks = []string{
	"proxy_on_context_create", "proxy_on_request_headers", "proxy_on_request_body", "proxy_on_request_trailers",
	"proxy_on_response_headers", "proxy_on_response_body", "proxy_on_response_trailers",
	"proxy_on_log", "proxy_on_done", "proxy_on_delete",
}

// faulty is a proxy in which calls fail, of two VMs of which the first has the
// requests, and what it calls when nothing does.
type faulty struct {
	*proxy
	made   map[string]map[string]int // callback, host call, how often in one journey
	inside string
	turn   int
}

func startFaulty(t *testing.T) *faulty { return startFaultyAs(t, setUps[0]) }

// setUp is a way to run the module.
type setUp struct {
	name   string
	wasm   *[]byte
	config string
	stops  bool // the proxy shows bodies to a filter that stopped at headers
	admits bool // the pool enforces limits, of classes and of the tenant
}

var setUps = []setUp{
	{"holds headers", &modules.full, `{}`, true, false},
	{"admits", &modules.full, `{}`, true, true},
	{"holds the body", &modules.full, `{"hold":"buffer"}`, false, false},
	{"reads no response body", &modules.noResponseBody, `{}`, true, false},
}

func startFaultyAs(t *testing.T, s setUp) *faulty {
	t.Helper()
	f := &faulty{proxy: &proxy{t: t}, made: map[string]map[string]int{}}
	f.heard = func(e hostsim.Event) {
		switch e.Kind {
		case hostsim.EventCallback:
			f.inside = e.Name
		case hostsim.EventHostCall, hostsim.EventAllocate:
			if f.made[f.inside] == nil {
				f.made[f.inside] = map[string]int{}
			}
			f.made[f.inside][e.Name]++
		}
	}
	if err := f.deploy(*s.wasm, s.config, 2, s.stops); err != nil {
		t.Fatalf("deploy: %v\n%v", err, f.logs)
	}
	if s.admits {
		f.control.leases.generous()
		f.control.changed()
	}
	f.advance(time.Second)
	f.made = map[string]map[string]int{}
	f.journey()
	f.advance(300 * time.Millisecond)
	return f
}

// journey is a request with everything: a known beginning and an end that nobody
// has, a body in pieces, trailers, an answer of events with usage and trailers.
func (f *faulty) journey() *exchange {
	f.turn++
	x := &exchange{}
	x.Stream = f.fleet.Plugins[0][0].NewStream(&x.out)
	x.RequestHeaders(post("/v1/chat/completions"), false)
	body := chat("m", 3000, strings.Repeat(fmt.Sprintf("hello %06d ", f.turn), 200))
	x.sent.Write(body)
	x.RequestData(body[:1000], false)
	x.RequestData(body[1000:], false)
	x.RequestTrailers(hostsim.NewHeaderMap("x-sum", "1"))
	if x.out.Request == nil || x.Done() {
		return x
	}
	x.Info.UpstreamAddress, _, _ = strings.Cut(x.endpoint(), ",")
	if x.Info.UpstreamAddress == "" {
		x.Info.UpstreamAddress = "10.0.0.1:9000"
	}
	x.Info.UpstreamRequestAttemptCount = 1
	x.ResponseHeaders(hostsim.NewHeaderMap(":status", "200", "content-type", "text/event-stream"), false)
	for _, piece := range answerPieces {
		x.ResponseData([]byte(piece), false)
	}
	x.ResponseTrailers(hostsim.NewHeaderMap("x-end", "1"))
	return x
}

// waiting is a request that a worker has not answered yet.
func (f *faulty) waiting() *exchange {
	return f.send(0, post("/v1/chat/completions"), chat("m", 3000, "waits"), 0)
}

var answerPieces = []string{
	"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n",
	"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":800,\"completion_tokens\":1,\"prompt_tokens_details\":{\"cached_tokens\":0}}}\n\n",
	"data: [DONE]\n\n",
}

// whole says what is wrong with an exchange that should have passed untouched.
func (x *exchange) whole() error {
	switch {
	case x.out.Replied != nil || x.out.ResetDetails != "":
		return fmt.Errorf("cut or answered: %v", x.out.Lines)
	case string(x.out.RequestBody) != x.sent.String() || !x.out.RequestEnded:
		return fmt.Errorf("the upstream got %d of %d bytes, ended %t", len(x.out.RequestBody), x.sent.Len(), x.out.RequestEnded)
	case string(x.out.ResponseBody) != strings.Join(answerPieces, "") || !x.out.ResponseEnd || x.out.Response.Value(":status") != "200":
		return fmt.Errorf("the client got %q, ended %t", x.out.ResponseBody, x.out.ResponseEnd)
	case !x.Done():
		return fmt.Errorf("the stream is not over")
	}
	return nil
}

// clean says what is left in the books when nothing is under way.
func (p *proxy) clean() error {
	for slot, lines := range p.rows() {
		if len(lines) != 0 {
			return fmt.Errorf("slot %d still has %v in flight", slot, lines)
		}
	}
	return p.empty()
}

// answers are the statuses that a host may have for a call besides Ok.
func answers(call string) []string {
	all := []string{"NotFound", "BadArgument", "InternalFailure", "InvalidMemoryAccess", "Unimplemented"}
	switch {
	case call == "proxy_on_memory_allocate":
		return []string{"fail"}
	case call == "proxy_set_shared_data":
		all = append(all, "CasMismatch")
	case strings.HasSuffix(call, "dequeue_shared_queue"):
		all = append(all, "Empty")
	}
	return all
}

// TestAnyHostCallMayFailAndTheRequestStillPasses: each host call that a request
// makes, in each of its callbacks, answers each error, once and for ever. The
// request and its answer arrive whole, what was booked is returned, nothing
// panics.
func TestAnyHostCallMayFailAndTheRequestStillPasses(t *testing.T) {
	for i, s := range setUps {
		singly := 0 // the first set-up also meets each call's failure alone
		if i <= 1 {
			singly = 4
		}
		t.Run(s.name, func(t *testing.T) { startFaultyAs(t, s).anyHostCallMayFail(t, singly) })
	}
}

func (f *faulty) anyHostCallMayFail(t *testing.T, singly int) {
	sites := 0
	for _, callback := range append(slices.Clone(callbacks), "proxy_on_tick", "proxy_on_http_call_response") {
		calls := make([]string, 0, len(f.made[callback]))
		for call := range f.made[callback] {
			calls = append(calls, call)
		}
		slices.Sort(calls)
		for _, call := range calls {
			counts := []string{":1+"}
			for n := 1; n <= min(f.made[callback][call], singly); n++ {
				counts = append(counts, fmt.Sprintf(":%d", n))
			}
			for _, status := range answers(call) {
				for _, n := range counts {
					sites++
					f.one(call + "@" + callback + n + "=" + status)
				}
			}
		}
	}
	if sites < 100 {
		t.Fatalf("only %d faults were tried: %v", sites, f.made)
	}
	t.Logf("%d faults", sites)
}

// one runs a journey and a tick with a fault, then looks at what is left.
func (f *faulty) one(fault string) {
	f.t.Helper()
	parsed, err := hostsim.ParseFault(fault)
	if err != nil {
		f.t.Fatal(err)
	}
	if err := f.host.Inject(parsed); err != nil {
		f.t.Fatal(err)
	}
	panics, logs := f.counter("panics"), len(f.logs)
	x := f.journey()
	f.advance(300 * time.Millisecond)
	f.host.ClearFaults()
	if err := x.whole(); err != nil {
		f.t.Errorf("%s: %v", fault, err)
	}
	// A tick says what was given back, and a batch tells control; both may have
	// to be tried again.
	err = errors.New("not looked at")
	for tries := 0; err != nil && tries < 10; tries++ {
		f.advance(300 * time.Millisecond)
		err = f.clean()
	}
	if err != nil {
		f.t.Errorf("%s: %v", fault, err)
	}
	if f.fleet.Workers[0].Failed() {
		f.t.Fatalf("%s: the VM has failed: %v", fault, f.fleet.Workers[0].Err())
	}
	if strings.Contains(fault, "@proxy_on_http_call_response") {
		f.advance(3 * time.Second) // what control said may have to be asked for again
	}
	y := f.journey()
	if err := y.whole(); err != nil || y.endpoint() == "" {
		f.t.Errorf("%s: the request after it goes to %q: %v", fault, y.endpoint(), err)
	}
	f.advance(300 * time.Millisecond)
	if now := f.counter("panics"); now != panics {
		f.t.Errorf("%s: %d panics: %v", fault, now-panics, f.logs[logs:])
	}
}

// TestATrapAnywhereCostsOneRequestAndLeavesNothing: the VM traps in each
// callback, before it, after it, and in each host call made there. That request
// is answered 503 or cut (or had passed), the next one is served by a fresh
// instance; within seconds the dead VM's books are gone, here and at control,
// and however often it traps, shared data grows by no key but the table's pages.
func TestATrapAnywhereCostsOneRequestAndLeavesNothing(t *testing.T) {
	for _, s := range setUps[:3] {
		t.Run(s.name, func(t *testing.T) { startFaultyAs(t, s).trapsAnywhere(t) })
	}
}

func (f *faulty) trapsAnywhere(t *testing.T) {
	var faults []string
	for _, callback := range callbacks {
		faults = append(faults, callback+":1=trap", callback+":1=trap-after")
		calls := make([]string, 0, len(f.made[callback]))
		for call := range f.made[callback] {
			calls = append(calls, call)
		}
		slices.Sort(calls)
		for _, call := range calls {
			faults = append(faults, call+"@"+callback+":1=trap")
			if call != "proxy_on_memory_allocate" {
				faults = append(faults, call+"@"+callback+":1=trap-after")
			}
		}
	}
	if len(faults) < 40 {
		t.Fatalf("only %d faults: %v", len(faults), f.made)
	}
	keys := 0
	for i, fault := range faults {
		f.trap(fault)
		switch n := f.keys(); {
		case i == len(faults)/3:
			keys = n
		case i > len(faults)/3 && n > keys:
			t.Fatalf("%s: %d keys in shared data, %d before", fault, n, keys)
		}
	}
}

// keys counts those in shared data, the table's pages aside.
func (f *faulty) keys() int {
	return len(slices.DeleteFunc(f.host.SharedDataKeys(vmID), pageKey.MatchString))
}

var pageKey = regexp.MustCompile(`\.p\d\d\.[0-9a-f]{4}$`)

// trap runs a journey into a trap.
func (f *faulty) trap(fault string) {
	f.t.Helper()
	parsed, err := hostsim.ParseFault(fault)
	if err != nil {
		f.t.Fatal(err)
	}
	vm := f.fleet.Workers[0]
	w := f.waiting()
	f.advance(200 * time.Millisecond)
	if f.clean() == nil {
		f.t.Fatalf("%s: a request under way is in no row", fault)
	}
	if err := f.host.Inject(parsed); err != nil {
		f.t.Fatal(err)
	}
	x := f.journey()
	if missed := f.host.ClearFaults(); len(missed) > 0 || !vm.Failed() {
		f.t.Errorf("%s: it did not trap", fault)
		return
	}
	if !x.Done() { // as in Envoy a held stream learns of it at its next callback
		x.Close()
	}
	if code := x.out.Response.Value(":status"); x.whole() != nil && code != "503" && x.out.ResetDetails == "" {
		f.t.Errorf("%s: the request ended with %q: %v", fault, code, x.out.Lines)
	}
	f.advance(50 * time.Millisecond)
	y := f.journey()
	if err := y.whole(); err != nil {
		f.t.Errorf("%s: the request after it: %v", fault, err)
	}
	w.ResponseHeaders(hostsim.NewHeaderMap(":status", "200"), true) // the one under way learns of it
	if w.out.Response.Value(":status") != "503" || !w.Done() {
		f.t.Errorf("%s: the request under way: %v", fault, w.out.Lines)
	}
	f.advance(6 * time.Second) // the dead VM's row is swept
	if err := f.clean(); err != nil {
		f.t.Errorf("%s: %v", fault, err)
	}
	for ref, n := range f.control.inFlight {
		if n.Requests != 0 || n.UncachedTokens != 0 {
			f.t.Errorf("%s: control still has %v in flight at worker %d", fault, n, ref)
		}
	}
	if z := f.journey(); z.whole() != nil || z.endpoint() == "" {
		f.t.Errorf("%s: six seconds later a request goes to %q: %v", fault, z.endpoint(), z.whole())
	}
	if vm.Failed() {
		f.t.Errorf("%s: the VM has failed again: %v", fault, vm.Err())
	}
	f.advance(200 * time.Millisecond)
}

// TestTheWorldMayStallLoseAndLeap: what goes wrong around the module. Requests
// pass meanwhile, and soon after it is over they are routed again.
func TestTheWorldMayStallLoseAndLeap(t *testing.T) {
	for _, faults := range [][]string{
		{"proxy_http_call:1-40=lose"},             // control's answers get lost
		{"proxy_on_http_call_response:1-40=lose"}, // ... inside the proxy
		{"main/proxy_on_tick:1=stall 20s"},        // the courier's thread stands still
		{"worker_0/proxy_on_tick:1=stall 20s"},    // that of the requests
		{"main/proxy_on_tick:1=stall 7s", "worker_0/proxy_on_tick:20=stall 7s"},
		{"proxy_on_tick:1-60=lose"},                     // no tick for six seconds
		{"proxy_on_tick:3=clock +1h"},                   // the clock leaps ahead
		{"proxy_on_tick:3=clock -1h"},                   // or back
		{"proxy_on_request_body:1=clock +10m"},          // in the middle of a request
		{"proxy_on_response_headers:1=clock -10m"},      //
		{"proxy_set_shared_data:1-300=CasMismatch"},     // every write is refused
		{"proxy_set_shared_data:1-300=InternalFailure"}, // or fails
		{"proxy_get_shared_data:1-3000=NotFound"},       // shared data is gone
		{"proxy_get_current_time_nanoseconds:1-100=InternalFailure"},
		{"proxy_on_memory_allocate:1-100=fail"},
	} {
		t.Run(strings.Join(faults, ","), func(t *testing.T) {
			f := startFaulty(t)
			for _, text := range faults {
				fault, err := hostsim.ParseFault(text)
				if err != nil {
					t.Fatal(err)
				}
				if err := f.host.Inject(fault); err != nil {
					t.Fatal(err)
				}
			}
			w := f.waiting()
			for range 100 { // ten seconds
				if err := f.journey().whole(); err != nil {
					t.Fatalf("while it lasts: %v", err)
				}
				f.advance(100 * time.Millisecond)
			}
			f.advance(15 * time.Second)
			if missed := f.host.ClearFaults(); len(missed) > 0 {
				t.Errorf("nothing was hit by %v", missed)
			}
			x := f.journey()
			if err := x.whole(); err != nil || x.endpoint() == "" {
				t.Errorf("afterwards a request goes to %q: %v", x.endpoint(), err)
			}
			w.answer("10.0.0.1:9000", 200, 1, "text/event-stream", answerPieces...)
			if err := w.whole(); err != nil {
				t.Errorf("a request that was under way all the time: %v", err)
			}
			f.advance(time.Second)
			if err := f.clean(); err != nil {
				t.Error(err)
			}
			if n := f.counter("panics"); n != 0 || f.fleet.Workers[0].Failed() {
				t.Errorf("%d panics, failed %t: %v", n, f.fleet.Workers[0].Failed(), f.logs)
			}
		})
	}
}

// TestAVMWithoutMemoryIsReplacedAndTheRestGoesOn: no page more for the module.
// It dies with the request that needs one; what comes after is served.
func TestAVMWithoutMemoryIsReplacedAndTheRestGoesOn(t *testing.T) {
	f := startFaulty(t)
	vm := f.fleet.Workers[0]
	if err := f.host.Inject(hostsim.Fault{VM: vm.Name(), Call: "memory.grow", To: -1, Do: hostsim.FaultFail}); err != nil {
		t.Fatal(err)
	}
	for i := 0; !vm.Failed(); i++ {
		if i == 200 {
			t.Fatal("180 MB of bodies, and the module needs no memory")
		}
		x := f.send(0, post("/v1/chat/completions"), chat("m", 900<<10, "hello"), 0)
		if x.out.Request == nil && x.out.Replied == nil {
			t.Fatalf("held: %v", x.out.Lines)
		}
		if !vm.Failed() {
			x.answer("10.0.0.1:9000", 200, 1, "text/event-stream", answerPieces...)
		}
	}
	if err := vm.Err(); !strings.Contains(err.Error(), "out of memory") {
		t.Errorf("it ended by %v", err)
	}
	f.host.ClearFaults()
	f.advance(time.Second)
	if err := f.journey().whole(); err != nil {
		t.Error(err)
	}
	f.advance(6 * time.Second)
	if err := f.clean(); err != nil {
		t.Error(err)
	}
}

// TestAnyHostCallMayFailAtTheStart: a module whose host answers errors while it
// is configured either starts or refuses with a word in the log. It never traps.
func TestAnyHostCallMayFailAtTheStart(t *testing.T) {
	f := &proxy{t: t}
	made := map[string]int{}
	f.heard = func(e hostsim.Event) {
		if e.Kind == hostsim.EventHostCall || e.Kind == hostsim.EventAllocate {
			made[e.Name]++
		}
	}
	if err := f.deploy(modules.full, `{}`, 0, true); err != nil {
		t.Fatal(err)
	}
	calls := make([]string, 0, len(made))
	for call := range made {
		calls = append(calls, call)
	}
	slices.Sort(calls)
	if len(calls) < 4 {
		t.Fatalf("the start makes only %v", calls)
	}
	n := 0
	for _, call := range calls {
		for _, status := range answers(call) {
			for _, when := range []string{":1", ":1+", ":3"} {
				n++
				fault, err := hostsim.ParseFault(call + when + "=" + status)
				if err != nil {
					t.Fatal(err)
				}
				if err := f.host.Inject(fault); err != nil {
					t.Fatal(err)
				}
				f.startAlone(fault, n)
			}
		}
	}
}

// startAlone starts a VM beside the others with a fault in force.
func (p *proxy) startAlone(fault hostsim.Fault, n int) {
	p.t.Helper()
	logs := len(p.logs)
	vm, err := p.host.NewVM(p.t.Context(), hostsim.VMConfig{Name: fmt.Sprint("alone_", n), Module: p.module, VMID: vmID})
	if err != nil {
		p.t.Errorf("%s: %v", fault, err)
		p.host.ClearFaults()
		return
	}
	_, err = vm.AddPlugin(p.config)
	p.host.ClearFaults()
	switch {
	case err == nil:
	case errors.Is(err, hostsim.ErrRejected) && len(p.logs) > logs:
	default:
		p.t.Errorf("%s: %v %v", fault, err, p.logs[logs:])
	}
	vm.Close()
}

// TestEveryClaimIsReturnedWhateverTheHostAnswers is the test of random events
// with host calls that fail among them: however a stream ends, the books are
// empty after the last, and nothing panics.
func TestEveryClaimIsReturnedWhateverTheHostAnswers(t *testing.T) {
	p := start(t, modules.full, `{"body_cap_bytes":6000}`, 2)
	p.advance(time.Second)
	calls := []string{
		"proxy_get_header_map_value", "proxy_get_header_map_pairs", "proxy_replace_header_map_value", "proxy_remove_header_map_value",
		"proxy_get_buffer_bytes", "proxy_get_property", "proxy_set_property", "proxy_get_shared_data", "proxy_set_shared_data",
		"proxy_increment_metric", "proxy_record_metric", "proxy_http_call", "proxy_get_current_time_nanoseconds",
		"proxy_send_local_response", "proxy_continue_stream", "proxy_on_memory_allocate",
	}
	rapid.Check(t, func(t *rapid.T) {
		var open []*exchange
		var faults []string
		for range rapid.IntRange(5, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 7).Draw(t, "event") {
			case 0, 1:
				call := rapid.SampledFrom(calls).Draw(t, "call")
				fault, err := hostsim.ParseFault(fmt.Sprintf("%s:%d-%d=%s", call, rapid.IntRange(1, 3).Draw(t, "from"), rapid.IntRange(3, 9).Draw(t, "to"),
					rapid.SampledFrom(answers(call)).Draw(t, "answer")))
				if err != nil {
					t.Fatal(err)
				}
				if err := p.host.Inject(fault); err != nil {
					t.Fatal(err)
				}
				faults = append(faults, fault.String())
			case 2, 3:
				open = append(open, randomRequest(t, p))
			case 4:
				for _, x := range open {
					if x.out.Request != nil && x.out.Response == nil && !x.Done() {
						randomAnswer(t, x)
						break
					}
				}
			case 5:
				for _, x := range open {
					if x.out.Response != nil && !x.out.ResponseEnd && !x.Done() {
						x.ResponseData([]byte(answerPieces[0]), rapid.Bool().Draw(t, "end"))
						break
					}
				}
			case 6:
				if len(open) > 0 {
					open[rapid.IntRange(0, len(open)-1).Draw(t, "stream")].Close()
				}
			case 7:
				p.advance(time.Duration(rapid.IntRange(1, 300).Draw(t, "wait")) * time.Millisecond)
			}
		}
		for _, x := range open {
			x.Close()
		}
		p.host.ClearFaults()
		p.advance(300 * time.Millisecond)
		if p.clean() != nil {
			p.advance(6 * time.Second) // a row that a VM had to give up is swept
		}
		if err := p.clean(); err != nil {
			t.Fatalf("%v after %v", err, faults)
		}
		if n := p.counter("panics"); n != 0 {
			t.Fatalf("%d panics: %v", n, p.logs)
		}
		for _, vm := range p.fleet.Workers {
			if vm.Failed() {
				t.Fatalf("%s has failed after %v: %v", vm.Name(), faults, vm.Err())
			}
		}
	})
}
