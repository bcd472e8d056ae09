package hostsim

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// MetricType is the kind of a metric.
type MetricType uint32

// The metric types of the ABI.
const (
	Counter MetricType = iota
	Gauge
	Histogram
)

func (t MetricType) String() string { return [...]string{"counter", "gauge", "histogram"}[t] }

// Metric is a snapshot of one metric; names are as the module gave them (Envoy
// shows them below "wasmcustom.").
type Metric struct {
	Name  string
	Type  MetricType
	Value uint64 // counter, gauge
	// Histogram only: Buckets[i] counts values <= Bounds[i] (cumulative).
	Bounds  []float64
	Buckets []uint64
	Count   uint64
	Sum     uint64
}

// histogramBounds are Envoy's default buckets.
var histogramBounds = []float64{
	0.5, 1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 300000, 600000, 1800000, 3600000,
}

// metricStore holds the metrics of the process. VMs share a metric by its name;
// the ids which a module sees are the VM's own.
type metricStore struct {
	mu    sync.Mutex
	byKey map[metricKey]*metric
}

type metricKey struct {
	kind MetricType
	name string
}

// metric is one series; everything but the name is atomic, so that VMs on
// different threads add to it without a lock.
type metric struct {
	metricKey
	value   atomic.Uint64 // counter, gauge; histogram: the sum
	count   atomic.Uint64
	buckets []atomic.Uint64 // per bound, not cumulative; the last one is +Inf
}

func (m *metricStore) init() { m.byKey = map[metricKey]*metric{} }

func (m *metricStore) define(kind MetricType, name string) *metric {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := metricKey{kind, name}
	x := m.byKey[key]
	if x == nil {
		x = &metric{metricKey: key}
		if kind == Histogram {
			x.buckets = make([]atomic.Uint64, len(histogramBounds)+1)
		}
		m.byKey[key] = x
	}
	return x
}

func (x *metric) increment(offset int64) status {
	switch x.kind {
	case Counter:
		if offset <= 0 {
			return statusBadArgument // Envoy: also for 0
		}
		x.value.Add(uint64(offset))
	case Gauge:
		x.value.Add(uint64(offset))
	default:
		return statusBadArgument
	}
	return statusOK
}

func (x *metric) record(value uint64) {
	switch x.kind {
	case Counter:
		x.value.Add(value)
	case Gauge:
		x.value.Store(value)
	case Histogram:
		at, _ := slices.BinarySearch(histogramBounds, float64(value))
		x.buckets[at].Add(1)
		x.count.Add(1)
		x.value.Add(value)
	}
}

func (x *metric) snapshot() Metric {
	s := Metric{Name: x.name, Type: x.kind}
	if x.kind != Histogram {
		s.Value = x.value.Load()
		return s
	}
	s.Sum, s.Count, s.Bounds = x.value.Load(), x.count.Load(), histogramBounds
	s.Buckets = make([]uint64, len(histogramBounds))
	var below uint64
	for i := range s.Buckets {
		below += x.buckets[i].Load()
		s.Buckets[i] = below
	}
	return s
}

// Metrics returns every metric, sorted by name, then type.
func (h *Host) Metrics() []Metric {
	h.metrics.mu.Lock()
	all := make([]Metric, 0, len(h.metrics.byKey))
	for _, x := range h.metrics.byKey {
		all = append(all, x.snapshot())
	}
	h.metrics.mu.Unlock()
	slices.SortFunc(all, func(a, b Metric) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Type, b.Type))
	})
	return all
}

// Metric returns one metric by the name the module gave it. Of several types
// under one name the counter comes first, then the gauge.
func (h *Host) Metric(name string) (Metric, bool) {
	h.metrics.mu.Lock()
	defer h.metrics.mu.Unlock()
	for _, kind := range []MetricType{Counter, Gauge, Histogram} {
		if x := h.metrics.byKey[metricKey{kind, name}]; x != nil {
			return x.snapshot(), true
		}
	}
	return Metric{}, false
}

// WritePrometheus writes every metric in Prometheus' text format as Envoy's
// /stats/prometheus does: names below "envoy_wasmcustom_", what is not a letter,
// digit or underscore replaced by one.
func (h *Host) WritePrometheus(w io.Writer) error {
	out := bufio.NewWriter(w)
	for _, m := range h.Metrics() {
		name := prometheusName(m.Name)
		fmt.Fprintf(out, "# TYPE %s %s\n", name, m.Type)
		if m.Type != Histogram {
			value := strconv.FormatUint(m.Value, 10)
			if m.Type == Gauge {
				value = strconv.FormatInt(int64(m.Value), 10)
			}
			fmt.Fprintf(out, "%s{} %s\n", name, value)
			continue
		}
		for i, bound := range m.Bounds {
			fmt.Fprintf(out, "%s_bucket{le=\"%s\"} %d\n", name, strconv.FormatFloat(bound, 'g', -1, 64), m.Buckets[i])
		}
		fmt.Fprintf(out, "%s_bucket{le=\"+Inf\"} %d\n%s_sum{} %d\n%s_count{} %d\n", name, m.Count, name, m.Sum, name, m.Count)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	return nil
}

func prometheusName(name string) string {
	return "envoy_wasmcustom_" + strings.Map(func(r rune) rune {
		if r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, name)
}
