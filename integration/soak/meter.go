package main

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// meter takes the time of every callback of a module, by export. It listens to
// the engine, so that callbacks which the host makes by itself (ticks, replies
// of http_call) count too.
type meter struct {
	mu      sync.Mutex
	exports map[string]*times
}

// times are the callbacks of one export so far, in nanoseconds.
type times struct {
	wall, cpu *hdrhistogram.Histogram
}

// longestTracked bounds the histograms; what is longer counts as this long.
const longestTracked = 100 * time.Second

func newTimes() *times {
	return &times{
		wall: hdrhistogram.New(1, int64(longestTracked), 3),
		cpu:  hdrhistogram.New(1, int64(longestTracked), 3),
	}
}

func newMeter() *meter { return &meter{exports: map[string]*times{}} }

// context makes the modules compiled with it metered.
func (m *meter) context(ctx context.Context) context.Context {
	return experimental.WithFunctionListenerFactory(ctx, m)
}

// NewFunctionListener meters the exports that a host calls from outside. The
// allocator is called within those, by a host call.
func (m *meter) NewFunctionListener(def api.FunctionDefinition) experimental.FunctionListener {
	for _, name := range def.ExportNames() {
		if short, ok := strings.CutPrefix(name, "proxy_on_"); ok && short != "memory_allocate" {
			return &listener{meter: m, export: short}
		}
	}
	return nil
}

// take returns the times since the last take.
func (m *meter) take() map[string]*times {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := m.exports
	m.exports = map[string]*times{}
	return taken
}

func (m *meter) record(export string, wall, cpu time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.exports[export]
	if t == nil {
		t = newTimes()
		m.exports[export] = t
	}
	// Within the bounds of the histogram recording cannot fail.
	_ = t.wall.RecordValue(min(int64(wall), int64(longestTracked)))
	_ = t.cpu.RecordValue(min(int64(cpu), int64(longestTracked)))
}

// listener meters one export of one compiled module, which several VMs run.
type listener struct {
	meter  *meter
	export string
	open   sync.Map // api.Module -> started: a VM is in one callback at a time
}

type started struct {
	wall time.Time
	cpu  time.Duration
}

// Before keeps the goroutine on its thread, so that the thread's clock is that
// of the callback.
func (l *listener) Before(_ context.Context, mod api.Module, _ api.FunctionDefinition, _ []uint64, _ experimental.StackIterator) {
	runtime.LockOSThread()
	l.open.Store(mod, started{time.Now(), threadCPU()})
}

// After records the callback.
func (l *listener) After(_ context.Context, mod api.Module, _ api.FunctionDefinition, _ []uint64) {
	cpu := threadCPU()
	value, ok := l.open.LoadAndDelete(mod)
	runtime.UnlockOSThread()
	if s, isStart := value.(started); ok && isStart {
		l.meter.record(l.export, time.Since(s.wall), cpu-s.cpu)
	}
}

// Abort forgets a callback that trapped; the host counts those.
func (l *listener) Abort(_ context.Context, mod api.Module, _ api.FunctionDefinition, _ error) {
	l.open.Delete(mod)
	runtime.UnlockOSThread()
}

// callback is what the report says of one export.
type callback struct {
	Export       string  `json:"export"`
	Count        int64   `json:"count"`
	CPUP50Micros float64 `json:"cpu_p50_us"`
	CPUP99Micros float64 `json:"cpu_p99_us"`
	CPUMaxMicros float64 `json:"cpu_max_us"`
	WallP99      float64 `json:"wall_p99_us"`
	WallMax      float64 `json:"wall_max_us"`
}

func micros(nanos int64) float64 { return float64(nanos) / 1000 }

func summarize(taken map[string]*times) (out []callback) {
	for _, export := range slices.Sorted(maps.Keys(taken)) {
		t := taken[export]
		out = append(out, callback{
			Export: export, Count: t.cpu.TotalCount(),
			CPUP50Micros: micros(t.cpu.ValueAtQuantile(50)), CPUP99Micros: micros(t.cpu.ValueAtQuantile(99)), CPUMaxMicros: micros(t.cpu.Max()),
			WallP99: micros(t.wall.ValueAtQuantile(99)), WallMax: micros(t.wall.Max()),
		})
	}
	return out
}

// longest are the longest times on either clock, in microseconds.
func longest(callbacks []callback) (cpu, wall float64) {
	for _, c := range callbacks {
		cpu, wall = max(cpu, c.CPUMaxMicros), max(wall, c.WallMax)
	}
	return cpu, wall
}
