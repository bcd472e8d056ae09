package transcripts

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
)

// explainedTerms are the workers of an explanation: numbers by name, and what stands alone as 1.
func explainedTerms(t *testing.T, text string) (order []string, all map[string]map[string]float64) {
	t.Helper()
	all = map[string]map[string]float64{}
	for _, field := range strings.Fields(text) {
		rest, is := strings.CutPrefix(field, "@")
		if !is {
			continue
		}
		parts := strings.Split(rest, ";")
		terms := map[string]float64{}
		for _, part := range parts[1:] {
			name, value, valued := strings.Cut(part, "=")
			terms[name] = 1
			if valued {
				n, err := strconv.ParseFloat(strings.TrimSuffix(value, "ms"), 64)
				if err != nil && name != "left" {
					t.Fatalf("%s of %s: %v", part, field, err)
				}
				terms[name] = n
			}
		}
		order = append(order, parts[0])
		all[parts[0]] = terms
	}
	return order, all
}

// A response tells, where that is asked for, what the gateway that answered knew of each worker and
// what its rule made of it: the same sum that explain shows, with requests that only this gateway
// knows of.
func TestAResponseTellsWhatItsGatewayKnewOfEveryWorker(t *testing.T) {
	p := start(t, modules.full, `{"explain":true}`, 1)
	p.control.pool(0)["policy"] = map[string]any{"name": "cost", "sample": 1}
	p.control.changed()
	p.advance(time.Second)
	ask := func() *exchange { return p.send(0, post("/v1/chat/completions"), chat("m", 3000, "the same"), 0) }
	first := ask() // stays under way: nobody but this gateway knows of it
	second := ask()
	for _, x := range []*exchange{second, first} {
		x.answer(x.best(), 200, 1, "application/json", `{"usage":{"prompt_tokens":900,"completion_tokens":3}}`)
		x.Close()
	}
	order, terms := explainedTerms(t, second.out.Response.Value("x-warmpath-explain"))
	if len(order) < 2 || order[0] != second.best() {
		t.Fatalf("%v, the request went to %s: %s", order, second.best(), second.out.Response.Value("x-warmpath-explain"))
	}
	if n := terms[first.best()]["n"]; n != 1 {
		t.Errorf("%v requests under way at %s as the second was routed, want the gateway's own one", n, first.best())
	}
	least := math.Inf(1)
	for address, w := range terms {
		sum := w["wait"] + w["miss"] + w["decode"] + w["evict"] + w["spread"]
		if math.Abs(sum-w["cost"]) > 0.0004 {
			t.Errorf("%s: the terms' sum is %v, the cost %v", address, sum, w["cost"])
		}
		if miss := w["prefill"]*w["price"] + w["miss_sibling"]; w["miss"] == 0 || math.Abs(miss-w["miss"]) > 0.001 {
			t.Errorf("%s: the parts of its miss add up to %v: %v", address, miss, w)
		}
		least = min(least, w["cost"])
	}
	said := second.out.Response.Value("x-warmpath-explain")
	if w := terms[order[0]]; w["price"] < 4 || !strings.Contains(said, " price=4.0000 each=0.0650 kv_mean=") || !strings.Contains(said, " tight=0.0000 @"+order[0]) {
		t.Errorf("what a second of prefill costs isn't told: %s", said)
	}
	if w := terms[order[1]]; w["miss_sibling"] >= 0 {
		t.Errorf("that the first is just computing the same makes a copy no cheaper: %s", said)
	}
	if got := terms[order[0]]["cost"]; got > least+0.001 {
		t.Errorf("the chosen one costs %v, another %v", got, least)
	}
	p.control.pool(0)["policy"] = map[string]any{"name": "weighted"}
	p.control.changed()
	p.advance(time.Second)
	x := ask()
	x.answer(x.best(), 200, 1, "application/json", `{}`)
	x.Close()
	order, terms = explainedTerms(t, x.out.Response.Value("x-warmpath-explain"))
	for _, address := range order {
		if w := terms[address]; math.Abs(3*w["cached"]-(w["queue"]+0.3*w["util"])-w["score"]) > 0.0004 {
			t.Errorf("%s: %v", address, w)
		}
	}
	// Without it nothing is told.
	quiet := start(t, modules.full, `{}`, 1)
	quiet.advance(time.Second)
	y := quiet.send(0, post("/v1/chat/completions"), chat("m", 3000, "the same"), 0)
	y.answer(y.best(), 200, 1, "application/json", `{}`)
	y.Close()
	if got := y.out.Response.Value("x-warmpath-explain"); got != "" {
		t.Errorf("unasked: %s", got)
	}
}
