package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/control"
	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/route"
	"github.com/warmpath/warmpath/shared/wire"
)

// runControl runs a control service with n engines until the test ends.
func runControl(t *testing.T, cfg control.Config, n int) (s *control.Service, addresses []string) {
	t.Helper()
	for range n {
		engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/metrics" {
				fmt.Fprint(w, "vllm:num_requests_running 1\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc 0.25\n")
			}
		}))
		t.Cleanup(engine.Close)
		address := strings.TrimPrefix(engine.URL, "http://")
		addresses = append(addresses, address)
		cfg.Workers = append(cfg.Workers, discovery.Spec{Address: address, CapacityTokens: 100_000, MaxRunning: 8, QueueLimit: 16, PrefillTokensPerSecond: 10_000})
	}
	cfg.Listen, cfg.Logger = "127.0.0.1:0", slog.New(slog.DiscardHandler)
	s, err := control.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-s.Serving()
	return s, addresses
}

// tell reports that a worker was sent a prompt, as a gateway's courier does.
func tell(t *testing.T, s *control.Service, ref uint16, e *explanation) {
	t.Helper()
	var path []fingerprint.Checkpoint
	for _, c := range e.Checkpoints {
		fp, err := strconv.ParseUint(c.Fingerprint, 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		path = append(path, fingerprint.Checkpoint{Fingerprint: fp, End: uint32(c.Tokens / fingerprint.UnitTokens), TurnEnd: c.TurnEnd})
	}
	changed := s.Table().Changed()
	report := wire.Report{Chosen: ref, ID: wire.ReportID(0, 1), PromptUnits: path[len(path)-1].End}
	chunk := wire.AppendDispatch(wire.AppendChunk(nil, wire.Chunk{Sequence: 1, Nonce: 7}), &report, path)
	b := wire.AppendHeader(nil, &wire.Header{Kind: wire.Batch})
	b = wire.AppendSection(b, wire.SectionGateway, wire.AppendGateway(nil, &wire.Gateway{Nonce: 7, LiveRows: 1, Name: "g"}))
	if _, err := s.Batch(wire.AppendReports(b, 0, chunk)); err != nil {
		t.Fatal(err)
	}
	for changes := 0; s.Table().Stats().Entries < len(path); changes++ {
		if changes == 20 {
			t.Fatalf("the report about ref %d changed nothing", ref)
		}
		<-changed
		changed = s.Table().Changed()
	}
}

func explained(t *testing.T, args ...string) *explanation {
	t.Helper()
	code, out, errs := warmpath(append([]string{"explain", "--json"}, args...)...)
	if code != 0 {
		t.Fatalf("explain %v: %s", args, errs)
	}
	var e explanation
	if err := json.Unmarshal([]byte(out), &e); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return &e
}

func requestFile(t *testing.T, model string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "request.json")
	text := fmt.Sprintf(`{"model":%q,"messages":[{"role":"system","content":%q},{"role":"user","content":"why?"}]}`, model, strings.Repeat("You are helpful. ", 600))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func (e *explanation) at(address string) *explainedWorker {
	for i := range e.Workers {
		if e.Workers[i].Address == address {
			return &e.Workers[i]
		}
	}
	return &explainedWorker{}
}

const explainPolicy = `pools: [{name: default, models: ["*"], policy: {name: %s}}]`

// TestExplainDecidesAsAGatewayWould, on a running control service: nobody holds
// the prompt, then one worker does, under every kind of rule.
func TestExplainDecidesAsAGatewayWould(t *testing.T) {
	s, addresses := runControl(t, control.Config{Policy: fmt.Appendf(nil, explainPolicy, "cost")}, 3)
	file := requestFile(t, "m")
	args := []string{"--control", s.URL(), "--body", file}
	e := explained(t, args...)
	if e.Pool != "default" || e.Rule != "cost" || e.Fingerprints != "approximate" || e.PromptTokens < 2500 || e.PromptTokens > 2700 {
		t.Errorf("%+v", e)
	}
	if e.Why != "cost_miss" || e.MatchedTokens != 0 || e.Best == "" || e.Second == "" || e.Second == e.Best || len(e.Workers) != 3 {
		t.Errorf("nobody holds it: %+v", e)
	}
	for _, c := range e.Checkpoints {
		if c.Found {
			t.Errorf("%d tokens are found in an empty table", c.Tokens)
		}
	}
	// A gateway that has just sent the same prompt to one of them itself doesn't wait for the table.
	code, out, errs := warmpath(append([]string{"explain", "--sent", addresses[2] + "=40ms"}, args...)...)
	if code != 0 || !strings.Contains(out, "our own dispatch 40 ms ago") || !strings.Contains(out, "best    "+addresses[2]+", ") {
		t.Errorf("exit %d, %s\n%s", code, errs, out)
	}
	if code, _, errs := warmpath(append([]string{"explain", "--sent", "10.9.9.9:1=40ms"}, args...)...); code == 0 || !strings.Contains(errs, "give the address of a worker") {
		t.Errorf("exit %d, %s", code, errs)
	}
	var holder string
	var ref uint16
	for _, w := range s.Status().Workers {
		if w.Address == addresses[1] {
			holder, ref = w.Address, w.Ref
		}
	}
	tell(t, s, ref, e)

	// Loads, and caches with them, follow within a second.
	for e = explained(t, args...); e.at(holder).RecentTokens == 0; e = explained(t, args...) {
		<-s.Table().Changed()
	}
	last := e.Checkpoints[len(e.Checkpoints)-1]
	if !last.Found || len(last.Holders) != 1 || last.Holders[0] != holder {
		t.Errorf("the deepest checkpoint: %+v, want %s", last, holder)
	}
	if e.Why != "cost" || e.Best != holder || e.MatchedTokens < 2400 {
		t.Errorf("one holds it: best %s, why %s, %d tokens", e.Best, e.Why, e.MatchedTokens)
	}
	for _, w := range e.Workers {
		switch {
		case w.Watermark != 0.25 || w.State != "healthy" || w.PrefillRate != 10_000:
			t.Errorf("not as reported: %+v", w)
		case w.Address == holder && (w.MatchedTokens != e.MatchedTokens || w.FreeTokens == 0 || w.RecentTokens == 0):
			t.Errorf("the holder: %+v", w)
		case w.Address != holder && w.MatchedTokens != 0:
			t.Errorf("not a holder: %+v", w)
		}
		if c := w.Cost; c != nil {
			if sum := c.Wait + c.Miss + c.Decode + c.Evict + c.Spread; sum-c.Sum > 1e-9 || c.Sum-sum > 1e-9 {
				t.Errorf("terms add up to %v: %+v", sum, c)
			}
			miss := c.PrefillSeconds*c.PrefillPrice + c.MissHome + c.MissSibling + c.MissYoung + c.MissGone
			price := e.Price.Base + e.Price.Each*c.HeldUp
			if math.Abs(miss-c.Miss) > 1e-9 || math.Abs(price-c.PrefillPrice) > 1e-9 || math.Abs(e.Price.Memory-0.25) > 1e-6 {
				t.Errorf("the miss adds up to %v, the price to %v: %+v %+v", miss, price, c, e.Price)
			}
		} else {
			t.Errorf("no draw of %d has its cost: %+v", e.Draws, w)
		}
	}
	code, out, errs = warmpath(append([]string{"explain"}, args...)...)
	if code != 0 || !strings.Contains(out, "why     cost: the request costs the least there") || !strings.Contains(out, "for its uncached tokens (miss)") ||
		!strings.Contains(out, "s of prefill at 4.00 a second\n") || !strings.Contains(out, "a second of prefill: 4.00 (itself and miss_weight), and 0.065 (half of decode_weight) for each of 0.0 requests") {
		t.Errorf("exit %d, %s: no reason in words\n%s", code, errs, out)
	}

	for rule, why := range map[string]string{"threshold": "holder", "weighted": "score", "custom": "holder"} {
		if err := s.SetPolicy(fmt.Appendf(nil, explainPolicy, rule)); err != nil {
			t.Fatal(err)
		}
		e := explained(t, args...)
		if e.Rule != rule || e.Why != why || e.Best != holder || (e.StandIn == "threshold") != (rule == "custom") {
			t.Errorf("%s: rule %s %s, why %s, best %s", rule, e.Rule, e.StandIn, e.Why, e.Best)
		}
		if rule == "weighted" && (e.Workers[0].Score == nil || e.Workers[0].Cost != nil) {
			t.Errorf("%+v", e.Workers[0])
		}
	}
	// About half of the sessions are in the control group, and are decided by its rule.
	grouped := `pools: [{name: default, models: ["*"], policy: {name: cost}, control_group: {share: 0.5, policy: {name: least_load}}}]`
	if err := s.SetPolicy([]byte(grouped)); err != nil {
		t.Fatal(err)
	}
	members := 0
	for i := range 20 {
		e := explained(t, append(args, "--session", fmt.Sprint("user", i))...)
		if want := map[string]string{"": "cost", "control": "least_load"}[e.Group]; e.Rule != want || e.Why != want {
			t.Errorf("group %q: rule %s, why %s", e.Group, e.Rule, e.Why)
		}
		if e.Group != "" {
			members++
		}
	}
	if members == 0 || members == 20 {
		t.Errorf("%d of 20 sessions are in a group of a half", members)
	}
	if err := s.Drain(holder, true); err != nil {
		t.Fatal(err)
	}
	for e = explained(t, args...); e.Best == holder; e = explained(t, args...) {
		<-s.Table().Changed()
	}
	code, out, errs = warmpath(append([]string{"explain"}, args...)...)
	if code != 0 || !strings.Contains(out, "left out: draining") || !strings.Contains(out, "best    "+e.Best) || !strings.Contains(out, holder) {
		t.Errorf("exit %d, %s\n%s", code, errs, out)
	}
}

// TestExplainOfASnapshotIsThatOfItsMoment: the file answers for a control service that has gone on,
// also about prompts that nobody asked for when it was saved.
func TestExplainOfASnapshotIsThatOfItsMoment(t *testing.T) {
	s, _ := runControl(t, control.Config{Policy: fmt.Appendf(nil, explainPolicy, "cost")}, 3)
	held, other := requestFile(t, "m"), requestFile(t, "other")
	saved := filepath.Join(t.TempDir(), "then.zip")
	tell(t, s, s.Status().Workers[1].Ref, explained(t, "--control", s.URL(), "--body", held))
	then := explained(t, "--control", s.URL(), "--body", other, "--save", saved)
	if err := s.SetPolicy(fmt.Appendf(nil, explainPolicy, "least_load")); err != nil {
		t.Fatal(err)
	}
	now := explained(t, "--snapshot", saved, "--body", other)
	if diff := cmp.Diff(then, now, cmp.AllowUnexported(explanation{})); diff != "" {
		t.Error(diff)
	}
	if e := explained(t, "--snapshot", saved, "--body", held); e.Rule != "cost" || e.MatchedTokens < 2400 || e.At != then.At {
		t.Errorf("the prompt that a worker held then: %+v", e)
	}
	raw, err := os.ReadFile(saved)
	if err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(t.TempDir(), "broken.zip")
	if err := os.WriteFile(broken, raw[:len(raw)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"stands in for a control service": {"--snapshot", saved, "--control", s.URL()},
		"leave --control and --save away": {"--snapshot", saved, "--save", broken},
		"made with explain --save":        {"--snapshot", broken},
		"open the snapshot":               {"--snapshot", "missing.zip"},
	} {
		if code, out, errs := warmpath(append([]string{"explain", "--body", held}, args...)...); code == 0 || !strings.Contains(errs, want) {
			t.Errorf("%v: exit %d, %q, want %q\n%s", args, code, errs, want, out)
		}
	}
}

// TestExplainTellsWhatChanceDoes, where a rule looks at a part of the workers.
func TestExplainTellsWhatChanceDoes(t *testing.T) {
	s, _ := runControl(t, control.Config{Policy: fmt.Appendf(nil, explainPolicy, "random")}, 4)
	args := []string{"--control", s.URL(), "--body", requestFile(t, "m")}
	e := explained(t, args...)
	total := 0.0
	for _, w := range e.Workers {
		if total += w.ChosenShare; w.ChosenShare < 0.1 || w.ChosenShare > 0.4 {
			t.Errorf("%v of the draws choose %s, want a quarter", w.ChosenShare, w.Address)
		}
	}
	if e.Draws != draws || total < 0.999 || total > 1.001 {
		t.Errorf("%d draws, shares add up to %v", e.Draws, total)
	}
	code, out, _ := warmpath(append([]string{"explain"}, args...)...)
	if code != 0 || !strings.Contains(out, "chosen") || !strings.Contains(out, "why     random: by chance") {
		t.Errorf("exit %d\n%s", code, out)
	}
}

// TestWhoIsChosenWasDrawn: what other draws would do says nothing of this one.
func TestWhoIsChosenWasDrawn(t *testing.T) {
	s, _ := runControl(t, control.Config{Policy: fmt.Appendf(nil, explainPolicy, "cost")}, 6)
	file, all := requestFile(t, "m"), 0
	for seed := range 12 {
		e := explained(t, "--control", s.URL(), "--body", file, "--seed", fmt.Sprint(seed+1))
		if best := e.at(e.Best); best.Drawn == nil || !*best.Drawn {
			t.Errorf("seed %d: %s is chosen, and was not drawn", seed+1, e.Best)
		}
		for _, w := range e.Workers {
			if w.Drawn != nil && *w.Drawn {
				all++
			}
		}
	}
	if all == 0 || all == 12*6 {
		t.Errorf("%d of %d were drawn: the test tests nothing", all, 12*6)
	}
}

func TestEveryReasonHasWords(t *testing.T) {
	for w := range route.Why(route.Whys) {
		if words := because(w.String()); words == w.String() {
			t.Errorf("%v has no words", w)
		}
	}
}

func TestADearerWorkerIsChosenWhenTheCheaperIsNotDrawn(t *testing.T) {
	no, yes := false, true
	e := explanation{Rule: "cost", Why: "cost", Best: "a", Second: "b", Draws: 200, Workers: []explainedWorker{
		{Address: "a", Drawn: &yes, ChosenShare: 0.25, Cost: &explainedCost{Wait: 0.1, Miss: 0.3, Sum: 0.4}},
		{Address: "b", Drawn: &yes, Cost: &explainedCost{Wait: 0.5, Miss: 0.1, Sum: 0.6}},
		{Address: "c", Drawn: &no, ChosenShare: 0.75, Cost: &explainedCost{Sum: 0.2}},
	}}
	var out strings.Builder
	if err := e.print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"0.4000 s against 0.6000 s at the second: 0.4000 s less for those ahead of it (wait), 0.2000 s more for its uncached tokens (miss)",
		"c would cost less, 0.2000 s, and was not drawn", "of 200, 25 % choose this one", "75 %    not drawn this time",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("without %q:\n%s", want, out.String())
		}
	}
}

// A miss of 0.3 s may count as 2 s: why is told, where memory is short and of workers that are priced
// otherwise.
func TestExplainTellsWhatASecondOfPrefillCosts(t *testing.T) {
	yes := true
	own := func(cost explainedCost) *explainedCost { return &cost }
	e := explanation{Rule: "cost", Why: "cost", Best: "a", Second: "b", Price: &explainedPrice{Base: 4, Each: 0.5325, Memory: 0.833, Tightness: 0.5}, Workers: []explainedWorker{
		{Address: "a", Drawn: &yes, ChosenShare: 1, Home: true, Cost: own(explainedCost{PrefillSeconds: 0.3, PrefillPrice: 14.65, HeldUp: 20, Miss: 3.095, MissHome: -1.3, Sum: 3.095})},
		{Address: "b", Drawn: &yes, Cost: own(explainedCost{PrefillSeconds: 0.3, PrefillPrice: 14.65, HeldUp: 20, Miss: 4.2, MissSibling: -0.195, Sum: 4.2})},
		{Address: "c", Drawn: &yes, CacheSeconds: 2, Cost: own(explainedCost{
			PrefillSeconds: 0.3, PrefillPrice: 4, Miss: 5, MissYoung: 3.8, Sum: 5,
			Young: &explainedYoung{Youth: 0.9, LaterSeconds: 0.2, AllowedSeconds: 0.15, DetourSeconds: 1},
		})},
		{Address: "d", Drawn: &yes, Cost: own(explainedCost{PrefillSeconds: 0.3, PrefillPrice: 14.65, HeldUp: 20, Miss: 8.79, MissGone: 4.395, Sum: 8.79})},
	}, ramp: 20 * time.Second}
	var out strings.Builder
	if err := e.print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"miss there: 0.3000 s of prefill at 14.65 a second, and 1.3000 s less as the worker's line says\n",
		"a second of prefill: 4.00 (itself and miss_weight), and 0.532 (half of decode_weight and 50 % of the way from there to 1, as requests hold 83 % of the pool's memory) for each of 20.0 requests that it holds up",
		"home of its hot prefix, miss 1.3000 s less as others will use the copy",
		"miss 0.1950 s less as a worker is just computing what it lacks",
		"miss 3.8000 s more (90 % young) as the first token comes 0.2000 s later than where most is held, of 0.1500 s allowed, and 1.0000 s for not being the prefix's own young worker",
		"miss 4.3950 s more as it is about to lose its cache", "0.3000   x 14.65",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("without %q:\n%s", want, out.String())
		}
	}
}

func TestExplainSaysWhatToDo(t *testing.T) {
	s, _ := runControl(t, control.Config{
		Policy: []byte(`pools: [{name: chat, models: [m]}, {name: small, models: [s]}]`), Token: "secret",
	}, 1)
	file := requestFile(t, "other")
	big := filepath.Join(t.TempDir(), "big.json")
	if err := os.WriteFile(big, bytes.Repeat([]byte(" "), maxExplainedBody+1), 0o600); err != nil {
		t.Fatal(err)
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	garbage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }))
	t.Cleanup(garbage.Close)
	gone.Close()
	for want, args := range map[string][]string{
		"--body FILE":                  {},
		"no such file":                 {"--body", "missing.json"},
		"over 4 MiB":                   {"--body", big},
		"such as /v1/chat/completions": {"--body", file, "--endpoint", "/v1/models"},
		"is it running":                {"--body", file, "--control", gone.URL},
		"is that a control service":    {"--body", file, "--control", garbage.URL},
		"WARMPATH_NOTHING":             {"--body", file, "--control", s.URL(), "--token-env", "WARMPATH_NOTHING"},
		"the policy has chat, small":   {"--body", file, "--control", s.URL()},
		`no pool is named "x"`:         {"--body", file, "--control", s.URL(), "--pool", "x"},
	} {
		t.Setenv("WARMPATH_TOKEN", "secret")
		code, out, errs := warmpath(append([]string{"explain", "--timeout", time.Minute.String()}, args...)...)
		if code == 0 || !strings.Contains(errs, want) {
			t.Errorf("%v: exit %d, %q, want %q\n%s", args, code, errs, want, out)
		}
	}
	if e := explained(t, "--body", file, "--control", s.URL(), "--pool", "chat"); e.Pool != "chat" || e.Best != "" || e.Why != "none" {
		t.Errorf("a pool without workers: %+v", e)
	}
}
