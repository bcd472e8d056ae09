//go:build !wasm

package abi

import (
	"maps"
	"slices"
	"time"
)

// Fake is a host in memory for native builds: what a filter's unit tests set
// up, and what they find afterwards. It holds one stream and does nothing by
// itself: no ticks, no buffering, no threads. Tests of behaviour in time belong
// to package hostsim.
type Fake struct {
	Clock    int64 // what Now answers, unix ns
	MinLevel LogLevel

	Headers    map[MapType][][2]string
	Buffers    map[BufferType][]byte
	Properties map[string][]byte // by path, segments joined by "\x00"
	Shared     map[string]FakeShared
	Queues     map[uint32]*FakeQueue
	Metrics    map[string]*FakeMetric
	Foreign    map[string]func(arguments []byte) ([]byte, Status)

	// CallStatusCode and CallStatusMessage are what CallStatus answers.
	CallStatusCode    uint32
	CallStatusMessage string

	// Refuse answers a host call of that name ("proxy_http_call") with a status.
	Refuse map[string]Status

	Logs             []FakeLog
	LocalResponses   []FakeLocalResponse
	HTTPCalls        []FakeHTTPCall
	GRPC             []FakeGRPC
	Continued        []StreamType
	Closed           []StreamType
	TickPeriod       time.Duration
	EffectiveContext uint32
	DoneCalls        int

	lastID  uint32
	lastCAS uint32
	defined []*FakeMetric // by metric id
}

// FakeShared is a value of the shared store.
type FakeShared struct {
	Value []byte
	CAS   uint32
}

// FakeQueue is a shared queue. The fake has one vm_id, "".
type FakeQueue struct {
	Name     string
	Messages [][]byte
}

// FakeMetric is a defined metric.
type FakeMetric struct {
	Kind    MetricKind
	Value   uint64   // of a counter or gauge
	Samples []uint64 // of a histogram
}

// FakeLog is a line the filter logged.
type FakeLog struct {
	Level   LogLevel
	Message string
}

// FakeLocalResponse is an answer the filter gave by itself.
type FakeLocalResponse struct {
	Status     int
	Details    string
	Headers    [][2]string
	Body       string
	GRPCStatus int32
}

// FakeHTTPCall is a call the filter started. Answer it by OnHTTPCallResponse.
type FakeHTTPCall struct {
	ID       uint32
	Cluster  string
	Headers  [][2]string
	Body     []byte
	Trailers [][2]string
	Timeout  time.Duration
}

// FakeGRPC is one gRPC host call: proxy_grpc_call, _stream, _send, _cancel or
// _close.
type FakeGRPC struct {
	Call                     string
	ID                       uint32
	Cluster, Service, Method string
	Metadata                 [][2]string
	Message                  []byte
	End                      bool
	Timeout                  time.Duration
}

// NewFake is a host with nothing in it.
func NewFake() *Fake {
	return &Fake{
		Headers:    map[MapType][][2]string{},
		Buffers:    map[BufferType][]byte{},
		Properties: map[string][]byte{},
		Shared:     map[string]FakeShared{},
		Queues:     map[uint32]*FakeQueue{},
		Metrics:    map[string]*FakeMetric{},
		Foreign:    map[string]func([]byte) ([]byte, Status){},
		Refuse:     map[string]Status{},
	}
}

// fake is the host that calls go to.
var fake *Fake

// UseFake makes f the host until restore is called, and counts panics from 0, as
// in a new VM. Calls nest: restore brings the host before back, so that a test
// can play several VMs. Like a VM, all of it belongs to one goroutine.
func UseFake(f *Fake) (restore func()) {
	before := fake
	release := func() {}
	if before == nil {
		release = sdkRegisterHost(bridge{}) // holds a lock of the SDK until released
	}
	fake = f
	panics, panicsByName = 0, nil
	return func() {
		fake = before
		release()
	}
}

// host is the fake, or a panic with the remedy.
func host() *Fake {
	if fake == nil {
		panic("abi: no host in a native build; call abi.UseFake(abi.NewFake()) first")
	}
	return fake
}

// refused tells whether the test wants that call to fail, and how.
func (f *Fake) refused(call string) (Status, bool) {
	st, ok := f.Refuse[call]
	return st, ok
}

func (f *Fake) nextID() uint32 {
	f.lastID++
	return f.lastID
}

func (f *Fake) queueByName(name string) (uint32, bool) {
	for _, id := range slices.Sorted(maps.Keys(f.Queues)) {
		if f.Queues[id].Name == name {
			return id, true
		}
	}
	return 0, false
}

func (f *Fake) metric(id uint32) *FakeMetric {
	if id == 0 || int(id) > len(f.defined) {
		return nil
	}
	return f.defined[id-1]
}

// deliver hands a result over as a host does: through allocate.
func deliver(value string, data, size *word) Status {
	if value == "" {
		*data, *size = 0, 0
		return OK
	}
	p := allocate(uint32(len(value)))
	copy(recent[(recentNext-1)%uint(len(recent))], value)
	*data, *size = word(uintptr(p)), word(len(value))
	return OK
}

// pairsOf reads back what AppendPairs wrote.
func pairsOf(serialized string) [][2]string {
	p, st := parsePairs([]byte(serialized))
	if st != OK {
		panic("abi: malformed header map from the filter: " + st.String())
	}
	pairs := make([][2]string, 0, p.Len())
	for {
		key, value, ok := p.Next()
		if !ok {
			return pairs
		}
		pairs = append(pairs, [2]string{string(key), string(value)})
	}
}
