package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// shownCheckpoints is how many checkpoints are listed one by one: the deepest.
const shownCheckpoints = 12

// print writes the explanation for people.
func (e *explanation) print(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	line("pool %s, rule %s, model %s, %s; table of %s, version %d", e.Pool, e.Rule, orDash(e.Model), e.Endpoint, e.At.Format(time.RFC3339), e.Table.Version)
	if e.StandIn != "" {
		line("the rule is built into your module and not known here: what follows is %s's choice", e.StandIn)
	}
	if e.Group != "" {
		line("the session is in the pool's control group")
	}
	if e.Observe {
		line("the pool observes: what follows is computed and counted, and steers nothing")
	}
	switch e.Fingerprints {
	case "none":
		line("no usable prompt (%s): routed by load alone", e.NoKey)
	case "exact":
		line("prompt: %d tokens, fingerprints over the tokens that the engine sees", e.PromptTokens)
	default:
		line("prompt: about %d tokens, fingerprints over its text (%s)", e.PromptTokens, e.Fingerprints)
	}
	e.printCheckpoints(line)
	line("")
	e.printWorkers(line)
	line("")
	switch {
	case e.Best == "":
		line("nobody can take it: gateways answer 503")
	default:
		line("best    %s, %d of %d prompt tokens expected in its cache", e.Best, e.MatchedTokens, e.PromptTokens)
		line("second  %s, should that fail", orDash(e.Second))
		e.printReasons(line)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write the explanation: %w", err)
	}
	return nil
}

func (e *explanation) printCheckpoints(line func(string, ...any)) {
	found := 0
	for i := range e.Checkpoints {
		if e.Checkpoints[i].Found {
			found++
		}
	}
	if len(e.Checkpoints) == 0 {
		return
	}
	line("checkpoints: %d, of which the table knows %d (* where a message ends)", len(e.Checkpoints), found)
	line("")
	line("  tokens\tfingerprint\tholders")
	first := max(0, len(e.Checkpoints)-shownCheckpoints)
	for i, c := range slices.Backward(e.Checkpoints) {
		if i < first {
			line("  (%d more before these: --json has them)", first)
			return
		}
		mark := ""
		if c.TurnEnd {
			mark = "*"
		}
		holders := "-"
		switch {
		case c.Universal:
			holders = "more than half of the pool"
		case len(c.Holders) > 4:
			holders = fmt.Sprintf("%s and %d more", strings.Join(c.Holders[:4], " "), len(c.Holders)-4)
		case len(c.Holders) > 0:
			holders = strings.Join(c.Holders, " ")
		case c.Found:
			holders = "nobody who is left"
		}
		line("  %d%s\t%s\t%s", c.Tokens, mark, c.Fingerprint, holders)
	}
}

// printWorkers lists the workers, the choice first, then by what the rule made
// of them.
func (e *explanation) printWorkers(line func(string, ...any)) {
	order := slices.Clone(e.Workers)
	rank := func(w *explainedWorker) float64 {
		switch {
		case w.Address == e.Best:
			return -1e9
		case w.Address == e.Second:
			return -1e8
		case w.Cost != nil:
			return w.Cost.Sum
		case w.Score != nil:
			return -w.Score.Sum
		}
		return 1e6 + w.Load - float64(w.CreditedTokens)
	}
	slices.SortStableFunc(order, func(a, b explainedWorker) int {
		switch x, y := rank(&a), rank(&b); {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	chance := slices.ContainsFunc(order, func(w explainedWorker) bool { return w.ChosenShare > 0 && w.ChosenShare < 1 })
	head := "worker\tmatched\tcredited\tload\tkv\tin flight\tuncached\treport\t"
	switch e.Rule {
	case "cost":
		head += "wait\tprefill\tprice\tmiss\tdecode\tevict\tspread\t= cost\t"
	case "weighted":
		head += "cached\tqueue\tutil\t= score\t"
	}
	if chance {
		head += "chosen\t"
	}
	line("%s", head)
	for i := range order {
		w := &order[i]
		age := "never"
		if w.AgeSeconds >= 0 {
			age = time.Duration(w.AgeSeconds * float64(time.Second)).Round(time.Millisecond).String()
		}
		row := fmt.Sprintf("%s\t%d\t%d\t%.3f\t%.2f\t%d\t%d\t%s\t", w.Address, w.MatchedTokens, w.CreditedTokens, w.Load, w.Watermark, w.InFlight, w.UncachedTokens, age)
		switch c, s := w.Cost, w.Score; {
		case c != nil:
			row += fmt.Sprintf("%.4f\t%.4f\tx %.2f\t%.4f\t%.4f\t%.4f\t%+.4f\t%.4f\t", c.Wait, c.PrefillSeconds, c.PrefillPrice, c.Miss, c.Decode, c.Evict, c.Spread, c.Sum)
		case s != nil:
			row += fmt.Sprintf("%.3f\t%.3f\t%.3f\t%+.3f\t", s.CachedShare, s.Queue, s.Utilization, s.Sum)
		case e.Rule == "cost":
			row += strings.Repeat("\t", 8)
		case e.Rule == "weighted":
			row += "\t\t\t\t"
		}
		if chance {
			row += fmt.Sprintf("%.0f %%\t", 100*w.ChosenShare)
		}
		line("%s", row+strings.Join(e.remarks(w), ", "))
	}
	line("")
	line("matched, credited, uncached: tokens; credited is after trust; uncached are those waiting there; kv: share of the blocks of running requests; report: its age")
	switch e.Rule {
	case "cost":
		line("cost, in seconds: wait for the prefill ahead and for room in memory, miss for its own uncached tokens (prefill x price, but where the line says otherwise), decode, evict for what it pushes out, spread for the work that the worker has had lately")
	case "weighted":
		line("score: cache_weight x cached share - (queue + 0.3 x utilisation)")
	}
}

// remarks are what the numbers of a worker don't tell.
func (e *explanation) remarks(w *explainedWorker) (all []string) {
	if w.LeftOut != "" {
		all = append(all, "left out: "+w.LeftOut)
	}
	if w.LeftOut == "" && w.Drawn != nil && !*w.Drawn {
		all = append(all, "not drawn this time")
	}
	if w.Home {
		all = append(all, "home of its hot prefix")
	}
	if w.SentSeconds > 0 {
		all = append(all, fmt.Sprintf("our own dispatch %.0f ms ago", 1000*w.SentSeconds))
	}
	if young := w.CacheSeconds > 0 && w.CacheSeconds < e.ramp.Seconds(); young && e.Rule == "cost" {
		all = append(all, fmt.Sprintf("its cache was empty %.1f s ago, so it is priced by the time to the first token and by its requests", w.CacheSeconds))
	}
	if w.Cost != nil {
		all = append(all, w.Cost.special()...)
	}
	return all
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
