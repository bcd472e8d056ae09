package discovery

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Load is what one scrape of a worker's metrics said. Of an engine with several
// data-parallel ranks behind one page, requests and tokens are sums over the
// ranks and shares those of the fullest.
type Load struct {
	Running int     // sequences in the batch
	Waiting int     // requests in the engine's queue, and those it has taken out of the batch again
	KVShare float64 // share of the KV cache that running requests hold, 0..1; 0 when idle, however full the cache is
	// StartedMillis is the process start in Unix milliseconds; 0 not exported.
	StartedMillis uint64
	// Progress is the sum of the engine's monotonic token counters. It goes back
	// only when the process is another one.
	Progress float64
	// PromptTokens counts those of prompts that were computed or found in the cache,
	// since the start of the process; 0 not exported.
	PromptTokens float64
	// RemovedTokens counts cached tokens that were pushed out since the start of
	// the process; it counts with RemovalsKnown only.
	RemovedTokens float64
	RemovalsKnown bool
	// Asleep: the engine has given its weights and its cache up for now.
	Asleep bool
	Facts  Facts
	// Ranks is how many data-parallel ranks the page tells of; 0 where it names none.
	Ranks int
	// Known says that at least one load metric was on the page.
	Known bool
	// Counted says that Running is what the worker told, not 0 for want of a metric.
	Counted bool
}

// Facts is what an engine tells about itself. Zero is not told.
type Facts struct {
	CapacityTokens int // of the prefix cache, all ranks
	BlockTokens    int
	MaxRunning     int
	QueueLimit     int
	Caching        Caching
}

// Caching tells whether an engine keeps prefixes.
type Caching uint8

// What it may be.
const (
	CachingNotTold Caching = iota
	CachingOn
	CachingOff
)

type metricKind uint8

const (
	kindNone metricKind = iota
	kindRunning
	kindWaiting
	kindKV
	kindStart
	kindProgress
	kindPrompt // progress too
	kindRemoved
	kindCapacity
	kindBlock
	kindConfig
	kindSleep
)

// engineMetrics: what engines call the things we read. vLLM before 0.9 said
// gpu_cache_usage_perc, and swapped where it now preempts; SGLang's token_usage
// is the fullest of its pools. vLLM samples the lifetimes of its blocks, so it
// has no count of removals here: those come with its KV events.
var engineMetrics = map[string]metricKind{
	"vllm:num_requests_running":    kindRunning,
	"vllm:num_requests_waiting":    kindWaiting,
	"vllm:num_requests_swapped":    kindWaiting,
	"vllm:kv_cache_usage_perc":     kindKV,
	"vllm:gpu_cache_usage_perc":    kindKV,
	"vllm:prompt_tokens_total":     kindPrompt,
	"vllm:generation_tokens_total": kindProgress,
	"vllm:cache_config_info":       kindConfig,
	"vllm:engine_sleep_state":      kindSleep,

	"sglang:num_running_reqs":        kindRunning,
	"sglang:num_queue_reqs":          kindWaiting,
	"sglang:num_grammar_queue_reqs":  kindWaiting,
	"sglang:token_usage":             kindKV,
	"sglang:prompt_tokens_total":     kindPrompt,
	"sglang:generation_tokens_total": kindProgress,
	"sglang:evicted_tokens_total":    kindRemoved,
	"sglang:max_total_num_tokens":    kindCapacity,
	"sglang:page_size":               kindBlock,
	"sglang:cache_config_info":       kindConfig,

	// Behind the engine's page where an agent stands guard.
	"warmpath_guard_queue_requests": kindWaiting,

	"process_start_time_seconds": kindStart,
}

// ParseMetrics reads a worker's metrics page in the Prometheus text format.
// Only the lines of known names are parsed: an engine's page is mostly
// histograms that nobody here asks for.
func ParseMetrics(page []byte) (Load, error) { return ParseRank(page, -1) }

// ParseRank is ParseMetrics for one data-parallel rank of the page's engine, -1 for
// all of them. What names no rank is of every one.
func ParseRank(page []byte, rank int) (Load, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(wantedLines(page)))
	if err != nil {
		return Load{}, fmt.Errorf("read metrics page: %w", err)
	}
	var l Load
	for name, family := range families {
		l.take(engineMetrics[name], ofRank(family.GetMetric(), rank), ranks(family.GetMetric()))
	}
	return l, nil
}

// ofRank leaves out what is of other ranks.
func ofRank(metrics []*dto.Metric, rank int) []*dto.Metric {
	if rank < 0 {
		return metrics
	}
	want := strconv.Itoa(rank)
	return slices.DeleteFunc(slices.Clone(metrics), func(m *dto.Metric) bool {
		named := rankName(m)
		return named != "" && named != want
	})
}

// ranks counts those that the samples name.
func ranks(metrics []*dto.Metric) int {
	named := map[string]bool{}
	for _, m := range metrics {
		if rank := rankName(m); rank != "" {
			named[rank] = true
		}
	}
	return len(named)
}

// take reads the samples of one kind, of those of all ranks behind the page.
func (l *Load) take(kind metricKind, metrics []*dto.Metric, ranks int) {
	switch kind {
	case kindRunning, kindWaiting, kindKV:
		sum, most, any := byRank(metrics)
		l.Known = l.Known || any
		l.Ranks = max(l.Ranks, ranks)
		switch kind {
		case kindRunning:
			l.Running = clampInt(float64(l.Running) + sum)
			l.Counted = l.Counted || any
		case kindWaiting:
			l.Waiting = clampInt(float64(l.Waiting) + sum)
		default:
			l.KVShare = max(l.KVShare, min(most, 1))
		}
	case kindCapacity, kindBlock:
		sum, most, _ := byRank(metrics)
		if kind == kindCapacity {
			l.Facts.CapacityTokens = clampTokens(sum)
		} else {
			l.Facts.BlockTokens = clampInt(most)
		}
	case kindConfig:
		l.Facts.configured(metrics, ranks)
	case kindSleep:
		for _, m := range metrics {
			v, ok := sample(m)
			l.Asleep = l.Asleep || ok && v > 0 && label(m, "sleep_state") != "awake"
		}
	default:
		for _, m := range metrics {
			v, ok := sample(m)
			if !ok {
				continue
			}
			switch kind {
			case kindStart:
				l.StartedMillis = max(l.StartedMillis, uint64(min(v*1000, 1<<52)))
			case kindProgress:
				l.Progress += v
			case kindPrompt:
				l.Progress, l.PromptTokens = l.Progress+v, l.PromptTokens+v
			case kindRemoved:
				l.RemovedTokens, l.RemovalsKnown = l.RemovedTokens+v, true
			}
		}
	}
}

// configured reads an engine's info metric, whose labels are its settings. Every
// rank has one: kv_cache_size_tokens is the rank's own, while num_gpu_blocks is
// that of all ranks together.
func (f *Facts) configured(metrics []*dto.Metric, ranks int) {
	var sizes, blocks float64
	seen := map[string]bool{}
	for _, m := range metrics {
		switch label(m, "enable_prefix_caching") {
		case "True":
			f.Caching = CachingOn
		case "False":
			f.Caching = CachingOff
		}
		seen[rankName(m)] = true
		block := number(m, "block_size", "page_size")
		f.BlockTokens = max(f.BlockTokens, clampInt(block))
		sizes += number(m, "kv_cache_size_tokens")
		blocks = max(blocks, block*number(m, "num_gpu_blocks", "num_pages"))
	}
	if sizes == 0 {
		sizes = blocks * float64(len(seen)) / float64(max(ranks, 1))
	}
	f.CapacityTokens = max(f.CapacityTokens, clampTokens(sizes))
}

// rankLabels name the data-parallel rank of a sample: vLLM's and SGLang's.
var rankLabels = []string{"engine", "dp_rank"}

// rankName is the rank of a sample, "" where it names none.
func rankName(m *dto.Metric) string {
	for _, name := range rankLabels {
		if rank := label(m, name); rank != "" {
			return rank
		}
	}
	return ""
}

// byRank sums over the ranks and finds the largest. The other labels of a rank
// (tensor-parallel ranks, priorities beside their total) tell the same thing
// again, so of those the largest counts.
func byRank(metrics []*dto.Metric) (sum, most float64, any bool) {
	ranks := map[string]float64{}
	for _, m := range metrics {
		v, ok := sample(m)
		if !ok {
			continue
		}
		rank := rankName(m)
		ranks[rank] = max(ranks[rank], v)
		any = true
	}
	for _, v := range ranks {
		sum, most = sum+v, max(most, v)
	}
	return sum, most, any
}

func label(m *dto.Metric, name string) string {
	for _, pair := range m.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}

// number is the first of the labels that holds a positive number, else 0.
func number(m *dto.Metric, names ...string) float64 {
	for _, name := range names {
		if v, err := strconv.ParseFloat(label(m, name), 64); err == nil && v > 0 && v < 1<<40 {
			return v
		}
	}
	return 0
}

func wantedLines(page []byte) []byte {
	var out []byte
	for len(page) > 0 {
		line := page
		if i := bytes.IndexByte(page, '\n'); i >= 0 {
			line, page = page[:i], page[i+1:]
		} else {
			page = nil
		}
		name := line
		if i := bytes.IndexAny(line, "{ \t"); i >= 0 {
			name = line[:i]
		}
		if engineMetrics[string(name)] != kindNone {
			out = append(append(out, line...), '\n')
		}
	}
	return out
}

func sample(m *dto.Metric) (float64, bool) {
	var v float64
	switch {
	case m.Gauge != nil:
		v = m.Gauge.GetValue()
	case m.Counter != nil:
		v = m.Counter.GetValue()
	case m.Untyped != nil:
		v = m.Untyped.GetValue()
	default:
		return 0, false
	}
	if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
		return 0, false
	}
	return v, true
}

func clampInt(v float64) int    { return int(min(v, 65535)) }
func clampTokens(v float64) int { return int(min(v, 1<<31)) }
