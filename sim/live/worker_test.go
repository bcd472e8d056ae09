package live

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	"github.com/warmpath/warmpath/sim/engine"
)

func TestMain(m *testing.M) {
	code := m.Run()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// testScale makes an engine second take a real millisecond.
const testScale = 1000

func start(t testing.TB, change func(*Config)) *Worker {
	t.Helper()
	c := Config{Name: "w1", TimeScale: testScale, Models: []string{"m"}}
	if change != nil {
		change(&c)
	}
	w, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func post(t testing.TB, w *Worker, path, body string) (status int, header http.Header, reply string) {
	t.Helper()
	r, err := http.Post(w.URL()+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, r.Header, string(b)
}

// eventData returns the data of each event of a stream.
func eventData(stream string) []string {
	var out []string
	for s := bufio.NewScanner(strings.NewReader(stream)); s.Scan(); {
		if data, ok := strings.CutPrefix(s.Text(), "data: "); ok {
			out = append(out, data)
		}
	}
	return out
}

var longSystem = strings.Repeat("Always answer in short sentences and name the order number. ", 60)

func chatBody(extra, question string) string {
	return fmt.Sprintf(`{"model":"m",%s"max_tokens":20,"ignore_eos":true,"messages":[{"role":"system","content":%q},{"role":"user","content":%q}]}`,
		extra, longSystem, question)
}

func TestChatStreamEndsWithUsageThatIsTrueToTheCache(t *testing.T) {
	w := start(t, nil)
	body := chatBody(`"stream":true,"stream_options":{"include_usage":true},`, "Where is it?")
	for turn, wantCached := range []bool{false, true} {
		status, header, stream := post(t, w, "/v1/chat/completions", body)
		if status != 200 || header.Get("X-Sim-Worker") != "w1" || !strings.HasPrefix(header.Get("Content-Type"), "text/event-stream") {
			t.Fatalf("status %d, header %v", status, header)
		}
		data := eventData(stream)
		if data[len(data)-1] != "[DONE]" {
			t.Fatalf("last event %q", data[len(data)-1])
		}
		var answer strings.Builder
		for _, d := range data[:len(data)-1] {
			if !json.Valid([]byte(d)) {
				t.Fatalf("event is not JSON: %s", d)
			}
			answer.WriteString(gjson.Get(d, "choices.0.delta.content").String())
			if got := gjson.Get(d, "system_fingerprint").String(); got != "w1" {
				t.Fatalf("system_fingerprint %q", got)
			}
		}
		usage := gjson.Get(data[len(data)-2], "usage")
		prompt, cached := usage.Get("prompt_tokens").Int(), usage.Get("prompt_tokens_details.cached_tokens").Int()
		if want := (prompt - 1) / 16 * 16; wantCached && cached != want || !wantCached && cached != 0 {
			t.Errorf("turn %d: %d of %d prompt tokens cached", turn, cached, prompt)
		}
		if n := usage.Get("completion_tokens").Int(); n != 20 {
			t.Errorf("%d completion tokens", n)
		}
		// Role, twenty tokens, finish, usage, [DONE].
		if len(data) != 24 {
			t.Errorf("%d events for 20 tokens", len(data))
		}
		if answer.Len() < 40 {
			t.Errorf("answer %q", answer.String())
		}
	}
	if s := w.Stats(); s.QueriedTokens != s.HitTokens+s.ComputedTokens || s.Finished != 2 {
		t.Errorf("%+v", s)
	}
}

func TestAnswerOfTheFirstTurnIsCachedForTheSecond(t *testing.T) {
	w := start(t, nil)
	_, _, first := post(t, w, "/v1/chat/completions", chatBody("", "Where is it?"))
	answer := gjson.Get(first, "choices.0.message.content").String()
	if fresh := gjson.Get(first, "usage.prompt_tokens_details.cached_tokens").Int(); fresh != 0 {
		t.Fatalf("%d tokens cached on a cold worker", fresh)
	}
	sequence := gjson.Get(first, "usage.total_tokens").Int()
	second := fmt.Sprintf(`{"model":"m","max_tokens":5,"messages":[{"role":"system","content":%q},{"role":"user","content":"Where is it?"},{"role":"assistant","content":%q},{"role":"user","content":"And now, please?"}]}`, longSystem, answer)
	_, _, reply := post(t, w, "/v1/chat/completions", second)
	if got, want := gjson.Get(reply, "usage.prompt_tokens_details.cached_tokens").Int(), (sequence-1)/16*16; got != want {
		t.Errorf("%d tokens cached, want %d: prompt and answer but its last token", got, want)
	}
}

func TestEventsAreCoalescedButTheFirstTokenComesAlone(t *testing.T) {
	for eventTokens, want := range map[int][]int{-1: {1, 19}, 8: {1, 8, 8, 3}} {
		w := start(t, func(c *Config) { c.EventTokens = eventTokens })
		_, _, stream := post(t, w, "/v1/completions", `{"model":"m","prompt":"Tell me","stream":true,"max_tokens":20,"ignore_eos":true}`)
		var tokens []int
		for _, d := range eventData(stream) {
			if piece := gjson.Get(d, "choices.0.text").String(); piece != "" {
				tokens = append(tokens, strings.Count(piece, " ")+strings.Count(piece, "."))
			}
		}
		tokens[0]++ // the first word has no space before it
		if fmt.Sprint(tokens) != fmt.Sprint(want) {
			t.Errorf("EventTokens %d: pieces of %v tokens, want %v", eventTokens, tokens, want)
		}
	}
}

func TestEveryEndpointAnswersInItsDialect(t *testing.T) {
	w := start(t, nil)
	for _, c := range []struct{ path, body, text, prompt, cached, worker string }{
		{
			"/v1/completions", `{"model":"m","prompt":["one two three","four"],"max_tokens":4,"ignore_eos":true}`,
			"choices.1.text", "usage.prompt_tokens", "usage.prompt_tokens_details.cached_tokens", "system_fingerprint",
		},
		{
			"/team-a/v1/completions", `{"model":"m","prompt":[[1,2,3,4,5,6],[7,8]],"n":2}`,
			"choices.3.text", "usage.prompt_tokens", "usage.prompt_tokens_details.cached_tokens", "system_fingerprint",
		},
		{
			"/v1/responses", `{"model":"m","instructions":"Be brief.","input":"Hello there"}`,
			"output.0.content.0.text", "usage.input_tokens", "usage.input_tokens_details.cached_tokens", "system_fingerprint",
		},
		{
			"/v1/messages", `{"model":"m","max_tokens":9,"system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":"Hi"}]}`,
			"content.0.text", "usage.input_tokens", "usage.cache_read_input_tokens", "system_fingerprint",
		},
		{
			"/v1/embeddings", `{"model":"m","input":["one two","three"]}`,
			"data.1.embedding.63", "usage.prompt_tokens", "usage.prompt_tokens_details.cached_tokens", "system_fingerprint",
		},
	} {
		status, _, reply := post(t, w, c.path, c.body)
		if status != 200 || !json.Valid([]byte(reply)) {
			t.Errorf("%s: %d %s", c.path, status, reply)
			continue
		}
		if gjson.Get(reply, c.text).String() == "" || gjson.Get(reply, c.prompt).Int() < 4 ||
			!gjson.Get(reply, c.cached).Exists() || gjson.Get(reply, c.worker).String() != "w1" {
			t.Errorf("%s: %s", c.path, reply)
		}
	}
}

func TestStreamsOfOtherDialects(t *testing.T) {
	w := start(t, nil)
	_, _, stream := post(t, w, "/v1/messages", `{"model":"m","stream":true,"max_tokens":6,"messages":[{"role":"user","content":"Hi"}]}`)
	var kinds []string
	for _, d := range eventData(stream) {
		kinds = append(kinds, gjson.Get(d, "type").String())
	}
	if got := strings.Join(kinds, " "); !strings.HasPrefix(got, "message_start content_block_start content_block_delta") ||
		!strings.HasSuffix(got, "content_block_stop message_delta message_stop") {
		t.Errorf("messages: %s", got)
	}
	_, _, stream = post(t, w, "/v1/responses", `{"model":"m","stream":true,"max_output_tokens":6,"input":[{"role":"user","content":"Hi"}]}`)
	data := eventData(stream)
	last := data[len(data)-1]
	if gjson.Get(data[0], "type").String() != "response.created" || gjson.Get(last, "response.usage.input_tokens").Int() < 3 {
		t.Errorf("responses: first %s\nlast %s", data[0], last)
	}
	_, _, stream = post(t, w, "/v1/completions", `{"model":"m","stream":true,"prompt":["a b","c d"],"max_tokens":5,"ignore_eos":true}`)
	text := map[int64]string{}
	for _, d := range eventData(stream) {
		text[gjson.Get(d, "choices.0.index").Int()] += gjson.Get(d, "choices.0.text").String()
	}
	_, _, whole := post(t, w, "/v1/completions", `{"model":"m","prompt":["a b","c d"],"max_tokens":5,"ignore_eos":true}`)
	for i, want := range gjson.Get(whole, "choices.#.text").Array() {
		if text[int64(i)] != want.Str {
			t.Errorf("choice %d streamed %q, whole %q", i, text[int64(i)], want.Str)
		}
	}
}

func TestBadRequestsAreToldApart(t *testing.T) {
	w := start(t, nil)
	for _, c := range []struct {
		path, body string
		status     int
	}{
		{"/v1/chat/completions", `{"model":"m","messages":[]}`, 400},
		{"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"c:\m"}]}`, 400},
		{"/v1/chat/completions", "\x1f\x8b\x08", 400},
		{"/v1/chat/completions", ``, 400},
		{"/v1/chat/completions", `{"model":"other","messages":[{"role":"user","content":"x"}]}`, 404},
		{"/v1/chat/completions", `{"model":"m","max_tokens":200000,"messages":[{"role":"user","content":"x"}]}`, 400},
		{"/v1/completions", `{"model":"m","prompt":[[]]}`, 400},
		{"/v1/completions", `{"model":"m","prompt":[1,"a"]}`, 400},
		{"/v1/completions", `{"model":"m","prompt":"a","n":1000}`, 400},
		{"/v1/messages", `{"model":"m","messages":[{"role":"user","content":"x"}]}`, 400},
		{"/v1/unknown", `{}`, 404},
	} {
		status, _, reply := post(t, w, c.path, c.body)
		if status != c.status {
			t.Errorf("%s %s: %d %s, want %d", c.path, c.body, status, reply, c.status)
		}
		if c.path != "/v1/unknown" && gjson.Get(reply, "error.message").String() == "" {
			t.Errorf("%s: no message in %s", c.body, reply)
		}
	}
	if s := w.Stats(); s.QueriedTokens != 0 {
		t.Errorf("a bad request reached the engine: %+v", s)
	}
}

func TestFullQueueIsRefusedAtOnce(t *testing.T) {
	for _, want := range []int{503, 429} {
		w := start(t, func(c *Config) {
			c.TimeScale = 1
			c.RefusalStatus = want
			c.Engine = engine.DefaultParams()
			c.Engine.MaxQueued = 0
		})
		ctx, cancel := context.WithCancel(context.Background())
		first := make(chan error, 1)
		go func() {
			r, _ := http.NewRequestWithContext(ctx, http.MethodPost, w.URL()+"/v1/chat/completions", strings.NewReader(chatBody("", "Long one")))
			_, err := http.DefaultClient.Do(r)
			first <- err
		}()
		waitFor(t, func() bool { return w.Stats().Running == 1 })
		status, _, reply := post(t, w, "/v1/chat/completions", chatBody("", "Other"))
		if status != want || !strings.Contains(reply, "busy") {
			t.Errorf("%d %s", status, reply)
		}
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		waitFor(t, func() bool { s := w.Stats(); return s.Running == 0 && s.BlocksInUse == 0 && s.Cancelled == 1 })
	}
}

func TestPreemptionsAreToldAndTheAnswersWhole(t *testing.T) {
	w := start(t, func(c *Config) {
		c.Engine = engine.DefaultParams()
		c.Engine.CapacityBlocks = 40
	})
	// Two answers of one prompt, 26 blocks or more each.
	status, _, reply := post(t, w, "/v1/chat/completions", `{"model":"m","n":2,"max_tokens":400,"ignore_eos":true,"messages":[{"role":"user","content":"Twice, at length"}]}`)
	if status != http.StatusOK || !strings.Contains(reply, `"completion_tokens":800`) {
		t.Fatalf("%d %s", status, reply)
	}
	r, err := http.Get(w.URL() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	metrics, err := io.ReadAll(r.Body)
	if want := `vllm:num_preemptions_total{engine="0",model_name="m"} 1`; err != nil || !strings.Contains(string(metrics), want) {
		t.Errorf("no %s in the metrics: %v\n%s", want, err, metrics)
	}
	if s := w.Stats(); s.Finished != 2 || s.BlocksInUse != 0 || s.RecomputedTokens == 0 {
		t.Errorf("%+v", s)
	}
}

// waitFor polls a condition that a goroutine outside the test makes true.
func waitFor(t testing.TB, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for !ok() {
		select {
		case <-poll.C:
		case <-deadline.C:
			t.Fatal("the condition did not come true in 10 s")
		}
	}
}

func TestMetricsAreReadableUnderVLLMNames(t *testing.T) {
	w := start(t, nil)
	for range 2 {
		post(t, w, "/v1/chat/completions", chatBody("", "Where is it?"))
	}
	r, err := http.Get(w.URL() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	value := func(name string) float64 {
		f := families[name]
		if f == nil {
			t.Fatalf("no %s", name)
		}
		if c := f.Metric[0].Counter; c != nil {
			return c.GetValue()
		}
		return f.Metric[0].Gauge.GetValue()
	}
	queries, hits := value("vllm:prefix_cache_queries_total"), value("vllm:prefix_cache_hits_total")
	if hits <= 0 || hits >= queries/2 {
		t.Errorf("%v of %v tokens hit after a cold and a warm request", hits, queries)
	}
	for _, name := range []string{"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"} {
		if v := value(name); v != 0 {
			t.Errorf("%s is %v on an idle worker", name, v)
		}
	}
	blocks := ""
	for _, l := range families["vllm:cache_config_info"].Metric[0].Label {
		if l.GetName() == "num_gpu_blocks" {
			blocks = l.GetValue()
		}
	}
	if blocks != "12288" || value("process_start_time_seconds") < 1e9 {
		t.Errorf("num_gpu_blocks %q, start %v", blocks, value("process_start_time_seconds"))
	}
}

func TestRestartLosesTheCacheAndKeepsTheAddress(t *testing.T) {
	w := start(t, nil)
	post(t, w, "/v1/chat/completions", chatBody("", "Where is it?"))
	prefix := PrefixBlocks(longSystem)
	if w.Holds(prefix) != len(prefix) || len(prefix) < 20 {
		t.Fatalf("holds %d of %d blocks", w.Holds(prefix), len(prefix))
	}
	address, before := w.Address(), w.started.Load()
	if err := w.Restart(); err != nil {
		t.Fatal(err)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	if w.Holds(prefix) != 0 || w.Address() != address || w.started.Load() <= before {
		t.Errorf("holds %d at %s", w.Holds(prefix), w.Address())
	}
	if status, _, _ := post(t, w, "/v1/chat/completions", chatBody("", "Where is it?")); status != 200 {
		t.Errorf("status %d after the restart", status)
	}
}

func TestFaultsLookAsTheirNamesSay(t *testing.T) {
	do := func(w *Worker, wait time.Duration) (status int, body string, err error) {
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		r, _ := http.NewRequestWithContext(ctx, http.MethodPost, w.URL()+"/v1/chat/completions",
			strings.NewReader(chatBody(`"stream":true,`, "Where is it?")))
		response, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			return 0, "", err
		}
		defer response.Body.Close()
		b, err := io.ReadAll(response.Body)
		return response.StatusCode, string(b), err
	}
	health := func(w *Worker) int {
		r, err := http.Get(w.URL() + "/health")
		if err != nil {
			return 0
		}
		r.Body.Close()
		return r.StatusCode
	}
	w := start(t, func(c *Config) { c.TimeScale = 100 })
	const short, long = 150 * time.Millisecond, 10 * time.Second
	for _, c := range []struct {
		fault  Fault
		wait   time.Duration
		status int  // 0: no headers came
		broken bool // the reply did not end as it should
		health int
	}{
		{Healthy, long, 200, false, 200},
		{Down, long, 0, true, 0},
		{HangRequests, short, 0, true, 200},
		{Refuse, long, 503, false, 200},
		{InternalError, long, 500, false, 200},
		{ResetBeforeHeaders, long, 0, true, 200},
		{ResetAfterHeaders, long, 200, true, 200},
		{Stall, short, 200, true, 200},
		{Slow, long, 200, false, 200},
		{Unhealthy, long, 200, false, 503},
		{Healthy, long, 200, false, 200},
	} {
		if err := w.SetFault(c.fault); err != nil {
			t.Fatal(err)
		}
		status, body, err := do(w, c.wait)
		if status != c.status || (err != nil) != c.broken {
			t.Errorf("%v: status %d, error %v", c.fault, status, err)
		}
		if c.status == 200 && !strings.Contains(body, `"content":"`) {
			t.Errorf("%v: no token before the end: %q", c.fault, body)
		}
		if got := health(w); got != c.health {
			t.Errorf("%v: health %d", c.fault, got)
		}
	}
	waitFor(t, func() bool { s := w.Stats(); return s.Running == 0 && s.BlocksInUse == 0 })
}

func TestHangAnswersNothingUntilItIsLifted(t *testing.T) {
	w := start(t, nil)
	if err := w.SetFault(Hang); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		r, err := http.Get(w.URL() + "/health")
		if err == nil {
			r.Body.Close()
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Fatalf("answered: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if err := w.SetFault(Healthy); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("a request that hung was answered in the end")
	}
}

func TestFaultCanBeSetOverHTTPForAWhile(t *testing.T) {
	w := start(t, nil)
	if status, _, reply := post(t, w, "/sim/fault?set=refuse&seconds=0.05", ""); status != 204 {
		t.Fatalf("%d %s", status, reply)
	}
	waitFor(t, func() bool { return w.Fault() == Refuse })
	waitFor(t, func() bool { return w.Fault() == Healthy })
	if status, _, _ := post(t, w, "/sim/fault?set=explode", ""); status != 400 {
		t.Errorf("unknown fault: %d", status)
	}
}

func TestResidencyCountsCopies(t *testing.T) {
	f, err := StartFleet(3, Config{TimeScale: testScale})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	post(t, f.Workers[0], "/v1/chat/completions", chatBody("", "Where is it?"))
	post(t, f.Workers[2], "/v1/chat/completions", chatBody("", "Where is it?"))
	prefix := PrefixBlocks(longSystem)
	r := f.Residency([][]engine.BlockHash{prefix, PrefixBlocks(longSystem + longSystem)})
	if r.Prefixes != 1 || r.CopiesPerPrefix != 2 || r.MaxCopies != 2 {
		t.Errorf("%+v", r)
	}
	if r.DistinctTokens*2 != r.ResidentTokens || r.DuplicatedTokens != r.DistinctTokens || r.DistinctTokens < len(prefix)*16 {
		t.Errorf("%+v", r)
	}
}

func TestManyClientsAtOnce(t *testing.T) {
	w := start(t, func(c *Config) { c.TimeScale = 5000; c.EventTokens = -1 })
	var group sync.WaitGroup
	for client := range 20 {
		group.Go(func() {
			for i := range 10 {
				body := chatBody(`"stream":true,`, fmt.Sprintf("Question %d of client %d", i, client))
				r, err := http.Post(w.URL()+"/v1/chat/completions", "application/json", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				b, err := io.ReadAll(r.Body)
				r.Body.Close()
				if err != nil || !bytes.HasSuffix(b, []byte("[DONE]\n\n")) {
					t.Errorf("stream ended with %v: %q", err, b)
				}
			}
		})
	}
	group.Wait()
	if s := w.Stats(); s.Finished != 200 || s.BlocksInUse != 0 || s.HitTokens == 0 {
		t.Errorf("%+v", s)
	}
}
