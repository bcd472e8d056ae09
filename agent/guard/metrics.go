package guard

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// outcome is how a request ended.
type outcome uint8

const (
	aborted outcome = iota // by its client: no other end was seen
	served
	refused
	broken // by the engine
	outcomes
)

var (
	outcomeNames = [outcomes]string{"aborted", "served", "refused", "broken"}
	classNames   = [classes]string{"p0", "p1", "p2"}
)

// metrics are the counters that requests change; what the gate holds is read when
// it is asked for.
type metrics struct {
	requests [classes][outcomes]prometheus.Counter
	refusals [classes][reasons]prometheus.Counter
	waits    [classes]prometheus.Observer

	requestsBy, refusalsBy *prometheus.CounterVec
	waitsBy                *prometheus.HistogramVec
}

func newMetrics() *metrics {
	m := &metrics{
		requestsBy: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warmpath_guard_requests_total", Help: "Requests that are work for the engine, by class and how they ended.",
		}, []string{"class", "outcome"}),
		refusalsBy: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warmpath_guard_refused_total", Help: "Requests that were turned away, by class and reason.",
		}, []string{"class", "reason"}),
		waitsBy: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "warmpath_guard_wait_seconds", Help: "Time in the queue, of those that waited.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 60},
		}, []string{"class"}),
	}
	for c, class := range classNames {
		for o, name := range outcomeNames {
			m.requests[c][o] = m.requestsBy.WithLabelValues(class, name)
		}
		for r := none + 1; r < reasons; r++ {
			m.refusals[c][r] = m.refusalsBy.WithLabelValues(class, r.String())
		}
		m.waits[c] = m.waitsBy.WithLabelValues(class)
	}
	return m
}

func (m *metrics) ended(class uint8, o outcome)        { m.requests[class][o].Inc() }
func (m *metrics) refuse(class uint8, why Reason)      { m.refusals[class][why].Inc() }
func (m *metrics) waited(class uint8, d time.Duration) { m.waits[class].Observe(d.Seconds()) }

// gauge is something that the gate holds.
type gauge struct {
	desc  *prometheus.Desc
	value func(g *Guard, class int) float64
}

// byClass have the label class, whole have none.
var (
	byClass = []gauge{
		{
			prometheus.NewDesc("warmpath_guard_waiting", "Requests that wait.", []string{"class"}, nil),
			func(g *Guard, c int) float64 { return float64(g.gate.queues[c].Len()) },
		},
		{
			prometheus.NewDesc("warmpath_guard_waiting_bytes", "What is held of their bodies.", []string{"class"}, nil),
			func(g *Guard, c int) float64 { return float64(g.gate.queues[c].Bytes()) },
		},
		{
			prometheus.NewDesc("warmpath_guard_in_flight", "Requests at the engine.", []string{"class"}, nil),
			func(g *Guard, c int) float64 { return float64(g.gate.inFlight[c]) },
		},
	}
	whole = []gauge{
		{
			prometheus.NewDesc("warmpath_guard_queue_requests", "Requests that wait, of all classes.", nil, nil),
			func(g *Guard, _ int) float64 { return float64(g.gate.waiting()) },
		},
		{
			prometheus.NewDesc("warmpath_guard_prefill_tokens", "Tokens of prompts at the engine that have no answer yet, four bytes each.", nil, nil),
			func(g *Guard, _ int) float64 { return float64(g.gate.prefill.pending) },
		},
		{
			prometheus.NewDesc("warmpath_guard_prefill_tokens_per_second", "The rate at which prompts were answered, cached tokens among them; 0 not known.", nil, nil),
			func(g *Guard, _ int) float64 { return g.gate.prefill.rate },
		},
		{
			prometheus.NewDesc("warmpath_guard_memory_pressed", "1 while long prompts wait for the KV cache.", nil, nil),
			func(g *Guard, _ int) float64 { return truth(g.gate.engine.pressed) },
		},
		{
			prometheus.NewDesc("warmpath_guard_load_known", "1 while the engine tells its load.", nil, nil),
			func(g *Guard, _ int) float64 { return truth(g.gate.engine.known) },
		},
		{
			prometheus.NewDesc("warmpath_guard_draining", "1 once the guard was told to end.", nil, nil),
			func(g *Guard, _ int) float64 { return truth(g.gate.draining) },
		},
	}
)

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Describe implements prometheus.Collector.
func (g *Guard) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(g, to) }

// Collect implements prometheus.Collector.
func (g *Guard) Collect(to chan<- prometheus.Metric) {
	g.metrics.requestsBy.Collect(to)
	g.metrics.refusalsBy.Collect(to)
	g.metrics.waitsBy.Collect(to)
	var held []prometheus.Metric
	g.mu.Lock()
	for _, of := range byClass {
		for c, name := range classNames {
			held = append(held, prometheus.MustNewConstMetric(of.desc, prometheus.GaugeValue, of.value(g, c), name))
		}
	}
	for _, of := range whole {
		held = append(held, prometheus.MustNewConstMetric(of.desc, prometheus.GaugeValue, of.value(g, 0)))
	}
	g.mu.Unlock()
	for _, m := range held {
		to <- m
	}
}

// appendMetrics puts the guard's metrics behind the engine's, so that who reads the
// engine's page through the guard sees the queue in front of it too.
func (g *Guard) appendMetrics(resp *http.Response) {
	kind := resp.Header.Get("Content-Type")
	if !strings.HasPrefix(kind, "text/plain") || resp.Header.Get("Content-Encoding") != "" {
		return // a form that text can't be appended to
	}
	registry := prometheus.NewRegistry()
	if registry.Register(g) != nil {
		return
	}
	families, err := registry.Gather()
	if err != nil {
		return
	}
	var page bytes.Buffer
	page.WriteByte('\n')
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(&page, family); err != nil {
			return
		}
	}
	resp.Header.Del("Content-Length")
	resp.ContentLength = -1
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(resp.Body, &page), resp.Body}
}
