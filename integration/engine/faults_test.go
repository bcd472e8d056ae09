//go:build engine

package engine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
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
	words := rand.New(rand.NewPCG(rand.Uint64(), 0))
	for range 15 {
		if err := r.complete(w, ids(words, 960)); err != nil {
			r.t.Fatal(err)
		}
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

// terminated: SIGTERM leaves a stream open and silent.
func terminated(r *rig) {
	r.silenced(func(w *worker) error { return w.Signal(syscall.SIGTERM, false) })
}

// stopped: SIGSTOP leaves everything open and silent; SIGCONT brings it back.
func stopped(r *rig) {
	var victim *worker
	r.silenced(func(w *worker) error {
		victim = w
		return w.Signal(syscall.SIGSTOP, true)
	})
	ref := r.status(victim).Ref
	if err := victim.Signal(syscall.SIGCONT, true); err != nil {
		r.t.Fatal(err)
	}
	r.usedAgain(victim)
	if now := r.status(victim).Ref; now != ref {
		r.t.Errorf("the same process is another worker: ref %d, before %d", now, ref)
	}
	r.agree(reported)
}

// silenced starts a stream, silences the engine that serves it, and checks what
// the client sees and where others go.
func (r *rig) silenced(silence func(*worker) error) {
	t := newTalk(seed(r, 300), 250)
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
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for range 6 { // it is well under way
		if _, err := lines.ReadString('\n'); err != nil {
			r.t.Fatalf("the stream before the fault: %v", err)
		}
	}
	var victim *worker
	for _, w := range r.workers {
		if w.Address == first.chosen {
			victim = w
		}
	}
	if m := explanation.FindStringSubmatch(resp.Header.Get("x-warmpath-explain")); m == nil || m[3] != victim.Address {
		r.t.Fatalf("the second turn isn't at %s: %s", victim.Address, resp.Header.Get("x-warmpath-explain"))
	}
	if err := silence(victim); err != nil {
		r.t.Fatal(err)
	}
	began := time.Now()
	rest, err := io.ReadAll(lines)
	took := time.Since(began)
	// Never a clean end: a client must not take the part for the whole.
	if err == nil || errors.Is(err, context.DeadlineExceeded) || strings.Contains(string(rest), "[DONE]") {
		r.t.Errorf("the client saw %v after %v, and ...%q", err, took, rest[max(0, len(rest)-80):])
	}
	if took < tokenTimeout-2*time.Second || took > tokenTimeout+4*time.Second {
		r.t.Errorf("the stream ended after %v, the timeout is %v", took, tokenTimeout)
	}
	r.t.Logf("the client saw %q after %v", err, took.Round(10*time.Millisecond))

	// Others, and the conversation itself, are served elsewhere.
	for i := range 12 {
		other := newTalk(seed(r, 310+i), 60).request
		if i%4 == 0 {
			other = t.request
		}
		began := time.Now()
		a, err := r.ask(other)
		if err != nil || a.chosen == victim.Address {
			r.t.Errorf("request %d after the fault went to %s: %v", i, a.chosen, err)
		}
		if took := time.Since(began); took > 5*time.Second {
			r.t.Errorf("request %d after the fault took %v", i, took)
		}
	}
	r.eventually(10*time.Second, "the silent engine is known to be down", func() error {
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
		a, err := r.ask(newTalk(seed(r, 400+n), 80).request)
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
	t := newTalk(seed(r, 500), 250)
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
