package discovery

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAListIsTakenWholeWithDefaults(t *testing.T) {
	got, err := Parse("workers.yaml", []byte(`
workers:
  - address: 10.0.0.1:8000
    pool: chat
    max_running: 64
    queue_limit: 256
    capacity_tokens: 192000
    block_tokens: 32
    prefill_tokens_per_second: 20000.5
    generation: 7
    drain: true
  - address: "[0:0:0:0:0:0:0:1]:9001"
  - {address: "[::ffff:10.0.0.3]:80"}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []Spec{
		{Address: "10.0.0.1:8000", Pool: "chat", MaxRunning: 64, QueueLimit: 256, CapacityTokens: 192000, BlockTokens: 32, PrefillTokensPerSecond: 20000.5, Generation: 7, Drain: true},
		{Address: "[::1]:9001", Pool: "default", CapacityTokens: DefaultCapacityTokens, CapacityAssumed: true, BlockTokens: 16, BlockAssumed: true},
		{Address: "10.0.0.3:80", Pool: "default", CapacityTokens: DefaultCapacityTokens, CapacityAssumed: true, BlockTokens: 16, BlockAssumed: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if json, err := Parse("body", []byte(`{"workers":[{"address":"10.0.0.1:8000"}]}`)); err != nil || len(json) != 1 {
		t.Errorf("JSON: %v %v", json, err)
	}
	if none, err := Parse("body", []byte(`workers: []`)); err != nil || len(none) != 0 {
		t.Errorf("none: %v %v", none, err)
	}
}

// remedy is what an error tells the user to do.
func remedy(err error) string {
	var p Problem
	_ = errors.As(err, &p) // "" when it is none
	return p.Remedy
}

func TestABadListIsRefusedWithPlaceAndRemedy(t *testing.T) {
	item := func(lines string) string { return "workers:\n  - address: 10.0.0.1:8000\n" + lines }
	for name, c := range map[string]struct{ text, place, what string }{
		"empty file":        {"", "workers.yaml", "no key workers"},
		"not a mapping":     {"- address: 10.0.0.1:8000", "workers.yaml", "no key workers"},
		"broken yaml":       {"workers:\n  - address: [", "line 3", ""},
		"tab":               {"workers:\n\t- address: 1", "line 2", ""},
		"unknown key":       {item("    adress: x\n"), "line 3", "adress"},
		"unknown top key":   {"worker: []\nworkers: []\n", "line 1", "worker"},
		"key twice":         {item("    pool: a\n    pool: b\n"), "line 4", "pool"},
		"two documents":     {"workers: []\n---\nworkers: []\n", "workers.yaml", "more than one"},
		"text for a number": {item("    max_running: many\n"), "line 3", "many"},
		"negative":          {item("    queue_limit: -1\n"), "workers.yaml:2: workers[0].queue_limit", "-1"},
		"too large":         {item("    block_tokens: 70000\n"), "workers[0].block_tokens", "70000"},
		"rate NaN":          {item("    prefill_tokens_per_second: .nan\n"), "workers[0].prefill_tokens_per_second", "NaN"},
		"pool name":         {item("    pool: Chat/1\n"), "workers[0].pool", "Chat/1"},
		"duplicate":         {item("  - address: 10.0.0.1:8000\n"), "workers.yaml:3: workers[1].address", "listed already as workers[0]"},
		"same in other form": {
			"workers:\n  - address: \"[::1]:1\"\n  - address: \"[0:0::1]:1\"\n", "workers.yaml:3: workers[1].address", "listed already",
		},
		"no address": {"workers:\n  - pool: a\n", "workers.yaml:2: workers[0].address", "missing"},
		"name":       {"workers:\n  - address: engine-0:8000\n", "workers[0].address", "engine-0:8000"},
		"no port":    {"workers:\n  - address: 10.0.0.1\n", "workers[0].address", "ip:port"},
		"port 0":     {"workers:\n  - address: 10.0.0.1:0\n", "workers[0].address", "port 0"},
		"port 70000": {"workers:\n  - address: 10.0.0.1:70000\n", "workers[0].address", "ip:port"},
		"zone":       {"workers:\n  - address: \"[fe80::1%eth0]:80\"\n", "workers[0].address", "zone"},
		"any":        {"workers:\n  - address: 0.0.0.0:80\n", "workers[0].address", "connected"},
		"ipv6 bare":  {"workers:\n  - address: ::1:80\n", "workers[0].address", "::1:80"},
	} {
		got, err := Parse("workers.yaml", []byte(c.text))
		if err == nil || got != nil {
			t.Errorf("%s: accepted as %v", name, got)
			continue
		}
		if s := err.Error(); !strings.Contains(s, c.place) || !strings.Contains(s, c.what) || remedy(err) == "" {
			t.Errorf("%s: %q lacks %q, %q or a remedy", name, s, c.place, c.what)
		}
	}
}

func TestEveryProblemOfAListIsToldAtOnce(t *testing.T) {
	_, err := Parse("w", []byte("workers:\n  - address: a\n  - address: b\n    pool: C\n"))
	for _, want := range []string{"w:2: workers[0].address", "w:3: workers[1].address", "w:3: workers[1].pool"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}

func TestAListOfTooManyIsRefused(t *testing.T) {
	var b strings.Builder
	b.WriteString("workers:\n")
	for i := range MaxWorkers + 1 {
		fmt.Fprintf(&b, "- address: 10.0.%d.%d:1\n", i/256, i%256)
	}
	if _, err := Parse("w", []byte(b.String())); err == nil || !strings.Contains(err.Error(), "the limit is 1000") {
		t.Errorf("%v", err)
	}
	if _, err := Parse("w", make([]byte, MaxListBytes+1)); err == nil {
		t.Error("a list of more than 4 MiB was read")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("workers:\n- address: 10.0.0.1:8000\n"))
	f.Add([]byte("workers: &a [*a]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		specs, err := Parse("w", b)
		if err != nil {
			return
		}
		again, err := Check(specs)
		if err != nil || !cmp.Equal(specs, again) {
			t.Errorf("%v is not canonical: %v %v", specs, again, err)
		}
	})
}
