//go:build engine

package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"syscall"
	"time"
)

// replayed: the connection to the second engine's events breaks, it goes on
// storing and evicting, and what was missed is asked for.
func replayed(r *rig) {
	w := r.workers[1]
	before := r.status(w).Events
	w.events.cut(true)
	r.eventually(10*time.Second, "the break is seen", func() error {
		if e := r.status(w).Events; e.Source != "disconnected" || e.Problem == "" {
			return fmt.Errorf("%+v", e)
		}
		return nil
	})
	for range 15 {
		r.fill(w)
	}
	w.events.cut(false)
	r.agree(20 * time.Second)
	after := r.status(w).Events
	if after.Source != "connected" || after.Reconnects == before.Reconnects || after.Batches < before.Batches+15 {
		r.t.Errorf("before %+v, after %+v", before, after)
	}
	if after.Lost != before.Lost || after.Restarts != before.Restarts || after.FailedReplays != before.FailedReplays {
		r.t.Errorf("something was lost: before %+v, after %+v", before, after)
	}
}

// controlRestarts: the service ends, engines go on storing and evicting, and it
// comes back with what it has saved, not by a replay of everything.
func controlRestarts(r *rig) {
	r.stop()
	for range 5 {
		for _, w := range r.workers {
			r.fill(w)
		}
	}
	r.runControl()
	r.waitExact()
	r.agree(reported)
	for i, n := range r.counts() {
		e := r.status(r.workers[i]).Events
		if e.Batches == 0 || e.Batches > uint64(n/2) || e.Missed != 0 || e.Lost != 0 || e.UnknownParents != 0 {
			r.t.Errorf("engine %s has published %d batches: %+v", r.workers[i].Name, n, e)
		}
	}
}

// stopped: SIGSTOP leaves every socket open and silent; after SIGCONT the engine
// goes on as the same process.
func stopped(r *rig) {
	stream, victim := r.longStream()
	defer stream.Close()
	ref := r.status(victim).Ref
	if err := victim.Signal(syscall.SIGSTOP, true); err != nil {
		r.t.Fatal(err)
	}
	began := time.Now()
	rest, err := io.ReadAll(stream)
	took := time.Since(began)
	// Never a clean end: a client must not take the part for the whole.
	if err == nil || errors.Is(err, context.DeadlineExceeded) || bytes.Contains(rest, []byte("[DONE]")) {
		r.t.Errorf("the client saw %v after %v, and ...%q", err, took, tail(rest))
	}
	if took < tokenTimeout-2*time.Second || took > tokenTimeout+4*time.Second {
		r.t.Errorf("the stream ended after %v, the timeout is %v", took, tokenTimeout)
	}
	r.t.Logf("the client saw %q after %v", err, took.Round(10*time.Millisecond))
	r.avoided(victim)
	r.knownDown(victim)
	if err := victim.Signal(syscall.SIGCONT, true); err != nil {
		r.t.Fatal(err)
	}
	r.usedAgain(victim)
	if now := r.status(victim).Ref; now != ref {
		r.t.Errorf("the same process is another worker: ref %d, before %d", now, ref)
	}
	r.agree(reported)
}

// terminated: at SIGTERM vLLM either says in the stream that it is over (an error,
// or the finish reason abort), or leaves it open and silent.
func terminated(r *rig) {
	stream, victim := r.longStream()
	defer stream.Close()
	if err := victim.Signal(syscall.SIGTERM, false); err != nil {
		r.t.Fatal(err)
	}
	began := time.Now()
	rest, err := io.ReadAll(stream)
	said := bytes.Contains(rest, []byte(`"error"`)) || bytes.Contains(rest, []byte(`"finish_reason":"abort"`))
	if err == nil && !said {
		r.t.Errorf("the client saw a clean end: ...%q", tail(rest))
	}
	if took := time.Since(began); took > tokenTimeout+4*time.Second {
		r.t.Errorf("the stream ended after %v, the timeout is %v", took, tokenTimeout)
	}
	r.t.Logf("the client saw %v after %v, the engine said so: %v", err, time.Since(began).Round(10*time.Millisecond), said)
	r.knownDown(victim)
	r.avoided(victim)
}

func tail(b []byte) []byte { return b[max(0, len(b)-300):] }

// longStream starts a conversation and returns the stream of its second answer,
// which is well under way, and the engine that serves it.
func (r *rig) longStream() (io.ReadCloser, *worker) {
	r.t.Helper()
	t := newTalk(rand.Uint64(), 250)
	first := r.mustAsk(t.request)
	r.settled()
	t.heard(first.text)
	t.question()
	q := t.request
	q.stream, q.answer = true, 2500
	resp, err := r.post("/v1/chat/completions", q.body())
	if err != nil {
		r.t.Fatal(err)
	}
	for range 6 {
		if _, err := io.ReadFull(resp.Body, make([]byte, 100)); err != nil {
			r.t.Fatalf("the stream before the fault: %v", err)
		}
	}
	m := explanation.FindStringSubmatch(resp.Header.Get("x-warmpath-explain"))
	if m == nil || m[3] != first.chosen {
		r.t.Fatalf("the second turn isn't at %s: %s", first.chosen, resp.Header.Get("x-warmpath-explain"))
	}
	for _, w := range r.workers {
		if w.Address == first.chosen {
			return resp.Body, w
		}
	}
	r.t.Fatalf("%s is no worker", first.chosen)
	return nil, nil
}

// avoided sends requests, all of which must be served elsewhere, and soon.
func (r *rig) avoided(victim *worker) {
	r.t.Helper()
	for i := range 12 {
		began := time.Now()
		a, err := r.ask(newTalk(rand.Uint64(), 60).request)
		if err != nil || a.chosen == victim.Address {
			r.t.Errorf("request %d after the fault went to %s: %v", i, a.chosen, err)
		}
		if took := time.Since(began); took > 5*time.Second {
			r.t.Errorf("request %d after the fault took %v", i, took)
		}
	}
}

// knownDown waits until the control service has noticed.
func (r *rig) knownDown(victim *worker) {
	r.t.Helper()
	r.eventually(10*time.Second, "the engine is known to be down", func() error {
		if s := r.status(victim); s.State == "healthy" {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// usedAgain waits until a worker is healthy, and gets requests.
func (r *rig) usedAgain(w *worker) {
	r.t.Helper()
	r.eventually(20*time.Second, "the engine is healthy again", func() error {
		if s := r.status(w); s.State != "healthy" || s.Events.Source != "connected" {
			return fmt.Errorf("%s (%s), events %+v", s.State, s.Reason, s.Events)
		}
		return nil
	})
	n := 0
	r.eventually(20*time.Second, "the engine gets its share again", func() error {
		n++
		a, err := r.ask(newTalk(rand.Uint64(), 80).request)
		if err != nil {
			r.t.Fatal(err)
		}
		if a.chosen != w.Address {
			return fmt.Errorf("request %d went to %s", n, a.chosen)
		}
		return nil
	})
}

// restarted: the engine that was terminated comes back on its address, empty.
func restarted(r *rig) {
	var down *worker
	for _, w := range r.workers {
		if r.status(w).State != "healthy" {
			down = w
		}
	}
	if down == nil {
		r.t.Fatal("no engine is down: the scenario before has failed")
	}
	before := r.status(down)
	down.Kill()
	if err := down.Run(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	r.usedAgain(down)
	after := r.status(down)
	if after.Generation == before.Generation || after.Ref == before.Ref {
		r.t.Errorf("the new process counts as the old one: generation %d, ref %d", after.Generation, after.Ref)
	}
	r.agree(reported)
	// It holds what it was asked since, nothing of before.
	t := newTalk(rand.Uint64(), 250)
	r.eventually(30*time.Second, "a conversation begins at the new process and stays", func() error {
		a := r.mustAsk(t.request)
		if a.chosen != down.Address {
			t = newTalk(rand.Uint64(), 250)
			return fmt.Errorf("it went to %s", a.chosen)
		}
		t.heard(a.text)
		return nil
	})
	r.settled()
	t.question()
	if a := r.mustAsk(t.request); a.chosen != down.Address || a.predicted == 0 || a.cached < a.predicted {
		r.t.Errorf("the second turn: %+v", a)
	}
	r.agree(reported)
}
