// Package moduletest runs a warmpath module, ours or one with a rule of your own, in hostsim beside
// a control service that says what the test wants:
//
//	g := moduletest.Load(t, "bin/custom-policy.wasm", `{"name": "custom"}`,
//		route.Worker{Address: "10.0.0.1:8000", UncachedTokens: 20_000},
//		route.Worker{Address: "10.0.0.2:8000"})
//	if a := g.Ask("Why is the sky blue?"); a.Best != "10.0.0.2:8000" {
//		t.Errorf("%+v", a)
//	}
//
// A prompt travels as in a proxy: the module holds the request, looks it up in the table, chooses,
// and names the endpoints; the first of them answers. The control service (control.go) believes
// every request that the module reports, so that a worker which has answered a prompt holds it for
// the next. Time stands still but for [Gateway.Ask], which lets a second pass for that.
package moduletest

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/warmpath/warmpath/hostsim/hosttest"
	"github.com/warmpath/warmpath/shared/route"
)

// Gateway is a proxy with the module in it.
type Gateway struct {
	*hosttest.Filter

	t       hosttest.T
	control *control
}

// Answer is where a request went.
type Answer struct {
	// Best answered it; Second is where it would have gone next, empty for nowhere.
	Best, Second string
	// Why is the reason, as in route.Why: "custom".
	Why string
	// MatchedTokens of the prompt that Best holds according to the table, PromptTokens its length at
	// four bytes a token.
	MatchedTokens, PromptTokens int
	// Exchange is the whole request, for what else a test asks.
	Exchange *hosttest.Exchange
}

// Load starts the module in a file. policy is the JSON object of a pool's policy; the workers are
// what control tells of them, in the units of route.Worker. Zero values stand for an idle worker:
// ref by position, healthy, full trust, reported this moment.
func Load(t hosttest.T, module, policy string, workers ...route.Worker) *Gateway {
	t.Helper()
	g := &Gateway{t: t, control: &control{policy: policy, workers: workers}}
	g.Filter = hosttest.Load(
		t, module,
		hosttest.Config(`{"explain":true}`),
		hosttest.AllowStopIteration(),
		hosttest.Cluster("warmpath-control", g.control.answer),
		hosttest.Upstream(func(r hosttest.Request) hosttest.Response {
			best, _ := endpoints(r)
			return hosttest.Response{
				From: best, Headers: hosttest.Header("content-type", "application/json"),
				Body: `{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}`,
			}
		}),
	)
	g.Advance(time.Second) // the table is loaded
	return g
}

// SetWorkers changes what control tells of the workers. One that is to stay keeps its position and
// its address.
func (g *Gateway) SetWorkers(workers ...route.Worker) {
	g.control.workers, g.control.changed = workers, true
	g.Advance(time.Second)
}

// SetHomes makes the last prompt a hot prefix that the workers at these positions, from 0, shall
// hold. Without any, nothing is hot.
func (g *Gateway) SetHomes(positions ...int) {
	g.control.homes = nil
	for _, at := range positions {
		g.control.homes = append(g.control.homes, uint16(at+1))
	}
	g.Advance(time.Second)
}

// SetPolicy puts another rule in force.
func (g *Gateway) SetPolicy(policy string) {
	g.control.policy, g.control.changed = policy, true
	g.Advance(time.Second)
}

// Ask sends a chat request with one user turn, and lets a second pass after the answer. The test
// fails when the module names no endpoint.
func (g *Gateway) Ask(prompt string) Answer {
	g.t.Helper()
	text, err := json.Marshal(prompt)
	if err != nil {
		g.t.Fatalf("moduletest: write the prompt: %v", err)
	}
	x := g.Post("/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":`+string(text)+`}]}`, "content-type", "application/json")
	a := Answer{Exchange: x}
	if x.Out.Request != nil {
		a.Best, a.Second = endpoints(hosttest.Request{Headers: x.Out.Request})
	}
	if a.Best == "" {
		g.t.Fatalf("moduletest: the module chose nobody\n%s", x.Transcript())
	}
	for _, field := range strings.Fields(x.Out.Response.Value("x-warmpath-explain")) {
		switch name, value, _ := strings.Cut(field, "="); name {
		case "why":
			a.Why = value
		case "hit":
			matched, tokens, _ := strings.Cut(value, "/")
			a.MatchedTokens, _ = strconv.Atoi(matched)
			a.PromptTokens, _ = strconv.Atoi(tokens)
		}
	}
	g.Advance(time.Second)
	return a
}

// endpoints are the best and the second choice as they reach the proxy's router.
func endpoints(r hosttest.Request) (best, second string) {
	best, second, _ = strings.Cut(r.Headers.Value("x-gateway-destination-endpoint"), ",")
	return best, second
}
