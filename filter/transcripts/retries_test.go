package transcripts

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// retrying is a proxy with admission whose retry budget is a share of the traffic.
func retrying(t *testing.T, budget string, vms int) *proxy {
	p := start(t, modules.full, `{}`, vms)
	p.control.doubts = true
	p.control.leases.settings = `{"retry_budget": ` + budget + `}`
	p.control.leases.slots(1000, 1000, 1000, 1000)
	p.control.changed()
	p.advance(time.Second)
	return p
}

// once tells whether the proxy was told not to try a request again.
func (x *exchange) once() bool { return x.out.Request.Value("x-envoy-max-retries") == "0" }

func (x *exchange) choices() (best, second string) {
	best, second, _ = strings.Cut(x.endpoint(), ",")
	return best, second
}

// TestASpentRetryBudgetTurnsRetriesOff: ten re-routes in a row are always in it;
// then every tenth request may be tried again.
func TestASpentRetryBudgetTurnsRetriesOff(t *testing.T) {
	p := retrying(t, "0.1", 1)
	send := func(attempts int) *exchange {
		x := p.send(0, post("/v1/chat/completions"), chat("m", 1000, fmt.Sprint(p.host.Now())), 0)
		address, second := x.choices()
		if attempts > 1 {
			address = second
		}
		x.answer(address, 200, attempts, "application/json", `{}`)
		p.advance(20 * time.Millisecond)
		return x
	}
	for i := range 10 {
		if x := send(2); x.once() {
			t.Fatalf("request %d may not be tried again", i)
		}
	}
	if !send(1).once() {
		t.Fatal("the budget has no end")
	}
	for i := 1; send(1).once(); i++ {
		if i > 20 {
			t.Fatal("twenty requests have earned nothing")
		}
	}
	for range 30 { // a refusal isn't laid at the proxy's door
		x := p.send(0, post("/v1/chat/completions"), chat("m", 1000, fmt.Sprint(p.host.Now())), 0)
		address, _ := x.choices()
		if once := x.once(); once {
			x.answer(address, 503, 1, "application/json", `{}`)
			break
		}
		x.answer(address, 200, 2, "application/json", `{}`)
		p.advance(20 * time.Millisecond)
	}
	p.advance(100 * time.Millisecond)
	if got := p.counter("retries_denied.budget"); got == 0 {
		t.Error("nothing is counted")
	}
	if refused, proxy := p.counter("refusals"), p.counter("retries_denied.proxy"); refused != 1 || proxy != 0 {
		t.Errorf("of %d refusals %d are the proxy's doing, want 1 and 0", refused, proxy)
	}
	if got := p.counter("reroutes"); got != 10 {
		t.Errorf("%d re-routes", got)
	}
}

// TestAPromptThatBrokeTwoWorkersIsNotTriedAgain: by one request that was tried
// twice, or by two; in every VM, and for a minute.
func TestAPromptThatBrokeTwoWorkersIsNotTriedAgain(t *testing.T) {
	p := retrying(t, "1", 2)
	body := chat("m", 2000, "breaks workers")
	x := p.send(0, post("/v1/chat/completions"), body, 0)
	if x.once() {
		t.Fatal("it may not be tried again before it has done anything")
	}
	_, x.Info.UpstreamAddress = x.choices()
	x.UpstreamReset("connection termination") // at the second worker too
	p.advance(200 * time.Millisecond)
	for vm := range 2 {
		y := p.send(vm, post("/v1/chat/completions"), body, 0)
		if !y.once() {
			t.Errorf("VM %d would try it at a third worker", vm)
		}
		if other := p.send(vm, post("/v1/chat/completions"), chat("m", 2000, "does not"), 0); other.once() {
			t.Error("other prompts are concerned")
		}
		y.Close()
	}
	p.advance(200 * time.Millisecond)
	if got := p.counter("retries_denied.dangerous"); got != 2 {
		t.Errorf("%d are counted, want 2", got)
	}
	p.advance(61 * time.Second)
	if z := p.send(0, post("/v1/chat/completions"), body, 0); z.once() {
		t.Error("it is never forgotten")
	}

	// A connection that could not be made is not the prompt's fault.
	body = chat("m", 2000, "meets dead workers")
	for range 3 {
		p.send(0, post("/v1/chat/completions"), body, 0).UpstreamReset("remote connection failure")
		p.advance(3 * time.Second)
	}
	if y := p.send(0, post("/v1/chat/completions"), body, 0); y.once() {
		t.Error("workers that were not there count")
	}
}
