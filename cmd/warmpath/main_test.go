package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func warmpath(args ...string) (code int, out, errs string) {
	var stdout, stderr bytes.Buffer
	code = run(args, &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

func TestWrongUseSaysWhatWouldBeRight(t *testing.T) {
	guarded := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	defer guarded.Close()
	typo := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(typo, []byte("pools:\n- {name: a, index: 0, models: [m], polcy: {name: cost}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"control", "--listen", "127.0.0.1:0", "--policy", typo}, "polcy: unknown key (remove it or use one of "},
		{[]string{"demo", "--policies", "best"}, "there are round_robin, session_hash, warmpath"},
		{[]string{"demo", "--capacity", "half"}, "want a factor such as x0.5"},
		{[]string{"demo", "--gateways", "0"}, "want 1 to 64"},
		{[]string{"demo", "--workload", "missing.yaml"}, "missing.yaml"},
		{[]string{"demo", "--module", "missing.wasm"}, "make wasm builds it"},
		{[]string{"gateway", "--module", "missing.wasm"}, "make wasm builds it"},
		{[]string{"gateway", "--module", typo, "--tls-cert", "tls.crt"}, "give both (--tls-cert, --tls-key) or neither"},
		{[]string{"control", "--config", "missing.yaml"}, "missing.yaml"},
		{[]string{"control", "--listen", "0.0.0.0:0"}, "token"},
		{[]string{"off", "--control", "http://127.0.0.1:1"}, "is --control its address?"},
		{[]string{"off", "--control", "127.0.0.1:8780"}, "write http://127.0.0.1:8780"},
		{[]string{"table", "show", "--control", "ftp://control:8780"}, "write http://host:port"},
		{[]string{"doctor", "--control", "", "--engine", "10.0.0.7:8000"}, "write http://10.0.0.7:8000"},
		{[]string{"off", "--control", guarded.URL}, "WARMPATH_TOKEN"},
		{[]string{"sim", "workers", "--count", "0"}, "one worker or more"},
		{[]string{"agent", "--engine", "10.0.0.7:8000"}, "is not a URL"},
		{[]string{"agent", "--worker", "engine:8000"}, "is not ip:port"},
		{[]string{"agent", "--listen", "127.0.0.1:99999"}, "--listen"},
		{[]string{"nonsense"}, `unknown command "nonsense" for "warmpath" (see warmpath --help)`},
		{[]string{"tabel"}, "did you mean table?"},
		{[]string{"control", "--bogus"}, "warmpath control --help lists the flags"},
		{[]string{"gateway", "--vms", "x"}, "warmpath gateway --help lists the flags"},
		{[]string{"table", "diff", "one"}, "warmpath table diff A B"},
		{[]string{"sim", "run"}, "warmpath sim run SCENARIO"},
		{[]string{"sim", "run", "seed-16", "--set", "engine.long_prefill=512"}, "engine.long_prefill_tokens"},
		{[]string{"sim", "run", "seed-16", "--set", "engine.step_tokens=1"}, "StepTokens (1) must exceed"},
		{[]string{"hostsim", "check"}, "name the module to check: warmpath hostsim check"},
		{[]string{"doctor", "now"}, "warmpath doctor --help"},
		{[]string{"tokenizer", "nonsense"}, `unknown command "nonsense"`},
		{[]string{"hostsim", "nonsense"}, "hostsim --help"},
	} {
		code, _, errs := warmpath(c.args...)
		if code != 1 || !strings.Contains(errs, c.want) {
			t.Errorf("%v: exit %d, %q; want 1 and %q", c.args, code, errs, c.want)
		}
	}
}

func TestHelpTeachesEveryCommand(t *testing.T) {
	code, out, _ := warmpath("--help")
	if code != 0 {
		t.Fatalf("exit %d", code)
	}
	for _, name := range []string{"demo", "control", "gateway", "agent", "sim", "hostsim", "tokenizer", "off", "on", "version"} {
		if !strings.Contains(out, "\n  "+name) {
			t.Errorf("help does not list %s", name)
		}
		if _, help, _ := warmpath(name, "--help"); len(help) < 100 {
			t.Errorf("%s --help says little: %q", name, help)
		}
	}
}

func TestVersionNamesItself(t *testing.T) {
	if code, out, _ := warmpath("version"); code != 0 || !strings.HasPrefix(out, "warmpath ") {
		t.Fatalf("exit %d, %q", code, out)
	}
}

// The whole path in small: the hit rates come from the engines' own caches, so
// the order of the policies is what routing did.
func TestDemoRanksThePoliciesAndFillsTheReport(t *testing.T) {
	dir := t.TempDir()
	module, result := filepath.Join(dir, "warmpath.wasm"), filepath.Join(dir, "result.json")
	build := exec.Command("go", "build", "-buildmode=c-shared", "-trimpath", "-ldflags=-s -w", "-o", module, "../../filter")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=")
	if msg, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the module: %v\n%s", err, msg)
	}
	code, out, errs := warmpath("demo", "--module", module, "--requests", "400", "--workers", "4", "--gateways", "2",
		"--policies", "round_robin,warmpath", "--json", result)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	if !strings.Contains(out, "hit rate") || !strings.Contains(out, "round_robin") {
		t.Errorf("no table in the output:\n%s", out)
	}
	doc, err := os.ReadFile(result)
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Policies map[string]struct {
			HitRate  float64        `json:"hit_rate"`
			First    float64        `json:"first_turn_hit_rate"`
			FollowUp float64        `json:"followup_hit_rate"`
			Tiers    map[string]any `json:"tiers"`
			TTFT     struct {
				Mean, P50, P99 float64
			} `json:"ttft_ms"`
			Errors int                `json:"errors"`
			Module map[string]float64 `json:"module"`
		} `json:"policies"`
	}
	if err := json.Unmarshal(doc, &report); err != nil {
		t.Fatal(err)
	}
	base, ours := report.Policies["round_robin"], report.Policies["warmpath"]
	if ours.HitRate < base.HitRate+0.1 || ours.FollowUp < 0.6 || len(ours.Tiers) != 4 {
		t.Errorf("warmpath hit %.3f (follow-ups %.3f), round robin %.3f, tiers %v", ours.HitRate, ours.FollowUp, base.HitRate, ours.Tiers)
	}
	if ours.Errors != 0 || base.Errors != 0 || ours.TTFT.Mean <= 0 || ours.TTFT.P99 < ours.TTFT.P50 {
		t.Errorf("errors %d and %d, TTFT %+v", base.Errors, ours.Errors, ours.TTFT)
	}
	if ours.Module["dispatched"] < 390 || ours.Module["panics"] != 0 {
		t.Errorf("the module's books: %v dispatched, %v panics", ours.Module["dispatched"], ours.Module["panics"])
	}

	// The same with a model's tokens, which control, gateways and workers have to agree on.
	code, _, errs = warmpath("demo", "--module", module, "--requests", "200", "--workers", "4", "--gateways", "2", "--capacity", "x8",
		"--policies", "warmpath", "--json", result, "--vocab", smallVocabularies+"qwen.tokenizer.json", "--template", "qwen3")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	if doc, err = os.ReadFile(result); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(doc, &report); err != nil {
		t.Fatal(err)
	}
	ours = report.Policies["warmpath"]
	if exact := ours.Module["fingerprint_mode.default.exact"]; exact < 190 || ours.HitRate < 0.3 || ours.Errors != 0 {
		t.Errorf("%v of 200 prompts were keyed by tokens, hit rate %.3f, %d errors", exact, ours.HitRate, ours.Errors)
	}
}
