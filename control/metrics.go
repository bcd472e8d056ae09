package control

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/warmpath/warmpath/control/parity"
)

// metrics are registered in a registry of the service's own: two services in
// one process (the demo, tests) don't meet. Labels take values from fixed sets
// or from the worker list, never from requests.
type metrics struct {
	registry     *prometheus.Registry
	requests     *prometheus.CounterVec
	seconds      *prometheus.HistogramVec
	batchSeconds prometheus.Histogram
}

func newMetrics(s *Service) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warmpath_control_http_requests_total", Help: "Requests by path of the API and status code.",
		}, []string{"path", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "warmpath_control_http_request_seconds", Help: "Time of requests by path; long-polls include their wait.", Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9),
		}, []string{"path"}),
		batchSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "warmpath_control_batch_apply_seconds", Help: "Time to apply one batch.", Buckets: prometheus.ExponentialBuckets(0.00005, 4, 9),
		}),
	}
	m.registry.MustRegister(m.requests, m.seconds, m.batchSeconds, collectors.NewGoCollector(), &collector{s}, &quotaCollector{s}, &clusterCollector{s}, shareCollector{s})
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

var knownPaths = map[string]bool{
	"/healthz": true, "/readyz": true, "/metrics": true, "/openapi.yaml": true, "/v1/table": true, "/v1/table/pages": true, "/v1/table/entries": true, "/v1/table/top": true,
	"/v1/batch": true, "/v1/heartbeat": true, "/v1/status": true, "/v1/mode": true, "/v1/workers": true, "/v1/workers/drain": true, "/v1/policy": true, "/v1/quota": true,
}

func (m *metrics) instrument(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := "other"
		if knownPaths[r.URL.Path] {
			path = r.URL.Path
		} else if strings.HasPrefix(r.URL.Path, "/v1/vocabulary/") {
			path = "/v1/vocabulary"
		}
		begin := time.Now()
		rec := &recorder{ResponseWriter: w, code: http.StatusOK}
		next.ServeHTTP(rec, r)
		m.requests.WithLabelValues(path, strconv.Itoa(rec.code)).Inc()
		m.seconds.WithLabelValues(path).Observe(time.Since(begin).Seconds())
	})
}

type recorder struct {
	http.ResponseWriter
	code int
}

func (r *recorder) WriteHeader(code int) {
	r.code = code
	r.ResponseWriter.WriteHeader(code)
}

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// collector reads the state of the service when it is scraped.
type collector struct{ s *Service }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("warmpath_control_"+name, help, labels, nil)
}

// into returns what puts one sample each into ch.
func into(ch chan<- prometheus.Metric) (gauge func(d *prometheus.Desc, v float64, labels ...string), count func(d *prometheus.Desc, v uint64, labels ...string)) {
	gauge = func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count = func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	return gauge, count
}

var (
	descWorkers      = desc("workers", "Workers by pool and state.", "pool", "state")
	descWorkerTrust  = desc("worker_trust", "Share of proven prefixes that came true, lately.", "worker")
	descWorkerItems  = desc("worker_entries", "Checkpoints the worker is believed to hold.", "worker")
	descWorkerFlight = desc("worker_in_flight", "Requests in flight from all gateways.", "worker")
	descWorkerAge    = desc("worker_load_age_seconds", "Age of the worker's load report.", "worker")
	descWorkerAvoid  = desc("worker_avoided", "1 while the worker has a negative mark.", "worker")
	descWorkerTruth  = desc("worker_truth", "1 for where the belief about the worker's cache comes from.", "worker", "truth")
	descWorkerPoor   = desc("worker_degraded", "How many things are wrong or missing at the worker; the status names them.", "worker")
	descWorkerEvict  = desc("worker_evicting_share", "Share of the worker's cache that an announced eviction takes; 0 none.", "worker")
	descWorkerBeat   = desc("worker_heartbeat_age_seconds", "Age of the worker's last heartbeat, for one that sends them.", "worker")
	descBeats        = desc("heartbeats_total", "Heartbeats by what became of them.", "kind")
	descGateways     = desc("gateways", "Gateways that reported within 7 s.")
	descLag          = desc("gateway_versions_behind_max", "How many versions the slowest live gateway is behind.")
	descEntries      = desc("table_entries", "Entries of the published table.")
	descTableBytes   = desc("table_bytes", "Bytes of its pages.")
	descTableBits    = desc("table_bits", "Its size class.")
	descTableVersion = desc("table_version", "Its version.")
	descTableDropped = desc("table_dropped_total", "Entries that found no room in their page.")
	descIndexBytes   = desc("index_bytes", "Bytes of the index, as held against its cap.")
	descIndexNodes   = desc("index_entries", "Checkpoint holdings in the index.")
	descPending      = desc("index_pending", "Dispatches without a done report yet.")
	descEvents       = desc("events_total", "What reports led to, by kind.", "kind")
	descTokens       = desc("tokens_total", "Prompt tokens of done reports: predicted to be cached, cached as the engine said, the lesser of both, and what was cached beyond the prediction.", "kind")
	descMode         = desc("fingerprint_mode", "1 for the mode that a pool with a tokenizer is in.", "pool", "mode")
	descParity       = desc("tokenizer_parity", "1: the worker has shown the same tokens as ours; 0: not known; -1: others.", "pool", "worker")
	descFile         = desc("vocabulary_file_good", "1 while the file that the pool's vocabulary was read from is still there and good.", "pool")
	descReady        = desc("vocabulary_ready_gateways", "Live gateways whose VMs have all loaded the pool's vocabulary.", "pool")
	descEventBlocks  = desc("kv_event_blocks", "Blocks that the worker's KV events say it holds on the GPU, with all before them.", "worker")
	descEventSlow    = desc("kv_event_slow_blocks", "Blocks that it has with all before them, some of it on CPU or disk alone.", "worker")
	descEventAge     = desc("kv_event_age_seconds", "Age of the worker's last batch of KV events; -1 none yet.", "worker")
	descEventUp      = desc("kv_events_connected", "1 while the events of all ranks of the worker are followed.", "worker")
	descEventCounts  = desc("kv_events_total", "Batches and what became of them, by kind.", "worker", "kind")
	descSourceUp     = desc("source_up", "1 while the last word of the source was a list.", "source")
	descSourceAge    = desc("source_age_seconds", "Time since the source stood by its list; -1 never.", "source")
	descSourceItems  = desc("source_workers", "Workers in the source's list.", "source")
	descSourceSkip   = desc("source_skipped", "What the source left out of its list.", "source")
	descAdapters     = desc("adapters", "Adapters that the pool serves.", "pool")
	descResting      = desc("refs_resting", "Refs of workers that are gone, kept from use until no gateway can mistake them.")
	descHot          = desc("hot_prefixes", "Prefixes that have homes.", "pool")
	descHomes        = desc("hot_homes", "Homes of the pool's hot prefixes, of all of them together.", "pool")
	descCopies       = desc("hot_copies", "Copies of the pool's hot prefixes that gateways are making.", "pool")
	descCopied       = desc("hot_copies_total", "Copies that gateways were given to make, by what became of them.", "pool", "kind")
	descCopiesLeft   = desc("hot_copies_left_alone", "1 while copies are left to requests, as too many of the gateways' failed.", "pool")
	descSavedAge     = desc("state_age_seconds", "Age of the last whole save of the state; -1 never.")
	descSaveTime     = desc("state_save_seconds", "Time that the last save took.")
	descSaveBytes    = desc("state_save_bytes", "Bytes that it wrote.")
	descLearning     = desc("learning", "1 while gateways are told to keep their pages.")
	descOff          = desc("off", "1 while the fleet is switched to observe.")
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descWorkers, descWorkerTrust, descWorkerItems, descWorkerFlight, descWorkerAge, descWorkerAvoid, descGateways, descLag,
		descWorkerTruth, descWorkerPoor, descWorkerEvict, descWorkerBeat, descBeats,
		descEntries, descTableBytes, descTableBits, descTableVersion, descTableDropped, descIndexBytes, descIndexNodes,
		descPending, descEvents, descTokens, descMode, descParity, descFile, descReady, descHot, descHomes, descCopies, descCopied, descCopiesLeft, descLearning, descOff,
		descSavedAge, descSaveTime, descSaveBytes,
		descEventBlocks, descEventAge, descEventUp, descEventCounts,
		descSourceUp, descSourceAge, descSourceItems, descSourceSkip, descAdapters, descResting,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	st := c.s.Status()
	gauge, count := into(ch)
	for _, l := range st.Sources {
		gauge(descSourceUp, truth(l.Listed && l.Error == ""), l.Name)
		gauge(descSourceAge, l.Age, l.Name)
		gauge(descSourceItems, float64(l.Workers), l.Name)
		gauge(descSourceSkip, float64(l.Skipped), l.Name)
	}
	for pool, names := range st.Adapters {
		gauge(descAdapters, float64(len(names)), pool)
	}
	gauge(descResting, float64(st.RefsResting))
	if saved := st.Saved; saved != nil {
		gauge(descSavedAge, saved.Age)
		gauge(descSaveTime, saved.Seconds)
		gauge(descSaveBytes, float64(saved.Bytes))
	}
	states := map[[2]string]int{}
	for _, w := range st.Workers {
		states[[2]string{w.Pool, w.State}]++
		gauge(descWorkerTrust, w.Trust, w.Address)
		gauge(descWorkerItems, float64(w.Entries), w.Address)
		gauge(descWorkerFlight, float64(w.InFlight), w.Address)
		gauge(descWorkerAge, w.LoadAge, w.Address)
		gauge(descWorkerAvoid, truth(w.AvoidSeconds > 0), w.Address)
		gauge(descWorkerTruth, 1, w.Address, w.Truth)
		gauge(descWorkerPoor, float64(len(w.Degraded)), w.Address)
		gauge(descWorkerEvict, w.EvictShare, w.Address)
		if w.Heartbeats != nil {
			gauge(descWorkerBeat, w.Heartbeats.Age, w.Address)
		}
	}
	for i := range st.Workers {
		e, worker := st.Workers[i].Events, st.Workers[i].Address
		if e == nil {
			continue
		}
		gauge(descEventBlocks, float64(e.Held), worker)
		gauge(descEventSlow, float64(e.Slow), worker)
		gauge(descEventAge, e.Age, worker)
		gauge(descEventUp, truth(e.Source == "connected"), worker)
		for _, k := range []struct {
			kind  string
			value uint64
		}{
			{"batch", e.Batches},
			{"gap", e.Gaps},
			{"lost", e.Lost},
			{"missed", e.Missed},
			{"bad", e.Bad},
			{"restart", e.Restarts},
			{"reconnect", e.Reconnects},
			{"failed_replay", e.FailedReplays},
		} {
			count(descEventCounts, k.value, worker, k.kind)
		}
	}
	for k, n := range states {
		gauge(descWorkers, float64(n), k[0], k[1])
	}
	live, behind := 0, uint64(0)
	for _, g := range st.Gateways {
		if g.Age > 7 {
			continue
		}
		live++
		if g.TableEpoch == st.Table.Epoch && g.TableVersion < st.Table.Version {
			behind = max(behind, st.Table.Version-g.TableVersion)
		}
	}
	gauge(descGateways, float64(live))
	gauge(descLag, float64(behind))
	gauge(descEntries, float64(st.Table.Entries))
	gauge(descTableBytes, float64(st.Table.Bytes))
	gauge(descTableBits, float64(st.Table.Bits))
	gauge(descTableVersion, float64(st.Table.Version))
	count(descTableDropped, st.Table.Dropped)
	gauge(descIndexBytes, float64(st.Index.Bytes))
	gauge(descIndexNodes, float64(st.Index.Entries))
	gauge(descPending, float64(st.Index.Pending))
	k := st.Counters
	for _, e := range []struct {
		kind  string
		value uint64
	}{
		{"batch", k.Batches},
		{"chunk", k.Chunks},
		{"bad_chunk", k.BadChunks},
		{"dispatch", k.Dispatches},
		{"done", k.Dones},
		{"unknown_ref", k.UnknownRef},
		{"unknown_request", k.UnknownRequest},
		{"moved", k.Moved},
		{"undone", k.Undone},
		{"shortfall", k.Shortfalls},
		{"usage_missing", k.UsageMissing},
		{"evicted", k.Evicted},
		{"evicted_for_bytes", k.EvictedBytes},
		{"mark", k.Marks},
	} {
		count(descEvents, e.value, e.kind)
	}
	count(descTokens, k.PredictedTokens, "predicted")
	count(descTokens, k.CachedTokens, "cached")
	count(descTokens, k.CameTrueTokens, "came_true")
	count(descTokens, k.MoreTokens, "more_than_predicted")
	for kind, value := range map[string]uint64{
		"taken": k.Heartbeats, "repeated": k.BeatsRepeated, "old_generation": k.BeatsOld, "bad": k.BeatsBad, "unlisted": k.BeatsUnlisted, "cache_ignored": k.BeatCachesIgnored,
	} {
		count(descBeats, value, kind)
	}
	for _, t := range st.Tokenizers {
		for _, mode := range []string{"exact", "approximate"} {
			gauge(descMode, truth(t.Mode == mode), t.Pool, mode)
		}
		gauge(descFile, truth(t.FileProblem == ""), t.Pool)
		gauge(descReady, float64(t.ReadyGateways), t.Pool)
		for _, w := range t.Workers {
			gauge(descParity, parityValue[w.Outcome], t.Pool, w.Worker)
		}
	}
	for pool, n := range c.s.hotCounts() {
		gauge(descHot, float64(n.prefixes), pool)
		gauge(descHomes, float64(n.homes), pool)
		gauge(descCopies, float64(n.copies), pool)
		gauge(descCopiesLeft, truth(n.leftAlone), pool)
		count(descCopied, n.Begun, pool, "begun")
		count(descCopied, n.Made, pool, "made")
		count(descCopied, n.Failed, pool, "failed")
	}
	gauge(descLearning, truth(st.Learning))
	gauge(descOff, truth(st.Off))
}

// parityValue is 0 for what isn't known.
var parityValue = map[string]float64{
	parity.Same.String(): 1, parity.SameTokens.String(): 1, parity.Differs.String(): -1,
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
