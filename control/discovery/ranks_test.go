package discovery

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRanksBehindOnePortAreWorkersOfTheirOwn(t *testing.T) {
	specs, err := Parse("workers.yaml", []byte(`workers:
- address: 10.0.0.7:8000
  ranks: 2
  max_running: 32
  kv_events: {endpoint: "tcp://*:5557", replay: "tcp://*:5657", topic: kv}
- address: "[fd00::7]:8000@03"
  kv_events: auto
- address: 10.0.0.9:8000
  ranks: 1
`))
	if err != nil {
		t.Fatal(err)
	}
	lists := NewLists("list")
	joined, _, err := lists.Tell("list", Finding{Workers: specs}, time.Unix(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	type worker struct {
		Address, At  string
		Rank         int
		Events, From string
	}
	var got []worker
	for _, s := range joined {
		got = append(got, worker{s.Address, Endpoint(s.Address), RankOf(s.Address), s.KVEvents.Endpoint, s.KVEvents.Replay})
	}
	want := []worker{
		{"10.0.0.7:8000@0", "10.0.0.7:8000", 0, "tcp://10.0.0.7:5557", "tcp://10.0.0.7:5657"},
		{"10.0.0.7:8000@1", "10.0.0.7:8000", 1, "tcp://10.0.0.7:5558", "tcp://10.0.0.7:5658"},
		{"[fd00::7]:8000@3", "[fd00::7]:8000", 3, "", ""},
		{"10.0.0.9:8000", "10.0.0.9:8000", -1, "", ""},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestRanksThatCannotBeAreRefused(t *testing.T) {
	for body, want := range map[string]string{
		"{address: 10.0.0.7:8000, ranks: 65}":  "outside 0..64",
		"{address: 10.0.0.7:8000, ranks: -1}":  "outside 0..64",
		"{address: 10.0.0.7:8000@64}":          "not a rank",
		"{address: 10.0.0.7:8000@x}":           "not a rank",
		"{address: 10.0.0.7:8000@-1}":          "not a rank",
		"{address: 10.0.0.7:8000@}":            "not a rank",
		"{address: 10.0.0.7:8000@1, ranks: 2}": "names one rank already",

		"{address: 10.0.0.7:8000, ranks: 4, kv_events: {endpoint: \"tcp://*:65534\"}}":       "no port for rank 3",
		"{address: 10.0.0.7:8000}, {address: 10.0.0.7:8000@0}":                               "with ranks and without",
		"{address: 10.0.0.7:8000@0}, {address: 10.0.0.7:8000}":                               "with ranks and without",
		"{address: 10.0.0.7:8000@0}, {address: 10.0.0.7:8000@00}":                            "listed already",
		"{address: 10.0.0.7:8000, ranks: 2}, {address: 10.0.0.7:8000}":                       "listed already",
		"{address: 10.0.0.7:8000, ranks: 2, drain: false}, {address: 10.0.0.8:8000@1@1}":     "not a rank",
		"{address: 10.0.0.7:8000, ranks: 2}, {address: 10.0.0.7:8000@1, pool: another-pool}": "",
	} {
		specs, err := Parse("body", []byte("workers: ["+body+"]"))
		if want == "" {
			// Only the joined list shows that a rank is there twice.
			if err == nil {
				_, _, err = NewLists("list").Tell("list", Finding{Workers: specs}, time.Unix(1, 0))
			}
			want = "listed already"
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
}

func TestARanksLoadIsItsOwn(t *testing.T) {
	page := []byte("vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 3\nvllm:num_requests_running{engine=\"1\",model_name=\"m\"} 5\n" +
		"vllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 0\nvllm:num_requests_waiting{engine=\"1\",model_name=\"m\"} 7\n" +
		"vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.5\nvllm:kv_cache_usage_perc{engine=\"1\",model_name=\"m\"} 0.25\n" +
		"vllm:prompt_tokens_total{engine=\"0\"} 100\nvllm:prompt_tokens_total{engine=\"1\"} 1000\n" +
		"vllm:cache_config_info{engine=\"0\",block_size=\"16\",num_gpu_blocks=\"400\",enable_prefix_caching=\"True\"} 1\n" +
		"vllm:cache_config_info{engine=\"1\",block_size=\"16\",num_gpu_blocks=\"400\",enable_prefix_caching=\"True\"} 1\n" +
		"process_start_time_seconds 1.7e9\n")
	for rank, want := range map[int]Load{
		-1: {Running: 8, Waiting: 7, KVShare: 0.5, Progress: 1100, PromptTokens: 1100, Facts: Facts{CapacityTokens: 6400}},
		0:  {Running: 3, Waiting: 0, KVShare: 0.5, Progress: 100, PromptTokens: 100, Facts: Facts{CapacityTokens: 3200}},
		1:  {Running: 5, Waiting: 7, KVShare: 0.25, Progress: 1000, PromptTokens: 1000, Facts: Facts{CapacityTokens: 3200}},
		2:  {},
	} {
		want.StartedMillis = 1_700_000_000_000
		want.Ranks, want.Counted = 2, rank < 2
		if want.Known = rank < 2; want.Known {
			want.Facts.BlockTokens, want.Facts.Caching = 16, CachingOn
		}
		got, err := ParseRank(page, rank)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("rank %d: %v %s", rank, err, diff)
		}
	}
}
