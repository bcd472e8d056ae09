package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAnAdapterHasAGenerationAndIsNoneOfTheBaseModelsNames(t *testing.T) {
	s, err := Parse([]byte(`{"pools":[
		{"name":"chat","models":["llama","latest","law"],"adapters":{"sql":0,"law":281474976710655}},
		{"name":"rest","models":["*"],"adapters":{"poem":3}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Adapter{{"sql", 0}, {"law", MaxGeneration}}, s.Pools[0].Adapters); diff != "" {
		t.Error(diff)
	}
	for model, want := range map[string]struct {
		pool    string
		adapter Adapter
	}{
		"llama":  {"chat", Adapter{}},
		"latest": {"chat", Adapter{}},
		"sql":    {"chat", Adapter{"sql", 0}},
		"law":    {"chat", Adapter{"law", MaxGeneration}},
		"poem":   {"rest", Adapter{"poem", 3}},
		"other":  {"rest", Adapter{"other", 0}},
		"*":      {"rest", Adapter{"*", 0}},
		"":       {"rest", Adapter{}},
	} {
		p := s.Pool(model)
		name, generation := p.Canonical(model)
		if p.Name != want.pool || (Adapter{name, generation}) != want.adapter {
			t.Errorf("%q is %s %d of pool %s", model, name, generation, p.Name)
		}
	}
}

func TestAdaptersAreRefusedWithTheirPlace(t *testing.T) {
	for adapters, want := range map[string]string{
		`["sql"]`:                 "pools[0].adapters: not an object",
		`{"sql":-1}`:              "pools[0].adapters.sql: out of range: -1",
		`{"sql":281474976710656}`: "pools[0].adapters.sql: out of range",
		`{"sql":1.5}`:             "pools[0].adapters.sql: not a whole number",
		`{"sql":"1"}`:             "pools[0].adapters.sql: out of range",
		`{"":1}`:                  "pools[0].adapters.: not the name of an adapter",
		`{"*":1}`:                 "pools[0].adapters.*: not the name of an adapter",
		`{"sql":1,"sql":1}`:       "pools[0].adapters.sql: is served by pools[0] already",
		`{"taken":1}`:             `pools[1].models[0]: model "taken" is served by pools[0] already`,
	} {
		_, err := Parse([]byte(`{"pools":[{"name":"a","models":["m"],"adapters":` + adapters + `},{"name":"b","index":1,"models":["taken"]}]}`))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", adapters, err)
		}
	}
	_, err := Parse([]byte(`{"pools":[{"name":"a","models":["m"]},{"name":"b","index":1,"models":["n"],"adapters":{"m":1}}]}`))
	if err == nil || !strings.HasPrefix(err.Error(), "pools[1].adapters.m: is served by pools[0] already") {
		t.Error(err)
	}
}
