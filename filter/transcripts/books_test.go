package transcripts

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/hostsim"
	"github.com/warmpath/warmpath/shared/wire"
)

// rows are the in-flight records of every VM, by slot.
func (p *proxy) rows() map[uint16][]wire.InFlight {
	keys := wire.NewKeys("default")
	out := map[uint16][]wire.InFlight{}
	for slot := range uint16(wire.MaxSlots) {
		value, _, ok := p.host.SharedData(vmID, keys.Row(slot))
		if !ok {
			continue
		}
		out[slot] = nil
		_, err := wire.DecodeRow(value, func(r wire.InFlight) { out[slot] = append(out[slot], r) })
		if err != nil {
			p.t.Fatal(err)
		}
	}
	return out
}

// TestEveryClaimIsReturnedOnceInWhateverOrder drives random events through
// streams of two VMs: bodies in pieces, answers by the best, the second, a
// third or an unknown worker, refusals, resets, aborts, module errors, policy
// changes. However a stream ends, the books are empty after the last.
func TestEveryClaimIsReturnedOnceInWhateverOrder(t *testing.T) {
	p := start(t, modules.full, `{"body_cap_bytes":6000}`, 2)
	p.advance(time.Second)
	rapid.Check(t, func(t *rapid.T) {
		var open []*exchange
		pick := func() *exchange {
			if len(open) == 0 {
				return nil
			}
			return open[rapid.IntRange(0, len(open)-1).Draw(t, "stream")]
		}
		steps := rapid.IntRange(5, 60).Draw(t, "steps")
		for range steps {
			switch rapid.IntRange(0, 9).Draw(t, "event") {
			case 0, 1, 2:
				open = append(open, randomRequest(t, p))
			case 3:
				if x := pick(); x != nil && !x.out.RequestEnded && !x.Done() {
					x.RequestData([]byte(" "), rapid.Bool().Draw(t, "end"))
				}
			case 4:
				if x := pick(); x != nil && x.out.Request != nil && x.out.Response == nil && !x.Done() {
					randomAnswer(t, x)
				}
			case 5:
				if x := pick(); x != nil && x.out.Response != nil && !x.out.ResponseEnd && !x.Done() {
					x.ResponseData([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n"), rapid.Bool().Draw(t, "end"))
				}
			case 6:
				if x := pick(); x != nil {
					x.Close()
				}
			case 7:
				if x := pick(); x != nil && x.out.Request != nil && !x.Done() {
					x.UpstreamReset("connection termination")
				}
			case 8:
				p.advance(time.Duration(rapid.IntRange(1, 300).Draw(t, "wait")) * time.Millisecond)
			case 9:
				state := rapid.SampledFrom([]string{"healthy", "down", "draining"}).Draw(t, "state")
				p.control.set(uint16(rapid.IntRange(1, 4).Draw(t, "worker")), state)
				p.control.pool(0)["mode"] = rapid.SampledFrom([]string{"route", "observe"}).Draw(t, "mode")
			}
		}
		for _, x := range open {
			x.Close()
			x.Close()
		}
		p.advance(200 * time.Millisecond)
		if a, b := p.counter("dispatched"), p.counter("released"); a != b {
			t.Fatalf("%d claims opened, %d returned", a, b)
		}
		for slot, lines := range p.rows() {
			if len(lines) != 0 {
				t.Fatalf("slot %d still has %v in flight", slot, lines)
			}
		}
		if n := p.counter("panics"); n != 0 {
			t.Fatalf("%d panics: %v", n, p.logs)
		}
	})
	if p.counter("dispatched") < 50 {
		t.Fatalf("only %d requests were dispatched: the test tests nothing", p.counter("dispatched"))
	}
}

func randomRequest(t *rapid.T, p *proxy) *exchange {
	vm := rapid.IntRange(0, 1).Draw(t, "vm")
	path := rapid.SampledFrom([]string{"/v1/chat/completions", "/v1/chat/completions", "/v1/messages", "/v1/models", "/other"}).Draw(t, "path")
	x := &exchange{}
	x.Stream = p.fleet.Plugins[vm][0].NewStream(&x.out)
	if rapid.IntRange(0, 9).Draw(t, "bodyless") == 0 {
		x.RequestHeaders(hostsim.NewHeaderMap(":method", "GET", ":path", path, ":authority", "llm"), true)
		return x
	}
	x.RequestHeaders(post(path), false)
	body := chat("m", rapid.SampledFrom([]int{0, 300, 2000, 5900, 9000}).Draw(t, "system"), "hello")
	cut := rapid.IntRange(0, len(body)).Draw(t, "cut")
	x.RequestData(body[:cut], false)
	if !x.Done() && rapid.IntRange(0, 3).Draw(t, "unfinished") != 0 {
		x.RequestData(body[cut:], true)
	}
	return x
}

func randomAnswer(t *rapid.T, x *exchange) {
	best, second, _ := strings.Cut(x.endpoint(), ",")
	address := rapid.SampledFrom([]string{best, best, second, "10.0.0.1:9000", "10.0.0.4:9000", "10.9.9.9:1", ""}).Draw(t, "from")
	x.Info.UpstreamAddress = address
	x.Info.UpstreamRequestAttemptCount = uint64(rapid.IntRange(1, 2).Draw(t, "attempts"))
	code := rapid.SampledFrom([]int{200, 200, 200, 429, 503, 500, 400}).Draw(t, "status")
	kind := rapid.SampledFrom([]string{"text/event-stream", "application/json"}).Draw(t, "type")
	x.ResponseHeaders(hostsim.NewHeaderMap(":status", fmt.Sprint(code), "content-type", kind), rapid.IntRange(0, 5).Draw(t, "no body") == 0)
}
