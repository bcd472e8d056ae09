package admit

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/warmpath/warmpath/shared/policy"
)

// Report is what a scenario showed.
type Report struct {
	Scenario string       `json:"scenario"`
	About    string       `json:"about"`
	Seed     uint64       `json:"seed"`
	Checks   []Check      `json:"checks"`
	Runs     []RunSummary `json:"runs"`
	Charts   []string     `json:"charts,omitempty"`
}

// RunSummary is one run of a scenario.
type RunSummary struct {
	Name     string `json:"name"`
	Requests int    `json:"requests"`
	Admitted int    `json:"admitted"`
	Refused  int    `json:"refused"`
	Failed   int    `json:"failed"`
	// Reasons counts the refused.
	Reasons map[string]int `json:"reasons"`
	// TTFTP99 in seconds by class, of those that were admitted.
	TTFTP99   [policy.Classes]float64 `json:"ttft_p99_seconds"`
	MostInUse int                     `json:"most_in_use"`
	Tokens    float64                 `json:"prefilled_tokens_per_second"`
}

// PlaySeeds plays a scenario with so many seeds from first on. The report has what all of them
// showed: a check holds if it does with every seed. Only the first seed's runs are summed up and
// drawn.
func PlaySeeds(s Scenario, first, seeds uint64, folder string) (*Report, error) {
	report, err := Play(s, first, folder)
	if err != nil || seeds <= 1 {
		return report, err
	}
	for i := range report.Checks {
		report.Checks[i].Seeds = []float64{report.Checks[i].Value}
	}
	for seed := first + 1; seed < first+seeds; seed++ {
		next, err := Play(s, seed, "")
		if err != nil {
			return nil, err
		}
		for i := range report.Checks {
			c, n := &report.Checks[i], &next.Checks[i]
			c.Seeds = append(c.Seeds, n.Value)
			c.Holds = c.Holds && n.Holds
		}
	}
	for i := range report.Checks {
		c := &report.Checks[i]
		sorted := slices.Sorted(slices.Values(c.Seeds))
		c.Value = sorted[len(sorted)/2]
	}
	return report, nil
}

// Holds tells whether all checks do.
func (r *Report) Holds() bool {
	for _, c := range r.Checks {
		if !c.Holds {
			return false
		}
	}
	return true
}

// Play plays a scenario, and draws its runs into a folder, "" for none.
func Play(s Scenario, seed uint64, folder string) (*Report, error) {
	report := &Report{Scenario: s.Name, About: s.About, Seed: seed}
	results := map[string]*Result{}
	for _, run := range s.Runs(seed) {
		r, err := Run(run.Config)
		if err != nil {
			return nil, fmt.Errorf("play %s, %s: %w", s.Name, run.Name, err)
		}
		results[run.Name] = r
		counts := Count(r.Records)
		summary := RunSummary{
			Name: run.Name, Requests: counts.Arrived, Admitted: counts.Admitted, Refused: counts.Refused, Failed: counts.Failed,
			Reasons: counts.ByReason, MostInUse: r.MostInUse, Tokens: r.Throughput(0, run.Config.Length),
		}
		for c := range summary.TTFTP99 {
			summary.TTFTP99[c] = r.TTFT(0.99, r.Of(Class(c)))
		}
		report.Runs = append(report.Runs, summary)
		if folder == "" {
			continue
		}
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, fmt.Errorf("make %s: %w", folder, err)
		}
		files, err := r.Charts(folder, s.Name+"-"+strings.ReplaceAll(run.Name, " ", "-"))
		if err != nil {
			return nil, err
		}
		report.Charts = append(report.Charts, files...)
	}
	report.Checks = s.Judge(results)
	return report, nil
}
