package control

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/shared/policy"
)

// loaded is what engines list in /v1/models, by address.
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
	for _, name := range l.names[address] {
		data = append(data, map[string]any{"id": name, "parent": "base"})
	}
	return http.StatusOK, map[string]any{"object": "list", "data": data}
}

const adapterPolicy = `
pools:
- {name: chat, models: [base], mode: route}
- {name: rest, models: ["*", fixed], mode: route}
`

// poolOfModel is where a gateway sends a model.
func (g *gateway) poolOfModel(model string) string {
	g.b.t.Helper()
	g.catchUp()
	set, err := policy.Parse([]byte(g.policy))
	if err != nil {
		g.b.t.Fatal(err)
	}
	return set.Pool(model).Name
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
		if !slices.Equal(st.Adapters["chat"], []string{"fixed", "sql"}) || !slices.Equal(st.Workers[1].Adapters, []string{"fixed", "half", "sql"}) || st.Workers[1].AdaptersProblem != "" {
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
