package control

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/shared/wire"
)

// settle waits until what was sent is published.
func settle() {
	time.Sleep(150 * time.Millisecond)
	synctest.Wait()
}

func (b *bench) worker(address string) api.Worker {
	for _, w := range b.s.Status().Workers {
		if w.Address == address {
			return w
		}
	}
	b.t.Fatalf("no worker %s", address)
	return api.Worker{}
}

func TestWhoIsToBlame(t *testing.T) {
	for name, c := range map[string]struct {
		change      func(*wire.Report)
		alpha, beta bool // avoided afterwards; alpha is chosen
	}{
		"complete":             {func(r *wire.Report) {}, false, false},
		"401 of the worker":    {func(r *wire.Report) { r.Status, r.Outcome = 401, wire.UpstreamFailure }, false, false},
		"403":                  {func(r *wire.Report) { r.Status, r.Outcome = 403, wire.Refused }, false, false},
		"400":                  {func(r *wire.Report) { r.Status, r.Outcome = 400, wire.Complete }, false, false},
		"404 called a failure": {func(r *wire.Report) { r.Status, r.Outcome = 404, wire.UpstreamFailure }, false, false},
		"429":                  {func(r *wire.Report) { r.Status, r.Outcome = 429, wire.Refused }, true, false},
		"503":                  {func(r *wire.Report) { r.Status, r.Outcome = 503, wire.Refused }, true, false},
		"reset":                {func(r *wire.Report) { r.Status, r.Outcome = 0, wire.UpstreamFailure }, true, false},
		"connect failure":      {func(r *wire.Report) { r.Status, r.Outcome, r.Served = 503, wire.UpstreamFailure, 0 }, true, false},
		"client abort":         {func(r *wire.Report) { r.Status, r.Outcome = 0, wire.ClientAbort }, false, false},
		"refused by us":        {func(r *wire.Report) { r.Status, r.Outcome = 503, wire.Local }, false, false},
		"re-routed":            {func(r *wire.Report) { r.Served, r.Attempts = 2, 2 }, true, false},
		"re-routed in vain":    {func(r *wire.Report) { r.Served, r.Attempts, r.Status, r.Outcome = 2, 2, 503, wire.Refused }, true, true},
		"second by choice":     {func(r *wire.Report) { r.Served = 2 }, false, false},
	} {
		bubble(t, func(t *testing.T) {
			_, g := serving(t, newEngines(alpha, beta), Config{Workers: specs(alpha, beta)})
			a, other := g.refOf(alpha), g.refOf(beta)
			id, record := g.dispatch(a, prompt("system"))
			g.send(nil, record, done(id, a, a, func(r *wire.Report) {
				c.change(r)
				if r.Served == 2 {
					r.Served = other
				}
			}))
			settle()
			g.catchUp()
			if avoided := g.loads[a].AvoidMillis > 0; avoided != c.alpha {
				t.Errorf("%s: chosen worker avoided %v", name, avoided)
			}
			if avoided := g.loads[other].AvoidMillis > 0; avoided != c.beta {
				t.Errorf("%s: other worker avoided %v", name, avoided)
			}
			time.Sleep(10 * time.Second)
			g.catchUp()
			if g.loads[a].AvoidMillis != 0 || g.loads[other].AvoidMillis != 0 {
				t.Errorf("%s: a mark that doesn't end", name)
			}
		})
	}
}

// A gateway calls an answer complete that came to its end, whatever it says.
func TestAnErrorOfTheEngineLeavesNothingInTheTable(t *testing.T) {
	for status, kept := range map[uint16]bool{200: true, 307: false, 400: false, 404: false, 422: false, 500: false} {
		for _, outcome := range []wire.Outcome{wire.Complete, wire.ClientAbort} {
			bubble(t, func(t *testing.T) {
				b, g := serving(t, newEngines(alpha), Config{Workers: specs(alpha)})
				a := g.refOf(alpha)
				known, path := prompt("system"), prompt("system", "turn")
				id, record := g.dispatch(a, known)
				g.send(nil, record, done(id, a, a, nil))
				id, record = g.dispatch(a, path)
				g.send(nil, record, done(id, a, a, func(r *wire.Report) { r.Status, r.Outcome = status, outcome }))
				settle()
				g.catchUp()
				if got := len(g.holders(path[len(path)-1].Fingerprint)) > 0; got != kept {
					t.Errorf("status %d, outcome %d: in the table %v", status, outcome, got)
				}
				if len(g.holders(known[len(known)-1].Fingerprint)) == 0 {
					t.Errorf("status %d, outcome %d: what was held before is gone", status, outcome)
				}
				if h := b.worker(alpha).Hits; h.Answers != 2 && kept && outcome == wire.Complete || h.Answers != 1 && !kept {
					t.Errorf("status %d, outcome %d: %+v", status, outcome, h)
				}
			})
		}
	}
}

func TestAChunkCountsOnceHoweverOftenItComes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, g := serving(t, newEngines(alpha), Config{Workers: specs(alpha)})
		_, record := g.dispatch(g.refOf(alpha), prompt("system"))
		g.send(nil, record)
		for range 3 { // the ack got lost
			g.sequence--
			g.send(nil, record)
		}
		if c := b.s.Status().Counters; c.Dispatches != 1 || c.Chunks != 4 {
			t.Errorf("%+v", c)
		}
	})
}

func TestADamagedChunkIsAcknowledgedAndTheNextOneCounts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, g := serving(t, newEngines(alpha), Config{Workers: specs(alpha)})
		g.send(nil, []byte("this is no report record"))
		_, record := g.dispatch(g.refOf(alpha), prompt("system"))
		g.send(nil, record)
		if c := b.s.Status().Counters; c.BadChunks != 1 || c.Dispatches != 1 {
			t.Errorf("%+v", c)
		}
	})
}

func TestADamagedFrameIsRefusedWithItsOffset(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, g := serving(t, newEngines(alpha), Config{Workers: specs(alpha)})
		_, record := g.dispatch(g.refOf(alpha), prompt("system"))
		g.sequence = 1
		frame := g.frame(nil, record)
		for cut := range len(frame) {
			status, body := b.do("POST", "/v1/batch", frame[:cut], "application/octet-stream")
			if status == 200 {
				continue // cut between two sections
			}
			if status != 400 || !strings.Contains(string(body), "bad_request") {
				t.Fatalf("cut at %d: %d %s", cut, status, body)
			}
		}
		if c := b.s.Status().Counters; c.Dispatches != 0 {
			t.Errorf("%+v", c)
		}
	})
}

func TestInObserveModeOnlyWhoServedHoldsThePrompt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := start(t, newEngines(alpha, beta), Config{Workers: specs(alpha, beta)})
		<-b.s.Ready()
		if err := b.s.SetMode("default", "observe"); err != nil {
			t.Fatal(err)
		}
		g := b.gateway("g")
		g.catchUp()
		path := prompt("system")
		id, record := g.dispatch(g.refOf(alpha), path)
		g.send(nil, record)
		settle()
		g.catchUp()
		if len(g.entries) != 0 {
			t.Errorf("%d entries from a choice on paper", len(g.entries))
		}
		g.send(nil, done(id, g.refOf(alpha), g.refOf(beta), nil))
		settle()
		g.catchUp()
		if got := g.holders(path[0].Fingerprint); len(got) != 1 || got[0] != g.refOf(beta) {
			t.Errorf("holders %v", got)
		}
	})
}

func TestAnotherCourierOfAGatewayReplacesItsBooks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, g := serving(t, newEngines(alpha), Config{Workers: specs(alpha)})
		ref := g.refOf(alpha)
		flight := func() int { return b.worker(alpha).InFlight }
		g.send([]wire.InFlight{{Ref: ref, Requests: 5}})
		g.nonce++ // the office changed hands
		g.send([]wire.InFlight{{Ref: ref, Requests: 4}})
		if flight() != 4 {
			t.Errorf("in flight %d", flight())
		}
		g.nonce-- // two processes of one name
		g.send([]wire.InFlight{{Ref: ref, Requests: 5}})
		if flight() != 9 {
			t.Errorf("in flight %d of both", flight())
		}
	})
}

func TestTheDiscriminatingPositionIsPublishedOnceStable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, g := serving(t, newEngines(alpha), Config{Workers: specs(alpha)})
		if !strings.Contains(g.policy, `"ring_units":16`) {
			t.Errorf("default: %s", g.policy)
		}
		for round := range 5 {
			var records [][]byte
			for i := range 64 { // all share 64 units, then everybody differs
				_, r := g.dispatch(g.refOf(alpha), prompt("s", fmt.Sprint(round*64+i)))
				records = append(records, r)
			}
			g.send(nil, records[:32]...)
			g.send(nil, records[32:]...)
			time.Sleep(1100 * time.Millisecond)
		}
		g.catchUp()
		if !strings.Contains(g.policy, `"ring_units":80`) {
			t.Errorf("learned: %s", g.policy)
		}
	})
}

func TestManyHoldersAreListedInASet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var addresses []string
		for i := range 20 {
			addresses = append(addresses, fmt.Sprintf("10.0.1.%d:8000", i))
		}
		_, g := serving(t, newEngines(addresses...), Config{Workers: specs(addresses...)})
		path := prompt("system")
		f := path[0].Fingerprint
		for i, address := range addresses {
			_, record := g.dispatch(g.refOf(address), path)
			g.send(nil, record)
			settle()
			g.catchUp()
			e := g.entries[f]
			if (e.Overflow() != 0) != (i+1 > 6) || e.Universal() != (i+1 > 10) {
				t.Errorf("%d holders: set %d, universal %v", i+1, e.Overflow(), e.Universal())
			}
			if i+1 > 6 {
				if n := countSet(g.sets, e.Overflow()); n != i+1 {
					t.Errorf("%d holders, %d in the set", i+1, n)
				}
			}
		}
	})
}
