package virtual

import (
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/sim/engine"
)

// idle is a fleet to which nothing was sent yet, under a rule.
func idle(t *testing.T, workers, gateways int, name string) *Fleet {
	t.Helper()
	kind, err := FindPolicy(name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Run(Config{
		Seed: 1, Workers: workers, Gateways: gateways, Params: h200Pair(), Policy: policy.Default(kind.rule), Rule: kind.make,
		Delays: DefaultDelays(), Source: seed16().Source(1, 1, 0),
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// blocksOf is a request whose prompt is those blocks, and an answer's.
func blocksOf(hashes ...engine.BlockHash) *Request {
	r := &Request{Prompt: engine.BlockTokens * len(hashes), Output: 16}
	r.blocks = append(r.blocks, hashes...)
	r.blocks = append(r.blocks, 1<<40)
	return r
}

// sendTo lets a gateway's router send a prompt to a worker that somebody else chose.
func (f *Fleet) sendTo(g *Gateway, r *Request, worker int) {
	f.rule.Dispatched(g, r, worker)
	g.own[worker].inFlight++
}

func TestSMGTakesTheLeastBusyHolderOfThreeTenthsUnlessItIsFarAboveTheMean(t *testing.T) {
	f := idle(t, 4, 2, "smg")
	g, prompt := f.gateways[0], []engine.BlockHash{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	chosen := func(g *Gateway, r *Request) int {
		worker, _ := f.rule.Choose(g, r, time.Second)
		return worker
	}
	f.sendTo(g, blocksOf(prompt[:4]...), 1)
	f.sendTo(g, blocksOf(prompt[:4]...), 2)
	g.own[1].inFlight = 5
	for range 20 {
		if worker := chosen(g, blocksOf(prompt...)); worker != 2 {
			t.Fatalf("worker %d, want the less busy one of the two that have four tenths", worker)
		}
		if worker := chosen(g, blocksOf(1, 2, 3, 104, 105, 106, 107, 108, 109, 110, 111)); worker != 0 && worker != 3 {
			t.Fatalf("worker %d for a prompt of which less than three tenths are known, want an idle one", worker)
		}
	}
	if _, cached := f.rule.Choose(f.gateways[1], blocksOf(prompt...), time.Second); cached != 0 {
		t.Errorf("the other router knows of %d tokens that it didn't send", cached)
	}
	// Spilling takes both margins: 64 above the mean, and one and a half times it. Two of four are busy.
	for _, c := range []struct{ busy, others, want int }{{129, 0, 2}, {131, 0, 0}, {340, 200, 2}, {700, 200, 0}} {
		g.own[0].inFlight, g.own[3].inFlight = c.others, c.others+1
		g.own[1].inFlight, g.own[2].inFlight = c.busy+1, c.busy
		if worker := chosen(g, blocksOf(prompt...)); worker != c.want {
			t.Errorf("%d at the holder, %d at others: worker %d, want %d", c.busy, c.others, worker, c.want)
		}
	}
}

// llm-d's picker and LMetric's scheduler are one for all gateways: what one of them asked for is
// known whoever asks next. SMG's routers are on their own.
func TestOnePickerKnowsWhatAllGatewaysSent(t *testing.T) {
	for name, shared := range map[string]bool{"llm-d": true, "lmetric": true, "smg": false} {
		f := idle(t, 4, 3, name)
		r := blocksOf(1, 2, 3, 4, 5, 6, 7, 8)
		f.sendTo(f.gateways[0], r, 3)
		f.gateways[0].own[3].inFlight = 0
		_, cached := f.rule.Choose(f.gateways[2], r, time.Second)
		if got := cached > 0; got != shared {
			t.Errorf("%s: the third gateway finds %d tokens of what the first sent", name, cached)
		}
	}
}

// LMetric's scheduler counts what it sent through any gateway at once.
func TestLMetricMultipliesTokensToComputeByTheBatch(t *testing.T) {
	f := idle(t, 3, 2, "lmetric")
	f.gateways[1].own[0].inFlight, f.gateways[1].own[0].uncached = 4, 100
	f.gateways[1].own[1].inFlight, f.gateways[1].own[1].uncached = 1, 900
	f.gateways[1].own[2].inFlight, f.gateways[1].own[2].uncached = 9, 0
	r := blocksOf(1, 2, 3, 4, 5, 6, 7, 8) // 128 tokens: 228x5, 1028x2, 128x10
	if worker, _ := f.rule.Choose(f.gateways[0], r, time.Second); worker != 0 {
		t.Errorf("worker %d, want 0", worker)
	}
	f.sendTo(f.gateways[1], r, 2) // 1x10 there: all but the tokens are known
	f.gateways[1].own[2].inFlight--
	if worker, cached := f.rule.Choose(f.gateways[0], r, time.Second); worker != 2 || cached != 128 {
		t.Errorf("worker %d with %d tokens, want 2 with all", worker, cached)
	}
}

// autoTune: the picker takes a worker's cache for an LRU of its real size.
func TestThePickerOfLLMDRemembersAsMuchAsAnEngineHolds(t *testing.T) {
	f := idle(t, 1, 1, "llm-d")
	g := f.gateways[0]
	capacity := f.cfg.Params.CapacityBlocks
	prompt := func(from, n int) *Request {
		hashes := make([]engine.BlockHash, n)
		for i := range hashes {
			hashes[i] = engine.BlockHash(from + i)
		}
		return blocksOf(hashes...)
	}
	first := prompt(0, 400)
	f.sendTo(g, first, 0)
	for sent := 400; sent+400 < capacity; sent += 400 {
		f.sendTo(g, prompt(sent, 400), 0)
	}
	if _, cached := f.rule.Choose(g, first, time.Second); cached != 6400 {
		t.Errorf("%d tokens are known of what the engine still holds, want 6,400", cached)
	}
	f.sendTo(g, prompt(capacity, 800), 0)
	if _, cached := f.rule.Choose(g, first, time.Second); cached != 0 {
		t.Errorf("%d tokens are known of what is gone", cached)
	}
}
