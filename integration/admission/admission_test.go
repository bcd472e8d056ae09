//go:build admission

package admission

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmpath/warmpath/control"
	"github.com/warmpath/warmpath/control/discovery"
)

const (
	slots       = 100
	tenantLimit = 3
	policyText  = `
pools:
- {name: default, index: 0, models: ["*"], mode: enforce, policy: {name: least_load}}
admission:
  identity: {tenant_header: x-tenant-id}
  tenants: {small: {concurrency: 3}}
  pools: {default: {slots: 100, prefill_ms: 0}}
  classes: {p1: {queue: {requests: 1000, bytes: 100000000, deadline_ms: 60000}}}
`
)

// floor is the workers together: who is there now, and what was the most.
type floor struct {
	mu          sync.Mutex
	now, small  int
	most, mostS int
	area        float64 // requests x seconds
	changed     time.Time
	served      int
	factor      float64
}

func (f *floor) change(n int, tenant string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := time.Now()
	f.area += float64(f.now) * at.Sub(f.changed).Seconds()
	f.changed = at
	f.now += n
	if tenant == "small" {
		f.small += n
	}
	f.most, f.mostS = max(f.most, f.now), max(f.mostS, f.small)
	if n > 0 {
		f.served++
	}
}

// mark begins to measure anew.
func (f *floor) mark() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.area, f.changed, f.served, f.most, f.mostS = 0, time.Now(), 0, f.now, f.small
}

// used is how many requests have been there for how long, in request-seconds, and
// how many have come.
func (f *floor) used() (area float64, served int) {
	f.change(0, "")
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.area, f.served
}

// ServeHTTP is a worker. Request times are lognormal: mean 2 s, sigma 1, sped up.
func (f *floor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		return // health
	}
	tenant := r.Header.Get("x-tenant-id")
	_, _ = io.Copy(io.Discard, r.Body)
	f.change(1, tenant)
	if long, err := time.ParseDuration(r.Header.Get(streamHeader)); err == nil {
		stream(w, r, long)
		f.change(-1, tenant)
		return
	}
	seconds := math.Exp(math.Log(2)-0.5+rand.NormFloat64()) / f.factor
	select {
	case <-time.After(time.Duration(seconds * float64(time.Second))):
	case <-r.Context().Done():
	}
	f.change(-1, tenant)
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"choices":[],"usage":{"prompt_tokens":50,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":0}}}`)
}

// worker is one of the floor's.
type worker struct {
	*floor
	now atomic.Int64
}

// ServeHTTP tells how many requests it has, where -counts is given.
func (w *worker) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodPost:
		w.now.Add(1)
		defer w.now.Add(-1)
	case *counts && r.URL.Path == "/metrics":
		fmt.Fprintf(rw, "vllm:num_requests_running %d\nvllm:num_requests_waiting 0\n", w.now.Load())
	}
	w.floor.ServeHTTP(rw, r)
}

// fleet is everything that runs.
type fleet struct {
	t        *testing.T
	floor    *floor
	gateways []process
	client   *http.Client
}

// startWorkers runs the workers until the test ends.
func startWorkers(t *testing.T, factor float64) (f *floor, specs []discovery.Spec, addresses []string) {
	t.Helper()
	f = &floor{factor: factor, changed: time.Now()}
	for range 8 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: &worker{floor: f}}
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(func() { _ = server.Close() })
		addresses = append(addresses, listener.Addr().String())
		specs = append(specs, discovery.Spec{
			Address: listener.Addr().String(), Pool: "default", MaxRunning: 64, QueueLimit: 1000, CapacityTokens: 1 << 20, BlockTokens: 16,
			PrefillTokensPerSecond: 1_000_000,
		})
	}
	return f, specs, addresses
}

// newFleet has one control service.
func newFleet(t *testing.T) *fleet {
	t.Helper()
	floor, specs, addresses := startWorkers(t, *scale)
	service, err := control.New(control.Config{Listen: "127.0.0.1:0", Token: token, Workers: specs, Policy: []byte(policyText)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- service.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	<-service.Ready()
	return join(t, floor, func(int) []string { return []string{service.URL()} }, addresses)
}

// join starts the gateways, and returns once they have leases.
func join(t *testing.T, workers *floor, control func(gateway int) []string, addresses []string) *fleet {
	t.Helper()
	f := &fleet{t: t, floor: workers, gateways: start(t, control, addresses)}
	f.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 400}, Timeout: 2 * time.Minute}
	t.Cleanup(f.client.CloseIdleConnections)
	f.leased()
	return f
}

// leased returns once every gateway admits by a lease of control's.
func (f *fleet) leased() {
	f.t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for _, g := range f.gateways {
		for f.metric(g, "warmpath_admission_level") == 0 || f.metric(g, "warmpath_leases_installed") < 4 {
			_, _ = f.send(context.Background(), g, "", 0)
			if time.Now().After(deadline) {
				f.t.Fatalf("%s has no lease: level %v, %v leases came, %v batches failed", g.url,
					f.metric(g, "warmpath_admission_level"), f.metric(g, "warmpath_leases_installed"), f.metric(g, "warmpath_batch_failures"))
			}
			<-time.After(100 * time.Millisecond)
		}
	}
	f.idle()
}

// metric is the sum of a gateway's metrics whose names begin so.
func (f *fleet) metric(g process, prefix string) (sum float64) {
	resp, err := f.client.Get(g.admin + "/metrics")
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.HasPrefix(name, prefix) {
			n, _ := strconv.ParseFloat(value, 64)
			sum += n
		}
	}
	return sum
}

func (f *fleet) total(prefix string) (sum float64) {
	for _, g := range f.gateways {
		sum += f.metric(g, prefix)
	}
	return sum
}

// streamHeader asks a worker for a stream of that length.
const streamHeader = "x-stream"

// stream is an answer that takes long.
func stream(w http.ResponseWriter, r *http.Request, long time.Duration) {
	w.Header().Set("Content-Type", "text/event-stream")
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(long); ; {
		select {
		case <-tick.C:
			_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n")
			_ = http.NewResponseController(w).Flush()
		case <-end:
			_, _ = io.WriteString(w, "data: [DONE]\n\n")
			return
		case <-r.Context().Done():
			return
		}
	}
}

// send is one request of a tenant with about so many bytes.
func (f *fleet) send(ctx context.Context, g process, tenant string, padding int, header ...string) (status int, err error) {
	body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"%d%s"}]}`, rand.Uint64(), strings.Repeat(" word", padding/5))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url+"/v1/chat/completions", bytes.NewReader([]byte(body)))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Tenant-Id", tenant)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// crowd lets so many clients send n requests in all, each to any gateway.
func (f *fleet) crowd(clients, n int, one func(i int, g process)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for i := int(next.Add(1)); i <= n; i = int(next.Add(1)) {
				one(i, f.gateways[rand.IntN(len(f.gateways))])
			}
		})
	}
	all.Wait()
}

// idle waits until no gateway has anything in use or waiting, and control has
// heard of it.
func (f *fleet) idle() {
	f.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		inUse, waiting := f.total("warmpath_slots_in_use"), f.total("warmpath_queue_waiting")
		if inUse == 0 && waiting == 0 {
			return
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("%v slots are in use and %v requests wait, though nothing is under way", inUse, waiting)
		}
		<-time.After(200 * time.Millisecond)
	}
}

// TestAHundredSlotsOverSixteenVMsAreNeverExceeded keeps twice as many clients
// busy as there are slots.
func TestAHundredSlotsOverSixteenVMsAreNeverExceeded(t *testing.T) {
	f := newFleet(t)
	var refused, failed atomic.Int64
	f.floor.mark()
	began, took, used, served := time.Now(), 0.0, 0.0, 0
	f.crowd(2*slots, *requests, func(i int, g process) {
		if i == *requests-2*slots { // from here on there is not enough to do for all slots
			took = time.Since(began).Seconds()
			used, served = f.floor.used()
		}
		switch status, err := f.send(context.Background(), g, "", 200); {
		case err != nil:
			failed.Add(1)
		case status != http.StatusOK:
			refused.Add(1)
		}
	})
	t.Logf("%d requests, %.1f s of demand, %d refused, %d failed; at most %d at the workers; %.1f %% of the slots in use; a slot stood empty for %.1f ms between two requests; %v waits, %v wake-ups, %v races at cells",
		*requests, took, refused.Load(), failed.Load(), f.floor.most, 100*used/took/slots, 1000*(slots*took-used)/float64(max(1, served)),
		f.total("warmpath_queue_wait_ms_count"), f.total("warmpath_queue_wakes"), f.total("warmpath_cell_races"))
	if f.floor.most > slots {
		t.Errorf("%d requests at the workers at once, the limit is %d", f.floor.most, slots)
	}
	if f.floor.most < slots*8/10 {
		t.Errorf("only %d requests at once: the limit was never near", f.floor.most)
	}
	if failed.Load() > 0 {
		t.Errorf("%d requests failed", failed.Load())
	}
	f.idle()
}

// TestATenantsLimitOfThreeHoldsOverSixteenVMs: its requests come to all gateways
// at once, among others'.
func TestATenantsLimitOfThreeHoldsOverSixteenVMs(t *testing.T) {
	f := newFleet(t)
	f.floor.mark()
	var served, refused, failed, others atomic.Int64
	n := *requests / 5
	f.crowd(32, n, func(i int, g process) {
		tenant := "small"
		if i%4 == 0 {
			tenant = "other"
		}
		status, err := f.send(context.Background(), g, tenant, 200)
		switch {
		case err != nil || status != http.StatusOK && tenant == "other":
			failed.Add(1)
		case tenant == "other":
			others.Add(1)
		case status == http.StatusOK:
			served.Add(1)
		default:
			refused.Add(1)
		}
	})
	t.Logf("%d requests: %d of the tenant's served and %d refused, %d of others served, %d failed; at most %d of the tenant's at the workers; %v slots of VMs taken for dead",
		n, served.Load(), refused.Load(), others.Load(), failed.Load(), f.floor.mostS, f.total("warmpath_slots_orphaned"))
	if f.floor.mostS > tenantLimit {
		t.Errorf("%d requests of the tenant's at once, its limit is %d", f.floor.mostS, tenantLimit)
	}
	if served.Load() == 0 || f.floor.mostS < tenantLimit || failed.Load() > 0 {
		t.Errorf("%d served, at most %d at once, %d failed", served.Load(), f.floor.mostS, failed.Load())
	}
	f.idle()
}

// TestGatewaysThatStandStillGoOverNoLimit: one after the other gets no CPU for
// longer than its VMs' rows and its lease live.
func TestGatewaysThatStandStillGoOverNoLimit(t *testing.T) {
	f := newFleet(t)
	f.floor.mark()
	stop, stopped := make(chan struct{}), make(chan int)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				stopped <- n
				return
			case <-time.After(200 * time.Millisecond):
			}
			if err := f.gateways[rand.IntN(len(f.gateways))].pause(time.Duration(1300+rand.IntN(2500)) * time.Millisecond); err != nil {
				t.Error(err)
			}
		}
	}()
	var failed atomic.Int64
	f.crowd(3*slots, *requests/4, func(i int, g process) {
		tenant := "small"
		if i%4 > 0 {
			tenant = "other"
		}
		switch status, err := f.send(context.Background(), g, tenant, 200); {
		case err != nil, status != http.StatusOK && tenant == "other":
			failed.Add(1)
		}
	})
	close(stop)
	dead := f.total("warmpath_slots_orphaned")
	t.Logf("%d requests while gateways stood still %d times, %d failed; at most %d at the workers, %d of the tenant's; %v slots of VMs taken for dead",
		*requests/4, <-stopped, failed.Load(), f.floor.most, f.floor.mostS, dead)
	if f.floor.most > slots || f.floor.mostS > tenantLimit {
		t.Errorf("%d at the workers at once with a limit of %d, %d of the tenant's with %d", f.floor.most, slots, f.floor.mostS, tenantLimit)
	}
	if failed.Load() > 0 || f.floor.mostS < tenantLimit || dead > 0 {
		t.Errorf("%d failed; at most %d of the tenant's at once; %v slots were taken away", failed.Load(), f.floor.mostS, dead)
	}
	f.idle()
}

// TestAbortsInEveryPhaseLeaveNothing: clients leave while they send, wait, or
// are answered.
func TestAbortsInEveryPhaseLeaveNothing(t *testing.T) {
	f := newFleet(t)
	f.floor.mark()
	var left, ended atomic.Int64
	f.crowd(300, *aborts, func(i int, g process) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(int(400*float64(time.Millisecond)*10 / *scale)))+1)
		defer cancel()
		tenant := ""
		if i%3 == 0 {
			tenant = "small"
		}
		if _, err := f.send(ctx, g, tenant, rand.IntN(20_000)); errors.Is(err, context.DeadlineExceeded) {
			left.Add(1)
		} else {
			ended.Add(1)
		}
	})
	t.Logf("%d clients left, %d got an answer; %v left the queue", left.Load(), ended.Load(), f.total("warmpath_queue_aborted"))
	if left.Load() < int64(*aborts)/4 || f.total("warmpath_queue_aborted") == 0 {
		t.Errorf("only %d clients left: the test tests nothing", left.Load())
	}
	f.idle()
	if n := f.total("warmpath_dispatched") - f.total("warmpath_released"); n != 0 {
		t.Errorf("%v requests are still booked at workers", n)
	}
	if n := f.total("warmpath_panics"); n != 0 {
		t.Errorf("%v panics", n)
	}
	f.floor.mark()
	f.crowd(slots, slots, func(_ int, g process) {
		if status, err := f.send(context.Background(), g, "", 200); err != nil || status != http.StatusOK {
			t.Errorf("afterwards: status %d, %v", status, err)
		}
	})
	f.idle()
}
