package transcripts

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/table"
)

// under starts a proxy whose pool has a policy.
func under(t *testing.T, policy map[string]any, vms int) *proxy {
	p := start(t, modules.full, `{"session_header":"x-user"}`, vms)
	p.control.pool(0)["policy"] = policy
	p.control.doubts = true
	p.advance(time.Second)
	return p
}

func (x *exchange) best() string {
	where, _, _ := strings.Cut(x.endpoint(), ",")
	return where
}

func TestRoundRobinVisitsEveryWorkerInTurn(t *testing.T) {
	p := under(t, map[string]any{"name": "round_robin"}, 1)
	seen := map[string]int{}
	for i := range 40 {
		x := p.send(0, post("/v1/chat/completions"), chat("m", 3000, fmt.Sprint(i)), 0)
		seen[x.best()]++
	}
	for where, n := range seen {
		if n != 10 {
			t.Errorf("%s got %d of 40", where, n)
		}
	}
}

// TestASessionStays: by the header first, then prompt_cache_key, then user;
// through any VM and whatever the text.
func TestASessionStays(t *testing.T) {
	p := under(t, map[string]any{"name": "session_hash"}, 2)
	body := func(i int, more string) []byte {
		return []byte(fmt.Sprintf(`{"model":"m",%s"messages":[{"role":"user","content":"question %d"}]}`, more, i))
	}
	for name, request := range map[string]func(i, session int) *exchange{
		"header": func(i, session int) *exchange {
			return p.send(i%2, post("/v1/chat/completions", "x-user", fmt.Sprint(session)), body(i, fmt.Sprintf(`"user":"%d",`, i)), 0)
		},
		"prompt_cache_key": func(i, session int) *exchange {
			return p.send(i%2, post("/v1/chat/completions"), body(i, fmt.Sprintf(`"user":"%d","prompt_cache_key":"%d",`, i, session)), 0)
		},
		"user": func(i, session int) *exchange {
			return p.send(i%2, post("/v1/chat/completions"), body(i, fmt.Sprintf(`"user":"%d",`, session)), 0)
		},
	} {
		places := map[string]bool{}
		for session := range 16 {
			first := request(0, session).best()
			places[first] = true
			for i := range 4 {
				if got := request(i, session).best(); got != first {
					t.Errorf("%s: session %d moved from %s to %s", name, session, first, got)
				}
			}
		}
		if len(places) < 3 {
			t.Errorf("%s: 16 sessions on %d workers", name, len(places))
		}
	}
}

// TestAHotPrefixSpills: one prompt's holder fills up while nobody reports, and
// the gateway's own books send the rest to another worker, which all VMs know for
// a holder from its first request on.
func TestAHotPrefixSpills(t *testing.T) {
	p := under(t, map[string]any{"name": "threshold"}, 2)
	p.control.doubts = false
	first := p.send(0, post("/v1/chat/completions"), chat("m", 8000, "0"), 0)
	p.advance(time.Second)
	seen := map[string]int{}
	for i := range 120 {
		x := p.send(i%2, post("/v1/chat/completions"), chat("m", 8000, fmt.Sprint(i)), 0)
		seen[x.best()]++
		if i%10 == 0 {
			p.advance(50 * time.Millisecond)
		}
	}
	if n := seen[first.best()]; n < 20 || n > 80 { // max_running is 64
		t.Errorf("the holder got %d of 120: %v", n, seen)
	}
	if len(seen) != 2 {
		t.Errorf("%v were used, wanted one more home", seen)
	}
}

// TestAnExcludedWorkerIsNotChosen, although it holds the prompt.
func TestAnExcludedWorkerIsNotChosen(t *testing.T) {
	p := under(t, map[string]any{"name": "threshold"}, 1)
	p.control.doubts = false
	first := p.send(0, post("/v1/chat/completions"), chat("m", 8000, "a"), 0)
	first.answer(first.best(), 503, 1, "application/json", `{}`)
	name := first.out.Response.Value("x-warmpath-worker")
	if name == "" || strings.Contains(name, ".") {
		t.Fatalf("the refusal names its worker %q", name)
	}
	p.advance(5 * time.Second)
	again := p.send(0, post("/v1/chat/completions"), chat("m", 8000, "a"), 0)
	if again.best() != first.best() {
		t.Fatalf("the holder is %s, the next request went to %s", first.best(), again.best())
	}
	other := p.send(0, post("/v1/chat/completions", "x-warmpath-exclude", name), chat("m", 8000, "a"), 0)
	if other.best() == first.best() || strings.Contains(other.endpoint(), first.best()) {
		t.Errorf("excluded %s, sent to %s", first.best(), other.endpoint())
	}
	if got := other.out.Request.Value("x-warmpath-exclude"); got != "" {
		t.Errorf("the exclusion went on to the worker: %q", got)
	}
}

// TestPagesAreKeptOnlyWithTheSameWorkers: control restarts and asks to keep the
// pages, but one of its refs names another worker than before.
func TestPagesAreKeptOnlyWithTheSameWorkers(t *testing.T) {
	for _, renamed := range []bool{false, true} {
		p := start(t, modules.full, `{}`, 1)
		p.advance(time.Second)
		for i := range uint64(50) {
			p.control.put(table.Entry{Fingerprint: i << 56, Refs: [6]uint16{1}})
		}
		p.advance(time.Second)
		p.control.epoch++
		p.control.keepPages = true
		p.control.entries, p.control.log = map[uint64]table.Entry{}, nil
		if renamed {
			p.control.workers[2].Generation++
		}
		p.advance(time.Second)
		m, entries := p.stored()
		if want := map[bool]int{false: 50, true: 0}[renamed]; len(entries) != want || m.Epoch != p.control.epoch {
			t.Errorf("renamed %v: %d entries at epoch %d, want %d at %d", renamed, len(entries), m.Epoch, want, p.control.epoch)
		}
	}
}

// TestAnUnknownClusterIsRetriedWithPauses: the call fails inline, again and
// again, and requests pass.
func TestAnUnknownClusterIsRetriedWithPauses(t *testing.T) {
	p := start(t, modules.full, `{"control":{"cluster":"nowhere"}}`, 1)
	p.advance(30 * time.Second)
	if n := p.counter("poll_failures.inline"); n < 5 || n > 25 {
		t.Errorf("%d failures in 30 s", n)
	}
	x := p.send(0, post("/v1/chat/completions"), chat("m", 3000, "a"), 0)
	if !x.out.RequestEnded || x.endpoint() != "" {
		t.Errorf("%v", x.out.Lines)
	}
}

// TestChangesThatDontFitAskForTheWhole: control's answer starts from another
// version than ours.
func TestChangesThatDontFitAskForTheWhole(t *testing.T) {
	p := start(t, modules.full, `{}`, 1)
	p.advance(time.Second)
	p.control.put(table.Entry{Fingerprint: 1 << 60, Refs: [6]uint16{1}})
	p.control.lie = 5
	p.advance(time.Second)
	p.control.lie = 0
	p.advance(time.Second)
	if err := p.sameTable(); err != nil {
		t.Error(err)
	}
	if n := p.counter("resyncs"); n < 2 {
		t.Errorf("%d resyncs", n)
	}
}
