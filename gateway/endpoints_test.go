package gateway

import (
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
)

func TestWhoeverElseChoosesTheOneThatIsLeftIsFound(t *testing.T) {
	e, err := NewEndpoints("", "10.0.0.1:80", "10.0.0.2:80")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200_000 {
				if to, fellBack := e.choose(nil, "", []string{"10.0.0.1:80"}); to.address != "10.0.0.2:80" || !fellBack {
					t.Errorf("got %+v, %v", to, fellBack)
					return
				}
			}
		})
	}
	all.Wait()
}

// TestTheOnlyWorkerOfAPoolAnswersForItself: others are no help with what they don't serve.
func TestTheOnlyWorkerOfAPoolAnswersForItself(t *testing.T) {
	full, hits := worker(t, "full", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	other, others := worker(t, "other", nil)
	g := start(t, nil, func(c *Config) {
		if err := c.Endpoints.Set(map[string][]string{"": {full}, "another": {other}}); err != nil {
			t.Fatal(err)
		}
	})
	resp := post(t, g, "dest="+full+"\n")
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "7" || resp.Header.Get("X-Worker") != "full" {
		t.Errorf("got %d, %v; want the worker's own answer", resp.StatusCode, resp.Header)
	}
	if hits.Load() != 1 || others.Load() != 0 {
		t.Errorf("%d and %d requests, want 1 and 0", hits.Load(), others.Load())
	}
}

// TestAPoolWithoutWorkersIsNotServedByAnother: a worker of another pool would answer 404
// for the model, after which nobody retries.
func TestAPoolWithoutWorkersIsNotServedByAnother(t *testing.T) {
	e := &Endpoints{}
	chosen := func(pool string) (found []string) {
		for range 8 {
			if to, _ := e.choose([]string{"10.9.9.9:1"}, pool, nil); to.address != "" && !slices.Contains(found, to.address) {
				found = append(found, to.address)
			}
		}
		slices.Sort(found)
		return found
	}
	chat, batch := []string{"10.0.0.1:80", "10.0.0.2:80"}, []string{"10.0.0.3:80"}
	for _, c := range []struct {
		listed map[string][]string
		pool   string
		want   []string
	}{
		{map[string][]string{"chat": chat, "batch": batch}, "chat", chat},
		{map[string][]string{"batch": batch}, "chat", nil},
		{map[string][]string{"chat": {}, "batch": batch}, "chat", nil},
		{map[string][]string{"chat": chat, "batch": batch}, "", append(slices.Clone(chat), batch...)}, // the module named none
		{map[string][]string{"": chat}, "chat", chat},                                                 // listed by --upstream
	} {
		if err := e.Set(c.listed); err != nil {
			t.Fatal(err)
		}
		if got := chosen(c.pool); !slices.Equal(got, c.want) {
			t.Errorf("pool %q of %v: sent to %v, want %v", c.pool, c.listed, got, c.want)
		}
	}
}

// TestWhereNobodyIsListedClientsAreToldToComeBack: and not at once.
func TestWhereNobodyIsListedClientsAreToldToComeBack(t *testing.T) {
	g := start(t, nil, nil)
	resp := post(t, g, "dest=10.9.9.9:1\n")
	after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if resp.StatusCode != http.StatusServiceUnavailable || err != nil || after < 1 || after > 3 {
		t.Errorf("got %d, %v; want 503 with a Retry-After of 1 to 3 s", resp.StatusCode, resp.Header)
	}
}
