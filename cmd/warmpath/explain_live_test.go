package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestExplainShowsWhatALiveGatewayDecided(t *testing.T) {
	said := "mode=approximate tokens=2600 at=64,128*,(4 more),2560* hit=2560/2600 w=10.0.0.1:9000 why=cost n=1 group=control price=4.0000 each=0.0650 kv_mean=0.3100 tight=0.0000" +
		" @10.0.0.1:9000;matched=2560;credited=2560;load=0.1200;n=3;uncached=40;age=120ms;home;wait=0.0040;prefill=0.0040;price=4.1300;held_up=2.0000;miss_home=-0.0050;miss=0.0115;decode=0.0100;evict=0.0000;spread=-0.0200;cost=0.0055" +
		" @10.0.0.2:9000;matched=0;credited=0;load=0.0000;n=0;uncached=0;not_drawn" +
		" @10.0.0.3:9000;left=draining;matched=0;credited=0;load=0.0000;n=0;uncached=0 workers_more=2"
	var got, session string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got, session = r.URL.Path+" "+string(body), r.Header.Get("X-Session-Id")
		if said != "" {
			w.Header().Set("X-Warmpath-Explain", said)
		}
	}))
	defer server.Close()
	file := requestFile(t, "m")
	args := []string{"explain", "--gateway", server.URL, "--body", file, "--session", "alice"}
	code, out, errs := warmpath(append(args, "--json")...)
	var e liveExplanation
	if err := json.Unmarshal([]byte(out), &e); code != 0 || err != nil {
		t.Fatalf("exit %d, %v: %s%s", code, err, errs, out)
	}
	if !strings.HasPrefix(got, "/v1/chat/completions {\"model\":\"m\"") || session != "alice" {
		t.Errorf("the gateway was asked %.80s for session %q", got, session)
	}
	if e.Best != "10.0.0.1:9000" || e.Why != "cost" || e.MatchedTokens != 2560 || e.PromptTokens != 2600 || e.Group != "control" || e.Status != 200 ||
		len(e.Checkpoints) != 3 || e.Checkpoints[1] != (livePoint{128, true}) || len(e.Workers) != 3 || e.WorkersMore != 2 {
		t.Errorf("%+v", e)
	}
	if w := e.Workers[0]; w.Terms["cost"] != 0.0055 || w.Terms["miss_home"] != -0.005 || *e.Price != (explainedPrice{4, 0.065, 0.31, 0}) || w.Terms["spread"] != -0.02 || w.Terms["age_ms"] != 120 || !w.Home || e.Workers[2].LeftOut != "draining" || !e.Workers[1].NotDrawn {
		t.Errorf("%+v", e.Workers)
	}
	code, out, _ = warmpath(args...)
	for _, want := range []string{
		"worker", "spread", "-0.02", "home of its hot prefix", "not drawn", "left out: draining", "best    10.0.0.1:9000, 2560 of 2600", "and 2 more", "control group",
		"price  held_up  miss", "home of its hot prefix, miss 0.0050 s less as others will use the copy", "miss there: 0.0040 s of prefill at 4.13 a second, and 0.0050 s less",
		"a second of prefill: 4.00 (itself and miss_weight), and 0.065 (half of decode_weight) for each of 2.0 requests",
	} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit %d, no %q in\n%s", code, want, out)
		}
	}
	if code, _, errs := warmpath(append(args, "--seed", "3")...); code == 0 || !strings.Contains(errs, "leave --seed away") {
		t.Errorf("exit %d, %s", code, errs)
	}
	for _, before := range []string{" price=4.0000 each=0.0650 kv_mean=0.3100 tight=0.0000", "prefill=0.0040;price=4.1300;held_up=2.0000;miss_home=-0.0050;"} {
		said = strings.Replace(said, before, "", 1) // a gateway of before
	}
	if code, out, errs := warmpath(args...); code != 0 || !strings.Contains(out, "0.0115") || strings.Contains(out, "a second of prefill") {
		t.Errorf("exit %d, %s\n%s", code, errs, out)
	}
	said = "mode=exact tight=much"
	if code, _, errs := warmpath(args...); code == 0 || !strings.Contains(errs, "of one version") {
		t.Errorf("exit %d, %s", code, errs)
	}
	said = ""
	if code, _, errs := warmpath(args...); code == 0 || !strings.Contains(errs, "gateway --explain") {
		t.Errorf("exit %d, %s", code, errs)
	}
	said = "mode=exact tokens=many"
	if code, _, errs := warmpath(args...); code == 0 || !strings.Contains(errs, "of one version") {
		t.Errorf("exit %d, %s", code, errs)
	}
}
