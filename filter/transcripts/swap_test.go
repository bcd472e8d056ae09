package transcripts

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// whyOf is the reason in a response's explanation, empty without one.
func (x *exchange) whyOf() string {
	_, rest, _ := strings.Cut(x.out.Response.Value("x-warmpath-explain"), " why=")
	why, _, _ := strings.Cut(rest, " ")
	return why
}

// TestARuleIsSwappedUnderTraffic: every request is decided by the rule in force
// when it came and says so, those under way end as they were begun, and the
// books return to zero.
func TestARuleIsSwappedUnderTraffic(t *testing.T) {
	p := start(t, modules.full, `{"explain":true}`, 2)
	p.advance(time.Second)
	var open []*exchange
	end := func(x *exchange) {
		x.answer(x.best(), 200, 1, "application/json", `{"usage":{"prompt_tokens":2000,"completion_tokens":3}}`)
		x.Close()
	}
	for round, c := range []struct {
		policy map[string]any
		whys   []string // of the first request, of those that follow
	}{
		{map[string]any{"name": "threshold"}, []string{"ring", "holder"}},
		{map[string]any{"name": "cost", "miss_weight": 2}, []string{"cost", "cost"}},
		{map[string]any{"name": "weighted"}, []string{"score", "score"}},
		{map[string]any{"name": "cost"}, []string{"cost", "cost"}},
		{map[string]any{"name": "threshold"}, []string{"holder", "holder"}},
	} {
		p.control.pool(0)["policy"] = c.policy
		p.control.changed()
		p.advance(200 * time.Millisecond)
		before := open
		open = nil
		for i := range 8 {
			x := p.send(i%2, post("/v1/chat/completions"), chat("m", 8000, fmt.Sprint(round, i)), 0)
			open = append(open, x)
			if i%2 == 0 {
				// One of the rule before ends among those of this one.
				p.advance(600 * time.Millisecond)
				if len(before) > 0 {
					end(before[0])
					before = before[1:]
				}
			}
		}
		var got []string
		for _, x := range open[:4] {
			end(x)
			got = append(got, x.whyOf())
		}
		open = open[4:]
		want := []string{c.whys[0], c.whys[1], c.whys[1], c.whys[1]}
		if c.whys[0] == "ring" {
			// The second came before the table knew the first.
			got, want = slices.Delete(got, 1, 2), want[1:]
			want[0] = "ring"
		}
		if !slices.Equal(got, want) {
			t.Errorf("round %d, %v: decided by %v, want %v", round, c.policy, got, want)
		}
	}
	for _, x := range open {
		end(x)
	}
	p.advance(200 * time.Millisecond)
	if a, b := p.counter("dispatched"), p.counter("released"); a != 40 || b != 40 {
		t.Errorf("%d claims opened, %d returned, of 40", a, b)
	}
	for slot, lines := range p.rows() {
		if len(lines) != 0 {
			t.Errorf("slot %d still has %v in flight", slot, lines)
		}
	}
	for why, least := range map[string]uint64{"cost": 16, "score": 8, "holder": 8} {
		if n := p.counter("decisions." + why); n < least {
			t.Errorf("%d decisions by %s, want at least %d", n, why, least)
		}
	}
	if n := p.counter("bad_data.policy") + p.counter("panics"); n != 0 {
		t.Errorf("%d policies refused or panics: %v", n, p.logs)
	}
}
