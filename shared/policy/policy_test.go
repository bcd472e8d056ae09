package policy

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const contract = `{"off":false,"pools":[{"name":"default","index":0,"models":["*"],"mode":"route","policy":{"name":"cost","miss_weight":3,"sample":0.5,"watermark":0.98},"ring_units":16,"unit_bytes":64,"cluster":"pool-default"}]}`

func TestDefaultsAreWhatTheDocumentedExampleSpellsOut(t *testing.T) {
	full, err := Parse([]byte(contract))
	if err != nil {
		t.Fatal(err)
	}
	short, err := Parse([]byte(`{"pools":[{"name":"default","models":["*"]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(full, short); diff != "" {
		t.Error(diff)
	}
}

func TestEveryParameterIsRead(t *testing.T) {
	s, err := Parse([]byte(`{"off":true,"pools":[
		{"name":"chat","index":9,"models":["a","b \u0022c"],"mode":"observe","ring_units":64,"cluster":"blue",
		 "policy":{"name":"threshold","load_limit":0.5,"min_match_tokens":100,"watermark":0.9,"load_bound":1.5,"holder_bound":3,
		           "virtual_nodes":32,"load_decay_ms":2500,"lease_ms":9000}},
		{"name":"rest","index":2,"models":["*"],"policy":{"name":"chwbl","load_bound":2}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	rest := Default(CHWBL)
	rest.LoadBound = 2
	chat := Default(Threshold)
	chat.LoadLimit, chat.MinMatchTokens, chat.Watermark, chat.LoadBound, chat.HolderBound = 0.5, 100, 0.9, 1.5, 3
	chat.VirtualNodes, chat.LoadDecay, chat.Lease = 32, 2500*time.Millisecond, 9*time.Second
	want := &Set{Off: true, Pools: []Pool{
		{
			Name: "chat", Index: 9, Models: []string{"a", `b "c`}, Mode: Observe, RingUnits: 64, UnitBytes: 64, Cluster: "blue",
			Policy: chat,
		},
		{Name: "rest", Index: 2, Models: []string{"*"}, Policy: rest, RingUnits: 16, UnitBytes: 64, Cluster: "pool-rest"},
	}}
	if diff := cmp.Diff(want, s); diff != "" {
		t.Error(diff)
	}
}

func TestModelFindsItsPoolByExactNameThenByStar(t *testing.T) {
	s, err := Parse([]byte(`{"pools":[{"name":"rest","models":["*"],"index":4},{"name":"one","models":["llama","qwen"],"index":1}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for model, want := range map[string]string{"llama": "one", "qwen": "one", "Llama": "rest", "": "rest", "*": "rest", "other": "rest"} {
		if p := s.Pool(model); p == nil || p.Name != want {
			t.Errorf("model %q: pool %v, want %s", model, p, want)
		}
	}
	only := &Set{Pools: s.Pools[1:]}
	if p := only.Pool("other"); p != nil {
		t.Errorf("model nobody names: pool %s", p.Name)
	}
	if s.ByIndex(4).Name != "rest" || s.ByIndex(9) != nil || s.ByName("one").Index != 1 || s.ByName("x") != nil {
		t.Error("ByIndex or ByName")
	}
}

func TestOffMakesEveryPoolObserve(t *testing.T) {
	p := Pool{Mode: Route}
	if on := (&Set{}).Mode(&p); on != Route {
		t.Errorf("on: %v", on)
	}
	if off := (&Set{Off: true}).Mode(&p); off != Observe {
		t.Errorf("off: %v", off)
	}
}

func TestWrongPolicyIsRefusedWithPlaceAndRemedy(t *testing.T) {
	pool := func(s string) string {
		return `{"pools":[{"name":"a","models":["*"]},{"name":"b","models":["m"],` + s + `}]}`
	}
	for _, c := range []struct{ text, place, fault, remedy string }{
		{``, "", "not valid JSON", "check"},
		{`{"off":true`, "", "not valid JSON", "check"},
		{`[]`, "", "not an object", "{...}"},
		{`{"of":true}`, "of", "unknown key", "off, pools"},
		{`{"off":1}`, "off", "not a boolean", "true or false"},
		{`{"off":true,"off":false}`, "off", "given twice", "keep one"},
		{`{"pools":{}}`, "pools", "not an array", "["},
		{`{"pools":[1]}`, "pools[0]", "not an object", "{"},
		{`{"pools":[{"models":["*"]}]}`, "pools[0].name", "missing", "name the pool"},
		{`{"pools":[{"name":"A","models":["*"]}]}`, "pools[0].name", "not a pool name", "a-z"},
		{`{"pools":[{"name":"` + strings.Repeat("a", 41) + `","models":["*"]}]}`, "pools[0].name", "not a pool name", "1 to 40"},
		{`{"pools":[{"name":"a"}]}`, "pools[0].models", "missing", `["*"]`},
		{`{"pools":[{"name":"a","models":[""]}]}`, "pools[0].models[0]", "not a model name", "1 to 256"},
		{`{"pools":[{"name":"a","models":[7]}]}`, "pools[0].models[0]", "not a string", "quotes"},
		{pool(`"mode":"enforce"`), "pools[1].mode", `unknown mode: "enforce"`, "route or observe"},
		{pool(`"index":0`), "pools[1].index", "the index of pools[0] again", "own index"},
		{pool(`"index":256`), "pools[1].index", "out of range: 256", "0 to 255"},
		{pool(`"index":1.5`), "pools[1].index", "not a whole number: 1.5", "integer"},
		{pool(`"unit_bytes":128`), "pools[1].unit_bytes", "out of range", "64"},
		{pool(`"ring_units":0`), "pools[1].ring_units", "out of range", "1 to 65536"},
		{pool(`"cluster":""`), "pools[1].cluster", "not a cluster name", "1 to 256"},
		{pool(`"policy":"threshold"`), "pools[1].policy", "not an object", "name"},
		{pool(`"policy":{"name":"thresh"}`), "pools[1].policy.name", `unknown policy: "thresh"`, "round_robin"},
		{pool(`"policy":{"name":"threshold","load_limit":0}`), "pools[1].policy.load_limit", "out of range: 0", "to 1"},
		{pool(`"policy":{"name":"threshold","load_limit":1.1}`), "pools[1].policy.load_limit", "out of range: 1.1", "to 1"},
		{pool(`"policy":{"name":"threshold","load_limit":"0.5"}`), "pools[1].policy.load_limit", "out of range", "number"},
		{pool(`"policy":{"name":"threshold","load_limt":0.5}`), "pools[1].policy.load_limt", "unknown key", "load_limit"},
		{pool(`"policy":{"load_limit":0.5}`), "pools[1].policy.load_limit", "unknown key", "miss_weight"}, // of the default rule
		{pool(`"policy":{"name":"random","load_limit":0.5}`), "pools[1].policy.load_limit", "unknown key", "name, lease_ms"},
		{pool(`"policy":{"name":"threshold","load_bound":1}`), "pools[1].policy.load_bound", "out of range", "1.01"},
		{pool(`"policy":{"name":"threshold","virtual_nodes":2000}`), "pools[1].policy.virtual_nodes", "out of range", "1024"},
		{pool(`"policy":{"copy_slice_tokens":255}`), "pools[1].policy.copy_slice_tokens", "out of range: 255", "give 0"},
		{pool(`"policy":{"copy_slice_tokens":8193}`), "pools[1].policy.copy_slice_tokens", "out of range: 8193", "8192"},
		{pool(`"policy":{"copy_slice_tokens":768.5}`), "pools[1].policy.copy_slice_tokens", "not a whole number", "integer"},
		{pool(`"policy":{"name":"threshold","copy_slice_tokens":768}`), "pools[1].policy.copy_slice_tokens", "unknown key", "load_limit"},
		{pool(`"policy":{"lease_ms":1}`), "pools[1].policy.lease_ms", "out of range", "1000"},
		{`{"pools":[{"name":"a","models":["*"]},{"name":"a","index":1,"models":["m"]}]}`, "pools[1].name", "the name of pools[0] again", "unique"},
		{`{"pools":[{"name":"a","models":["m","m"]}]}`, "pools[0].models[1]", "served by pools[0] already", "once"},
		{strings.Repeat("[", 1_000), "", "nested deeper", "remove"},
		{strings.Repeat(" ", MaxBytes+1), "", "longer than 256 KiB", "split"},
	} {
		_, err := Parse([]byte(c.text))
		var e *Error
		if !errors.As(err, &e) || e.Place != c.place || !strings.Contains(e.Fault, c.fault) || !strings.Contains(e.Remedy, c.remedy) {
			t.Errorf("%.80s\n got %v\nwant %s: %s; %s", c.text, err, c.place, c.fault, c.remedy)
		}
	}
}

func TestParametersOfARuleAreTheOnesItUses(t *testing.T) {
	for _, q := range parameters {
		for i, name := range names {
			used := false
			for _, u := range q.used {
				used = used || u == Name(i)
			}
			value := map[string]string{
				"load_limit": "0.5", "watermark": "0.5", "load_bound": "2", "holder_bound": "3", "min_match_tokens": "1", "virtual_nodes": "1", "load_decay_ms": "100", "lease_ms": "1000",
				"miss_weight": "1", "decode_weight": "1", "evict_weight": "1", "tail_decay_ms": "1000", "spread_weight_ms": "7", "sample": "0.25",
				"output_tokens": "9", "decode_step_us": "9", "cache_weight": "1", "max_queue": "0.5", "queue_breaker": "0.5",
				"ramp_ms": "0", "ramp_first_ms": "1", "copy_slice_tokens": "0", "explore": "0.05",
			}[q.name]
			s, err := Parse([]byte(`{"pools":[{"name":"a","models":["*"],"policy":{"` + q.name + `":` + value + `,"name":"` + name + `"}}]}`))
			if used != (err == nil) {
				t.Errorf("%s with %s: %v", q.name, name, err)
			}
			if err == nil && s.Pools[0].Policy == Default(Name(i)) {
				t.Errorf("%s with %s is read and changes nothing", q.name, name)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(contract))
	f.Add([]byte(`{"pools":[{"name":"a","models":["\ud800"],"policy":{"name":"chwbl","load_bound":1e300}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse(text)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Fault == "" || e.Remedy == "" {
				t.Fatalf("error without a fault or remedy: %v", err)
			}
			return
		}
		for i := range s.Pools {
			p := &s.Pools[i]
			if s.ByIndex(p.Index) != p || s.ByName(p.Name) != p || s.Pool(p.Models[0]) == nil {
				t.Fatalf("pool %s can't be found", p.Name)
			}
		}
	})
}
