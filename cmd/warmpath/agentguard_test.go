package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The whole way with the defaults but for ports: a client, the guard, an engine, and
// nobody to hear the heartbeats.
func TestAnAgentStandsGuard(t *testing.T) {
	more := make(chan struct{})
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			_, _ = io.WriteString(w, "vllm:num_requests_running 0\n")
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: 1\n\n")
		_ = http.NewResponseController(w).Flush()
		<-more
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}))
	defer engine.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	said, out := io.Pipe()
	root := rootCommand()
	root.SetOut(out)
	root.SetArgs([]string{"agent", "--guard", "--engine", engine.URL, "--guard-listen", "127.0.0.1:0", "--control", "http://127.0.0.1:9", "--listen", "127.0.0.1:0", "--interval", "100ms"})
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(ctx) }()
	line, err := bufio.NewReader(said).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var address, health string
	if words := strings.Fields(line); len(words) == 5 && words[0] == "guard" {
		address, health = strings.TrimSuffix(words[1], ","), words[4]
	} else {
		t.Fatalf("said %q", line)
	}
	stream, err := http.Post("http://"+address+"/v1/chat/completions", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	answer := bufio.NewReader(stream.Body)
	if text, err := answer.ReadString('\n'); text != "data: 1\n" {
		t.Fatalf("%q, %v", text, err)
	}
	page, err := http.Get(strings.Replace(health, "healthz", "metrics", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer page.Body.Close()
	if text, _ := io.ReadAll(page.Body); !strings.Contains(string(text), `warmpath_guard_in_flight{class="p1"} 1`) {
		t.Errorf("%s", text)
	}
	// The end: the stream is waited for.
	cancel()
	select {
	case err := <-done:
		t.Fatalf("ended within a stream: %v", err)
	default:
	}
	close(more)
	if rest, err := io.ReadAll(answer); err != nil || string(rest) != "\ndata: [DONE]\n\n" {
		t.Errorf("%q, %v", rest, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestSettingsOfAGuardThatCannotWorkAreNamed(t *testing.T) {
	for setting, want := range map[string]string{
		"--queue-wait=1s":       "three",
		"--memory=0.9":          "two",
		"--memory=0.5,0.9":      "memory",
		"--queue-requests=0":    "above 0",
		"--prefill-ahead=0s":    "above 0",
		"--engine=127.0.0.1:80": "is not a URL",
		"--guard-listen=x":      "--guard-listen",
	} {
		var errs strings.Builder
		if code := run([]string{"agent", "--guard", "--guard-listen=127.0.0.1:0", setting}, io.Discard, &errs); code != 1 || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: code %d, %s", setting, code, errs.String())
		}
	}
}
