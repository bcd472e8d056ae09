package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// report is everything a run found out.
type report struct {
	Requests       int           `json:"requests"`
	Entries        int           `json:"entries"`
	VMs            int           `json:"vms"`
	LoadTime       time.Duration `json:"base_load_ns"`
	PlayTime       time.Duration `json:"play_ns"`
	CPUPerRequest  time.Duration `json:"process_cpu_ns_per_request"`
	SettledAt      int           `json:"settled_at_requests"`
	CallbackBudget time.Duration `json:"callback_budget_ns"`
	GrowthBudget   int64         `json:"growth_budget_bytes"`
	MemoryBudget   int64         `json:"memory_budget_bytes"`
	Vocabularies   []int         `json:"vocabulary_bytes,omitempty"`
	// VocabularyTime is how long every VM took to load them, from the start.
	VocabularyTime time.Duration `json:"vocabulary_load_ns,omitempty"`

	Base    []callback `json:"callbacks_while_base_loads"`
	Traffic []callback `json:"callbacks_under_traffic"`
	Memory  []sample   `json:"memory"`

	Counts       counts `json:"counts"`
	Lookups      uint64 `json:"lookups"`
	Hits         uint64 `json:"hits"`
	Dispatched   uint64 `json:"dispatched"`
	InFlight     int64  `json:"in_flight_at_end"`
	Reported     int64  `json:"report_records"`
	ReportsLost  uint64 `json:"report_chunks_lost"`
	Changes      int64  `json:"entry_changes"`
	PagesWritten uint64 `json:"pages_written"`
	Takeovers    uint64 `json:"courier_takeovers"`
	Traps        uint64 `json:"traps"`
	Panics       uint64 `json:"panics"`

	// Missed are the promises that were broken.
	Missed []string `json:"missed"`
}

// sample is the memory after so many requests.
type sample struct {
	Requests int      `json:"requests"`
	VMBytes  []uint64 `json:"vm_bytes"`
	// ResidentBytes is the whole process, the stand-in for control included.
	ResidentBytes int64 `json:"process_resident_bytes"`
}

func (r *report) sample(requests int, memory []uint64, resident int64) {
	r.Memory = append(r.Memory, sample{Requests: requests, VMBytes: memory, ResidentBytes: resident})
}

// growth is how much the VM that grew most did so after the settled requests.
func (r *report) growth() (bytes int64) {
	var settled *sample
	for i := range r.Memory {
		s := &r.Memory[i]
		if settled == nil {
			if s.Requests >= r.SettledAt {
				settled = s
			}
			continue
		}
		for vm, now := range s.VMBytes {
			bytes = max(bytes, int64(now)-int64(settled.VMBytes[vm]))
		}
	}
	return bytes
}

// mostMemory is the largest VM that was seen.
func (r *report) mostMemory() (bytes int64) {
	for _, s := range r.Memory {
		for _, b := range s.VMBytes {
			bytes = max(bytes, int64(b))
		}
	}
	return bytes
}

// judge writes down which promises were broken.
func (r *report) judge() {
	miss := func(format string, args ...any) { r.Missed = append(r.Missed, fmt.Sprintf(format, args...)) }
	if cpu, _ := longest(r.Base); cpu > micros(int64(r.CallbackBudget)) {
		miss("a callback took %.1f ms of CPU while the base loaded, the budget is %v", cpu/1000, r.CallbackBudget)
	}
	if grown := r.growth(); grown > r.GrowthBudget {
		miss("a VM grew by %d bytes after its first %d requests, the budget is %d", grown, r.SettledAt, r.GrowthBudget)
	}
	if most := r.mostMemory(); most > r.MemoryBudget {
		miss("a VM had %d bytes, the budget is %d", most, r.MemoryBudget)
	}
	if r.Traps > 0 || r.Panics > 0 {
		miss("%d traps and %d panics", r.Traps, r.Panics)
	}
	if r.InFlight != 0 {
		miss("%d requests are still in the books after all have ended", r.InFlight)
	}
	if 4*r.Hits < r.Lookups { // short prompts are below the least match that counts
		miss("%d hits in %d lookups: the traffic did not meet the table", r.Hits, r.Lookups)
	}
}

func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "\n%d entries loaded in %v; %d requests (%.1f KB on average) through %d VMs in %v, %v of CPU each\n",
		r.Entries, r.LoadTime.Round(time.Millisecond), r.Requests, float64(r.Counts.Bytes)/1024/float64(max(r.Counts.Requests, 1)), r.VMs,
		r.PlayTime.Round(time.Second), r.CPUPerRequest.Round(100*time.Nanosecond))
	if len(r.Vocabularies) > 0 {
		fmt.Fprintf(w, "vocabularies of %d bytes loaded by every VM in %v\n", r.Vocabularies, r.VocabularyTime.Round(time.Millisecond))
	}
	printCallbacks(w, "callbacks while the base loads", r.Base)
	printCallbacks(w, "callbacks under traffic", r.Traffic)

	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "\nrequests\tVM memory, MiB\tprocess RSS, MiB\t\n")
	for i, s := range r.Memory {
		if i == 0 || i == len(r.Memory)-1 || s.Requests%r.SettledAt == 0 {
			fmt.Fprintf(t, "%d\t%s\t%d\t\n", s.Requests, mebibytes(s.VMBytes), s.ResidentBytes>>20)
		}
	}
	t.Flush()

	c := &r.Counts
	fmt.Fprintf(w, "\nsteered %d, passed %d, local replies %d, aborted %d, refused %d, upstream failures %d\n", c.Steered, c.Passed, c.Local, c.Aborted, c.Refused, c.Broken)
	fmt.Fprintf(w, "lookups %d, hits %d, dispatched %d, in flight at the end %d, traps %d, panics %d\n", r.Lookups, r.Hits, r.Dispatched, r.InFlight, r.Traps, r.Panics)
	fmt.Fprintf(w, "entry changes %d, pages written %d, report records %d, report chunks lost %d, courier takeovers %d\n", r.Changes, r.PagesWritten, r.Reported, r.ReportsLost, r.Takeovers)

	cpu, wall := longest(r.Base)
	fmt.Fprintf(w, "\nlongest callback while the base loads: %.2f ms of CPU (budget %v), %.2f ms on the wall\n", cpu/1000, r.CallbackBudget, wall/1000)
	fmt.Fprintf(w, "most memory of a VM: %.1f MiB (budget %.0f)\n", float64(r.mostMemory())/(1<<20), float64(r.MemoryBudget)/(1<<20))
	fmt.Fprintf(w, "growth of a VM after %d requests: %d bytes (budget %d)\n", r.SettledAt, r.growth(), r.GrowthBudget)
	for _, m := range r.Missed {
		fmt.Fprintln(w, "MISSED:", m)
	}
}

func printCallbacks(w io.Writer, title string, callbacks []callback) {
	fmt.Fprintf(w, "\n%s (us)\n", title)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "callback\tcalls\tCPU p50\tCPU p99\tCPU max\twall p99\twall max\t\n")
	for _, c := range callbacks {
		fmt.Fprintf(t, "%s\t%d\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t\n", c.Export, c.Count, c.CPUP50Micros, c.CPUP99Micros, c.CPUMaxMicros, c.WallP99, c.WallMax)
	}
	t.Flush()
}

func mebibytes(bytes []uint64) string {
	parts := make([]string, len(bytes))
	for i, b := range bytes {
		parts[i] = fmt.Sprintf("%.1f", float64(b)/(1<<20))
	}
	return strings.Join(parts, " ")
}
