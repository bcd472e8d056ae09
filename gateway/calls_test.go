package gateway

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestTheModulesCallsReachTheWorkerTheyName: and nobody else, whatever is listed in other pools.
func TestTheModulesCallsReachTheWorkerTheyName(t *testing.T) {
	var seen http.Header
	var body, path string
	chat1, calls1 := worker(t, "chat1", func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		seen, body, path = r.Header.Clone(), string(b), r.URL.Path
	})
	chat2, calls2 := worker(t, "chat2", nil)
	busy, _ := worker(t, "busy", status(http.StatusTooManyRequests))
	batch, _ := worker(t, "batch", nil)
	closed := httptest.NewServer(nil)
	gone := closed.Listener.Addr().String()
	closed.Close()
	g := start(t, nil, func(c *Config) {
		if err := c.Endpoints.Set(map[string][]string{"chat": {chat1, chat2, busy, gone}, "batch": {batch}, "empty": {}}); err != nil {
			t.Fatal(err)
		}
	})
	call := func(args string) string {
		t.Helper()
		text, err := io.ReadAll(post(t, g, "call="+args+"\n").Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, c := range []struct{ args, want string }{
		{"pool-chat " + chat1, "200 chat1"},
		{"pool-chat " + chat2, "200 chat2"},
		{"pool-batch " + batch, "200 batch"},
		{"pool-batch", "200 batch"},                // any of the pool
		{"pool-chat " + busy, "429 busy"},          // never sent again
		{"pool-chat " + gone, "503 "},              // refuses connections
		{"pool-chat " + batch, "503 "},             // not of this pool
		{"pool-chat 127.0.0.1:1," + chat1, "503 "}, // the second entry is for re-routes
		{"pool-empty", "no call"},
		{"pool-other " + chat1, "no call"},
		{"pool- " + chat1, "no call"},
		{"chat " + chat1, "no call"},
	} {
		if got := call(c.args); got != c.want {
			t.Errorf("call %s: %q, want %q", c.args, got, c.want)
		}
	}
	if calls1.Load() != 1 || calls2.Load() != 1 {
		t.Errorf("%d and %d calls reached the two workers, want 1 each", calls1.Load(), calls2.Load())
	}
	if path != "/v1/completions" || body != "sliced" || seen.Get("Authorization") != "Bearer key" {
		t.Errorf("the worker got %s %q %v", path, body, seen)
	}
	for key := range seen {
		if key = strings.ToLower(key); strings.HasPrefix(key, ourPrefix) || key == endpointHeader || key == "user-agent" {
			t.Errorf("the worker got %s: %s", key, seen.Get(key))
		}
	}
	// The list changes: who has left isn't called any more, who has come is.
	if err := g.cfg.Endpoints.Set(map[string][]string{"chat": {chat2}, "other": {chat1}}); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"pool-chat " + chat1: "503 ", "pool-chat " + chat2: "200 chat2", "pool-other " + chat1: "200 chat1", "pool-batch " + batch: "503 ",
	} {
		if got := call(args); got != want {
			t.Errorf("after the change, call %s: %q, want %q", args, got, want)
		}
	}
}

// TestWorkersListedWithoutAPoolAreEveryPools: as --upstream lists them.
func TestWorkersListedWithoutAPoolAreEveryPools(t *testing.T) {
	up, _ := worker(t, "up", nil)
	g := start(t, []string{up}, nil)
	text, err := io.ReadAll(post(t, g, "call=pool-default "+up+"\n").Body)
	if err != nil || string(text) != "200 up" {
		t.Errorf("%q, %v", text, err)
	}
}
