package virtual

import (
	"testing"
	"time"
)

func TestAfterAFaultThoseWhoLostTheirHomeAreToldApart(t *testing.T) {
	at := 30 * time.Second
	s := small(func(s *Scenario) {
		s.Faults = []Fault{{At: at, Workers: []int{1}, Kind: Evict}}
	})
	last := map[uint64]int{}
	parts := map[string][2]int{} // prompt and cached tokens
	told := map[uint64]bool{}    // sessions that were answered since
	if _, err := Run(s.config(t, "cost", 1, func(o Outcome) {
		p := parts[o.Group]
		parts[o.Group] = [2]int{p[0] + o.Prompt, p[1] + o.Cached}
		if o.Group != "" && (o.Arrived < at || o.Arrived >= at+aftermathFor || o.Turn == 0) {
			t.Errorf("%s: request at %v, turn %d", o.Group, o.Arrived, o.Turn)
		}
		if o.Arrived >= at && !told[o.Session] {
			if lost := last[o.Session] == 1; o.Group == homeLost != lost && o.Group != "" {
				t.Errorf("session %x lived at %d: %s", o.Session, last[o.Session], o.Group)
			}
		}
		if o.Ended >= at {
			told[o.Session] = true
		}
		last[o.Session] = o.Worker
		if o.Held > 0 && o.Held < o.Cached {
			t.Errorf("%d tokens cached, the best worker held %d", o.Cached, o.Held)
		}
	})); err != nil {
		t.Fatal(err)
	}
	kept, lost := share(parts[homeKept][1], parts[homeKept][0]), share(parts[homeLost][1], parts[homeLost][0])
	if lost == 0 || kept < lost+0.2 {
		t.Errorf("hits %.3f with the home, %.3f without", kept, lost)
	}
}

func TestAYoungWorkerIsKnownAndAHotPrefixGetsHomes(t *testing.T) {
	s, err := FindScenario("hot-prefix")
	if err != nil {
		t.Fatal(err)
	}
	s.Workers = 8
	s.Faults = []Fault{{At: 0, Workers: []int{7}, Kind: Die}, {At: 260 * time.Second, Workers: []int{7}, Kind: Return}}
	most, first := 0, time.Duration(0)
	cfg := s.config(t, "cost", 1, nil)
	cfg.Source = s.Source(1, 10, 2800)
	var fleet *Fleet
	cfg.Rule = func(f *Fleet) Rule { fleet = f; return routeRule{} }
	cfg.Sampled = func(s Sample, now time.Duration) {
		most = max(most, s.Homes)
		if s.Homes > 0 && first == 0 {
			first = now
		}
		w := &fleet.gateways[0].view.Workers
		for i := range *w {
			if young := (*w)[i].CacheAge > 0; young && (i != 7 || now < 260*time.Second) {
				t.Fatalf("worker %d is young at %v", i, now)
			}
		}
	}
	if _, err := Run(cfg); err != nil {
		t.Fatal(err)
	}
	if from := s.Settle + time.Minute; most == 0 || first < from || first > from+2*time.Second {
		t.Errorf("%d prefixes with homes, first at %v; it is hot from %v on", most, first, from)
	}
	if fleet.gateways[0].view.Workers[7].CacheAge == 0 {
		t.Error("the worker that came isn't young")
	}
}
