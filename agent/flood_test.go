package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warmpath/warmpath/agent/guard"
	"github.com/warmpath/warmpath/sim/engine"
	"github.com/warmpath/warmpath/sim/live"
)

// handled asks a handler without a network, so that a virtual clock will do.
type handled struct{ http.Handler }

func (h handled) RoundTrip(r *http.Request) (*http.Response, error) {
	from, to := io.Pipe()
	w := &pipeWriter{header: http.Header{}, begun: make(chan int, 1), body: to}
	if r.Body == nil {
		r.Body = http.NoBody
	}
	go func() {
		defer func() {
			if recover() != nil { // http.ErrAbortHandler
				to.CloseWithError(io.ErrUnexpectedEOF)
			}
			w.WriteHeader(http.StatusOK)
			to.Close()
		}()
		h.ServeHTTP(w, r)
	}()
	select {
	case status := <-w.begun:
		return &http.Response{StatusCode: status, Header: w.header.Clone(), Body: from, ContentLength: -1, Request: r}, nil
	case <-r.Context().Done():
		from.Close()
		return nil, r.Context().Err()
	}
}

type pipeWriter struct {
	header http.Header
	once   sync.Once
	begun  chan int
	body   *io.PipeWriter
}

func (w *pipeWriter) Header() http.Header    { return w.header }
func (w *pipeWriter) Flush()                 {}
func (w *pipeWriter) WriteHeader(status int) { w.once.Do(func() { w.begun <- status }) }
func (w *pipeWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

// alone is an agent's way to its engine; nobody hears the heartbeats.
type alone struct{ engine http.RoundTripper }

func (a alone) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != "engine" {
		return nil, errors.New("nobody is there")
	}
	return a.engine.RoundTrip(r)
}

// never is the time to a first token that didn't come.
const never = time.Hour

// flood sends P2 prompts of 4,000 tokens, 150 at once for a minute, and P0 prompts of
// 500 tokens four times a second beside them. It answers P0's times to the first
// token, ascending, and the prompt tokens of all that were served.
func flood(t *testing.T, way http.RoundTripper) (firstTokens []time.Duration, tokens int) {
	const long, short = 16_000, 2_000 // bytes
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var mu sync.Mutex
	var clients sync.WaitGroup
	// ask is how long the first token took, or that there was none.
	ask := func(class, bytes, answer int) (time.Duration, bool) {
		body := fmt.Sprintf(`{"model":"m","stream":true,"max_tokens":%d,"ignore_eos":true,"messages":[{"role":"user","content":"%s"}]}`, answer, noise(bytes))
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
		r.Header.Set("X-Class", fmt.Sprint(class))
		began := time.Now()
		resp, err := way.RoundTrip(r)
		if err != nil {
			return 0, false
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return 0, false
		}
		if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
			return 0, false
		}
		took := time.Since(began)
		_, err = io.Copy(io.Discard, resp.Body)
		return took, err == nil
	}
	for range 150 {
		clients.Go(func() {
			for ctx.Err() == nil {
				if _, ok := ask(2, long, 64); ok {
					mu.Lock()
					tokens += long / 4
					mu.Unlock()
					continue
				}
				select { // as Retry-After says
				case <-time.After(time.Second):
				case <-ctx.Done():
				}
			}
		})
	}
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for range 40 * 4 { // the last ones have 20 s
		<-tick.C
		clients.Go(func() {
			took, ok := ask(0, short, 32)
			mu.Lock()
			defer mu.Unlock()
			if ok {
				tokens += short / 4
			} else {
				took = never
			}
			firstTokens = append(firstTokens, took)
		})
	}
	clients.Wait()
	slices.Sort(firstTokens)
	return firstTokens, tokens
}

// noise is text that nobody has sent before, of four bytes a token.
func noise(bytes int) string {
	text := make([]byte, bytes)
	for i := range text {
		if text[i] = 'a' + byte(rand.IntN(26)); i%4 == 3 {
			text[i] = ' '
		}
	}
	return string(text)
}

// What a guard is for: an engine whose queue is full of somebody's batch.
func TestAGuardKeepsP0sFirstTokenWhileP2FloodsTheEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		newEngine := func() *live.Worker {
			params := engine.DefaultParams()
			params.MaxQueued = -1
			w, err := live.Start(live.Config{Name: "engine", Listener: quiet{make(chan struct{})}, Engine: params, EventTokens: 8})
			if err != nil {
				t.Fatal(err)
			}
			return w
		}
		bare := newEngine()
		direct, directTokens := flood(t, handled{bare})
		if err := bare.Close(); err != nil {
			t.Error(err)
		}

		w := newEngine()
		g, err := guard.New(guard.Config{
			Engine: "http://engine", ClassHeader: "X-Class", Transport: handled{w},
			Limits: guard.Limits{MaxRunning: 64},
		})
		if err != nil {
			t.Fatal(err)
		}
		a, err := New(Config{Engine: "http://engine", Control: []string{"http://127.0.0.1:1"}, Transport: alone{handled{w}}, Guard: g, GuardListener: quiet{make(chan struct{})}, DrainFor: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.Run(ctx, nil) }()
		synctest.Wait() // the flood comes after the first page, on which nothing is counted yet
		guarded, guardedTokens := flood(t, handled{g})
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		p99 := func(all []time.Duration) time.Duration { return all[len(all)*99/100] }
		t.Logf("first token of P0, median and p99: guarded %v and %v, direct %v and %v; prompt tokens served: %d and %d",
			guarded[len(guarded)/2], p99(guarded), direct[len(direct)/2], p99(direct), guardedTokens, directTokens)
		if p99(guarded) > 2*time.Second || p99(direct) < 5*p99(guarded) {
			t.Errorf("p99 of P0's first tokens: %v guarded, %v direct", p99(guarded), p99(direct))
		}
		// It is a matter of order: the engine does as much as before.
		if guardedTokens*100 < directTokens*95 {
			t.Errorf("%d prompt tokens were served, %d without a guard", guardedTokens, directTokens)
		}
	})
}
