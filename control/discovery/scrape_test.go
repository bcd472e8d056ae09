package discovery

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

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
			Load{Running: 3, Waiting: 2, KVShare: 0.25, StartedMillis: 1_700_000_000_500, Progress: 120, PromptTokens: 100, Known: true, Counted: true},
		},
		"old vllm, two ranks": {
			"vllm:num_requests_running{engine=\"0\"} 1\nvllm:num_requests_running{engine=\"1\"} 2\nvllm:gpu_cache_usage_perc{engine=\"0\"} 0.1\nvllm:gpu_cache_usage_perc{engine=\"1\"} 0.9\n",
			Load{Running: 3, KVShare: 0.9, Known: true, Counted: true, Ranks: 2},
		},
		"sglang": {"sglang:num_running_reqs 7\nsglang:num_queue_reqs 8\nsglang:token_usage 0.5", Load{Running: 7, Waiting: 8, KVShare: 0.5, Known: true, Counted: true}},
		"vllm before 0.9, two queues": {
			"vllm:num_requests_waiting 2\nvllm:num_requests_swapped 3\nvllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"1000\",enable_prefix_caching=\"True\"} 1\n",
			Load{Waiting: 5, Known: true, Facts: Facts{CapacityTokens: 16_000, BlockTokens: 16, Caching: CachingOn}},
		},
		"vllm, two ranks of an older one": {
			"vllm:cache_config_info{engine=\"0\",block_size=\"16\",num_gpu_blocks=\"400\"} 1\nvllm:cache_config_info{engine=\"1\",block_size=\"16\",num_gpu_blocks=\"400\"} 1\n",
			Load{Facts: Facts{CapacityTokens: 6400, BlockTokens: 16}},
		},
		"vllm without a prefix cache": {
			"vllm:cache_config_info{block_size=\"32\",num_gpu_blocks=\"None\",kv_cache_size_tokens=\"4096\",enable_prefix_caching=\"False\"} 1\n",
			Load{Facts: Facts{CapacityTokens: 4096, BlockTokens: 32, Caching: CachingOff}},
		},
		"vllm asleep": {
			"vllm:engine_sleep_state{sleep_state=\"awake\"} 0\nvllm:engine_sleep_state{sleep_state=\"weights_offloaded\"} 1\nvllm:engine_sleep_state{sleep_state=\"discard_all\"} 0\n",
			Load{Asleep: true},
		},
		"sglang, every tensor-parallel rank": {
			"sglang:num_running_reqs{dp_rank=\"0\",tp_rank=\"0\"} 4\nsglang:num_running_reqs{dp_rank=\"0\",tp_rank=\"1\"} 4\nsglang:num_running_reqs{dp_rank=\"1\",tp_rank=\"2\"} 1\n" +
				"sglang:max_total_num_tokens{dp_rank=\"0\",tp_rank=\"0\"} 8000\nsglang:max_total_num_tokens{dp_rank=\"0\",tp_rank=\"1\"} 8000\nsglang:max_total_num_tokens{dp_rank=\"1\",tp_rank=\"2\"} 8000\n" +
				"sglang:page_size{dp_rank=\"0\"} 64\nsglang:token_usage{dp_rank=\"0\"} 0.5\nsglang:token_usage{dp_rank=\"1\"} 0.25\n" +
				"sglang:evicted_tokens_total{cache_type=\"RadixCache\"} 300\n",
			Load{Running: 5, KVShare: 0.5, RemovedTokens: 300, RemovalsKnown: true, Counted: true, Ranks: 2, Known: true, Facts: Facts{CapacityTokens: 16_000, BlockTokens: 64}},
		},
		"sglang, a total and its priorities": {
			"sglang:num_queue_reqs{priority=\"\"} 7\nsglang:num_queue_reqs{priority=\"0\"} 4\nsglang:num_queue_reqs{priority=\"1\"} 3\nsglang:num_grammar_queue_reqs 1\n",
			Load{Waiting: 8, Known: true},
		},
		"vllm behind a guard": {
			"vllm:num_requests_running 3\nvllm:num_requests_waiting 2\n\nwarmpath_guard_queue_requests 5\nwarmpath_guard_waiting{class=\"p1\"} 5\n",
			Load{Running: 3, Waiting: 7, Known: true, Counted: true},
		},
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

func recordedPage(tb testing.TB) []byte {
	tb.Helper()
	page, err := os.ReadFile("testdata/vllm-0.32-dp2.txt")
	if err != nil {
		tb.Fatal(err)
	}
	return page
}

func TestARecordedPageOfTwoRanksIsRead(t *testing.T) {
	got, err := ParseMetrics(recordedPage(t))
	if err != nil {
		t.Fatal(err)
	}
	want := Load{
		StartedMillis: 1_795_968_827_490, Progress: 700 + 7, PromptTokens: 700, Known: true, Counted: true, Ranks: 2,
		Facts: Facts{CapacityTokens: 2 * 6400, BlockTokens: 32, Caching: CachingOn},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestARecordedPageHasEachRanksOwn(t *testing.T) {
	all, err := ParseMetrics(recordedPage(t))
	if err != nil {
		t.Fatal(err)
	}
	var prompts float64
	for rank := range 2 {
		l, err := ParseRank(recordedPage(t), rank)
		if err != nil || !l.Known || !l.Counted || l.Facts.CapacityTokens != 6400 || l.StartedMillis != all.StartedMillis {
			t.Errorf("rank %d: %+v, %v", rank, l, err)
		}
		prompts += l.PromptTokens
	}
	if prompts != all.PromptTokens {
		t.Errorf("%v prompt tokens by rank, %v on the page", prompts, all.PromptTokens)
	}
}

func BenchmarkParseMetrics(b *testing.B) {
	page := recordedPage(b)
	b.SetBytes(int64(len(page)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseMetrics(page); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkScrape is what one look at a worker costs, the answering server included.
func BenchmarkScrape(b *testing.B) {
	page := recordedPage(b)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(page) }))
	b.Cleanup(server.Close)
	transport := &http.Transport{}
	b.Cleanup(transport.CloseIdleConnections)
	p := newProber(HealthConfig{}.withDefaults(), transport)
	b.ReportAllocs()
	for b.Loop() {
		var o Observation
		if p.scrape(b.Context(), strings.TrimPrefix(server.URL, "http://"), &o); o.Load == nil {
			b.Fatal(o.MetricsProblem)
		}
	}
}

func TestManyWorkersAreScrapedLessOften(t *testing.T) {
	var unset HealthConfig
	set := HealthConfig{Metrics: 50 * time.Millisecond}
	for n, want := range map[int]time.Duration{1: DefaultMetrics, 250: DefaultMetrics, 500: 400 * time.Millisecond, MaxWorkers: 800 * time.Millisecond} {
		if got := unset.scrapeEvery(n); got != want {
			t.Errorf("%d workers: every %v, want %v", n, got, want)
		}
		if got := set.scrapeEvery(n); got != set.Metrics {
			t.Errorf("%d workers: every %v though %v is set", n, got, set.Metrics)
		}
	}
	// Loads count as seen just now for a second (loadFresh of package control), and a
	// worker may take a part of that to answer.
	if every := unset.scrapeEvery(MaxWorkers); every > 900*time.Millisecond {
		t.Errorf("of %d workers each is asked every %v: never have all been asked just now", MaxWorkers, every)
	}
}

func FuzzParseMetrics(f *testing.F) {
	f.Add([]byte("vllm:num_requests_running{a=\"b\"} 3\nsglang:token_usage 0.5"))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := ParseMetrics(b)
		if err == nil && (l.KVShare < 0 || l.KVShare > 1 || l.Running < 0 || l.Waiting < 0 || l.Facts.CapacityTokens < 0 || l.Facts.BlockTokens < 0) {
			t.Errorf("%+v", l)
		}
	})
}
