package engine

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestTheDefaultsAreAPreset(t *testing.T) {
	p, err := FindPreset("llama-3.1-70b-2xh100")
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultParams()
	want.MaxRunning, want.MaxQueued = 256, -1 // of the live worker: 64, and a queue that ends
	if got := p.Params(); got != want {
		t.Errorf("the preset is %+v, the defaults %+v", got, want)
	}
}

func TestScenariosOwnRoundingOfTheCacheIsWithinATwentiethOfAPercent(t *testing.T) {
	n := 0
	for _, p := range Presets() {
		if p.blocks == 0 {
			continue
		}
		n++
		if off := math.Abs(float64(p.blocks)/float64(p.derivedBlocks()) - 1); off > 0.0005 {
			t.Errorf("%s: %d blocks are derived, the preset has %d", p.Name, p.derivedBlocks(), p.blocks)
		}
	}
	if n != 2 {
		t.Errorf("%d presets have another rounding, want the two that were there before", n)
	}
}

// Worked out by hand from the same published figures.
func TestPresetsAreWhatTheirFiguresSay(t *testing.T) {
	for _, want := range []struct {
		name                string
		tokenBytes          float64
		tokens              int // of the cache
		step, kv, token, k1 time.Duration
	}{
		// 32 x 8 x 128 x 2 x 2 bytes; 24 x 0.9 - 16.06 - 2 GB; 16.06 GB at 420 GB/s; 16.06 GFLOP at 28 TFLOP/s.
		{"llama-3.1-8b-a10g", 131_072, 27_008, 38 * time.Millisecond, 310, 575 * time.Microsecond, 18_500},
		// Four GPUs; 4 x (80 x 0.9 - 4.5) - 141.1 GB; 141.1 GB at 5,709 GB/s; 141.2 GFLOP at 499 TFLOP/s.
		{"llama-3.1-70b-4xa100", 327_680, 393_360, 24500 * time.Microsecond, 58, 285 * time.Microsecond, 5250},
		// A latent of 576 values on each of 8 GPUs; 61 x 2 x 128 x (192 + 128) FLOP a pair. 32 tokens reach 64 %
		// of the experts, which are 97.5 % of the weights.
		{"deepseek-v3-8xh200", 8 * 70_272, 544_656, 16 * time.Millisecond, 21, 11500, 790},
		// 18 layers; 32 tokens reach 64 % of the experts, which are 98.7 % of the weights; BF16.
		{"gpt-oss-120b-h100", 36_864, 61_024, 18 * time.Millisecond, 16, 26 * time.Microsecond, 745},
	} {
		p, err := FindPreset(want.name)
		if err != nil {
			t.Fatal(err)
		}
		got := p.Params()
		if p.TokenBytes() != want.tokenBytes || got.CapacityTokens() != want.tokens {
			t.Errorf("%s: %g bytes a token, %d tokens; want %g, %d", want.name, p.TokenBytes(), got.CapacityTokens(), want.tokenBytes, want.tokens)
		}
		if got.StepBase != want.step || got.DecodePerKVToken != want.kv || got.PrefillPerToken != want.token || got.PrefillPerToken1KContext != want.k1 {
			t.Errorf("%s: %+v", want.name, got)
		}
	}
}

// What the datasheets print, by the words of Source. Rates with sparsity are twice the dense ones.
func TestFiguresOfGPUsAreThoseOfTheirDatasheets(t *testing.T) {
	printed := func(source, before string) float64 {
		_, after, _ := strings.Cut(source, before)
		end := strings.IndexFunc(after, func(r rune) bool { return !strings.ContainsRune("0123456789.,", r) })
		f, _ := strconv.ParseFloat(strings.NewReplacer(",", "").Replace(strings.Trim(after[:max(end, 0)], ",")), 64)
		return f
	}
	near := func(a, b float64) bool { return math.Abs(a-b) <= b/1000 }
	seen := map[string]bool{}
	for _, p := range Presets() {
		g := p.GPU
		dense := 0.5
		if strings.Contains(g.Source, "TFLOPS, ") { // both are printed
			dense = 1
		}
		if bf16 := printed(g.Source, "BF16 "); !near(g.BF16, bf16*dense) {
			t.Errorf("%s: %g TFLOP/s, %q", g.Name, g.BF16, g.Source)
		}
		if fp8 := printed(g.Source, "FP8 "); !near(g.FP8, fp8*dense) {
			t.Errorf("%s: %g TFLOP/s of FP8, %q", g.Name, g.FP8, g.Source)
		}
		memory, bandwidth := printed(g.Source, ": "), printed(g.Source, " GB, ")
		if strings.Contains(g.Source, "TB/s") {
			bandwidth *= 1000
		}
		if g.Memory != memory || g.Bandwidth != bandwidth {
			t.Errorf("%s: %g GB, %g GB/s, %q", g.Name, g.Memory, g.Bandwidth, g.Source)
		}
		seen[g.Name] = true
	}
	if len(seen) != 5 {
		t.Errorf("%d GPUs, want 5", len(seen))
	}
}

func TestEveryPresetWorks(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range Presets() {
		if seen[p.Name] || p.Source == "" || p.GPU.Source == "" || p.Format == "" {
			t.Errorf("%s: twice, or without its source", p.Name)
		}
		seen[p.Name] = true
		params := p.Params()
		if err := params.Validate(); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		// What it multiplies in the format that it says.
		if p.FP8 && p.GPU.FP8 == 0 {
			t.Errorf("%s: %s has no FP8", p.Name, p.GPU.Name)
		}
		e, err := New(params)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Submit(0, request(1, 1, 4000, 10)); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		if events := drain(e); len(events) != 2 || events[0].At != params.PrefillTime(4000) {
			t.Errorf("%s: %+v", p.Name, events)
		}
	}
	if _, err := FindPreset("abacus"); err == nil || !strings.Contains(err.Error(), "llama-3.1-8b-l4") {
		t.Errorf("an unknown name: %v", err)
	}
}

func TestDecodeTimeIsWhatTheEngineTakes(t *testing.T) {
	e := newEngine(t, nil)
	r := request(1, 1, 100, 3)
	r.EventTokens = 1
	if err := e.Submit(0, r); err != nil {
		t.Fatal(err)
	}
	events := drain(e)
	// The step of the third token reads 100 of the prompt and two generated ones.
	if got, want := events[2].At-events[1].At, e.Params().DecodeTime(1, 102); got != want {
		t.Errorf("the engine took %v, DecodeTime says %v", got, want)
	}
}
