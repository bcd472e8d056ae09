package live

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/warmpath/warmpath/sim/engine"
)

// embedding makes the unit vector of a prompt from its last block.
func embedding(r engine.Request) []float32 {
	state := uint64(r.PromptTokens)
	if n := len(r.Blocks); n > 0 {
		state ^= uint64(r.Blocks[n-1])
	}
	const dimensions = 64
	v := make([]float32, dimensions)
	norm := 0.0
	for i := range v {
		state = state*6364136223846793005 + 1442695040888963407
		v[i] = float32(int32(state>>32)) / math.MaxInt32
		norm += float64(v[i]) * float64(v[i])
	}
	for i := range v {
		v[i] /= float32(math.Sqrt(norm))
	}
	return v
}

// serveMetrics writes the gauges and counters that a router reads, under the
// names and with the meaning that vLLM gives them.
func (w *Worker) serveMetrics(rw http.ResponseWriter) {
	s := w.Stats()
	var b strings.Builder
	model := "sim"
	if len(w.config.Models) > 0 {
		model = w.config.Models[0]
	}
	labels := `engine="0",model_name=` + strconv.Quote(model)
	metric := func(kind, name, help, labels string, v float64) {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n%s{%s} %s\n", name, help, name, kind, name, labels, strconv.FormatFloat(v, 'g', -1, 64))
	}
	metric("gauge", "vllm:num_requests_running", "Number of requests in model execution batches.", labels, float64(s.Running))
	metric("gauge", "vllm:num_requests_waiting", "Number of requests waiting to be processed.", labels, float64(s.Waiting))
	metric("gauge", "vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", labels, s.KVUsage())
	metric("counter", "vllm:prefix_cache_queries_total", "Prefix cache queries, in number of queried tokens.", labels, float64(s.QueriedTokens))
	metric("counter", "vllm:prefix_cache_hits_total", "Prefix cache hits, in number of cached tokens.", labels, float64(s.HitTokens))
	metric("counter", "vllm:num_preemptions_total", "Cumulative number of preemptions from the engine.", labels, float64(s.Preemptions))
	metric("counter", "vllm:prompt_tokens_total", "Number of prefill tokens processed.", labels, float64(s.QueriedTokens))
	metric("counter", "vllm:generation_tokens_total", "Number of generation tokens processed.", labels, float64(s.GeneratedTokens))
	fmt.Fprintf(&b, "# HELP vllm:request_success_total Count of successfully processed requests.\n# TYPE vllm:request_success_total counter\n")
	fmt.Fprintf(&b, "vllm:request_success_total{finished_reason=\"length\",%s} %d\n", labels, s.Finished)
	fmt.Fprintf(&b, "vllm:request_success_total{finished_reason=\"abort\",%s} %d\n", labels, s.Cancelled)
	metric("gauge", "vllm:cache_config_info", "Information of the LLMEngine CacheConfig.",
		fmt.Sprintf(`block_size="%d",enable_prefix_caching="True",engine="0",num_gpu_blocks="%d"`, engine.BlockTokens, s.CapacityBlocks), 1)
	metric("counter", "sim:prompt_tokens_computed_total", "Prompt tokens that were not in the cache.", labels, float64(s.ComputedTokens))
	metric("counter", "sim:evicted_blocks_total", "Blocks evicted from the prefix cache.", labels, float64(s.Evictions))
	metric("counter", "sim:requests_refused_total", "Requests refused by a full queue.", labels, float64(s.Refused))
	metric("counter", "sim:busy_seconds_total", "Engine seconds spent in steps.", labels, s.Busy.Seconds())
	fmt.Fprintf(&b, "# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.\n# TYPE process_start_time_seconds gauge\n")
	fmt.Fprintf(&b, "process_start_time_seconds %s\n", strconv.FormatFloat(float64(w.started.Load())/1e9, 'f', 3, 64))
	rw.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = rw.Write([]byte(b.String()))
}

// StatsBody is the JSON of GET /sim/stats.
type StatsBody struct {
	Worker         string       `json:"worker"`
	Fault          string       `json:"fault"`
	EngineSeconds  float64      `json:"engine_seconds"`
	ResidentTokens int          `json:"resident_tokens"`
	KVUsage        float64      `json:"kv_usage"`
	Engine         engine.Stats `json:"engine"`
}

func (w *Worker) serveStats(rw http.ResponseWriter) {
	s := w.Stats()
	body, err := json.Marshal(StatsBody{
		Worker: w.config.Name, Fault: w.Fault().String(), EngineSeconds: w.Now().Seconds(),
		ResidentTokens: s.ResidentBlocks * engine.BlockTokens, KVUsage: s.KVUsage(), Engine: s,
	})
	if err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
		return
	}
	writeJSON(rw, http.StatusOK, body)
}

func (w *Worker) serveModels(rw http.ResponseWriter) {
	type model struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		OwnedBy string `json:"owned_by"`
	}
	models := []model{}
	for _, m := range w.config.Models {
		models = append(models, model{m, "model", "warmpath-sim"})
	}
	body, err := json.Marshal(map[string]any{"object": "list", "data": models})
	if err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
		return
	}
	writeJSON(rw, http.StatusOK, body)
}
