package workload

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// Tiers of prompt length, in tokens: results are told apart by them.
var Tiers = [...]string{"<1k", "1-4k", "4-16k", ">16k"}

// Tier of a prompt, an index into Tiers.
func Tier(promptTokens int) int {
	switch {
	case promptTokens < 1<<10:
		return 0
	case promptTokens < 4<<10:
		return 1
	case promptTokens <= 16<<10:
		return 2
	}
	return 3
}

// Percentiles of one quantity.
type Percentiles struct {
	Mean                    float64
	Min, P10, P50, P90, P99 int
	Max                     int
}

func percentilesOf(values []int) Percentiles {
	if len(values) == 0 {
		return Percentiles{}
	}
	slices.Sort(values)
	sum := 0
	for _, v := range values {
		sum += v
	}
	at := func(q float64) int { return values[min(int(q*float64(len(values))), len(values)-1)] }
	return Percentiles{
		Mean: float64(sum) / float64(len(values)),
		Min:  values[0], P10: at(.1), P50: at(.5), P90: at(.9), P99: at(.99), Max: values[len(values)-1],
	}
}

// A Distribution tells what a workload looks like before it runs.
type Distribution struct {
	Requests, Sessions int
	// Tenants that have at least one session, and the share of all sessions
	// that the busiest of them has.
	Tenants      int
	TopTenant    float64
	SystemPrompt Percentiles // tokens, one value a tenant
	Prompt       Percentiles // tokens, one value a request
	Answer       Percentiles // tokens
	Turns        Percentiles // of a session
	ByTier       [len(Tiers)]int
	PromptTokens int
	// FirstTurnTokens of all prompt tokens are in first turns.
	FirstTurnTokens int
	// Ceiling is the hit rate of one cache without limit that sees all requests
	// one after the other: no policy can be better.
	Ceiling float64
}

// messageOverhead is the tokens of the markers around a message.
const messageOverhead = 2

// Distribution works out what the plan holds.
func (w *Workload) Distribution() Distribution {
	d := Distribution{Sessions: len(w.Sessions)}
	sessions := make([]int, len(w.tenants))
	var systems, prompts, answers, turns []int
	fresh := 0
	for _, s := range w.Sessions {
		system := w.tenants[s.Tenant].tokens + messageOverhead
		if sessions[s.Tenant] == 0 {
			fresh += system
		}
		sessions[s.Tenant]++
		turns = append(turns, len(s.Turns))
		length := system + 1
		for i, t := range s.Turns {
			length += t.UserTokens + messageOverhead
			fresh += t.UserTokens + messageOverhead
			prompts = append(prompts, length)
			answers = append(answers, t.AnswerTokens)
			d.ByTier[Tier(length)]++
			d.PromptTokens += length
			if i == 0 {
				d.FirstTurnTokens += length
			}
			length += t.AnswerTokens + messageOverhead
		}
	}
	for i, n := range sessions {
		systems = append(systems, w.tenants[i].tokens)
		if n > 0 {
			d.Tenants++
		}
		d.TopTenant = max(d.TopTenant, float64(n)/float64(d.Sessions))
	}
	d.Requests = len(prompts)
	d.SystemPrompt, d.Prompt = percentilesOf(systems), percentilesOf(prompts)
	d.Answer, d.Turns = percentilesOf(answers), percentilesOf(turns)
	d.Ceiling = 1 - float64(fresh)/float64(d.PromptTokens)
	return d
}

// Print writes the distribution as two small tables.
func (d Distribution) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "%d requests, %d sessions, %d tenants (busiest %.0f %% of sessions); a cache without limit would hit %.1f %%\n",
		d.Requests, d.Sessions, d.Tenants, 100*d.TopTenant, 100*d.Ceiling)
	fmt.Fprintln(t, "\tmean\tmin\tp10\tp50\tp90\tp99\tmax\t")
	for _, row := range []struct {
		name string
		p    Percentiles
	}{
		{"system prompt tokens", d.SystemPrompt},
		{"prompt tokens", d.Prompt},
		{"answer tokens", d.Answer},
		{"turns a session", d.Turns},
	} {
		fmt.Fprintf(t, "%s\t%.0f\t%d\t%d\t%d\t%d\t%d\t%d\t\n", row.name,
			row.p.Mean, row.p.Min, row.p.P10, row.p.P50, row.p.P90, row.p.P99, row.p.Max)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i, n := range d.ByTier {
		if _, err := fmt.Fprintf(w, "%5s tokens: %d requests (%.1f %%)\n", Tiers[i], n, 100*float64(n)/float64(d.Requests)); err != nil {
			return err
		}
	}
	return nil
}
