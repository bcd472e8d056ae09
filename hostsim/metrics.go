package hostsim

import "io"

// MetricType is the kind of a metric.
type MetricType uint32

// The metric types of the ABI.
const (
	Counter MetricType = iota
	Gauge
	Histogram
)

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

type metricStore struct{}

func (m *metricStore) init() {}

// Metrics returns every metric, sorted by name.
func (h *Host) Metrics() []Metric { return nil }

// Metric returns one metric by the name the module gave it.
func (h *Host) Metric(name string) (Metric, bool) { return Metric{}, false }

// WritePrometheus writes every metric in Prometheus' text format as Envoy's
// /stats/prometheus does: names below "envoy_wasmcustom_", what is not a letter,
// digit or underscore replaced by one.
func (h *Host) WritePrometheus(w io.Writer) error { return nil }
