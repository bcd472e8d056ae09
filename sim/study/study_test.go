package study

import (
	"reflect"
	"testing"

	"github.com/warmpath/warmpath/sim/workload"
)

func TestPoliciesDoWhatTheirNamesSay(t *testing.T) {
	load := []int{0, 0, 0, 0}
	robin := RoundRobin()
	for i := range 8 {
		if got := robin(Request{Load: load}); got != i%4 {
			t.Errorf("round robin's choice %d is %d", i, got)
		}
	}
	hash := SessionHash()
	spread := map[int]bool{}
	for session := range 100 {
		first := hash(Request{Session: session, Load: load})
		if again := hash(Request{Session: session, Load: []int{9, 9, 9, 0}}); again != first {
			t.Errorf("session %d moved", session)
		}
		spread[first] = true
	}
	if len(spread) != 4 {
		t.Errorf("session hash uses %d of 4 workers", len(spread))
	}

	home := PrefixHome(1.5)
	for tenant := range 4 {
		if got := home(Request{Session: tenant, Tenant: tenant, Load: load}); got != tenant {
			t.Errorf("tenant %d is at home at %d", tenant, got)
		}
	}
	if got := home(Request{Session: 10, Tenant: 2, Load: []int{0, 0, 3, 0}}); got != 2 {
		t.Errorf("a new session of tenant 2 went to %d", got)
	}
	if got := home(Request{Session: 11, Tenant: 2, Load: []int{5, 0, 40, 5}}); got != 1 {
		t.Errorf("with its home overloaded a session went to %d", got)
	}
	if got := home(Request{Session: 12, Tenant: 2, Load: []int{0, 9, 9, 9}}); got != 1 && got != 2 {
		t.Errorf("a session left both homes for %d though they are not overloaded", got)
	}
	if got := home(Request{Session: 10, Tenant: 2, Load: []int{0, 0, 3, 0}}); got != 2 {
		t.Errorf("a session left its worker for %d", got)
	}
}

func TestRunIsReproducible(t *testing.T) {
	spec := workload.Demo()
	spec.Requests = 300
	w, err := workload.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	run := func() Result {
		r, err := Run(w, 4, spec.Fleet.EngineParams(1), PrefixHome(1.5))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	a, b := run(), run()
	if !reflect.DeepEqual(a, b) {
		t.Errorf("%+v\n%+v", a, b)
	}
	if a.All.Requests != 300 || a.FirstTurns.Requests != len(w.Sessions) || a.TTFTP99 < a.TTFTP50 {
		t.Errorf("%+v", a)
	}
}

func TestOneWorkerWithRoomReachesTheCeiling(t *testing.T) {
	spec := workload.Demo()
	spec.Requests = 400
	spec.RequestsPerSecond = 1
	w, err := workload.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(w, 1, spec.Fleet.EngineParams(20), RoundRobin())
	if err != nil {
		t.Fatal(err)
	}
	ceiling := w.Distribution().Ceiling
	// Only whole blocks hit, so a little below.
	if got := r.All.HitRate(); got > ceiling || got < ceiling-0.01 {
		t.Errorf("hit rate %.4f, ceiling %.4f", got, ceiling)
	}
}
