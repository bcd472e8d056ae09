package control

import (
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/shared/policy"
)

// loaded is what engines list in /v1/models, by address: an adapter is its name,
// or "NAME from PATH".
type loaded struct {
	mu    sync.Mutex
	names map[string][]string
}

func (l *loaded) set(address string, names ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names[address] = names
}

func (l *loaded) answer(address string) (int, any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	data := []map[string]any{{"id": "base", "parent": nil}}
	for _, adapter := range l.names[address] {
		name, root, _ := strings.Cut(adapter, " from ")
		data = append(data, map[string]any{"id": name, "parent": "base", "root": root})
	}
	return http.StatusOK, map[string]any{"object": "list", "data": data}
}

const adapterPolicy = `
pools:
- {name: chat, models: [base], mode: route}
- {name: rest, models: ["*", fixed], mode: route}
`

// poolFor is the pool to which a gateway sends a model.
func (g *gateway) poolFor(model string) *policy.Pool {
	g.b.t.Helper()
	g.catchUp()
	set, err := policy.Parse([]byte(g.policy))
	if err != nil {
		g.b.t.Fatal(err)
	}
	return set.Pool(model)
}

func (g *gateway) poolOfModel(model string) string { return g.poolFor(model).Name }

// canonical is what a model's name stands for in a gateway's fingerprints.
func (g *gateway) canonical(model string) policy.Adapter {
	name, generation := g.poolFor(model).Canonical(model)
	return policy.Adapter{Name: name, Generation: generation}
}

func TestAnAdapterLeadsToThePoolWhoseWorkersHaveIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const one, two, three = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"
		l := &loaded{names: map[string][]string{one: {"sql", "fixed"}, two: {"sql", "fixed", "half"}, three: {"law"}}}
		e := newEngines(one, two, three)
		e.models = l.answer
		b := start(t, e, Config{Policy: []byte(adapterPolicy), Workers: []discovery.Spec{{Address: one, Pool: "chat"}, {Address: two, Pool: "chat"}, {Address: three, Pool: "rest"}}})
		<-b.s.Ready()
		time.Sleep(3 * time.Second)
		g := b.gateway("g")
		for model, want := range map[string]string{
			"base": "chat", "sql": "chat",
			"fixed": "rest", // the policy says so
			"half":  "rest", // a worker without it would answer 404
			"law":   "rest",
		} {
			if got := g.poolOfModel(model); got != want {
				t.Errorf("%s goes to %s", model, got)
			}
		}
		if strings.Contains(string(b.s.Policy()), "sql") {
			t.Error("the policy that people read back has what they didn't write")
		}
		st := b.status()
		if !maps.Equal(st.Adapters["chat"], map[string]uint64{"sql": 0}) || !slices.Equal(st.Workers[1].Adapters, []string{"fixed", "half", "sql"}) || st.Workers[1].AdaptersProblem != "" {
			t.Errorf("%v, %+v", st.Adapters, st.Workers[1])
		}
		// Loaded while the engine runs.
		l.set(one, "sql", "half")
		time.Sleep(11 * time.Second)
		if got := g.poolOfModel("half"); got != "chat" {
			t.Errorf("half goes to %s", got)
		}
		// A new process without it yet is asked at once, and takes it from nobody.
		l.set(one)
		e.set(one, 5000)
		time.Sleep(5 * time.Second)
		if st := b.status(); len(st.Workers[0].Adapters) != 0 {
			t.Errorf("after a restart: %v", st.Workers[0].Adapters)
		}
		if got := g.poolOfModel("sql"); got != "chat" {
			t.Errorf("sql goes to %s while a worker loads it", got)
		}
		// A policy from outside keeps them.
		if err := b.s.SetPolicy([]byte(strings.Replace(adapterPolicy, "mode: route", "mode: observe", 1))); err != nil {
			t.Fatal(err)
		}
		if got := g.poolOfModel("sql"); got != "chat" || !strings.Contains(g.policy, "observe") {
			t.Errorf("sql goes to %s after a change of the policy", got)
		}
		l.set(two)
		time.Sleep(11 * time.Second)
		if got := g.poolOfModel("sql"); got != "rest" {
			t.Errorf("sql goes to %s, which has it no more", got)
		}
	})
}

func TestGatewaysFindNothingOfOtherWeightsUnderTheSameName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const one, two, three = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"
		l := &loaded{names: map[string][]string{}}
		for _, address := range []string{one, two, three} {
			l.set(address, "sql from /v1", "law")
		}
		e := newEngines(one, two, three)
		e.models = l.answer
		workers := specs(one, two, three)
		state := filepath.Join(t.TempDir(), "state")
		b := start(t, e, Config{Workers: workers, StateFile: state})
		<-b.s.Ready()
		time.Sleep(3 * time.Second)
		g := b.gateway("g")
		before := g.canonical("sql")
		// One pool for all models: what nobody lists stands for itself.
		if law, base, other := g.canonical("law"), g.canonical("base"), g.canonical("other"); before.Name != "sql" || before.Generation == 0 || law != (policy.Adapter{Name: "law"}) || base != (policy.Adapter{}) || other != (policy.Adapter{Name: "other"}) {
			t.Errorf("%v %v %v %v", before, law, base, other)
		}
		at := func(address string) uint64 {
			w := b.worker(address)
			b.s.policyMu.Lock()
			defer b.s.policyMu.Unlock()
			return b.s.generations(address, w.Generation, "default")["sql"]
		}
		// The fleet changes over, worker by worker.
		l.set(one, "sql from /v2", "law")
		time.Sleep(11 * time.Second)
		if got := g.canonical("sql"); got != before || at(one) == before.Generation || at(two) != before.Generation {
			t.Errorf("after one of three: %v, %d %d", got, at(one), at(two))
		}
		if w := b.worker(one); !strings.Contains(w.AdaptersProblem, "sql was loaded from another path") {
			t.Errorf("%q", w.AdaptersProblem)
		}
		l.set(two, "sql from /v2", "law")
		time.Sleep(11 * time.Second)
		after := g.canonical("sql")
		if after == before || after.Generation != at(one) || at(two) != at(one) || at(three) != before.Generation {
			t.Errorf("after two of three: %v, before %v", after, before)
		}
		// A restart doesn't forget it, while no engine answers either.
		b.stop()
		e.models = func(string) (int, any) { return http.StatusServiceUnavailable, nil }
		b = start(t, e, Config{Workers: workers, StateFile: state})
		<-b.s.Ready()
		g = b.gateway("g")
		if got := g.canonical("sql"); got != after {
			t.Errorf("after a restart: %v", got)
		}
		// Whoever knows better says so.
		if err := b.s.SetPolicy([]byte(`pools: [{name: default, models: ["*"], adapters: {sql: 7}}]`)); err != nil {
			t.Fatal(err)
		}
		if got := g.canonical("sql"); got.Generation != 7 || at(one) != 7 || at(three) != 7 {
			t.Errorf("%v %d %d", got, at(one), at(three))
		}
	})
}

func TestAdaptersThatDontFitLeaveThePolicyAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const one = "10.0.0.1:8000"
		l := &loaded{names: map[string][]string{}}
		var many []string
		for i := range 300 {
			many = append(many, fmt.Sprint("adapter-", i))
		}
		l.set(one, many...)
		e := newEngines(one)
		e.models = l.answer
		b := start(t, e, Config{Policy: []byte(adapterPolicy), Workers: []discovery.Spec{{Address: one, Pool: "chat"}}})
		<-b.s.Ready()
		time.Sleep(3 * time.Second)
		g := b.gateway("g")
		if got := g.poolOfModel("adapter-1"); got != "rest" {
			t.Errorf("one of 300 goes to %s", got)
		}
		if got := g.poolOfModel("base"); got != "chat" {
			t.Errorf("base goes to %s", got)
		}
		l.set(one, many[:100]...)
		time.Sleep(11 * time.Second)
		if got := g.poolOfModel("adapter-1"); got != "chat" {
			t.Errorf("one of 100 goes to %s", got)
		}
	})
}
