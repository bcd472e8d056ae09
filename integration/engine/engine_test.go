//go:build engine

package engine

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

// blocks of each engine's prefix cache: some twenty conversations.
const blocks = 320

// replayBatches is more than a run publishes.
const replayBatches = 20_000

// TestEngine plays every scenario on two engines behind the embedded gateway, and
// again behind Envoy.
func TestEngine(t *testing.T) {
	workers := startWorkers(t)
	for _, front := range []struct {
		name  string
		start func(*rig)
		last  []scenario
	}{
		{"gateway", startGateway, []scenario{
			{"an engine that is terminated mid-stream ends in an error and is avoided", terminated},
			{"a restarted engine begins with nothing and is used again", restarted},
		}},
		{"envoy", startEnvoy, nil},
	} {
		t.Run(front.name, func(t *testing.T) {
			r := &rig{t: t, front: front.name, workers: workers}
			r.workBefore()
			r.startControl()
			front.start(r)
			r.waitExact()
			for _, s := range append(scenarios[:len(scenarios):len(scenarios)], front.last...) {
				r.play(s)
			}
		})
	}
}

// scenario is one subtest, named by what it proves.
type scenario struct {
	name string
	body func(*rig)
}

var scenarios = []scenario{
	{"what was published before is known by replay", knownByReplay},
	{"the engine's tokens are ours", tokensAgree},
	{"the scraped load is the engine's", loadAgrees},
	{"after the first turn the table holds what the engine reported, and nothing else", firstTurn},
	{"the second turn goes to the holder and cached_tokens confirms it", secondTurn},
	{"a chat finds what its tokens have stored, sent in slices", slicesAreFound},
	{"a hot prefix is copied in slices by the gateway, and every request then finds it", hotPrefixIsCopied},
	{"prompts under another cache_salt find nothing", saltIsolates},
	{"prompts for an adapter find nothing of the base model's, nor the other way round", adapterIsolates},
	{"another name of the base model finds all that one of its names has stored", aliasShares},
	{"what the engine evicts leaves the table", evictionRemoves},
	{"other weights under an adapter's name find nothing, and the old ones what they left", otherWeights},
	{"a reset of the prefix cache clears the table", resetClears},
	{"a block that was computed twice is held until its last copy goes", copiesCount},
	{"what was published while the connection was cut is replayed", replayed},
	{"a control service that was restarted knows what engines stored before", controlRestarts},
	{"events are usable soon, and predictions come true", figures},
	{"an engine that falls silent mid-stream ends in an error, is avoided, and comes back", stopped},
}

func (r *rig) play(s scenario) {
	r.t.Run(s.name, func(t *testing.T) {
		outer := r.t
		r.t = t
		began := time.Now()
		defer func() {
			r.t = outer
			verdict := "ok"
			if t.Failed() {
				verdict = "FAILED"
			}
			fmt.Printf("%-8s %-6s %5.1f s  %s\n", r.front, verdict, time.Since(began).Seconds(), s.name)
		}()
		s.body(r)
	})
}

// newProcess is an engine of the installed kind. It is gone after the test, and so
// is its log unless the test failed.
func newProcess(t *testing.T, o Options) *Process {
	t.Helper()
	o.Home, o.Model = installed.home, installed.model
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	stop := context.AfterFunc(interrupted, p.Kill)
	t.Cleanup(func() {
		stop()
		p.Kill()
		if t.Failed() {
			t.Logf("the log of engine %s is kept in %s", p.Name, p.Log())
			return
		}
		p.RemoveLog()
	})
	return p
}

// startWorkers runs two engines, each with a recorder. The control service
// discovers the first one's events and reaches the second's through cutters.
func startWorkers(t *testing.T) []*worker {
	workers := make([]*worker, 2)
	failed := make([]error, len(workers))
	var starting sync.WaitGroup
	began := time.Now()
	for i := range workers {
		p := newProcess(t, Options{Name: string(rune('a' + i)), Blocks: blocks, ReplayBatches: replayBatches})
		workers[i] = &worker{Process: p}
		starting.Go(func() { failed[i] = p.Run(t.Context()) })
	}
	starting.Wait()
	for i, w := range workers {
		if failed[i] != nil {
			t.Fatal(failed[i])
		}
		var err error
		if w.recorder, err = Record(w.Process); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.recorder.Stop)
	}
	fmt.Printf("two engines are healthy after %v\n", time.Since(began).Round(time.Second))
	w := workers[1]
	w.events, w.replay = newCutter(t, w.Events), newCutter(t, w.Replay)
	return workers
}
