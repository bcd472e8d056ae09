//go:build engine

package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmpath/warmpath/agent"
	"github.com/warmpath/warmpath/agent/guard"
	"github.com/warmpath/warmpath/control/discovery"
)

// guardBlocks make a cache of 5,120 tokens: one long prompt presses it.
const guardBlocks = 160

// guarded is one engine with an agent in front; nobody listens where its heartbeats
// go, which is one of the claims.
type guarded struct {
	*rig
	engine *Process
	guard  *guard.Guard
	stop   func()
}

// TestGuard stands guard before one engine, with a smaller batch than the engine has.
func TestGuard(t *testing.T) {
	p := newProcess(t, Options{Name: "guarded", Blocks: guardBlocks, ReplayBatches: 1000})
	if err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := &guarded{rig: &rig{t: t, front: "guard", client: &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 32}}}, engine: p}
	t.Cleanup(g.client.CloseIdleConnections)
	g.start()
	t.Cleanup(func() { g.stop() }) // the one that is there then
	for _, s := range []scenario{
		{"the engine never has more than the guard lets in, and all are served", func(*rig) { g.limitHolds() }},
		{"P0 is served before P1 that waited longer", func(*rig) { g.highFirst() }},
		{"a long prompt waits for memory, short ones pass it", func(*rig) { g.memoryWaits() }},
		{"clients that leave free the engine", func(*rig) { g.leaversFree() }},
		{"a drain refuses who comes and waits, and leaves who runs", func(*rig) { g.drains() }},
	} {
		g.play(s)
	}
}

func (g *guarded) start() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		g.t.Fatal(err)
	}
	g.url = "http://" + listener.Addr().String()
	g.guard, err = guard.New(guard.Config{
		Engine: g.engine.URL(), ClassHeader: "X-Vllm-Priority",
		Limits: guard.Limits{
			MaxRunning: 4, EngineQueue: 1, LongPromptTokens: 300, MemoryHigh: 0.25, MemoryLow: 0.2,
			QueueWait: [3]time.Duration{time.Minute, time.Minute, time.Minute},
		},
	})
	if err != nil {
		g.t.Fatal(err)
	}
	a, err := agent.New(agent.Config{
		Engine: g.engine.URL(), Control: []string{"http://127.0.0.1:9"}, Guard: g.guard, GuardListener: listener, Interval: 500 * time.Millisecond, DrainFor: time.Minute,
	})
	if err != nil {
		g.t.Fatal(err)
	}
	g.stop = background(g.t, "agent", func(ctx context.Context) error { return a.Run(ctx, nil) })
}

// page is a metrics page.
func (g *guarded) page(url string) []byte {
	g.t.Helper()
	resp, err := client.Get(url + "/metrics")
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return page
}

// load is what a metrics page says.
func (g *guarded) load(url string) discovery.Load {
	g.t.Helper()
	page := g.page(url)
	l, err := discovery.ParseMetrics(page)
	if err != nil || !l.Known {
		g.t.Fatalf("%v: %.500s", err, page)
	}
	return l
}

// sent is a request that is under way.
type sent struct {
	leave context.CancelFunc
	end   chan error
	took  time.Time // when it ended
}

// send starts a chat of so many words with an answer of so many tokens.
func (g *guarded) send(words, answer int, headers ...string) *sent {
	ctx, cancel := context.WithCancel(g.t.Context())
	s := &sent{leave: cancel, end: make(chan error, 1)}
	talk := newTalk(rand.Uint64(), words)
	talk.answer, talk.stream = answer, true
	go func() {
		err := g.whole(ctx, talk.request, headers)
		s.took = time.Now()
		s.end <- err
	}()
	return s
}

var errRefused = errors.New("refused")

func (g *guarded) whole(ctx context.Context, q request, headers []string) error {
	resp, err := g.postWith(ctx, "/v1/chat/completions", q.body(), headers...)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.Header.Get(guard.RefusedHeader) != "":
		return fmt.Errorf("%w: %s", errRefused, resp.Header.Get(guard.RefusedHeader))
	case resp.StatusCode != http.StatusOK || !strings.HasSuffix(string(body), "data: [DONE]\n\n"):
		return fmt.Errorf("status %d: ...%.300q", resp.StatusCode, tail(body))
	}
	return nil
}

func (g *guarded) until(what string, ok func() bool) {
	g.t.Helper()
	g.eventually(time.Minute, what, func() error {
		if ok() {
			return nil
		}
		return fmt.Errorf("%d in flight, %d wait", g.guard.InFlight(), g.guard.Waiting())
	})
}

func (g *guarded) idle() {
	g.t.Helper()
	g.until("nothing is left in guard and engine", func() bool {
		l := g.load(g.engine.URL())
		return g.guard.InFlight() == 0 && g.guard.Waiting() == 0 && l.Running == 0 && l.Waiting == 0
	})
}

func (g *guarded) served(all ...*sent) {
	g.t.Helper()
	for _, s := range all {
		if err := <-s.end; err != nil {
			g.t.Error(err)
		}
	}
}

func (g *guarded) limitHolds() {
	var all []*sent
	for range 16 {
		all = append(all, g.send(60, 40))
	}
	g.until("some wait", func() bool { return g.guard.Waiting() > 0 })
	direct, through := g.load(g.engine.URL()), g.load(g.url)
	if through.Waiting <= direct.Waiting {
		g.t.Errorf("the engine tells of %d waiting, its page through the guard of %d", direct.Waiting, through.Waiting)
	}
	most, looks := 0, 0
	for g.guard.Waiting() > 0 {
		l := g.load(g.engine.URL())
		most, looks = max(most, l.Running+l.Waiting), looks+1
	}
	g.served(all...)
	if most > 5 || most < 3 {
		g.t.Errorf("the engine had up to %d requests, 5 may be there", most)
	}
	fmt.Printf("guard: at most %d requests in %d looks at the engine\n", most, looks)
	g.idle()
}

func (g *guarded) highFirst() {
	var all []*sent
	for range 12 {
		all = append(all, g.send(60, 60))
	}
	g.until("seven wait", func() bool { return g.guard.Waiting() == 7 })
	high := g.send(60, 4, "X-Vllm-Priority", "0")
	g.served(high)
	g.served(all...)
	later := 0
	for _, s := range all {
		if s.took.After(high.took) {
			later++
		}
	}
	if later < 6 {
		g.t.Errorf("only %d of 12 that came before ended after P0", later)
	}
	g.idle()
}

func (g *guarded) memoryWaits() {
	// A long prompt and its answer take more than a quarter of the cache, and the guard
	// has read that on the engine's page.
	first := g.send(1000, 1000)
	g.until("it presses the cache", func() bool {
		return bytes.Contains(g.page(g.url), []byte("\nwarmpath_guard_memory_pressed 1\n"))
	})
	second := g.send(700, 4)
	g.until("the second waits", func() bool { return g.guard.Waiting() == 1 })
	g.served(g.send(20, 4))
	if g.guard.Waiting() != 1 {
		g.t.Error("a short prompt did not pass the long one")
	}
	g.served(first, second)
	if second.took.Before(first.took) {
		g.t.Error("the second long prompt was let in while the first held its memory")
	}
	g.idle()
}

func (g *guarded) leaversFree() {
	var all []*sent
	for range 8 {
		all = append(all, g.send(60, 2000))
	}
	g.until("five run, three wait", func() bool {
		return g.guard.Waiting() == 3 && g.load(g.engine.URL()).Running >= 4
	})
	for _, s := range all {
		s.leave()
		<-s.end
	}
	began := time.Now()
	g.idle()
	fmt.Printf("guard: the engine is idle %v after its clients have left\n", time.Since(began).Round(10*time.Millisecond))
}

func (g *guarded) drains() {
	var runs, waits []*sent
	for range 5 {
		runs = append(runs, g.send(60, 150))
	}
	g.until("five run", func() bool { return g.guard.InFlight() == 5 })
	for range 3 {
		waits = append(waits, g.send(60, 4))
	}
	g.until("three wait", func() bool { return g.guard.Waiting() == 3 })
	var ended atomic.Bool
	stop := g.stop
	g.stop = func() {}
	done := make(chan struct{})
	go func() {
		defer close(done)
		stop()
		ended.Store(true)
	}()
	for _, s := range waits {
		if err := <-s.end; !errors.Is(err, errRefused) {
			g.t.Errorf("who waited: %v", err)
		}
	}
	if ended.Load() {
		g.t.Error("the agent has ended before its requests")
	}
	g.served(runs...)
	<-done
}
