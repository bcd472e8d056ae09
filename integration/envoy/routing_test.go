//go:build envoy

package envoy

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// startsWithoutControl: Envoy is up, the control service never was. Requests
// are served by the cluster's own balancer and counted; once control comes up,
// they are steered without a restart.
func startsWithoutControl(r *rig) {
	ctx := r.t.Context()
	for i := range 40 {
		if a := r.chat(ctx, talk(uint64(i), 3000).ask(), i%2 == 0); a.err() != nil {
			r.t.Fatalf("request %d without a control service: %v", i, a.err())
		}
	}
	r.flushed(func() {
		if n := r.counters()[metric("fallback.no_table")]; n < 40 {
			r.t.Errorf("fallback.no_table is %d after 40 requests without a table", n)
		}
	})
	r.startControl()
	r.waitSteering()
}

// secondTurnReturns: 8 conversations over 4 workers, three turns each.
func secondTurnReturns(r *rig) {
	ctx := r.t.Context()
	before := r.counters()
	var talks [8]*conversation
	var homes [8]string
	workers := map[string]bool{}
	for turn := 1; turn <= 3; turn++ {
		for i := range talks {
			if turn == 1 {
				talks[i] = talk(uint64(100+i), 8000)
			}
			a := r.chat(ctx, talks[i].ask(), turn == 3)
			if a.err() != nil {
				r.t.Fatal(a.err())
			}
			talks[i].hear(a.text)
			if turn == 1 {
				homes[i], workers[a.worker] = a.worker, true
				continue
			}
			if a.worker != homes[i] {
				r.t.Errorf("conversation %d turn %d: served by %s, the first turn by %s", i, turn, a.worker, homes[i])
			}
			if a.cachedTokens*10 < a.promptTokens*8 {
				r.t.Errorf("conversation %d turn %d: %d of %d prompt tokens were cached, want most", i, turn, a.cachedTokens, a.promptTokens)
			}
		}
		r.settled()
	}
	if len(workers) < 2 {
		r.t.Errorf("8 conversations all went to one worker: %v", workers)
	}
	r.flushed(func() {
		after := r.counters()
		for _, family := range []string{"hits.", "matched_tokens.", "came_true_tokens."} {
			rose := after.Sum(metric(family)) - before.Sum(metric(family))
			want := int64(16)
			if strings.Contains(family, "tokens") {
				want = 16 * 1000
			}
			if rose < want {
				r.t.Errorf("%s rose by %d over 16 follow-up turns, want at least %d", family, rose, want)
			}
		}
	})
	if log := r.proxy.AccessLog(); !strings.Contains(log, "why=holder") {
		r.t.Errorf("no decision with why=holder in the access log; its last line: %s", lastLine(log))
	}
}

// settled waits until a dispatch just made can be found by any VM: one batch
// to control, one table update back.
func (r *rig) settled() { <-time.After(900 * time.Millisecond) }

// modelChoosesPool: the body's model decides which cluster serves.
func modelChoosesPool(r *rig) {
	small := map[string]bool{r.fleet.Workers[4].Address: true, r.fleet.Workers[5].Address: true}
	for i := range 20 {
		c := talk(uint64(200+i), 2500)
		want := i%2 == 0
		if want {
			c.model = "small"
		}
		a := r.chat(r.t.Context(), c.ask(), false)
		if a.err() != nil {
			r.t.Fatal(a.err())
		}
		if small[a.worker] != want {
			r.t.Errorf("model %q was served by %s", c.model, a.worker)
		}
	}
	// A call without a body goes to a healthy worker as well.
	if a := r.send(r.t.Context(), "/v1/models", nil); a.err() != nil {
		r.t.Errorf("GET /v1/models: %v", a.err())
	}
}

// clientsCannotNameAnEndpoint: what a client sends in our headers is not
// believed, and nothing of ours reaches a worker.
func clientsCannotNameAnEndpoint(r *rig) {
	target := r.fleet.Workers[3].Address
	spoof := []string{
		"x-gateway-destination-endpoint", target, "x-warmpath-pool", "small",
		"x-warmpath-decision", "mine", "x-envoy-max-retries", "9",
	}
	r.fleet.Record()
	there, log := 0, r.proxy.AccessLog()
	const n = 24
	for i := range n {
		a := r.chat(r.t.Context(), talk(uint64(300+i), 2500).ask(), false, spoof...)
		if a.err() != nil {
			r.t.Fatal(a.err())
		}
		if a.worker == target {
			there++
		}
		if a.worker == r.fleet.Workers[4].Address || a.worker == r.fleet.Workers[5].Address {
			r.t.Errorf("a client's x-warmpath-pool chose the pool: served by %s", a.worker)
		}
	}
	if there > n*3/4 {
		r.t.Errorf("%d of %d requests went where the client said", there, n)
	}
	r.noneOfOurs()
	if strings.Contains(strings.TrimPrefix(r.proxy.AccessLog(), log), `"mine"`) {
		r.t.Error("a client's decision reached the access log")
	}
}

// noneOfOurs closes the notebook and checks that no worker saw a header of ours.
func (r *rig) noneOfOurs() {
	r.t.Helper()
	seen := r.fleet.Recorded()
	if len(seen) == 0 {
		r.t.Error("the workers noted no request")
	}
	for _, req := range seen {
		for key := range req.Header {
			key = strings.ToLower(key)
			if strings.HasPrefix(key, "x-warmpath-") || strings.HasPrefix(key, "x-gateway-destination") {
				r.t.Errorf("worker %s received the header %s: %q", req.Worker, key, req.Header.Get(key))
			}
		}
	}
}

// metricsVisible: the module's counters are in Envoy's statistics, and in
// Prometheus' form with the label split off.
func metricsVisible(r *rig) {
	stats := r.counters()
	for _, name := range []string{"lookups.1k_4k", "hits.1k_4k", "dispatched", "released", "fallback.no_table", "requests.chat_completions"} {
		if stats[metric(name)] == 0 {
			r.t.Errorf("%s is missing or zero in /stats", metric(name))
		}
	}
	text, err := r.proxy.Admin(r.t.Context(), "/stats/prometheus")
	if err != nil {
		r.t.Fatal(err)
	}
	for _, want := range []string{
		`warmpath_lookups{tier="1k_4k"}`, `warmpath_fallback{reason="no_table"}`, `warmpath_decisions{why="holder"}`,
		`warmpath_requests{endpoint="chat_completions"}`, `warmpath_outcomes{outcome="complete"}`, `warmpath_decision_us_bucket{`,
	} {
		if !strings.Contains(text, want) {
			r.t.Errorf("no %s in /stats/prometheus", want)
		}
	}
}

// bodiesArriveByteForByte: large bodies, with a length, in chunks, and again
// on the second attempt, have the client's checksum at the worker.
func bodiesArriveByteForByte(r *rig) {
	for _, size := range []int{400_000, 2 << 20} {
		for _, chunked := range []bool{false, true} {
			for _, retried := range []bool{false, true} {
				name := fmt.Sprintf("%d bytes, chunked %v, retried %v", size, chunked, retried)
				c := talk(uint64(size), size-1000)
				body := c.ask().body(false, 4)
				want := sha256Hex(body)
				if retried {
					r.fleet.RefuseFirst(1, 503)
				}
				r.fleet.Record()
				a := r.send(r.t.Context(), chatPath, reader(body, chunked))
				seen := r.fleet.Recorded()
				if a.err() != nil {
					r.t.Errorf("%s: %v", name, a.err())
					continue
				}
				if retried && len(seen) != 2 || !retried && len(seen) != 1 {
					r.t.Errorf("%s: %d workers saw it", name, len(seen))
				}
				for _, req := range seen {
					if req.BodySHA256 != want || req.BodyBytes != int64(len(body)) {
						r.t.Errorf("%s: worker got %d bytes with digest %.12s, sent %d with %.12s", name, req.BodyBytes, req.BodySHA256, len(body), want)
					}
					if len(req.Framing) != 1 {
						r.t.Errorf("%s: framing %v, want exactly one", name, req.Framing)
					}
				}
			}
		}
	}
}

// http2Passes: over HTTP/2 a body may end with trailers, and then no data frame
// is the last one.
func http2Passes(r *rig) {
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	h1 := r.client
	r.client = &http.Client{Transport: transport, Timeout: time.Minute}
	defer func() { r.client = h1 }()
	for _, trailers := range []bool{false, true} {
		before := r.counters().Sum(metric("lookups."))
		body := talk(2222, 100_000).ask().body(true, 20)
		r.fleet.Record()
		a := r.sendWith(r.t.Context(), chatPath, reader(body, true), func(req *http.Request) {
			if trailers {
				req.Trailer = http.Header{"X-Body-End": {"yes"}}
			}
		})
		seen := r.fleet.Recorded()
		if a.err() != nil {
			r.t.Errorf("trailers %v: %v", trailers, a.err())
			continue
		}
		if len(seen) != 1 || seen[0].BodySHA256 != sha256Hex(body) {
			r.t.Errorf("trailers %v: the body did not arrive as sent", trailers)
		}
		r.flushed(func() {
			if r.counters().Sum(metric("lookups.")) != before+1 {
				r.t.Errorf("trailers %v: the prompt was not looked up", trailers)
			}
		})
	}
}

// overCapPasses: a body above body_cap_bytes is not refused where the set-up
// can avoid it. Without a Content-Length the companion way cannot, and Envoy
// 1.36 can only if the body comes in small enough reads.
func overCapPasses(r *rig) {
	body := bytes.Repeat([]byte(" "), 6<<20)
	copy(body, `{"model":"default","max_tokens":4,"messages":[{"role":"user","content":"big"}]}`)
	want := sha256Hex(body)
	for _, chunked := range []bool{false, true} {
		before := r.counters()[metric("no_key.over_cap")]
		r.fleet.Record()
		a := r.send(r.t.Context(), chatPath, reader(body, chunked))
		seen := r.fleet.Recorded()
		if chunked && r.mode.name == "buffer" {
			if a.status != 413 {
				r.t.Errorf("6 MiB in chunks through the buffer: %d (%v), want 413", a.status, a.before)
			}
			continue
		}
		if chunked && a.status == 413 && strings.HasPrefix(r.version, "1.36.") {
			continue
		}
		if a.err() != nil {
			r.t.Errorf("6 MiB, chunked %v: %v", chunked, a.err())
			continue
		}
		if len(seen) != 1 || seen[0].BodySHA256 != want {
			r.t.Errorf("6 MiB, chunked %v: the body did not arrive as sent", chunked)
		}
		r.flushed(func() {
			if r.counters()[metric("no_key.over_cap")] == before {
				r.t.Errorf("6 MiB, chunked %v: not counted in no_key.over_cap", chunked)
			}
		})
	}
}

// streamsPassUnharmed: what the worker wrote is what the client read.
func streamsPassUnharmed(r *rig) {
	for i := range 6 {
		c := talk(uint64(500+i), 4000)
		r.fleet.Record()
		a := r.send(r.t.Context(), chatPath, bytes.NewReader(c.ask().body(true, 300)))
		if a.err() != nil {
			r.t.Fatal(a.err())
		}
		var noted bool
		r.eventually(2*time.Second, "the worker has noted the request", func() error {
			for _, req := range r.fleet.Peek() {
				noted = noted || req.AnswerSHA256 == a.sha256()
			}
			if !noted {
				return fmt.Errorf("no worker wrote the %d bytes that the client read", len(a.body))
			}
			return nil
		})
		if a.chunks < 100 {
			r.t.Errorf("%d events in a stream of 300 tokens", a.chunks)
		}
		if !bytes.HasSuffix(bytes.TrimSpace(a.body), []byte("[DONE]")) {
			r.t.Errorf("the stream does not end with [DONE]: %.60q", a.body[max(0, len(a.body)-60):])
		}
		if length := a.header.Get("Content-Length"); length != "" {
			r.t.Errorf("a stream with Content-Length %s", length)
		}
	}
	r.fleet.Recorded()
}

// slowFirstToken: once released, a request may wait longer than held ones may.
func slowFirstToken(r *rig) {
	for _, w := range r.fleet.Workers {
		w.Delay(heldLimit + time.Second)
		defer w.Delay(0)
	}
	a := r.chat(r.t.Context(), talk(600, 3000).ask(), true)
	if a.err() != nil {
		r.t.Errorf("first token after %v: %v", heldLimit+time.Second, a.err())
	}
	if a.ttfb < heldLimit {
		r.t.Errorf("answered after %v: the workers did not wait", a.ttfb)
	}
}

// refusalIsRerouted: 503 and 429 go to the second choice, 500 does not.
func refusalIsRerouted(r *rig) {
	for _, status := range []int{503, 429} {
		before := r.counters()[metric("reroutes")]
		r.fleet.Record()
		r.fleet.RefuseFirst(1, status)
		a := r.chat(r.t.Context(), talk(uint64(700+status), 3000).ask(), false)
		seen := r.fleet.Recorded()
		if a.err() != nil {
			r.t.Errorf("refused once with %d: %v", status, a.err())
			continue
		}
		if len(seen) != 2 || seen[0].Worker == seen[1].Worker {
			r.t.Errorf("refused once with %d: attempts at %v, want two workers", status, workersOf(seen))
		}
		if got := a.header.Get("x-warmpath-attempts"); got != "2" {
			r.t.Errorf("refused once with %d: x-warmpath-attempts is %q, want 2", status, got)
		}
		r.flushed(func() {
			if r.counters()[metric("reroutes")] != before+1 {
				r.t.Errorf("refused once with %d: reroutes rose by %d, want 1", status, r.counters()[metric("reroutes")]-before)
			}
		})
	}
	r.tooLargeToRepeat()
	r.fleet.BreakFirst(2)
	a := r.chat(r.t.Context(), talk(798, 3000).ask(), false)
	if after := a.header.Get("retry-after"); a.status != 503 || after == "" {
		r.t.Errorf("both workers broke off: the client got %d, retry-after %q, want 503 and some seconds", a.status, after)
	}
	r.fleet.Record()
	r.fleet.RefuseFirst(1, 500)
	a = r.chat(r.t.Context(), talk(799, 3000).ask(), false)
	if seen := r.fleet.Recorded(); a.status != 500 || len(seen) != 1 {
		r.t.Errorf("answered once with 500: client got %d after %d attempts, want 500 after 1", a.status, len(seen))
	}
}

// tooLargeToRepeat: of a body over request_body_buffer_limit the proxy keeps no copy, so
// the client gets the first worker's refusal. Only the module's count tells.
func (r *rig) tooLargeToRepeat() {
	if r.mode.name == "buffer" {
		return // it never goes on
	}
	body := bytes.Repeat([]byte(" "), 16<<20)
	copy(body, `{"model":"default","max_tokens":4,"messages":[{"role":"user","content":"big"}]}`)
	before := r.counters()[metric("retries_denied.proxy")]
	r.fleet.Record()
	r.fleet.RefuseFirst(1, 503)
	a := r.send(r.t.Context(), chatPath, reader(body, false))
	if seen := r.fleet.Recorded(); a.status != 503 || len(seen) != 1 {
		r.t.Errorf("16 MiB, refused once: the client got %d (%v) after %d attempts, want 503 after 1", a.status, a.before, len(seen))
	}
	r.flushed(func() {
		if n := r.counters()[metric("retries_denied.proxy")] - before; n != 1 {
			r.t.Errorf("16 MiB, refused once: retries_denied.proxy rose by %d, want 1", n)
		}
	})
}
