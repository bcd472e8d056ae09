package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/sim/engine"
)

func TestSimListShowsEveryEngine(t *testing.T) {
	code, out, errs := warmpath("sim", "list", "--engines")
	if code != 0 {
		t.Fatal(errs)
	}
	for _, p := range engine.Presets() {
		if !strings.Contains(out, p.Name) || strings.Count(out, p.Source) != 1 || strings.Count(out, p.GPU.Source) != 1 {
			t.Errorf("%s isn't listed with its sources, each once", p.Name)
		}
	}
	code, out, errs = warmpath("sim", "list", "--engines", "--json")
	var list struct {
		Engines []struct {
			Name     string  `json:"name"`
			KVTokens int     `json:"kv_tokens"`
			Cold     float64 `json:"cold_4000_ms"`
		} `json:"engines"`
	}
	if err := json.Unmarshal([]byte(out), &list); code != 0 || err != nil || len(list.Engines) != len(engine.Presets()) {
		t.Fatalf("%v, %s: %s", err, errs, out)
	}
	for _, e := range list.Engines {
		p, err := engine.FindPreset(e.Name)
		if err != nil || e.KVTokens != p.Params().CapacityTokens() || e.Cold <= 0 {
			t.Errorf("%+v: %v", e, err)
		}
	}
	code, out, _ = warmpath("sim", "list", "--json")
	if code != 0 || !json.Valid([]byte(out)) || !strings.Contains(out, `"seed-16"`) || !strings.Contains(out, `"round_robin"`) {
		t.Errorf("sim list --json: %s", out)
	}
}

func TestAScenarioIsPlayedOnAnotherEngine(t *testing.T) {
	play := func(args ...string) (c struct {
		Engine   string
		Load     float64
		Policies map[string]struct {
			TTFT struct{ Mean float64 } `json:"ttft_ms"`
		}
	},
	) {
		t.Helper()
		code, out, errs := warmpath(append([]string{"sim", "run", "seed-16", "--rate", "2", "--requests", "400", "--json"}, args...)...)
		if err := json.Unmarshal([]byte(out), &c); code != 0 || err != nil {
			t.Fatalf("%v: %s", err, errs)
		}
		return c
	}
	own, slow := play(), play("--engine", "llama-3.1-8b-a10g")
	if own.Engine != "" || own.Load == 0 || slow.Engine != "llama-3.1-8b-a10g" || slow.Load != 0 {
		t.Errorf("%+v, %+v", own, slow)
	}
	if a, b := own.Policies["cost"].TTFT.Mean, slow.Policies["cost"].TTFT.Mean; !(b > 3*a) {
		t.Errorf("mean TTFT is %.0f ms on two H200 and %.0f ms on an A10G", a, b)
	}
	for _, wrong := range []struct {
		args []string
		want string
	}{
		{[]string{"sim", "run", "seed-16", "--engine", "llama-3.1-8b-l4", "--load", "0.5"}, "warmpath sim saturation seed-16 --engine llama-3.1-8b-l4"},
		{[]string{"sim", "compare", "seed-16", "--engine", "abacus"}, "warmpath sim list --engines"},
		{[]string{"sim", "saturation", "seed-16", "--engine", "abacus"}, "warmpath sim list --engines"},
	} {
		if code, _, errs := warmpath(wrong.args...); code == 0 || !strings.Contains(errs, wrong.want) {
			t.Errorf("%v: %s", wrong.args, errs)
		}
	}
}
