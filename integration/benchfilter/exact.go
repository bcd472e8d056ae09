package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/warmpath/warmpath/integration/bench"
	"github.com/warmpath/warmpath/integration/envoyrun"
	"github.com/warmpath/warmpath/integration/vocabfiles"
)

// ExactCost is what exact mode costs on top of approximate mode: the same
// bodies go to two Envoys with the module, one of whose pools has a vocabulary
// in force.
type ExactCost struct {
	BodyBytes   int     `json:"body_bytes"`
	Text        string  `json:"text"` // memo: one conversation with a new last message each time; cold: all of the text is new
	Requests    int     `json:"requests_per_round"`
	Approximate float64 `json:"approximate_us"`
	Exact       float64 `json:"exact_us"`
	Added       float64 `json:"added_us"` // median of the rounds' differences
	Lowest      float64 `json:"added_lowest_us"`
	Highest     float64 `json:"added_highest_us"`
	Budget      float64 `json:"budget_us,omitempty"`
	Verdict     string  `json:"verdict"`
}

// exactSizes are body sizes with the budgets of a follow-up turn in us.
var exactSizes = []struct {
	bytes, requests int
	budget          float64
}{
	{1_000, 400, 0},
	{16_000, 300, 100},
	{100_000, 120, 300},
	{400_000, 60, 0},
}

func measureExact(ctx context.Context, o options, b *backend, binary, module string, report *Report) error {
	file, err := vocabfiles.Tokenizer(ctx, "qwen2_5")
	if err != nil {
		return err
	}
	tokens, err := startBackend(ctx, fmt.Sprintf("  tokenizer: {file: %q, template: qwen2.5, engine: vllm, parity: 'off'}", file), "")
	if err != nil {
		return err
	}
	defer tokens.stop()
	approximate, err := b.envoy(ctx, binary, module, 2)
	if err != nil {
		return err
	}
	defer approximate.Stop()
	exact, err := tokens.envoy(ctx, binary, module, 2)
	if err != nil {
		return err
	}
	defer exact.Stop()
	c := bench.NewClient(4)
	if err := waitSteered(ctx, c, approximate); err != nil {
		return err
	}
	if err := waitExact(ctx, c, exact); err != nil {
		return err
	}
	for _, size := range exactSizes {
		for _, text := range []string{"memo", "cold"} {
			cost := ExactCost{BodyBytes: size.bytes, Text: text, Requests: size.requests}
			if o.quick {
				cost.Requests /= 4
			}
			if text == "memo" {
				cost.Budget = size.budget
			}
			sum := bench.Cost{Requests: cost.Requests, Budget: cost.Budget}
			x := comparison{client: c, without: approximate, with: exact, body: newTalk(size.bytes, text == "cold").next, rounds: o.rounds}
			if err := x.run(ctx, &sum); err != nil {
				return fmt.Errorf("exact keys and %d bytes: %w", size.bytes, err)
			}
			cost.Approximate, cost.Exact, cost.Added = sum.Without, sum.With, sum.Added
			cost.Lowest, cost.Highest, cost.Verdict = sum.Lowest, sum.Highest, sum.Verdict
			report.Exact = append(report.Exact, cost)
			fmt.Fprintf(o.log, "  %7d bytes, %s: %6.0f us approximate, %6.0f exact, %+6.0f added\n", size.bytes, text, cost.Approximate, cost.Exact, cost.Added)
		}
	}
	return nil
}

// waitExact returns once every request is keyed by tokens.
func waitExact(ctx context.Context, c *bench.Client, p *envoyrun.Proxy) error {
	talk := newTalk(4000, true)
	var last string
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); {
		before, err := p.Stats(ctx, `^wasmcustom\.warmpath\.fingerprint_mode`)
		if err != nil {
			return err
		}
		if err := c.All(ctx, 32, func(int) (*http.Request, error) { return post(p, talk.next()) }); err != nil {
			return err
		}
		<-time.After(300 * time.Millisecond) // a tick hands the counters over
		after, err := p.Stats(ctx, `^wasmcustom\.warmpath\.fingerprint_mode`)
		if err != nil {
			return err
		}
		const exact = "wasmcustom.warmpath.fingerprint_mode.default.exact"
		n := after.Sum(exact) - before.Sum(exact)
		if n == 32 {
			return nil
		}
		last = fmt.Sprintf("%d of 32", int(n))
	}
	return fmt.Errorf("the pool is not exact after 60 s (%s)", last)
}

// talk makes chat requests of one size whose text is like speech: words of
// many lengths, numbers, marks. The last message, a fortieth of the whole, is
// new in each; with cold everything is.
type talk struct {
	rng  *rand.Rand
	size int
	base []string
	cold bool
}

func newTalk(size int, cold bool) *talk {
	t := &talk{rng: rand.New(rand.NewPCG(7, uint64(size))), size: size, cold: cold}
	t.renew()
	return t
}

// renew makes the messages before the last.
func (t *talk) renew() {
	rest := max(60, t.size*39/40-300)
	t.base = nil
	for most := max(200, t.size/12); rest > 0; {
		n := min(rest, most)
		t.base = append(t.base, speech(t.rng, n))
		rest -= n
	}
}

func (t *talk) next() []byte {
	if t.cold {
		t.renew()
	}
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	messages := []message{{"system", t.base[0]}}
	for i, text := range t.base[1:] {
		messages = append(messages, message{[]string{"user", "assistant"}[i%2], text})
	}
	messages = append(messages, message{"user", speech(t.rng, max(40, t.size/40))})
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(map[string]any{"model": "default", "messages": messages, "max_tokens": 16}); err != nil {
		panic(err) // strings and numbers always encode
	}
	return b.Bytes()
}

// syllables make words that a vocabulary has as one token, as two or three, or
// not at all.
var syllables = strings.Fields("the in er on re ti en or to it al ar st nd is ed ing ion ent ter com pro per con ver mark port ship light book " +
	"work time hand part place case week point land side water room line end law car name idea night door ward field ness ment able")

func speech(rng *rand.Rand, n int) string {
	var s strings.Builder
	for s.Len() < n {
		switch rng.IntN(24) {
		case 0:
			fmt.Fprintf(&s, "%d", rng.IntN(10000))
		case 1:
			s.WriteString([]string{"don't", "I'm", "can't", "they're"}[rng.IntN(4)])
		default:
			for range 1 + rng.IntN(3) {
				s.WriteString(syllables[rng.IntN(len(syllables))])
			}
		}
		s.WriteString([]string{" ", " ", " ", " ", " ", " ", ", ", ". ", "\n", " - "}[rng.IntN(10)])
	}
	return s.String()[:n]
}
