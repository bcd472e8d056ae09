package bench

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Verdicts of a figure.
const (
	Kept     = "ok"
	Missed   = "over"
	Reported = "-" // no budget
)

// Verdict compares a figure with its budget.
func Verdict(value, budget float64) string {
	if value <= budget {
		return Kept
	}
	return Missed
}

// Cost is what one request of a size costs a proxy without the module and with
// it, in us of CPU.
type Cost struct {
	BodyBytes int     `json:"body_bytes"`
	Requests  int     `json:"requests_per_round"`
	Without   float64 `json:"without_us"`
	With      float64 `json:"with_us"`
	Added     float64 `json:"added_us"` // median of the rounds' differences
	Lowest    float64 `json:"added_lowest_us"`
	Highest   float64 `json:"added_highest_us"`
	Budget    float64 `json:"budget_us,omitempty"`
	Verdict   string  `json:"verdict"`
}

// Sum fills in what the rounds have shown.
func (c *Cost) Sum(without, with, added []float64) {
	c.Without, c.With, c.Added = Median(without), Median(with), Median(added)
	c.Lowest, c.Highest = slices.Min(added), slices.Max(added)
	c.Verdict = Reported
	if c.Budget > 0 {
		c.Verdict = Verdict(c.Added, c.Budget)
	}
}

// WriteJSON writes a report into a file; without a name it does nothing.
func WriteJSON(name string, report any) error {
	if name == "" {
		return nil
	}
	data, err := json.MarshalIndent(report, "", "  ")
	if err == nil {
		err = os.WriteFile(name, append(data, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// Micros is d in microseconds.
func Micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// Median is the middle of values, 0 of none.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Machine names the processor, for the reader of a figure.
func Machine() string {
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOOS + "/" + runtime.GOARCH
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "model name"); ok {
			return strings.TrimSpace(strings.TrimLeft(name, "\t :"))
		}
	}
	return runtime.GOOS + "/" + runtime.GOARCH
}
