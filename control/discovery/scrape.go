package discovery

import (
	"bytes"
	"fmt"
	"math"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Load is what one scrape of a worker's metrics said.
type Load struct {
	Running int     // sequences in the batch, summed over the ranks of the page
	Waiting int     // requests in the engine's queue, summed
	KVShare float64 // running share of the KV cache, 0..1, the fullest rank
	// StartedMillis is the process start in Unix milliseconds; 0 not exported.
	StartedMillis uint64
	// Progress is the sum of the engine's monotonic token counters. It goes back
	// only when the process is another one.
	Progress float64
	// Known says that at least one load metric was on the page.
	Known bool
}

type metricKind uint8

const (
	kindRunning metricKind = iota
	kindWaiting
	kindKV
	kindStart
	kindProgress
)

// engineMetrics: what vLLM and SGLang call the things we read.
var engineMetrics = map[string]metricKind{
	"vllm:num_requests_running":    kindRunning,
	"vllm:num_requests_waiting":    kindWaiting,
	"vllm:kv_cache_usage_perc":     kindKV,
	"vllm:gpu_cache_usage_perc":    kindKV,
	"vllm:prompt_tokens_total":     kindProgress,
	"vllm:generation_tokens_total": kindProgress,
	"sglang:num_running_reqs":      kindRunning,
	"sglang:num_queue_reqs":        kindWaiting,
	"sglang:token_usage":           kindKV,
	"sglang:prompt_tokens_total":   kindProgress,
	"process_start_time_seconds":   kindStart,
}

// ParseMetrics reads a worker's metrics page in the Prometheus text format.
// Only the lines of known names are parsed: an engine's page is mostly
// histograms that nobody here asks for.
func ParseMetrics(page []byte) (Load, error) {
	var l Load
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(wantedLines(page)))
	if err != nil {
		return l, fmt.Errorf("read metrics page: %w", err)
	}
	for name, family := range families {
		kind := engineMetrics[name]
		for _, m := range family.GetMetric() {
			v, ok := sample(m)
			if !ok {
				continue
			}
			switch kind {
			case kindRunning:
				l.Running, l.Known = l.Running+clampInt(v), true
			case kindWaiting:
				l.Waiting, l.Known = l.Waiting+clampInt(v), true
			case kindKV:
				l.KVShare, l.Known = max(l.KVShare, min(v, 1)), true
			case kindStart:
				l.StartedMillis = max(l.StartedMillis, uint64(min(v*1000, 1<<52)))
			case kindProgress:
				l.Progress += v
			}
		}
	}
	return l, nil
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
		if _, ok := engineMetrics[string(name)]; ok {
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

func clampInt(v float64) int { return int(min(v, 65535)) }
