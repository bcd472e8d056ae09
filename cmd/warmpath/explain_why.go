package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/warmpath/warmpath/shared/route"
)

// whys say what the reasons mean.
var whys = map[route.Why]string{
	route.WhyNone:       "nobody can take it",
	route.WhyHolder:     "it is the least loaded of those with the longest match",
	route.WhyNextHolder: "those with a longer match are above load_limit, watermark or holder_bound",
	route.WhySpill:      "all that hold the prefix are above load_limit, watermark or holder_bound: the ring says who makes the next copy",
	route.WhyRing:       "nobody holds min_match_tokens of it: the ring says where this prefix belongs",
	route.WhyShort:      "the prompt is shorter than min_match_tokens: the least load",
	route.WhyNoKey:      "there is no text to go by: the least load",
	route.WhyLeastLoad:  "it has the least load",
	route.WhyRoundRobin: "it is its turn",
	route.WhySession:    "the session belongs there",
	route.WhyRandom:     "by chance",
	route.WhyHash:       "the ring says that this prefix belongs there",
	route.WhyCost:       "the request costs the least there",
	route.WhyCostMiss:   "the request costs the least there, though nothing of it is cached there",
	route.WhyScore:      "its score is the highest",
	route.WhyCustom:     "its score is the highest",
	route.WhyExplore:    "by chance, as the setting explore asks for",
}

// because is the reason in words.
func because(why string) string {
	for w, words := range whys {
		if w.String() == why {
			return words
		}
	}
	return why
}

// costPart is a term of a cost and what it is for.
type costPart struct {
	name, of string
	seconds  float64
}

func (c *explainedCost) parts() []costPart {
	return []costPart{
		{"wait", "those ahead of it", c.Wait},
		{"miss", "its uncached tokens", c.Miss},
		{"decode", "decoding", c.Decode},
		{"evict", "what it pushes out", c.Evict},
		{"spread", "the work that the worker has had lately", c.Spread},
	}
}

// shownDifference is the smallest difference of a term worth a word, in seconds.
const shownDifference = 0.0005

// against says what makes one worker cheaper, or dearer, than another, the largest part first.
func (c *explainedCost) against(other *explainedCost) string {
	var parts []costPart
	rest := other.parts()
	for i, p := range c.parts() {
		if p.seconds -= rest[i].seconds; math.Abs(p.seconds) >= shownDifference {
			parts = append(parts, p)
		}
	}
	if len(parts) == 0 {
		return "nothing tells them apart, so the session, or the prefix, does"
	}
	slices.SortStableFunc(parts, func(a, b costPart) int { return cmp.Compare(math.Abs(b.seconds), math.Abs(a.seconds)) })
	words := make([]string, len(parts))
	for i, p := range parts {
		words[i] = fmt.Sprintf("%s for %s (%s)", moreOrLess(p.seconds), p.of, p.name)
	}
	return strings.Join(words, ", ")
}

// missReasons say how the price of its uncached tokens came about.
func (c *explainedCost) missReasons(p *explainedPrice) []string {
	rest := c.Miss - c.PrefillSeconds*c.PrefillPrice
	otherwise := ""
	if math.Abs(rest) >= shownDifference {
		otherwise = fmt.Sprintf(", and %s as the worker's line says", moreOrLess(rest))
	}
	each := "half of decode_weight"
	if p.Tightness > 0 {
		each = fmt.Sprintf("half of decode_weight and %.0f %% of the way from there to 1, as requests hold %.0f %% of the pool's memory", 100*p.Tightness, 100*p.Memory)
	}
	return []string{
		fmt.Sprintf("miss there: %.4f s of prefill at %.2f a second%s", c.PrefillSeconds, c.PrefillPrice, otherwise),
		fmt.Sprintf("a second of prefill: %.2f (itself and miss_weight), and %.3f (%s) for each of %.1f requests that it holds up, the pool's mean at most", p.Base, p.Each, each, c.HeldUp),
	}
}

// special says what makes miss another than the price of prefill.
func (c *explainedCost) special() (all []string) {
	add := func(seconds float64, format string, args ...any) {
		if math.Abs(seconds) >= shownDifference {
			all = append(all, fmt.Sprintf("miss %s ", moreOrLess(seconds))+fmt.Sprintf(format, args...))
		}
	}
	add(c.MissHome, "as others will use the copy that it is to get")
	add(c.MissSibling, "as a worker is just computing what it lacks, and not all should wait for that one")
	if y := c.Young; y != nil {
		detour := ""
		if y.DetourSeconds > 0 {
			detour = fmt.Sprintf(", and %.4f s for not being the prefix's own young worker", y.DetourSeconds)
		}
		add(c.MissYoung, "(%.0f %% young) as the first token comes %.4f s later than where most is held, of %.4f s allowed%s", 100*y.Youth, y.LaterSeconds, y.AllowedSeconds, detour)
	}
	add(c.MissGone, "as it is about to lose its cache")
	return all
}

func moreOrLess(seconds float64) string {
	if seconds < 0 {
		return fmt.Sprintf("%.4f s less", -seconds)
	}
	return fmt.Sprintf("%.4f s more", seconds)
}

// worker returns that with an address, nil for none.
func (e *explanation) worker(address string) *explainedWorker {
	for i := range e.Workers {
		if e.Workers[i].Address == address {
			return &e.Workers[i]
		}
	}
	return nil
}

// printReasons says why the best worker is the best.
func (e *explanation) printReasons(line func(string, ...any)) {
	line("why     %s: %s", e.Why, because(e.Why))
	best, second := e.worker(e.Best), e.worker(e.Second)
	if best == nil || best.Cost == nil {
		return
	}
	if second != nil && second.Cost != nil {
		line("        %.4f s against %.4f s at the second: %s", best.Cost.Sum, second.Cost.Sum, best.Cost.against(second.Cost))
	}
	if e.Price != nil {
		for _, words := range best.Cost.missReasons(e.Price) {
			line("        %s", words)
		}
	}
	for i := range e.Workers {
		if w := &e.Workers[i]; w.Cost != nil && w.Drawn != nil && !*w.Drawn && w.LeftOut == "" && w.Cost.Sum < best.Cost.Sum-shownDifference {
			line("        %s would cost less, %.4f s, and was not drawn: looking at a part keeps gateways that see the same from all going there", w.Address, w.Cost.Sum)
		}
	}
	if best.ChosenShare < 1 {
		line("        other draws choose others: of %d, %.0f %% choose this one", e.Draws, 100*best.ChosenShare)
	}
}
