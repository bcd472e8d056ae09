package gateway

import (
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/warmpath/warmpath/hostsim"
)

// metrics are the gateway's own numbers and, collected at scrape time, the
// module's.
type metrics struct {
	registry        *prometheus.Registry
	active          prometheus.Gauge
	requests        *prometheus.CounterVec
	attempts        *prometheus.CounterVec
	fallback        *prometheus.CounterVec
	retryImpossible prometheus.Counter
	firstByte       prometheus.Histogram
	duration        prometheus.Histogram
	module          *hostsim.Host
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		active:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "warmpath_gateway_active_requests", Help: "Exchanges open now."}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warmpath_gateway_requests_total", Help: "Exchanges by the class of their answer; cut: ended without one.",
		}, []string{"class"}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warmpath_gateway_attempts_total", Help: "Attempts at workers by result.",
		}, []string{"result"}),
		fallback: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warmpath_gateway_endpoint_fallback_total", Help: "Attempts that went elsewhere than the module said.",
		}, []string{"reason"}),
		retryImpossible: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "warmpath_gateway_retry_impossible_total", Help: "Refused or failed attempts whose streamed body could not be sent again.",
		}),
		firstByte: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "warmpath_gateway_first_byte_seconds", Help: "Arrival to first body byte towards the client.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "warmpath_gateway_request_seconds", Help: "Arrival to end.",
			Buckets: []float64{.01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 1800},
		}),
	}
	m.registry.MustRegister(m.active, m.requests, m.attempts, m.fallback, m.retryImpossible, m.firstByte, m.duration, moduleCollector{m})
	return m
}

// watch adds what is read at scrape time.
func (m *metrics) watch(g *Gateway) {
	m.module = g.host
	m.registry.MustRegister(
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "warmpath_gateway_module_traps_total", Help: "VMs that trapped; their exchanges went on without the module.",
		}, func() (n float64) {
			for _, vm := range g.fleet.Workers {
				n += float64(vm.Stats().Traps)
			}
			return n
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "warmpath_gateway_held_bytes", Help: "Request bodies that wait for the module or for a worker's answer.",
		}, func() float64 { return float64(g.held.Load()) }),
	)
}

func (m *metrics) observe(x *exchange) {
	class := "cut"
	if s := x.log.status; s >= 100 {
		class = string(rune('0'+s/100)) + "xx"
	}
	m.requests.WithLabelValues(class).Inc()
	m.duration.Observe(time.Since(x.start).Seconds())
	if x.log.firstByte > 0 {
		m.firstByte.Observe(x.log.firstByte.Seconds())
	}
}

// moduleCollector shows the module's metrics with labels: the ABI has none, so
// the module writes them into the name ("warmpath.no_key.bad_json"), and Envoy's
// stats_tags or this table take them out again.
type moduleCollector struct{ m *metrics }

// labelsOf names the labels that the segments behind a metric's name stand for.
var labelsOf = map[string][]string{
	"lookups": {"tier"}, "hits": {"tier"}, "lookup_tokens": {"tier"}, "matched_tokens": {"tier"},
	"confirmed_tokens": {"tier"}, "came_true_tokens": {"tier"},
	"no_key": {"reason"}, "fallback": {"reason"}, "decisions": {"why"},
	"admitted": {"class"}, "refused": {"class", "reason"}, "would_refuse": {"class", "reason"}, "admission_level": {"level"},
	"slots_in_use": {"class"}, "queue_waiting": {"class"}, "queue_wait_ms": {"class"}, "queue_aborted": {"class"},
	"queue_wakes": {"side"}, "retries_denied": {"reason"}, "copies_failed": {"reason"},
	"vocabulary_loads": {"result"}, "vocabulary_fetches": {"result"}, "fingerprint_mode": {"pool", "mode"},
}

// Describe implements prometheus.Collector: unchecked, as names come from the
// module.
func (moduleCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c moduleCollector) Collect(out chan<- prometheus.Metric) {
	if c.m.module == nil {
		return
	}
	for _, metric := range c.m.module.Metrics() {
		name, labels, values := promName(metric.Name)
		switch metric.Type {
		case hostsim.Histogram:
			buckets := map[float64]uint64{}
			for i, bound := range metric.Bounds {
				buckets[bound] = metric.Buckets[i]
			}
			desc := prometheus.NewDesc(name, "From the module.", labels, nil)
			out <- prometheus.MustNewConstHistogram(desc, metric.Count, float64(metric.Sum), buckets, values...)
		case hostsim.Gauge:
			out <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, "From the module.", labels, nil), prometheus.GaugeValue, float64(metric.Value), values...)
		default:
			out <- prometheus.MustNewConstMetric(prometheus.NewDesc(name+"_total", "From the module.", labels, nil), prometheus.CounterValue, float64(metric.Value), values...)
		}
	}
}

func promName(raw string) (name string, labels, values []string) {
	parts := strings.Split(raw, ".")
	for i := 1; i < len(parts); i++ {
		if l := labelsOf[parts[i]]; len(l) > 0 && i+len(l) == len(parts)-1 {
			labels, values, parts = l, parts[i+1:], parts[:i+1]
			break
		}
	}
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, strings.Join(parts, "_")), labels, values
}

func (g *Gateway) adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(g.metrics.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		switch {
		case g.draining.Load():
			http.Error(w, "draining", http.StatusServiceUnavailable)
		case g.cfg.Endpoints.Len() == 0:
			http.Error(w, "no endpoint is known yet", http.StatusServiceUnavailable)
		default:
			_, _ = w.Write([]byte("ok\n"))
		}
	})
	return mux
}
