package bench

import (
	"bufio"
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
