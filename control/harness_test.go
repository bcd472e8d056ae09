package control

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
)

// engines answers probes in place of real workers, in virtual time.
type engines struct {
	mu      sync.Mutex
	started map[string]uint64 // address -> process start, seconds; absent: refused
	hung    map[string]bool
	more    map[string]string // address -> further lines of its metrics page
	bare    bool              // their pages don't tell the load
	// tokenize answers POST /tokenize with a status and a body; nil: 404.
	tokenize func(address string, body []byte) (int, any)
	// models answers GET /v1/models; nil: 404.
	models func(address string) (int, any)
}

func newEngines(addresses ...string) *engines {
	e := &engines{started: map[string]uint64{}, hung: map[string]bool{}}
	for i, a := range addresses {
		e.started[a] = uint64(1000 + i)
	}
	return e
}

func (e *engines) set(address string, started uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.started[address] = started
}

// generation is what discovery makes of the start time.
func (e *engines) generation(address string) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.started[address] * 1000
}

// measure adds lines to what an engine's metrics page says.
func (e *engines) measure(address, lines string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.more == nil {
		e.more = map[string]string{}
	}
	e.more[address] = lines
}

func (e *engines) hang(address string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hung[address] = true
}

func (e *engines) RoundTrip(r *http.Request) (*http.Response, error) {
	e.mu.Lock()
	started, ok := e.started[r.URL.Host]
	hung, more, bare := e.hung[r.URL.Host], e.more[r.URL.Host], e.bare
	e.mu.Unlock()
	if hung {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	if !ok {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	if r.URL.Path == "/tokenize" || r.URL.Path == "/v1/models" {
		return e.ask(r)
	}
	body := "ok"
	if r.URL.Path == "/metrics" {
		body = fmt.Sprintf("process_start_time_seconds %d\nvllm:num_requests_running 0\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc 0\n", started) + more
	}
	if r.URL.Path == "/metrics" && bare {
		body = fmt.Sprintf("process_start_time_seconds %d\n", started)
	}
	return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(body)), Header: http.Header{}, Request: r}, nil
}

// ask answers what the parity probe asks.
func (e *engines) ask(r *http.Request) (*http.Response, error) {
	status, answer := http.StatusNotFound, any(map[string]string{"detail": "Not Found"})
	e.mu.Lock()
	tokenize, models := e.tokenize, e.models
	e.mu.Unlock()
	if models != nil && r.URL.Path == "/v1/models" {
		status, answer = models(r.URL.Host)
	}
	if tokenize != nil && r.URL.Path == "/tokenize" {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		status, answer = tokenize(r.URL.Host, body)
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(bytes.NewReader(text)), Header: http.Header{}, Request: r}, nil
}

// memory is a listener whose connections are pipes: nothing in it keeps virtual
// time from passing.
type memory struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newMemory() *memory { return &memory{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.closed:
		return nil, net.ErrClosed
	}
}
func (m *memory) Close() error   { m.once.Do(func() { close(m.closed) }); return nil }
func (m *memory) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8780} }
func (m *memory) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case m.conns <- server:
		return client, nil
	case <-m.closed:
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// bench is a running service and a gateway's view of it.
type bench struct {
	t       *testing.T
	s       *Service
	client  *http.Client
	cancel  context.CancelFunc
	done    chan error
	engines *engines
	token   string
	ended   bool
}

// start runs a service on cfg inside a synctest bubble.
func start(t *testing.T, e *engines, cfg Config) *bench {
	t.Helper()
	return startPrepared(t, e, cfg, func(*Service) {})
}

// startPrepared has prepare change the service before it runs.
func startPrepared(t *testing.T, e *engines, cfg Config, prepare func(*Service)) *bench {
	t.Helper()
	ln := newMemory()
	cfg.Listener, cfg.Transport = ln, e
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	prepare(s)
	ctx, cancel := context.WithCancel(t.Context())
	transport := &http.Transport{DialContext: ln.DialContext}
	b := &bench{t: t, s: s, client: &http.Client{Transport: transport}, cancel: cancel, done: make(chan error, 1), engines: e, token: cfg.Token}
	go func() { b.done <- s.Run(ctx) }()
	t.Cleanup(b.stop)
	return b
}

// serve runs a service on a real address, in real time.
func serve(t *testing.T, e *engines, cfg Config) *bench {
	t.Helper()
	cfg.Transport = e
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", s.Addr())
	}}
	ctx, cancel := context.WithCancel(t.Context())
	b := &bench{t: t, s: s, client: &http.Client{Transport: transport}, cancel: cancel, done: make(chan error, 1), engines: e, token: cfg.Token}
	go func() { b.done <- s.Run(ctx) }()
	t.Cleanup(b.stop)
	return b
}

func (b *bench) stop() {
	if b.ended {
		return
	}
	b.ended = true
	b.cancel()
	if err := <-b.done; err != nil {
		b.t.Errorf("Run: %v", err)
	}
	b.client.CloseIdleConnections()
}

func (b *bench) do(method, path string, body []byte, contentType string) (int, []byte) {
	b.t.Helper()
	req, err := http.NewRequest(method, "http://control"+path, bytes.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if b.token != "" {
		req.Header.Set("Authorization", "Bearer "+b.token)
	}
	resp, err := b.client.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp.StatusCode, out
}

// gateway is a courier without a proxy around it: it keeps the pages that
// frames give it.
type gateway struct {
	b              *bench
	name           string
	nonce          uint64
	epoch, version uint64
	entries        map[uint64]table.Entry
	roster         map[uint16]wire.Worker
	loads          map[uint16]wire.Load
	caches         map[uint16]wire.Cache
	policy, exact  string
	ready          []wire.Ready // sent with every batch
	makes          bool         // it says that it makes copies
	homes          map[uint64][]uint16
	copies         []wire.Copy
	sets           []byte
	off            bool
	kept, resynced int
	fetched        int
	sequence       uint64
	counter        uint64
}

func (b *bench) gateway(name string) *gateway {
	return &gateway{b: b, name: name, nonce: fingerprint.Hash(name), entries: map[uint64]table.Entry{}}
}

// serving is start with a gateway that has the first table.
func serving(t *testing.T, e *engines, cfg Config) (*bench, *gateway) {
	t.Helper()
	b := start(t, e, cfg)
	<-b.s.Ready()
	g := b.gateway("g")
	g.catchUp()
	return b, g
}

// poll asks once and applies the frame; false when there was nothing.
func (g *gateway) poll(wait time.Duration) bool {
	t := g.b.t
	t.Helper()
	status, frame := g.b.do("GET", fmt.Sprintf("/v1/table?epoch=%d&version=%d&wait_ms=%d", g.epoch, g.version, wait.Milliseconds()), nil, "")
	if status == http.StatusNoContent {
		return false
	}
	if status != http.StatusOK {
		t.Fatalf("table: %d %s", status, frame)
	}
	if len(frame) > wire.MaxBody {
		t.Fatalf("frame of %d bytes", len(frame))
	}
	h, err := wire.DecodeHeader(frame)
	if err != nil {
		t.Fatal(err)
	}
	if h.Kind != wire.Update || !h.Resync() && h.From != g.version {
		t.Fatalf("header %+v at version %d", h, g.version)
	}
	keep := h.KeepPages()
	g.off = h.Off()
	var digests []uint64
	var geometry wire.Geometry
	err = wire.ForEachSection(frame, func(s wire.Section) error {
		switch s.Type {
		case wire.SectionGeometry:
			var err error
			geometry, err = wire.DecodeGeometry(s.Payload)
			return err
		case wire.SectionRoster:
			g.roster = map[uint16]wire.Worker{}
			return wire.ForEachWorker(s.Payload, func(w *wire.Worker) error {
				copied := *w
				copied.Address = bytes.Clone(w.Address)
				g.roster[w.Ref] = copied
				return nil
			})
		case wire.SectionLoads:
			g.loads, g.homes, g.copies = map[uint16]wire.Load{}, map[uint64][]uint16{}, nil
			return wire.ForEachLoad(s.Payload, func(l *wire.Load) error { g.loads[l.Ref] = *l; return nil })
		case wire.SectionCaches:
			g.caches = map[uint16]wire.Cache{}
			return wire.ForEachCache(s.Payload, func(c *wire.Cache) error { g.caches[c.Ref] = *c; return nil })
		case wire.SectionHomes:
			return wire.ForEachHome(s.Payload, func(h *wire.Home) error {
				h.Refs(func(ref uint16) { g.homes[h.Fingerprint] = append(g.homes[h.Fingerprint], ref) })
				return nil
			})
		case wire.SectionCopies:
			return wire.ForEachCopy(s.Payload, func(c *wire.Copy) error { g.copies = append(g.copies, *c); return nil })
		case wire.SectionPolicy:
			g.policy, g.exact = string(s.Payload), ""
		case wire.SectionExact:
			g.exact = string(s.Payload)
		case wire.SectionSets:
			g.sets = bytes.Clone(s.Payload)
		case wire.SectionPuts:
			return wire.ForEachPut(s.Payload, func(e *table.Entry) error { g.entries[e.Fingerprint] = *e; return nil })
		case wire.SectionRemoves:
			return wire.ForEachRemove(s.Payload, func(f uint64) error { delete(g.entries, f); return nil })
		case wire.SectionDigests:
			return wire.ForEachDigest(s.Payload, func(_ int, d uint64) error { digests = append(digests, d); return nil })
		default:
			return fmt.Errorf("section %d in an update", s.Type)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if h.Resync() {
		g.resynced++
		if keep {
			g.kept++
		} else {
			g.resync(h.Epoch, geometry, digests)
		}
	}
	g.epoch, g.version = h.Epoch, h.To
	return true
}

func (g *gateway) resync(epoch uint64, geometry wire.Geometry, digests []uint64) {
	t := g.b.t
	t.Helper()
	if len(digests) != table.Ranges(geometry.Bits) {
		t.Fatalf("%d digests for %d bits", len(digests), geometry.Bits)
	}
	own := make([]uint64, len(digests))
	rangeOf := func(f uint64) int { return table.RangeOf(table.PageIndex(f, geometry.Bits)) }
	for _, e := range g.entries {
		own[rangeOf(e.Fingerprint)] ^= table.EntryDigest(&e)
	}
	for r := range digests {
		if own[r] == digests[r] {
			continue
		}
		g.fetched++
		for f := range g.entries {
			if rangeOf(f) == r {
				delete(g.entries, f)
			}
		}
		status, frame := g.b.do("GET", fmt.Sprintf("/v1/table/pages?epoch=%d&bits=%d&range=%d", epoch, geometry.Bits, r), nil, "")
		if status != http.StatusOK {
			t.Fatalf("pages: %d %s", status, frame)
		}
		err := wire.ForEachSection(frame, func(s wire.Section) error {
			return wire.ForEachPage(s.Payload, func(p table.Page) error {
				for i := range p.Count() {
					e := p.At(i)
					g.entries[e.Fingerprint] = e
				}
				return nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// catchUp polls until nothing is new.
func (g *gateway) catchUp() {
	for g.poll(0) {
	}
}

// send posts reports as one chunk and checks that it is acknowledged.
func (g *gateway) send(inFlight []wire.InFlight, records ...[]byte) {
	t := g.b.t
	t.Helper()
	g.sequence++
	frame := g.frame(inFlight, records...)
	status, ack := g.b.do("POST", "/v1/batch", frame, "application/octet-stream")
	if status != http.StatusOK {
		t.Fatalf("batch: %d %s", status, ack)
	}
	acked := 0
	err := wire.ForEachSection(ack, func(s wire.Section) error {
		if s.Type != wire.SectionAcked {
			return nil
		}
		return wire.ForEachAcked(s.Payload, func(a wire.Acked) error {
			if a.Sequence == g.sequence && a.Nonce == g.nonce {
				acked++
			}
			return nil
		})
	})
	if err != nil || acked != 1 {
		t.Fatalf("acked %d: %v", acked, err)
	}
}

func (g *gateway) frame(inFlight []wire.InFlight, records ...[]byte) []byte {
	chunk := wire.AppendChunk(nil, wire.Chunk{Sequence: g.sequence, Nonce: g.nonce})
	for _, r := range records {
		chunk = append(chunk, r...)
	}
	frame := wire.AppendHeader(nil, &wire.Header{Kind: wire.Batch, Epoch: g.epoch, From: g.version, To: g.version})
	frame = wire.AppendSection(frame, wire.SectionGateway, wire.AppendGateway(nil, &wire.Gateway{Nonce: g.nonce, Epoch: g.epoch, Version: g.version, LiveRows: 1, Name: g.name, Copies: g.makes}))
	var flights []byte
	for _, f := range inFlight {
		flights = wire.AppendInFlight(flights, f)
	}
	frame = wire.AppendSection(frame, wire.SectionInFlight, flights)
	if g.ready != nil {
		var ready []byte
		for _, r := range g.ready {
			ready = wire.AppendReady(ready, r)
		}
		frame = wire.AppendSection(frame, wire.SectionReady, ready)
	}
	return wire.AppendReports(frame, 0, chunk)
}

// prompt returns the checkpoints of a text of n units that starts like every
// other text with the same words before the difference.
func prompt(parts ...string) []fingerprint.Checkpoint {
	var c fingerprint.Chain
	c.Reset(fingerprint.Salt("default", "", 0, "", fingerprint.Approximate))
	for _, p := range parts {
		c.Write(bytes.Repeat([]byte(p), 64*64/len(p)))
		c.TurnEnd()
	}
	return append([]fingerprint.Checkpoint(nil), c.Finish()...)
}

// dispatch reports a request; done settles it.
func (g *gateway) dispatch(ref uint16, path []fingerprint.Checkpoint) (id uint64, record []byte) {
	g.counter++
	id = wire.ReportID(0, g.counter)
	units := path[len(path)-1].End
	return id, wire.AppendDispatch(nil, &wire.Report{Chosen: ref, ID: id, PromptUnits: units}, path)
}

func done(id uint64, chosen, served uint16, change func(*wire.Report)) []byte {
	r := &wire.Report{
		Chosen: chosen, Served: served, ID: id, Status: 200, Outcome: wire.Complete, Attempts: 1,
		CachedTokens: 0, PromptTokens: wire.UnknownTokens, OutputTokens: wire.UnknownTokens, TTFTMillis: 100, TotalMillis: 200,
	}
	if change != nil {
		change(r)
	}
	return wire.AppendDone(nil, r)
}

// refOf finds a worker's ref in the gateway's roster.
func (g *gateway) refOf(address string) uint16 {
	for ref, w := range g.roster {
		if string(w.Address) == address {
			return ref
		}
	}
	return 0
}

func (g *gateway) holders(f uint64) []uint16 {
	var out []uint16
	e := g.entries[f]
	for _, r := range e.Refs {
		if r != 0 {
			out = append(out, r)
		}
	}
	return out
}

func specs(addresses ...string) []discovery.Spec {
	out := make([]discovery.Spec, len(addresses))
	for i, a := range addresses {
		out[i] = discovery.Spec{Address: a, CapacityTokens: 100_000, MaxRunning: 8, QueueLimit: 16}
	}
	return out
}

// bubble runs f in virtual time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func decode(t *testing.T, b []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
}
