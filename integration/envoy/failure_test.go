//go:build envoy

package envoy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// workerKilled: a worker dies under load, its listener and connections gone at
// once, and comes back. What had no response headers yet is re-routed.
func workerKilled(r *rig) {
	ctx := r.t.Context()
	var once sync.Once
	killed, back := make(chan struct{}), make(chan struct{})
	victim := r.fleet.Workers[1]
	l := r.crowd(ctx, 12, nil, func(l *load) bool {
		n := l.sent.Load()
		if n > 300 {
			once.Do(func() {
				go func() {
					victim.Kill()
					close(killed)
					<-time.After(3 * time.Second)
					if err := victim.Restart(ctx); err != nil {
						r.t.Error(err)
					}
					close(back)
				}()
			})
		}
		select {
		case <-back:
			return n >= *minRequests
		default:
			return false
		}
	})
	<-killed
	r.t.Log(l)
	if n := l.failedBefore(); n > 0 {
		r.t.Errorf("%d requests failed before response headers", n)
	}
	r.flushed(func() {
		if r.counters()[metric("reroutes")] == 0 {
			r.t.Error("no request was re-routed: the kill hit nothing")
		}
	})
	// The worker is found again.
	r.eventually(10*time.Second, "the restarted worker gets requests", func() error {
		for i := range 12 {
			if a := r.chat(ctx, talk(uint64(time.Now().UnixNano())+uint64(i), 2500).ask(), false); a.worker == victim.Address {
				return nil
			}
		}
		return fmt.Errorf("none of 12 new conversations went to %s", victim.Address)
	})
	r.idle()
}

// controlRestarted: the service dies under load and is started anew, without
// state. Gateways keep their table meanwhile.
func controlRestarted(r *rig) {
	var once sync.Once
	back := make(chan struct{})
	fallback := r.counters().Sum(metric("fallback."))
	l := r.crowd(r.t.Context(), 8, nil, func(l *load) bool {
		n := l.sent.Load()
		if n > 200 {
			once.Do(func() {
				go func() {
					defer close(back)
					r.killControl()
					<-time.After(3 * time.Second)
					r.startControl()
				}()
			})
		}
		select {
		case <-back:
			return n >= *minRequests
		default:
			return false
		}
	})
	r.t.Log(l)
	if n := l.failedBefore() + l.after.Load(); n > 0 {
		r.t.Errorf("%d requests failed", n)
	}
	if l.hits.Load()*3 < l.sent.Load() {
		r.t.Errorf("%d of %d requests had cached tokens: steering did not go on", l.hits.Load(), l.sent.Load())
	}
	r.flushed(func() {
		if rose := r.counters().Sum(metric("fallback.")) - fallback; rose > l.sent.Load()/20 {
			r.t.Errorf("%d of %d requests fell back to the cluster's balancer", rose, l.sent.Load())
		}
	})
	r.idle()
}

// clientLeaves: before the body is complete, while waiting for the first
// token, and in the middle of a stream.
func clientLeaves(r *rig) {
	held := r.counters()[metric("held_aborted")]
	const n = 12
	r.leave(n, func(ctx context.Context, i int) *http.Request {
		body := talk(uint64(800+i), 50_000).ask().body(false, 4)
		half, whole := io.Pipe()
		go func() {
			whole.Write(body[:len(body)/2])
			<-ctx.Done()
			whole.CloseWithError(ctx.Err())
		}()
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, r.proxy.ClientURL+chatPath, half)
		return req
	}, nil)
	r.idle()
	r.flushed(func() {
		if rose := r.counters()[metric("held_aborted")] - held; rose != n {
			r.t.Errorf("held_aborted rose by %d after %d aborts while held", rose, n)
		}
	})

	for _, w := range r.fleet.Workers {
		w.Delay(20 * time.Second)
	}
	aborted := r.counters()[metric("outcomes.client_abort")]
	chat := func(ctx context.Context, i int) *http.Request {
		body := talk(uint64(830+i), 5000).ask().body(true, 4000)
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, r.proxy.ClientURL+chatPath, bytes.NewReader(body))
		return req
	}
	r.leave(n, chat, nil)
	for _, w := range r.fleet.Workers {
		w.Delay(0)
	}
	r.idle()
	r.leave(n, chat, func(body io.Reader) { io.CopyN(io.Discard, body, 2000) })
	r.idle()
	r.flushed(func() {
		if rose := r.counters()[metric("outcomes.client_abort")] - aborted; rose != 2*n {
			r.t.Errorf("outcomes.client_abort rose by %d after %d aborts", rose, 2*n)
		}
	})
}

// leave starts n requests and gives them up: after some of the answer when
// read is given, otherwise when all have reached Envoy, or the guards behind it.
func (r *rig) leave(n int, build func(ctx context.Context, i int) *http.Request, read func(io.Reader)) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for i := range n {
		wg.Add(1)
		go func() {
			defer wg.Done()
			req := build(ctx, i)
			req.Header.Set("Content-Type", "application/json")
			resp, err := r.client.Do(req)
			if err != nil {
				return
			}
			defer resp.Body.Close()
			if read != nil {
				read(resp.Body)
			}
		}()
	}
	if read == nil {
		if r.fronts != nil {
			r.atGuards(n)
		} else {
			r.active(int64(n))
		}
		cancel()
	}
	wg.Wait()
}

// active waits until Envoy has n requests of clients.
func (r *rig) active(n int64) {
	r.t.Helper()
	r.eventually(10*time.Second, fmt.Sprintf("%d requests are in Envoy", n), func() error {
		stats, err := r.proxy.Stats(r.t.Context(), `downstream_rq_active`)
		if err != nil {
			return err
		}
		if got := stats["http.llm.downstream_rq_active"]; got != n {
			return fmt.Errorf("%d are", got)
		}
		return nil
	})
}
