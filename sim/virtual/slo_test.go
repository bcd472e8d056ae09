package virtual

import (
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/sim/engine"
)

// The limits that goodput and saturation are measured by: a first token within a second or four times
// the cold prefill of that prompt, whichever is more, and 50 ms a token after it.
func TestARequestIsGoodWithinASecondOrFourColdPrefillsAndFiftyMillisecondsAToken(t *testing.T) {
	p := h200Pair()
	slo := SLO{p}
	long := 30_000
	four := 4 * p.PrefillTime(long)
	if four < 2*time.Second {
		t.Fatalf("four prefills of %d tokens take %v: too short to tell", long, four)
	}
	for _, c := range []struct {
		prompt     int
		ttft, tpot time.Duration
		met        bool
	}{
		{500, time.Second, 50 * time.Millisecond, true},
		{500, time.Second + 1, 0, false},
		{500, time.Millisecond, 50*time.Millisecond + 1, false},
		{long, four, 20 * time.Millisecond, true},
		{long, four + 1, 20 * time.Millisecond, false},
		{long, four, 0, true}, // one token
	} {
		o := &Outcome{Request: &Request{Prompt: c.prompt}, TTFT: c.ttft, TPOT: c.tpot}
		if got := slo.Met(o); got != c.met {
			t.Errorf("%+v: met %v", c, got)
		}
	}
}

// An engine computes the last token of a prompt always, so a prompt that ends on a block's edge never
// finds its last block: nor does the pooled cache.
func TestThePooledCacheComputesTheLastTokenOfAPromptAsEnginesDo(t *testing.T) {
	for _, prompt := range []int{64, 65} {
		pool := newPool(100, 1)
		r := &Request{Prompt: prompt, blocks: []engine.BlockHash{1, 2, 3, 4, 5}}
		if hit := pool.asked(r); hit != 0 {
			t.Fatalf("%d blocks found in an empty cache", hit)
		}
		if hit := pool.asked(r); hit != (prompt-1)/engine.BlockTokens {
			t.Errorf("a prompt of %d tokens finds %d blocks", prompt, hit)
		}
	}
}

// An answer is kept when it is out, and takes its room before, wherever it is decoded.
func TestInThePooledCacheAnswersTakeRoomWhileTheyAreDecoded(t *testing.T) {
	pool := newPool(10, 2)
	long := &Request{Prompt: 16 * 8, blocks: []engine.BlockHash{16, 17, 18, 19, 20, 21, 22, 23, 32}}
	again := func(want int, when string) {
		t.Helper()
		if hit := pool.Holds(long.blocks); hit != want {
			t.Errorf("%s: %d blocks are there, want %d", when, hit, want)
		}
	}
	pool.asked(long)
	again(8, "asked")
	pool.answered(long, 0)
	again(9, "answered")
	pool.decodes(0, 2)
	pool.decodes(1, 3)
	again(5, "five blocks are being decoded elsewhere")
	pool.answered(long, 0)
	again(6, "the first worker's answer of one block is out, one is still being decoded there")
}

// The reference looks at every worker, whatever the default of the rule that it is made of.
func TestTheReferenceLooksAtEveryWorker(t *testing.T) {
	seen := 0.0
	s := small()
	if _, err := s.Run(Play{Seed: 1, Policy: "reference", Requests: 50, Tune: func(p *policy.Policy) { seen = p.Sample }}); err != nil {
		t.Fatal(err)
	}
	if seen != 1 {
		t.Errorf("it looks at a share of %v", seen)
	}
}
