package adapters

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/shared/policy"
)

// vllmModels is what vLLM 0.11 answered with one adapter loaded.
const vllmModels = `{"object":"list","data":[{"id":"tiny","object":"model","created":1795968713,"owned_by":"vllm","root":"/models/tiny-qwen2","parent":null,"max_model_len":4096,"permission":[{"id":"modelperm-9ba9d2c9b4bdaa31","object":"model_permission","created":1795968713,"allow_create_engine":false,"allow_sampling":true,"allow_logprobs":true,"allow_search_indices":false,"allow_view":true,"allow_fine_tuning":false,"organization":"*","group":null,"is_blocking":false}]},{"id":"lora-a","object":"model","created":1795968713,"owned_by":"vllm","root":"/models/lora-a","parent":"tiny","max_model_len":null,"permission":[{"id":"modelperm-a167cd894a129350","object":"model_permission","created":1795968713,"allow_create_engine":false,"allow_sampling":true,"allow_logprobs":true,"allow_search_indices":false,"allow_view":true,"allow_fine_tuning":false,"organization":"*","group":null,"is_blocking":false}]}]}`

func TestAdaptersAreTheModelsWithAParent(t *testing.T) {
	for body, want := range map[string]string{
		vllmModels:    "{[tiny] [{lora-a /models/lora-a}]}",
		`{"data":[]}`: "{[] []}",
		`{"data":[{"id":"b","parent":"x"},{"id":"a","parent":"x","root":"r"},{"id":"b","parent":"x"},{"id":"x","parent":"x","root":"m"},{"id":"y","parent":"","root":"m"},{"id":"","parent":"x"}]}`: "{[x y] [{a r} {b }]}",
		// Several models behind one address: nobody knows what they share.
		`{"data":[{"id":"x"},{"id":"y"},{"id":"a","parent":"x"}]}`: "{[] [{a }]}",
		`{"data":`:            "list models: read /v1/models: unexpected end of JSON input",
		`{"data":[{"id":3}]}`: "list models: read /v1/models:",
		"401":                 "list models: /v1/models answers 401",
		"404":                 "{[] []}",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			status := http.StatusOK
			if _, err := fmt.Sscanf(body, "%d", &status); err == nil {
				w.WriteHeader(status)
			}
			if r.URL.Path != "/v1/models" || r.Header.Get("Authorization") != "Bearer token" {
				t.Errorf("%s %v", r.URL, r.Header)
			}
			fmt.Fprint(w, body)
		}))
		served, err := Ask(t.Context(), server.Client(), strings.TrimPrefix(server.URL, "http://"), "token")
		server.Close()
		if got := fmt.Sprint(served); err == nil && got != want || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v %v", body, got, err)
		}
	}
}

func TestAGenerationIsThatOfThePath(t *testing.T) {
	one, other := Adapter{"sql", "/adapters/sql/1"}, Adapter{"law", "/adapters/sql/2"}
	if g := one.Generation(); g == 0 || g > policy.MaxGeneration || g == other.Generation() {
		t.Error(g, other.Generation())
	}
	for _, untold := range []Adapter{{"sql", ""}, {"sql", "sql"}} {
		if g := untold.Generation(); g != 0 {
			t.Errorf("%+v: %d", untold, g)
		}
	}
}

var (
	t0 = time.Unix(1_700_000_000, 0)
	x  = Served{Adapters: []Adapter{{Name: "x"}}}
)

func TestAPoolsAdapterIsFromWhereMostWorkersHaveIt(t *testing.T) {
	b := NewBook(time.Second, nil)
	var workers []Worker
	for i := range 4 {
		workers = append(workers, Worker{Address: fmt.Sprint(i), Generation: 1, Pool: "p", Takes: i < 3})
	}
	loads := func(i int, root string) string {
		b.Answer(workers[i], Served{Adapters: []Adapter{{"sql", root}}}, nil, t0)
		served := b.Decide(workers)["p"]
		if len(served.Adapters) != 1 {
			return ""
		}
		return served.Adapters[0].Root
	}
	for i := range 4 {
		loads(i, "v1")
	}
	for i, want := range []string{"v1", "v2", "v2"} { // one, two, all of those that take requests
		if got := loads(i, "v2"); got != want {
			t.Errorf("after %d of 3: %s", i+1, got)
		}
	}
	if got := loads(0, "v3") + loads(1, "v4"); got != "v2v2" {
		t.Errorf("as many have others: %s", got)
	}
}

func TestTheNamesOfTheBaseModelAreThoseOfTheListAndOfAllWorkers(t *testing.T) {
	b := NewBook(time.Second, map[string]Served{"p": {Base: []string{"before"}}, "idle": x})
	workers := []Worker{{Address: "a", Generation: 1, Pool: "p", Model: "listed", Takes: true}, {Address: "b", Generation: 1, Pool: "p", Takes: true}}
	b.Answer(workers[0], Served{Base: []string{"one", "two"}}, nil, t0)
	if got := b.Decide(workers); !slices.Equal(got["p"].Base, []string{"before", "listed", "one", "two"}) || !got["idle"].Same(x) {
		t.Errorf("while one is silent: %v", got)
	}
	b.Answer(workers[1], Served{Base: []string{"two"}}, nil, t0)
	if got := b.Decide(workers)["p"].Base; !slices.Equal(got, []string{"listed", "one", "two"}) {
		t.Errorf("%v", got)
	}
}

func TestANewProcessIsAskedAtOnceAndAFailureIsRetried(t *testing.T) {
	b := NewBook(10*time.Second, nil)
	w := Worker{Address: "a", Generation: 1, Pool: "p", Takes: true}
	at := func(seconds int) []Worker { return b.Due([]Worker{w}, t0.Add(time.Duration(seconds)*time.Second)) }
	if len(at(0)) != 1 {
		t.Fatal("not asked")
	}
	b.Answer(w, Served{}, errors.New("timeout"), t0)
	if len(at(0)) != 0 || len(at(1)) != 1 {
		t.Error("not asked again after a second")
	}
	b.Answer(w, x, nil, t0.Add(time.Second))
	if len(at(10)) != 0 || len(at(11)) != 1 {
		t.Error("not asked again after the interval")
	}
	b.Answer(w, Served{}, errors.New("timeout"), t0.Add(11*time.Second))
	if served, err := b.Of("a", 1); err == nil || !served.Same(x) {
		t.Errorf("%v %v", served, err)
	}
	w.Generation = 2
	if len(at(11)) != 1 {
		t.Error("another process is taken for the one before")
	}
	if served, err := b.Of("a", 1); !served.Same(Served{}) || err != nil {
		t.Errorf("of a process that is gone: %v %v", served, err)
	}
}

// TestAPoolServesWhatAllItsWorkersHaveUntilNoneHasIt compares with the rule
// spelled out over a history.
func TestAPoolServesWhatAllItsWorkersHaveUntilNoneHasIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := NewBook(time.Second, nil)
		serves := false
		for round := range rapid.IntRange(1, 20).Draw(t, "rounds") {
			var workers []Worker
			taking, have, takingHave, silent := 0, 0, 0, 0
			type said struct{ known, has bool }
			what := map[string]said{}
			for i := range rapid.IntRange(0, 3).Draw(t, "workers") {
				w := Worker{Address: fmt.Sprint(i), Generation: uint64(round + 1), Pool: "p", Takes: rapid.Bool().Draw(t, "takes")}
				s := said{rapid.Bool().Draw(t, "known"), rapid.Bool().Draw(t, "has")}
				workers, what[w.Address] = append(workers, w), s
				if w.Takes {
					taking++
				}
				switch {
				case !s.known:
					silent++
				case s.has:
					have++
					if w.Takes {
						takingHave++
					}
				}
			}
			b.Due(workers, t0)
			for _, w := range workers {
				s := what[w.Address]
				var served Served
				var err error
				if s.has {
					served = x
				}
				if !s.known {
					err = errors.New("timeout")
				}
				b.Answer(w, served, err, t0)
			}
			switch {
			case taking > 0 && takingHave == taking:
				serves = true
			case serves && have == 0 && silent == 0 && len(workers) > 0:
				serves = false
			}
			if got := b.Decide(workers)["p"].Same(x); got != serves {
				t.Fatalf("serves %v, want %v: taking %d, of them %d; %d have it, %d silent", got, serves, taking, takingHave, have, silent)
			}
		}
	})
}

func TestARecordedListOfModelsIsRead(t *testing.T) {
	body, err := os.ReadFile("testdata/vllm-0.32-models.json")
	if err != nil {
		t.Fatal(err)
	}
	got, err := read(body)
	want := Served{Base: []string{"tiny"}, Adapters: []Adapter{{"lora-a", "/models/lora-a"}}}
	if err != nil || !got.Same(want) {
		t.Errorf("%+v, %v", got, err)
	}
}

// FuzzRead: whatever a worker answers at /v1/models, each name is there once, and
// is either the base model's or an adapter's with a length that can be kept.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"data":[{"id":"base","root":"/models/base","parent":null},{"id":"sql","root":"/adapters/sql","parent":"base"}]}`))
	f.Add([]byte(`{"data":[{"id":"a","root":"x"},{"id":"a","root":"x"},{"id":"b","parent":"b"}]}`))
	f.Add([]byte(`{"data":[{"id":"","parent":"x"},{"id":null}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		served, err := read(body)
		if err != nil {
			return
		}
		if len(served.Adapters) > maxAdapters {
			t.Fatalf("%d adapters", len(served.Adapters))
		}
		for i, name := range served.Base {
			if name == "" || len(name) > maxName || i > 0 && name <= served.Base[i-1] {
				t.Fatalf("base %q", served.Base)
			}
		}
		for i, a := range served.Adapters {
			if a.Name == "" || len(a.Name) > maxName || i > 0 && a.Name <= served.Adapters[i-1].Name {
				t.Fatalf("adapters %q", served.Adapters)
			}
		}
		if again, err := read(body); err != nil || !again.Same(served) {
			t.Fatalf("%v, then %v %v", served, again, err)
		}
	})
}
