package control

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/shared/wire"
)

const (
	alpha = "10.0.0.1:8000"
	beta  = "10.0.0.2:8000"
)

func TestADispatchReachesEveryGatewayWithinTheCoalescingTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := start(t, newEngines(alpha, beta), Config{Workers: specs(alpha, beta)})
		<-b.s.Ready()
		one, two := b.gateway("one"), b.gateway("two")
		one.catchUp()
		two.catchUp()
		path := prompt("system", "question")
		_, record := one.dispatch(one.refOf(alpha), path)
		began := time.Now()
		one.send(nil, record)
		for len(two.entries) == 0 {
			if !two.poll(5 * time.Second) {
				t.Fatal("nothing came")
			}
		}
		if took := time.Since(began); took > 60*time.Millisecond {
			t.Errorf("took %v", took)
		}
		if len(two.entries) != len(path) {
			t.Errorf("%d entries, %d checkpoints", len(two.entries), len(path))
		}
		for _, c := range path {
			if diff := cmp.Diff([]uint16{one.refOf(alpha)}, two.holders(c.Fingerprint)); diff != "" {
				t.Errorf("holders of %d: %s", c.End, diff)
			}
		}
	})
}

// TestABatchIsOneAnswerToWhoWaits: of a prefix that is on its way and of the request that is in
// flight there a gateway hears at once, however soon after the batch before. Otherwise it asks twice.
func TestABatchIsOneAnswerToWhoWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := start(t, newEngines(alpha, beta), Config{Workers: specs(alpha, beta)})
		<-b.s.Ready()
		one, two := b.gateway("one"), b.gateway("two")
		one.catchUp()
		time.Sleep(100 * time.Millisecond) // what the start has to tell
		for n := range 10 {
			time.Sleep(30 * time.Millisecond)
			two.catchUp()
			ref := one.refOf(alpha)
			_, record := one.dispatch(ref, prompt("system", fmt.Sprint("question ", n)))
			entries, answered := len(two.entries), make(chan bool)
			go func() { answered <- two.poll(5 * time.Second) }()
			synctest.Wait()
			one.send([]wire.InFlight{{Ref: ref, Requests: uint16(n + 1), UncachedTokens: 500}}, record)
			if !<-answered {
				t.Fatal("nothing came")
			}
			if got := int(two.loads[ref].FleetInFlight); len(two.entries) == entries || got != n+1 {
				t.Errorf("batch %d: %d entries more and %d requests in flight, want %d", n, len(two.entries)-entries, got, n+1)
			}
		}
	})
}

func TestARestartedWorkerHoldsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := newEngines(alpha, beta)
		_, g := serving(t, e, Config{Workers: specs(alpha, beta)})
		before := g.refOf(alpha)
		_, record := g.dispatch(before, prompt("system"))
		g.send(nil, record)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		g.catchUp()
		if len(g.entries) == 0 {
			t.Fatal("no entries before the restart")
		}
		e.set(alpha, 5000) // same address, another process
		time.Sleep(time.Second)
		synctest.Wait()
		g.catchUp()
		if len(g.entries) != 0 {
			t.Errorf("%d entries of the old process", len(g.entries))
		}
		if after := g.refOf(alpha); after == before || after == 0 {
			t.Errorf("ref %d before, %d after", before, after)
		}
	})
}

func TestOffReachesAWaitingGatewayAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, g := serving(t, newEngines(alpha), Config{Workers: specs(alpha)})
		began := time.Now()
		go func() {
			time.Sleep(30 * time.Millisecond)
			b.do("POST", "/v1/mode", []byte(`{"off":true}`), "application/json")
		}()
		for !g.off {
			g.poll(10 * time.Second)
		}
		if took := time.Since(began); took > 200*time.Millisecond {
			t.Errorf("took %v", took)
		}
		if !strings.Contains(g.policy, `"off":true`) {
			t.Errorf("policy %s", g.policy)
		}
	})
}

func TestAWorkerThatIsDownAtStartJoinsWithinASecondOfItsReturn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := newEngines(alpha)
		b := start(t, e, Config{Workers: specs(alpha, beta)})
		<-b.s.Ready()
		var r api.Readiness
		status, body := b.do("GET", "/readyz", nil, "")
		decode(t, body, &r)
		if status != http.StatusOK || r.Healthy != 1 || len(r.Down) != 1 {
			t.Errorf("readyz %d %s", status, body)
		}
		g := b.gateway("g")
		g.catchUp()
		e.set(beta, 7)
		began := time.Now()
		for g.loads[g.refOf(beta)].State != 1 {
			g.poll(10 * time.Second)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func TestShutdownLetsLongPollsGo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, g := serving(t, newEngines(), Config{})
		began := time.Now()
		go func() {
			time.Sleep(50 * time.Millisecond)
			b.cancel()
		}()
		for g.poll(30 * time.Second) {
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func TestAConnectionThatNeverSpeaksDoesNotDelayTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := start(t, newEngines(), Config{})
		<-b.s.Ready()
		conn, err := b.client.Transport.(*http.Transport).DialContext(t.Context(), "tcp", "control")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		synctest.Wait()
		began := time.Now()
		b.stop()
		if took := time.Since(began); took > time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func TestInFlightOfAllGatewaysIsSummed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := start(t, newEngines(alpha), Config{Workers: specs(alpha)})
		<-b.s.Ready()
		one, two := b.gateway("one"), b.gateway("two")
		one.catchUp()
		ref := one.refOf(alpha)
		one.send([]wire.InFlight{{Ref: ref, Requests: 3, UncachedTokens: 500}})
		two.send([]wire.InFlight{{Ref: ref, Requests: 4, UncachedTokens: 700}})
		time.Sleep(150 * time.Millisecond)
		one.catchUp()
		if l := one.loads[ref]; l.FleetInFlight != 7 || l.FleetUncachedTokens != 1200 {
			t.Errorf("loads %+v", l)
		}
		time.Sleep(8 * time.Second) // both are gone
		one.catchUp()
		if l := one.loads[ref]; l.FleetInFlight != 0 {
			t.Errorf("in flight %d of gateways that are gone", l.FleetInFlight)
		}
	})
}

func TestTheTableIsNotHandedOutBeforeWorkersAreKnown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := newEngines(alpha)
		e.hang(beta)
		b := start(t, e, Config{Workers: specs(alpha, beta)})
		synctest.Wait()
		for _, path := range []string{"/v1/table?epoch=5&version=5&wait_ms=5000", "/v1/table/pages?epoch=5&bits=10&range=0"} {
			if status, body := b.do("GET", path, nil, ""); status != 503 || !strings.Contains(string(body), "starting") {
				t.Errorf("%s: %d %s", path, status, body)
			}
		}
		if status, body := b.do("GET", "/readyz", nil, ""); status != 503 || !strings.Contains(string(body), "first probe of 1 of 2") {
			t.Errorf("%d %s", status, body)
		}
		began := time.Now()
		<-b.s.Ready() // the one that hangs has timed out
		if took := time.Since(began); took > time.Second {
			t.Errorf("ready after %v", took)
		}
		g := b.gateway("g")
		g.catchUp()
		if len(g.roster) != 2 || g.loads[g.refOf(beta)].State != 3 {
			t.Errorf("%v", g.loads)
		}
	})
}

func TestResetForgetsEntriesEverywhere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := start(t, newEngines(alpha, beta), Config{Workers: specs(alpha, beta)})
		<-b.s.Ready()
		g := warm(b)
		b.s.ResetIndex()
		g.catchUp()
		st := b.s.Status()
		if len(g.entries) != 0 || st.Table.Entries != 0 || st.Index.Entries != 0 {
			t.Errorf("%d entries, %+v %+v", len(g.entries), st.Table, st.Index)
		}
		_, record := g.dispatch(g.refOf(alpha), prompt("system"))
		g.send(nil, record)
		settle()
		g.catchUp()
		if len(g.entries) == 0 {
			t.Error("nothing is learned after it")
		}
	})
}

func TestARunThatCantServeSaysSo(t *testing.T) {
	s, err := New(Config{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), s.Addr()) {
		t.Errorf("%v", err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "before") {
		t.Errorf("second run: %v", err)
	}
}
