package transcripts

import (
	"strings"
	"testing"
	"time"
)

// TestAMissingCompanionIsToldOnce: the proxy's own balancer places everything,
// and by luck a quarter of it where we said.
func TestAMissingCompanionIsToldOnce(t *testing.T) {
	for hold, remedy := range map[string]string{"headers": "override_host", "buffer": "wasm.gw.dest"} {
		t.Run(hold, func(t *testing.T) {
			p := start(t, modules.full, `{"hold":"`+hold+`"}`, 1)
			p.advance(time.Second)
			for i := range 100 {
				x := p.send(0, post("/v1/chat/completions"), chat("m", 300, "hello"), 0)
				x.answer(string(p.control.workers[i%4].Address), 200, 1, "application/json", `{}`)
			}
			if n := p.logged(remedy); n != 1 {
				t.Errorf("told %d times: %v", n, p.logs)
			}
			p.idle()
		})
	}
}

// TestAWorkingSetUpIsNotComplainedAbout, even if workers now and then fall out
// of the proxy's own list.
func TestAWorkingSetUpIsNotComplainedAbout(t *testing.T) {
	p := start(t, modules.full, `{}`, 1)
	p.advance(time.Second)
	for i := range 100 {
		x := p.send(0, post("/v1/chat/completions"), chat("m", 300, "hello"), 0)
		where, _, _ := strings.Cut(x.endpoint(), ",")
		if i%10 == 9 {
			where = "10.9.9.9:1"
		}
		x.answer(where, 200, 1, "application/json", `{}`)
	}
	if len(p.logs) != 0 {
		t.Errorf("%v", p.logs)
	}
	p.idle()
}

// TestClientsThatSendNoBodyAreNoWrongSetUp: they leave, or are cut off, while
// the headers are held.
func TestClientsThatSendNoBodyAreNoWrongSetUp(t *testing.T) {
	p := start(t, modules.full, `{}`, 1)
	p.advance(time.Second)
	p.send(0, post("/v1/chat/completions"), chat("m", 300, "hello"), 0).Close()
	x := &exchange{}
	x.Stream = p.fleet.Plugins[0][0].NewStream(&x.out)
	x.RequestHeaders(post("/v1/chat/completions"), false)
	if held, _ := x.RequestHeld(); !held {
		t.Fatal("headers without their body are not held")
	}
	x.Close()
	if len(p.logs) != 0 {
		t.Errorf("%v", p.logs)
	}
	p.idle()
}

// logged counts the log lines that contain a text.
func (p *proxy) logged(text string) (n int) {
	for _, line := range p.logs {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}
