package discovery

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMetricsOfEveryEngineAreRead(t *testing.T) {
	noise := strings.Repeat("vllm:time_to_first_token_seconds_bucket{le=\"0.1\"} 4\n", 50) + "this is {not a metric\n"
	for name, c := range map[string]struct {
		page string
		want Load
	}{
		"vllm": {
			noise + "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"m\"} 3.0\nvllm:num_requests_waiting{model_name=\"m\"} 2.0\nvllm:kv_cache_usage_perc{model_name=\"m\"} 0.25\nvllm:prompt_tokens_total{model_name=\"m\"} 100\nvllm:generation_tokens_total 20\nprocess_start_time_seconds 1.7000000005e+09\n",
			Load{Running: 3, Waiting: 2, KVShare: 0.25, StartedMillis: 1_700_000_000_500, Progress: 120, Known: true},
		},
		"old vllm, two ranks": {
			"vllm:num_requests_running{engine=\"0\"} 1\nvllm:num_requests_running{engine=\"1\"} 2\nvllm:gpu_cache_usage_perc{engine=\"0\"} 0.1\nvllm:gpu_cache_usage_perc{engine=\"1\"} 0.9\n",
			Load{Running: 3, KVShare: 0.9, Known: true},
		},
		"sglang":         {"sglang:num_running_reqs 7\nsglang:num_queue_reqs 8\nsglang:token_usage 0.5", Load{Running: 7, Waiting: 8, KVShare: 0.5, Known: true}},
		"another engine": {"foo 1\n", Load{}},
		"nothing":        {"", Load{}},
		"absurd":         {"vllm:num_requests_running -5\nvllm:num_requests_waiting 1e300\nvllm:kv_cache_usage_perc NaN\n", Load{Waiting: 65535, Known: true}},
		"over full":      {"vllm:kv_cache_usage_perc 1.5\n", Load{KVShare: 1, Known: true}},
	} {
		got, err := ParseMetrics([]byte(c.page))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if _, err := ParseMetrics([]byte("vllm:num_requests_running seven\n")); err == nil {
		t.Error("a number that is none was accepted")
	}
}

func FuzzParseMetrics(f *testing.F) {
	f.Add([]byte("vllm:num_requests_running{a=\"b\"} 3\nsglang:token_usage 0.5"))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := ParseMetrics(b)
		if err == nil && (l.KVShare < 0 || l.KVShare > 1 || l.Running < 0 || l.Waiting < 0) {
			t.Errorf("%+v", l)
		}
	})
}
