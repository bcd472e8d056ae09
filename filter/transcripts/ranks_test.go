package transcripts

import (
	"strings"
	"testing"
	"time"
)

// TestARankIsNamedByHeader: data-parallel ranks behind one port are workers of
// their own, and a request says which it is for. Both attempts carry the header,
// so it is left out where the second worker has another rank.
func TestARankIsNamedByHeader(t *testing.T) {
	p := start(t, modules.full, `{"explain":true}`, 1)
	c := p.control
	c.workers = nil
	for ref, address := range []string{"10.0.0.1:9000", "10.0.0.1:9000", "10.0.0.2:9000", "10.0.0.2:9000"} {
		c.add(uint16(ref+1), address)
		c.workers[ref].Rank = uint8(ref%2 + 1)
	}
	c.changed()
	p.advance(time.Second)
	body := chat("m", 4000, "first")
	send := func(headers ...string) *exchange {
		x := p.send(0, post("/v1/chat/completions", headers...), body, 0)
		p.advance(time.Second)
		return x
	}
	rank := func(x *exchange) string { return x.out.Request.Value("x-data-parallel-rank") }
	chosen := func(x *exchange) string {
		_, rest, _ := strings.Cut(x.out.Request.Value("x-warmpath-decision"), " w=")
		name, _, _ := strings.Cut(rest, " ")
		return name
	}
	const done = `{"usage":{"prompt_tokens":1000,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":900}}}`

	// The next turn goes to the same rank of the same engine, and is confirmed there.
	x := send("x-data-parallel-rank", "7")
	best, second := x.choices()
	if best == second || chosen(x) != best+"@"+rank(x) || rank(x) != "0" && rank(x) != "1" {
		t.Fatalf("endpoints %s and %s, rank %s: %s", best, second, rank(x), chosen(x))
	}
	x.answer(best, 200, 1, "application/json", done)
	p.advance(time.Second)
	y := send()
	if chosen(y) != chosen(x) || rank(y) != rank(x) || strings.Contains(y.out.Request.Value("x-warmpath-decision"), "hit=0/") {
		t.Errorf("first %s, then %s", chosen(x), y.out.Request.Value("x-warmpath-decision"))
	}
	y.answer(best, 200, 1, "application/json", done)
	p.advance(time.Second)
	if predicted, came := p.counter("came_true_tokens.lt1k"), p.counter("confirmed_tokens.lt1k"); predicted == 0 || came == 0 {
		t.Errorf("%d predicted tokens came true of %d confirmed", predicted, came)
	}

	// Without the other engine's rank the engine chooses, and nothing is predicted.
	before := p.counter("came_true_tokens.lt1k")
	for i := range c.workers {
		if string(c.workers[i].Address) != best && string(c.workers[i].Address) == second {
			c.workers[i].Rank = uint8(i%2 + 11)
		}
	}
	c.changed()
	p.advance(2 * time.Second)
	z := send()
	if rank(z) != "" {
		t.Errorf("rank %s with %s behind %s", rank(z), second, best)
	}
	z.answer(best, 200, 1, "application/json", done)
	p.advance(time.Second)
	if after := p.counter("came_true_tokens.lt1k"); after != before {
		t.Errorf("%d tokens more count as predicted", after-before)
	}
}
