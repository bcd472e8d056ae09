package transcripts

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestAControlGroupIsRoutedByItsOwnRule: its share of the sessions holds, a
// session stays in its group through any VM and whatever the text, decisions
// name it and it is counted apart.
func TestAControlGroupIsRoutedByItsOwnRule(t *testing.T) {
	p := start(t, modules.full, `{"session_header":"x-user","explain":true}`, 2)
	p.control.pool(0)["policy"] = map[string]any{"name": "cost"}
	p.control.pool(0)["control_group"] = map[string]any{"share": 0.25, "policy": map[string]any{"name": "round_robin"}}
	p.control.changed()
	p.advance(time.Second)
	const sessions, turns = 120, 2
	members := 0
	for session := range sessions {
		first := false
		for turn := range turns {
			x := p.send((session+turn)%2, post("/v1/chat/completions", "x-user", fmt.Sprint("user", session)), chat("m", 3000, fmt.Sprint(session, turn)), 0)
			x.answer(x.best(), 200, 1, "text/event-stream",
				"data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n",
				"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":900,\"completion_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":16}}}\n\ndata: [DONE]\n\n")
			x.Close()
			in := strings.Contains(x.out.Response.Value("x-warmpath-explain"), " group=control")
			if byRule := x.whyOf() == "round_robin"; byRule != in {
				t.Fatalf("session %d: group=control %v, decided by %s", session, in, x.whyOf())
			}
			if turn == 0 {
				first = in
			} else if in != first {
				t.Errorf("session %d changed its group", session)
			}
		}
		if first {
			members++
		}
	}
	if members < 16 || members > 46 { // 30 and 3.4 standard deviations
		t.Errorf("%d of %d sessions are in a group of a quarter", members, sessions)
	}
	p.advance(200 * time.Millisecond)
	for family, each := range map[string]int{"group_decisions": 1, "group_first_tokens": 1, "group_confirmed_tokens": 16} {
		if n := p.counter(family + ".control"); n != uint64(members*turns*each) {
			t.Errorf("%s.control is %d, want %d", family, n, members*turns*each)
		}
		if n := p.counter(family + ".main"); n != uint64((sessions-members)*turns*each) {
			t.Errorf("%s.main is %d, want %d", family, n, (sessions-members)*turns*each)
		}
	}
	if a, b := p.counter("group_lookup_tokens.main")+p.counter("group_lookup_tokens.control"), uint64(sessions*turns*700); a < b {
		t.Errorf("the groups' lookups have %d tokens, at least %d were sent", a, b)
	}
	// Without the group nothing more is counted.
	delete(p.control.pool(0), "control_group")
	p.control.changed()
	p.advance(time.Second)
	before := p.counter("group_decisions.main")
	p.send(0, post("/v1/chat/completions"), chat("m", 3000, "after"), 0).Close()
	p.advance(200 * time.Millisecond)
	if n := p.counter("group_decisions.main"); n != before {
		t.Errorf("%d decisions of a group that is no more", n-before)
	}
}
