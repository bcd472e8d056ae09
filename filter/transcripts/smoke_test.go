package transcripts

import (
	"strings"
	"testing"
	"time"
)

// chat is a chat request with a system prompt of about the given size and one
// user turn.
func chat(model string, system int, user string) []byte {
	return []byte(`{"model":"` + model + `","messages":[{"role":"system","content":"` + strings.Repeat("You are helpful. ", system/17) +
		`"},{"role":"user","content":"` + user + `"}]}`)
}

func TestFollowUpLandsOnTheSameWorker(t *testing.T) {
	p := start(t, modules.full, `{}`, 2)
	p.advance(time.Second)
	first := p.send(0, post("/v1/chat/completions"), chat("m", 8000, "hello"), 0)
	where := first.endpoint()
	if where == "" {
		t.Fatalf("not routed: %v\n%v", first.out.Lines, p.logs)
	}
	best, _, _ := strings.Cut(where, ",")
	first.answer(best, 200, 1, "application/json", `{"usage":{"prompt_tokens":2000,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":0}}}`)
	p.advance(2 * time.Second)
	second := p.send(1, post("/v1/chat/completions"), chat("m", 8000, "hello again"), 0)
	t.Log(second.out.Lines)
	t.Log(p.control.reports)
	if got, _, _ := strings.Cut(second.endpoint(), ","); got != best {
		t.Fatalf("follow-up went to %s, the first to %s", got, best)
	}
	if got := p.counter("hits.1k_4k"); got != 0 {
		t.Fatalf("hits counted before the tick: %d", got)
	}
	p.advance(time.Second)
	if got := p.counter("hits.1k_4k"); got != 1 {
		t.Fatalf("hits: %d", got)
	}
}

// Engines share whole blocks, and hybrid models have large ones: what prompts share may be less.
func TestAPrefixBelowABlockIsNoHitAndCountedApart(t *testing.T) {
	p := start(t, modules.full, `{}`, 1)
	for i := range p.control.workers {
		p.control.workers[i].BlockTokens = 784
	}
	p.control.changed()
	p.advance(time.Second)
	for range 2 {
		x := p.send(0, post("/v1/chat/completions"), chat("m", 2000, "hello"), 0)
		where, _, _ := strings.Cut(x.endpoint(), ",")
		x.answer(where, 200, 1, "application/json", `{"usage":{"prompt_tokens":500,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":0}}}`)
		p.advance(2 * time.Second)
	}
	if hits, below := p.counter("hits.lt1k"), p.counter("below_block_tokens.lt1k"); hits != 0 || below < 400 || below > 512 {
		t.Errorf("%d hits, %d tokens below a block; want 0, and most of some 500", hits, below)
	}
}
