package control

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/shared/wire"
)

// said is a source that says what tests send.
type said struct {
	name     string
	findings chan discovery.Finding
}

func newSaid(name string) *said { return &said{name, make(chan discovery.Finding)} }

func (s *said) Name() string { return s.name }

func (s *said) Run(ctx context.Context, tell func(discovery.Finding)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case f := <-s.findings:
			tell(f)
		}
	}
}

// list sends a list in the pool chat.
func (s *said) list(addresses ...string) {
	var f discovery.Finding
	for i, a := range addresses {
		f.Workers = append(f.Workers, discovery.Spec{Address: a, Pool: "chat", Incarnation: uint64(i + 1)})
	}
	s.findings <- f
}

func (b *bench) status() (st api.Status) {
	b.t.Helper()
	code, body := b.do("GET", "/v1/status", nil, "")
	if err := json.Unmarshal(body, &st); err != nil || code != http.StatusOK {
		b.t.Fatalf("status: %d %v", code, err)
	}
	return st
}

func TestWorkersOfASourceJoinTheListAndAreKeptWhileItFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newSaid("dns w.test:8000")
		e := newEngines("10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000")
		b := start(t, e, Config{Workers: specs("10.0.0.1:8000"), Sources: []discovery.Source{source}})
		time.Sleep(5 * time.Second)
		if code, body := b.do("GET", "/readyz", nil, ""); code != http.StatusServiceUnavailable || !strings.Contains(string(body), "dns w.test:8000: no list yet") {
			t.Errorf("before its first list: %d %s", code, body)
		}
		if code, _ := b.do("GET", "/v1/table", nil, ""); code != http.StatusServiceUnavailable {
			t.Errorf("a table that lacks workers was handed out: %d", code)
		}
		source.findings <- discovery.Finding{Err: errors.New("dns w.test:8000: SERVFAIL")}
		synctest.Wait()
		if _, body := b.do("GET", "/readyz", nil, ""); !strings.Contains(string(body), "SERVFAIL") {
			t.Errorf("%s", body)
		}
		source.list("10.0.0.2:8000", "10.0.0.3:8000", "10.0.0.1:8000")
		<-b.s.Ready()
		g := b.gateway("g")
		g.catchUp()
		if len(g.roster) != 3 || !strings.Contains(g.policy, `"chat"`) {
			t.Errorf("roster %v, policy %s", g.roster, g.policy)
		}
		time.Sleep(time.Minute)
		source.findings <- discovery.Finding{Err: errors.New("dns w.test:8000: SERVFAIL")}
		time.Sleep(time.Hour)
		st := b.status()
		if len(st.Workers) != 3 || len(st.Sources) != 2 {
			t.Fatalf("%+v", st)
		}
		own, other := st.Sources[0], st.Sources[1]
		if own.Name != "list" || own.Workers != 1 || own.Error != "" {
			t.Errorf("%+v", own)
		}
		if other.Name != source.name || other.Workers != 3 || other.Age < 3600 || other.ErrorAge < 3599 || !strings.Contains(other.Error, "SERVFAIL") || other.Skipped != 1 {
			t.Errorf("%+v", other)
		}
		for _, w := range st.Workers {
			if want := map[string]string{"10.0.0.1:8000": "list"}[w.Address]; w.Source != want && (want != "" || w.Source != source.name) {
				t.Errorf("%s comes from %q", w.Address, w.Source)
			}
		}
		source.list()
		time.Sleep(time.Second)
		if g.catchUp(); len(g.roster) != 1 {
			t.Errorf("roster %v", g.roster)
		}
	})
}

func TestASourceGivenTwiceIsRefused(t *testing.T) {
	_, err := New(Config{Listen: "127.0.0.1:0", Sources: []discovery.Source{newSaid("dns a:1"), newSaid("dns b:1"), newSaid("dns a:1")}})
	if err == nil || !strings.Contains(err.Error(), "config: discovery: dns a:1 is given twice (keep one of the two)") {
		t.Errorf("%v", err)
	}
}

// TestARefIsFreedOnlyWhenNoGatewayCanMistakeIt retires a worker and watches its
// ref while one gateway follows and another one is silent.
func TestARefIsFreedOnlyWhenNoGatewayCanMistakeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngines("10.0.0.1:8000", "10.0.0.2:8000")
		cfg := Config{Workers: specs("10.0.0.1:8000", "10.0.0.2:8000")}
		cfg.Fleet.Quarantine = time.Minute
		b := start(t, e, cfg)
		<-b.s.Ready()
		follows, silent := b.gateway("follows"), b.gateway("silent")
		var flight []wire.InFlight
		for _, g := range []*gateway{follows, silent} {
			g.catchUp()
			g.send(nil)
		}
		gone := uint16(0)
		for ref, w := range follows.roster {
			if string(w.Address) == "10.0.0.2:8000" {
				gone = ref
			}
		}
		// pass lets time go by, in which the gateway that follows reports.
		pass := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(2 * time.Second) {
				follows.catchUp()
				follows.send(flight)
			}
		}
		if err := b.s.SetWorkers(specs("10.0.0.1:8000")); err != nil {
			t.Fatal(err)
		}
		pass(3 * time.Minute)
		if n := b.status().RefsResting; n != 1 {
			t.Fatalf("%d refs rest while a gateway is silent", n)
		}
		// The silent gateway speaks, with the table of before.
		silent.send(nil)
		pass(3 * time.Minute)
		if n := b.status().RefsResting; n != 1 {
			t.Fatalf("%d refs rest while a gateway has an old table", n)
		}
		flight = []wire.InFlight{{Ref: gone, Requests: 1}}
		pass(10 * time.Second)
		silent.catchUp()
		silent.send(nil)
		pass(time.Minute)
		if n := b.status().RefsResting; n != 1 {
			t.Fatalf("%d refs rest while a request is under way on one", n)
		}
		flight = nil
		pass(10 * time.Second)
		if n := b.status().RefsResting; n != 0 {
			t.Errorf("%d refs rest though everybody has passed", n)
		}
	})
}

// TestASilentGatewayHoldsRefsUntilItIsForgotten: a gateway that died would hold
// them for ever.
func TestASilentGatewayHoldsRefsUntilItIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{Workers: specs("10.0.0.1:8000", "10.0.0.2:8000")}
		cfg.Fleet.Quarantine = time.Minute
		b := start(t, newEngines("10.0.0.1:8000", "10.0.0.2:8000"), cfg)
		<-b.s.Ready()
		silent := b.gateway("silent")
		silent.catchUp()
		silent.send(nil)
		if err := b.s.SetWorkers(specs("10.0.0.1:8000")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(9*time.Minute + 50*time.Second)
		if n := b.status().RefsResting; n != 1 {
			t.Errorf("%d refs rest while the gateway may come back", n)
		}
		time.Sleep(15 * time.Second)
		if n := b.status().RefsResting; n != 0 {
			t.Errorf("%d refs rest for a gateway that is forgotten", n)
		}
	})
}
