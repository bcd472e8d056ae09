package adapters

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// vllmModels is what vLLM 0.11 answered with one adapter loaded.
const vllmModels = `{"object":"list","data":[{"id":"tiny","object":"model","created":1795968713,"owned_by":"vllm","root":"/models/tiny-qwen2","parent":null,"max_model_len":4096,"permission":[{"id":"modelperm-9ba9d2c9b4bdaa31","object":"model_permission","created":1795968713,"allow_create_engine":false,"allow_sampling":true,"allow_logprobs":true,"allow_search_indices":false,"allow_view":true,"allow_fine_tuning":false,"organization":"*","group":null,"is_blocking":false}]},{"id":"lora-a","object":"model","created":1795968713,"owned_by":"vllm","root":"/models/lora-a","parent":"tiny","max_model_len":null,"permission":[{"id":"modelperm-a167cd894a129350","object":"model_permission","created":1795968713,"allow_create_engine":false,"allow_sampling":true,"allow_logprobs":true,"allow_search_indices":false,"allow_view":true,"allow_fine_tuning":false,"organization":"*","group":null,"is_blocking":false}]}]}`

func TestAdaptersAreTheModelsWithAParent(t *testing.T) {
	for body, want := range map[string]string{
		vllmModels:    "[tiny] [lora-a]",
		`{"data":[]}`: "[] []",
		`{"data":[{"id":"b","parent":"x"},{"id":"a","parent":"x"},{"id":"b","parent":"x"},{"id":"x","parent":"x"},{"id":"y","parent":""},{"id":"","parent":"x"}]}`: "[x y] [a b]",
		`{"data":`:            "list models: read /v1/models: unexpected end of JSON input",
		`{"data":[{"id":3}]}`: "list models: read /v1/models:",
		"401":                 "list models: /v1/models answers 401",
		"404":                 "it has no /v1/models",
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
		base, adapted, err := Models(t.Context(), server.Client(), strings.TrimPrefix(server.URL, "http://"), "token")
		names, asked := Ask(t.Context(), server.Client(), strings.TrimPrefix(server.URL, "http://"), "token")
		server.Close()
		if !slices.Equal(names, adapted) || (asked != nil) != (err != nil && !errors.Is(err, ErrNoList)) {
			t.Errorf("%s: asked for adapters alone: %v %v", body, names, asked)
		}
		if got := fmt.Sprint(base, " ", adapted); err == nil && got != want || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v %v %v", body, base, adapted, err)
		}
	}
}

var t0 = time.Unix(1_700_000_000, 0)

func TestANewProcessIsAskedAtOnceAndAFailureIsRetried(t *testing.T) {
	b := NewBook(10 * time.Second)
	w := Worker{Address: "a", Generation: 1, Pool: "p", Takes: true}
	at := func(seconds int) []Worker { return b.Due([]Worker{w}, t0.Add(time.Duration(seconds)*time.Second)) }
	if len(at(0)) != 1 {
		t.Fatal("not asked")
	}
	b.Answer(w, nil, errors.New("timeout"), t0)
	if len(at(0)) != 0 || len(at(1)) != 1 {
		t.Error("not asked again after a second")
	}
	b.Answer(w, []string{"x"}, nil, t0.Add(time.Second))
	if len(at(10)) != 0 || len(at(11)) != 1 {
		t.Error("not asked again after the interval")
	}
	b.Answer(w, nil, errors.New("timeout"), t0.Add(11*time.Second))
	if names, err := b.Of("a", 1); err == nil || !slices.Equal(names, []string{"x"}) {
		t.Errorf("%v %v", names, err)
	}
	w.Generation = 2
	if len(at(11)) != 1 {
		t.Error("another process is taken for the one before")
	}
	if names, err := b.Of("a", 1); names != nil || err != nil {
		t.Errorf("of a process that is gone: %v %v", names, err)
	}
}

// TestAPoolServesWhatAllItsWorkersHaveUntilNoneHasIt compares with the rule
// spelled out over a history.
func TestAPoolServesWhatAllItsWorkersHaveUntilNoneHasIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := NewBook(time.Second)
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
				var names []string
				var err error
				if s.has {
					names = []string{"x"}
				}
				if !s.known {
					err = errors.New("timeout")
				}
				b.Answer(w, names, err, t0)
			}
			switch {
			case taking > 0 && takingHave == taking:
				serves = true
			case serves && have == 0 && silent == 0 && len(workers) > 0:
				serves = false
			}
			if got := slices.Equal(b.Decide(workers)["p"], []string{"x"}); got != serves {
				t.Fatalf("serves %v, want %v: taking %d, of them %d; %d have it, %d silent", got, serves, taking, takingHave, have, silent)
			}
		}
	})
}
