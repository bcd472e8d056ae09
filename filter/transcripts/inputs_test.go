package transcripts

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// inputs are the bodies of field cases with the path they are sent to and the
// reason for which they have no key, if any.
var inputs = []struct {
	file, path, encoding, noKey string
}{
	{"F02a-responses-input-string.json", "/v1/responses", "", ""},
	{"F02b-responses-input-array.json", "/v1/responses", "", ""},
	{"F03-chat-content-parts.json", "/v1/chat/completions", "", ""},
	{"F04-completions-token-ids.json", "/v1/completions", "", ""},
	{"F05-completions-string-list.json", "/v1/completions", "", ""},
	{"F06-anthropic-messages.json", "/v1/messages", "", ""},
	{"F08-null-content-toolcalls.json", "/v1/chat/completions", "", ""},
	{"F09-tool-without-parameters.json", "/v1/chat/completions", "", ""},
	{"F10-empty-messages.json", "/v1/chat/completions", "", "empty"},
	{"F11-duplicate-model.json", "/v1/chat/completions", "", ""},
	{"F13-late-and-nested-model.json", "/v1/chat/completions", "", ""},
	{"F14-chat-gzip.json.gz", "/v1/chat/completions", "gzip", "compressed"},
	{"F14-chat-gzip.json.gz", "/v1/chat/completions", "", "not_object"},
	{"F20_F59-same-prompt-odd-bytes.json", "/v1/chat/completions", "", ""},
	{"F46-bad-escape.json", "/v1/chat/completions", "", "bad_json"},
	{"F49a-emoji-escaped.json", "/v1/chat/completions", "", ""},
	{"F49b-emoji-literal.json", "/v1/chat/completions", "", ""},
	{"F57a-two-messages.json", "/v1/chat/completions", "", ""},
	{"F57b-other-split.json", "/v1/chat/completions", "", ""},
	{"F62-same-text-other-image.json", "/v1/chat/completions", "", ""},
}

// TestEveryInputPassesByteForByteHoweverItArrives sends each body whole and in
// pieces, with and without its length, under both ways of holding.
func TestEveryInputPassesByteForByteHoweverItArrives(t *testing.T) {
	for _, hold := range []string{"headers", "buffer"} {
		t.Run(hold, func(t *testing.T) {
			p := start(t, modules.full, `{"hold":"`+hold+`"}`, 1)
			p.control.pool(0)["policy"] = map[string]any{"name": "session_hash"} // the same worker each time
			p.control.doubts = true                                              // the same answer each time
			p.advance(time.Second)
			for _, in := range inputs {
				raw, err := os.ReadFile(filepath.Join("..", "body", "testdata", "inputs", in.file))
				if err != nil {
					t.Fatal(err)
				}
				var decision string
				for i, chunk := range []int{0, 1, 7, 0, 1, 7} {
					headers := post(in.path, "x-session-id", in.file)
					if i >= 3 {
						headers.Add("content-length", strconv.Itoa(len(raw)))
					}
					if in.encoding != "" {
						headers.Add("content-encoding", in.encoding)
					}
					before := p.counter("no_key." + in.noKey)
					x := p.send(0, headers, raw, chunk)
					name := fmt.Sprintf("%s in pieces of %d", in.file, chunk)
					if !bytes.Equal(x.out.RequestBody, raw) || !x.out.RequestEnded {
						t.Errorf("%s: %d of %d bytes went on, ended %v", name, len(x.out.RequestBody), len(raw), x.out.RequestEnded)
					}
					if x.endpoint() == "" {
						t.Errorf("%s: no endpoint: %v", name, x.out.Lines)
					}
					got, _ := x.FilterState("gw.decision")
					if decision == "" {
						decision = string(got)
					}
					if string(got) != decision {
						t.Errorf("%s: decision %q, whole it was %q", name, got, decision)
					}
					if in.noKey != "" && !strings.HasPrefix(decision, "hit=0/0 ") {
						t.Errorf("%s: decision %q counts a prompt", name, decision)
					}
					where, _, _ := strings.Cut(x.endpoint(), ",")
					x.answer(where, 400, 1, "application/json", `{"error":"no"}`)
					p.advance(100 * time.Millisecond)
					if in.noKey != "" && p.counter("no_key."+in.noKey) != before+1 {
						t.Errorf("%s: no_key.%s was not counted", name, in.noKey)
					}
				}
			}
			p.idle()
			if n := p.counter("refusals"); n != 0 {
				t.Errorf("%d of the clients' own errors count against workers", n)
			}
		})
	}
}

// TestTheLastOfTwoModelsCounts: the engine runs the last one, so the pool is
// the last one's.
func TestTheLastOfTwoModelsCounts(t *testing.T) {
	p := start(t, modules.full, `{}`, 1)
	p.control.policy["pools"] = []map[string]any{
		{"name": "a", "index": 0, "models": []string{"model-a"}},
		{"name": "b", "index": 1, "models": []string{"model-b"}},
	}
	p.control.workers[0].Pool = 1
	p.advance(time.Second)
	raw, err := os.ReadFile(filepath.Join("..", "body", "testdata", "inputs", "F11-duplicate-model.json"))
	if err != nil {
		t.Fatal(err)
	}
	x := p.send(0, post("/v1/chat/completions"), raw, 0)
	if got := x.out.Request.Value("x-warmpath-pool"); got != "b" {
		t.Fatalf("pool %q, want b: %v", got, x.out.Lines)
	}
	if got := x.endpoint(); got != "10.0.0.1:9000" {
		t.Fatalf("endpoint %q", got)
	}
}

// TestEmptyPromptsSpread: a hundred requests without text must not share a key.
func TestEmptyPromptsSpread(t *testing.T) {
	p := start(t, modules.full, `{}`, 1)
	p.advance(time.Second)
	seen := map[string]int{}
	for range 100 {
		x := p.send(0, post("/v1/chat/completions"), []byte(`{"model":"m","messages":[]}`), 0)
		where, _, _ := strings.Cut(x.endpoint(), ",")
		seen[where]++
	}
	for where, n := range seen {
		if n > 40 {
			t.Errorf("%s got %d of 100", where, n)
		}
	}
	if len(seen) != 4 {
		t.Errorf("only %d of 4 workers were used: %v", len(seen), seen)
	}
}

// TestLargeBodiesPassAtTheirBoundaries sends bodies around the sizes where
// proxies and filters changed their ways.
func TestLargeBodiesPassAtTheirBoundaries(t *testing.T) {
	p := start(t, modules.full, `{}`, 1)
	p.advance(time.Second)
	for _, size := range []int{64 << 10, 128 << 10, 1 << 20, 4 << 20, 10 << 20} {
		for _, n := range []int{size - 1, size, size + 1} {
			body := chat("m", n-200, "hello")
			body = append(body, bytes.Repeat([]byte(" "), n-len(body))...)
			x := p.send(0, post("/v1/chat/completions"), body, 16<<10)
			if !bytes.Equal(x.out.RequestBody, body) || !x.out.RequestEnded {
				t.Fatalf("%d bytes: %d went on", n, len(x.out.RequestBody))
			}
			if x.endpoint() == "" {
				t.Fatalf("%d bytes: no endpoint", n)
			}
			x.Close()
		}
	}
	p.idle()
	if got := p.counter("no_key.over_cap"); got != 4 { // 4 MiB + 1, and three of 10 MiB
		t.Errorf("over_cap counted %d times", got)
	}
	if stats := p.fleet.Workers[0].Stats(); stats.MemoryBytes > 40<<20 {
		t.Errorf("VM memory %d MiB", stats.MemoryBytes>>20)
	}
}

// TestDeepNestingHarmsNothing: a million brackets must neither overflow the
// VM's stack nor hold the request.
func TestDeepNestingHarmsNothing(t *testing.T) {
	p := start(t, modules.full, `{}`, 1)
	p.advance(time.Second)
	deep := []byte(`{"model":"m","messages":` + strings.Repeat("[", 1_000_000) + strings.Repeat("]", 1_000_000) + `}`)
	x := p.send(0, post("/v1/chat/completions"), deep, 0)
	if !bytes.Equal(x.out.RequestBody, deep) {
		t.Fatal("the body did not pass")
	}
	x.Close()
	p.idle()
	if p.counter("no_key.too_deep") != 1 {
		t.Error("not counted as too deep")
	}
	if stats := p.fleet.Workers[0].Stats(); stats.Traps != 0 {
		t.Errorf("%d traps", stats.Traps)
	}
}

// idle checks that nothing is in flight and nothing panicked.
func (p *proxy) idle() {
	p.t.Helper()
	p.advance(300 * time.Millisecond)
	if a, b := p.counter("dispatched"), p.counter("released"); a != b || a == 0 {
		p.t.Errorf("%d claims opened, %d returned", a, b)
	}
	if n := p.counter("panics"); n != 0 {
		p.t.Errorf("%d panics: %v", n, p.logs)
	}
	for slot, lines := range p.rows() {
		if len(lines) != 0 {
			p.t.Errorf("slot %d still has %v in flight", slot, lines)
		}
	}
}
