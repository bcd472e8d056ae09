package gateway

import (
	"net/http"
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
