package guard

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// fickle is an engine in virtual time that takes its time for everything, and
// sometimes fails.
type fickle struct {
	mu      sync.Mutex
	running int
	most    int
}

func (e *fickle) RoundTrip(r *http.Request) (*http.Response, error) {
	if rand.IntN(50) == 0 {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	e.mu.Lock()
	e.running++
	e.most = max(e.most, e.running)
	e.mu.Unlock()
	leave := sync.OnceFunc(func() {
		e.mu.Lock()
		e.running--
		e.mu.Unlock()
	})
	if r.Body != nil {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			leave()
			return nil, err
		}
	}
	if err := pause(r.Context(), time.Duration(rand.IntN(200))*time.Millisecond); err != nil || rand.IntN(20) == 0 {
		leave()
		return nil, io.ErrUnexpectedEOF
	}
	h := http.Header{"Content-Type": {"text/event-stream"}}
	if rand.IntN(2) == 0 {
		h.Set("Content-Type", "application/json")
	}
	return &http.Response{StatusCode: 200, Header: h, ContentLength: -1, Request: r, Body: &pieces{ctx: r.Context(), left: rand.IntN(5), leave: leave}}, nil
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pieces is an answer of the fickle engine.
type pieces struct {
	ctx   context.Context
	left  int
	leave func()
}

func (b *pieces) Read(p []byte) (int, error) {
	if err := pause(b.ctx, time.Duration(rand.IntN(100))*time.Millisecond); err != nil {
		return 0, err
	}
	switch {
	case rand.IntN(20) == 0:
		return 0, io.ErrUnexpectedEOF
	case b.left == 0:
		return 0, io.EOF
	}
	b.left--
	return copy(p, "data: token\n\n"), nil
}

func (b *pieces) Close() error { b.leave(); return nil }

// drip is a request body that comes slowly, and breaks off when its client leaves.
type drip struct {
	ctx  context.Context
	left int
}

func (b *drip) Read(p []byte) (int, error) {
	if err := pause(b.ctx, time.Duration(rand.IntN(40))*time.Millisecond); err != nil {
		return 0, err
	}
	if b.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), b.left, 1+rand.IntN(8_000))
	b.left -= n
	return n, nil
}

func (b *drip) Close() error { return nil }

// patient is a client's side of a response; deadlines end nothing in a drip, whose
// context does.
type patient struct {
	*httptest.ResponseRecorder
	cancel context.CancelFunc
}

func (w *patient) SetReadDeadline(time.Time) error { w.cancel(); return nil }

// A hundred thousand clients leave in every phase: in the middle of their bodies, in
// the queue, before the answer, within it, or not at all. Nothing is left of them.
func TestAHundredThousandAbortsLeaveNothing(t *testing.T) {
	const requests, crowd = aborts, 160
	synctest.Test(t, func(t *testing.T) {
		engine := &fickle{}
		limits := Limits{MaxRunning: 64, EngineQueue: 4, QueueRequests: 150, QueueBytes: 4 << 20}
		for c := range limits.QueueWait {
			limits.QueueWait[c] = time.Duration(100+200*c) * time.Millisecond
		}
		g, err := New(Config{Engine: "http://engine", Transport: engine, Limits: limits, ClassHeader: "X-Class", TenantHeader: "X-Tenant"})
		if err != nil {
			t.Fatal(err)
		}
		ends := map[int]int{}
		var mu sync.Mutex
		var clients sync.WaitGroup
		for range crowd {
			clients.Go(func() {
				for range requests / crowd {
					ctx, cancel := context.WithCancel(t.Context())
					if rand.IntN(5) > 0 {
						leave := time.AfterFunc(time.Duration(rand.IntN(500))*time.Millisecond, cancel)
						defer leave.Stop()
					}
					body, stop := context.WithCancel(ctx)
					r := httptest.NewRequestWithContext(ctx, http.MethodPost, chat, nil)
					size := rand.IntN(10_000)
					r.Body, r.ContentLength = &drip{body, size}, int64(size)
					if rand.IntN(3) == 0 {
						r.ContentLength = -1
					}
					r.Header.Set("X-Class", classNames[rand.IntN(classes)])
					r.Header.Set("X-Tenant", classNames[rand.IntN(classes)])
					w := &patient{httptest.NewRecorder(), stop}
					func() {
						defer func() { _ = recover() }() // http.ErrAbortHandler
						g.ServeHTTP(w, r)
					}()
					stop()
					cancel()
					mu.Lock()
					ends[w.Code]++
					mu.Unlock()
				}
			})
		}
		// Its load is told meanwhile.
		told := time.NewTicker(100 * time.Millisecond)
		stop := make(chan struct{})
		var telling sync.WaitGroup
		telling.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-told.C:
				}
				asked := g.Ask()
				engine.mu.Lock()
				n := engine.running
				engine.mu.Unlock()
				g.Observe(Load{Running: n, KVShare: rand.Float64(), CapacityTokens: 200_000}, asked)
			}
		})
		clients.Wait()
		close(stop)
		telling.Wait()
		told.Stop()
		synctest.Wait()
		g.mu.Lock()
		(&play{t: t, gate: g.gate}).empty()
		g.mu.Unlock()
		if engine.running != 0 || engine.most > 68 {
			t.Errorf("%d left at the engine, at most %d at once", engine.running, engine.most)
		}
		var counted float64
		by := map[string]float64{}
		for c := range classes {
			for o := range outcomes {
				n := value(t, g.metrics.requests[c][o])
				counted += n
				by[outcomeNames[o]] += n
			}
		}
		if counted != requests {
			t.Errorf("%v requests counted", counted)
		}
		for o, n := range by {
			if n < requests/50 {
				t.Errorf("only %v %s", n, o)
			}
		}
		t.Log(by, ends)
	})
}
