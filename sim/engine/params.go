package engine

import (
	"fmt"
	"time"
)

// BlockTokens is the size of a cache block.
const BlockTokens = 16

// Params describe one engine. The defaults model Llama-3.1-70B with FP8
// weights on two H100 SXM (tensor parallel). They are derived from published
// figures of the model and the GPU, not measured; what matters for routing is
// their ratio (a cold 4,000-token prompt costs about 25 decode steps). Presets
// has those of other pairs, derived in the same way.
type Params struct {
	// CapacityBlocks is the KV cache in blocks of 16 tokens. Default 12,288
	// (196,608 tokens): 2 x 80 GB x 0.9, less 70.6 GB of weights and 9 GB of
	// activations and graphs, leaves 64 GB; a token takes 80 layers x 8 KV
	// heads x 128 x (K and V) x 2 bytes = 328 KB.
	CapacityBlocks int

	// MaxRunning is the most requests in one batch (vLLM: max-num-seqs).
	// Default 64.
	MaxRunning int

	// MaxQueued is the most requests waiting for the batch; one more is
	// refused. Default 256; 0: only an idle engine accepts; negative: no limit.
	MaxQueued int

	// StepTokens is the token budget of one step, shared by decoding requests
	// (one each) and prefill chunks (vLLM: max-num-batched-tokens). Default
	// 2,048. Smaller: smoother decoding, longer prefill.
	StepTokens int

	// LongPrefillTokens is the most tokens of one prompt that a step computes while
	// another request runs or waits. What is left of StepTokens goes to those that
	// came later: a short prompt doesn't wait until a long one is computed. But two
	// that share a beginning which nobody has yet are then computed side by side,
	// and each computes it. Default 0: no bound. It is vLLM's
	// long-prefill-token-threshold, in V1 since 0.8.3 (pull request 15419) and not
	// for a request that is alone since pull request 57951 (in 0.32); read in 0.32's
	// v1/core/sched/scheduler.py. SGLang 0.5.23 has none: one prompt at a time is
	// computed in parts.
	LongPrefillTokens int

	// StepBase is paid by every step: reading the weights once, 70.6 GB at 70 %
	// of 2 x 3.35 TB/s. Default 15 ms.
	StepBase time.Duration

	// StepPerRequest is paid for each request in the batch: sampling, launch
	// and bookkeeping. Default 50 us, an assumption.
	StepPerRequest time.Duration

	// DecodePerKVToken is paid for each token of context of each decoding
	// request: 328 KB of KV at the same bandwidth. Default 70 ns.
	DecodePerKVToken time.Duration

	// PrefillPerToken is paid for each prompt token computed: 2 x 70.6 GFLOP at
	// 40 % of 2 x 1,979 TFLOP/s dense FP8. Default 89 us, so 11,200 tokens/s.
	PrefillPerToken time.Duration

	// PrefillPerToken1KContext is paid for each prompt token computed and each
	// 1,000 tokens that it attends to: 4 x 80 layers x 8,192 FLOP a pair at the
	// same rate. Default 1,650 ns, so 9 % more at 5,000 tokens of context.
	PrefillPerToken1KContext time.Duration
}

// DefaultParams returns the engine described at Params.
func DefaultParams() Params {
	return Params{
		CapacityBlocks:           12288,
		MaxRunning:               64,
		MaxQueued:                256,
		StepTokens:               2048,
		StepBase:                 15 * time.Millisecond,
		StepPerRequest:           50 * time.Microsecond,
		DecodePerKVToken:         70 * time.Nanosecond,
		PrefillPerToken:          89 * time.Microsecond,
		PrefillPerToken1KContext: 1650 * time.Nanosecond,
	}
}

// Validate tells which parameter cannot work and what would.
func (p Params) Validate() error {
	switch {
	case p.CapacityBlocks < 1:
		return fmt.Errorf("engine: CapacityBlocks is %d: give at least one block of %d tokens", p.CapacityBlocks, BlockTokens)
	case p.MaxRunning < 1:
		return fmt.Errorf("engine: MaxRunning is %d: give at least 1", p.MaxRunning)
	case p.StepTokens <= p.MaxRunning:
		return fmt.Errorf("engine: StepTokens (%d) must exceed MaxRunning (%d), or a full batch leaves no room for prefill", p.StepTokens, p.MaxRunning)
	case p.LongPrefillTokens < 0:
		return fmt.Errorf("engine: LongPrefillTokens is %d: give a number of tokens, or 0 for no bound", p.LongPrefillTokens)
	case p.StepBase <= 0:
		return fmt.Errorf("engine: StepBase is %v: a step must take time", p.StepBase)
	case p.StepPerRequest < 0, p.DecodePerKVToken < 0, p.PrefillPerToken < 0, p.PrefillPerToken1KContext < 0:
		return fmt.Errorf("engine: a cost is negative: %+v", p)
	}
	return nil
}

// CapacityTokens is the KV cache in tokens.
func (p Params) CapacityTokens() int { return p.CapacityBlocks * BlockTokens }

// A stepLoad is what one step works on.
type stepLoad struct {
	requests      int   // in the batch, decoding or prefilling
	kvTokens      int64 // context read by the decoding ones
	prefillTokens int64 // prompt tokens computed
	prefillPairs  int64 // (prompt token, token it attends to) pairs
}

func (p Params) stepTime(l stepLoad) time.Duration {
	return p.StepBase +
		time.Duration(l.requests)*p.StepPerRequest +
		time.Duration(l.kvTokens)*p.DecodePerKVToken +
		time.Duration(l.prefillTokens)*p.PrefillPerToken +
		time.Duration(l.prefillPairs)*p.PrefillPerToken1KContext/1000
}

// PrefillTime is how long one engine with nothing else to do takes from the
// start of a cold prompt to its first token.
func (p Params) PrefillTime(promptTokens int) time.Duration {
	var total time.Duration
	for done := 0; done < promptTokens; {
		chunk := min(p.StepTokens, promptTokens-done)
		total += p.stepTime(stepLoad{requests: 1, prefillTokens: int64(chunk), prefillPairs: pairs(done, chunk)})
		done += chunk
	}
	return total
}

// DecodeTime is how long a step takes that gives each of so many requests a
// token, with so many tokens of context each.
func (p Params) DecodeTime(requests, context int) time.Duration {
	return p.stepTime(stepLoad{requests: requests, kvTokens: int64(requests) * int64(context)})
}

// pairs counts what chunk tokens attend to when done tokens stand before them.
func pairs(done, chunk int) int64 {
	return int64(chunk)*int64(done) + int64(chunk)*int64(chunk)/2
}
