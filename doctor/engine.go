package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/control/kvevents"
)

// engine is one engine being examined.
type engine struct {
	*diagnosis
	url, name string
	listed    *api.Worker // nil when the control service doesn't list it; the first of its ranks
	ranked    int         // ranks that it lists
	model     string
	ranks     int // that publish events, each with a cache of its own
}

func (e *engine) examine(ctx context.Context) {
	code, _, _, err := e.call(ctx, e.url, "/health", e.o.EngineToken, nil)
	switch {
	case err != nil:
		e.fail("engine.reachable", e.name, err.Error(), "start the engine, or correct its address; this machine must reach it too for the other checks")
		return
	case code != http.StatusOK:
		e.fail("engine.reachable", e.name, fmt.Sprintf("GET /health answers %d", code), "look at the engine's log; it gets no requests while it is unwell")
		return
	}
	e.ok("engine.reachable", e.name, "GET /health answers 200")
	if e.serves(ctx) {
		e.metrics(ctx)
		e.events(ctx)
		if e.o.Probe && e.model != "" {
			e.probe(ctx)
		}
	}
}

// serves finds out what the engine serves; false when it can't be asked further.
func (e *engine) serves(ctx context.Context) bool {
	names, err := e.models(ctx, e.url)
	switch {
	case answered(err) == http.StatusUnauthorized || answered(err) == http.StatusForbidden:
		e.fail("engine.models", e.name, "it asks for a token", "give the engine's API key (--engine-token-env), and health.token to the control service")
		return false
	case err != nil:
		e.fail("engine.models", e.name, err.Error(), "it must be an OpenAI-compatible engine; is this its address?")
		return false
	case len(names) == 0:
		e.warn("engine.models", e.name, "it lists no model", "name one with --model")
		e.model = e.o.Model
		return true
	}
	e.model = names[0]
	if slices.Contains(names, e.o.Model) {
		e.model = e.o.Model
	}
	if e.o.Model != "" && e.model != e.o.Model {
		e.warn("engine.models", e.name, "it serves "+strings.Join(names, ", ")+", not "+e.o.Model, "ask for a model that it serves with --model, or give the engine a pool of its own")
		return true
	}
	e.ok("engine.models", e.name, "it serves %s", strings.Join(names, ", "))
	return true
}

// metrics looks at what the engine tells about its load and its settings.
func (e *engine) metrics(ctx context.Context) {
	page, err := e.fetch(ctx, e.url, "/metrics", e.o.EngineToken, nil)
	var load discovery.Load
	if err == nil {
		load, err = discovery.ParseMetrics(page)
	}
	if err != nil {
		e.warn("engine.metrics", e.name, err.Error(), "let the control service scrape /metrics, or run warmpath agent beside the engine: without loads only its own requests are counted")
		return
	}
	if !load.Known {
		e.warn("engine.metrics", e.name, "no load of a known engine is on the page", "run warmpath agent beside the engine, or turn its metrics on (SGLang: --enable-metrics)")
	} else {
		e.ok("engine.metrics", e.name, "%d running, %d waiting, KV share %.2f", load.Running, load.Waiting, load.KVShare)
	}
	info := bytes.Contains(page, []byte("cache_config_info{"))
	switch {
	case load.Facts.Caching == discovery.CachingOff:
		e.fail("engine.prefix_caching", e.name, "enable_prefix_caching is False: every prompt is computed anew", "start vLLM with --enable-prefix-caching, SGLang without --disable-radix-cache")
	case info:
		e.ok("engine.prefix_caching", e.name, "on, by cache_config_info")
	default:
		e.warn("engine.prefix_caching", e.name, "the metrics don't say", "run the doctor with --probe: a repeated prompt shows it")
	}
	e.blockSize(load.Facts.BlockTokens)
}

func (e *engine) blockSize(told int) {
	switch {
	case told == 0 && e.listed == nil:
	case told == 0:
		e.warn("engine.block_size", e.name, fmt.Sprintf("the engine doesn't say; %d tokens are taken", e.listed.BlockTokens), "set block_tokens in the worker list to the engine's block or page size")
	case e.listed != nil && e.listed.BlockTokens != told:
		e.warn("engine.block_size", e.name, fmt.Sprintf("%d tokens, and the worker list says %d", told, e.listed.BlockTokens), fmt.Sprintf("set block_tokens: %d, or leave it out", told))
	case told > largeBlock:
		e.warn("engine.block_size", e.name, fmt.Sprintf("%d tokens: a prefix counts in whole blocks only", told), "take 16 to 64 unless the engine's backend needs more")
	default:
		e.ok("engine.block_size", e.name, "%d tokens", told)
	}
}

// largeBlock loses half a block, on average, of each prefix.
const largeBlock = 256

// eventsRemedy turns vLLM's events on.
const eventsRemedy = `start vLLM with --kv-events-config '{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:5558"}', and set kv_events: auto in the worker list`

// events looks at where the engine publishes its KV events.
func (e *engine) events(ctx context.Context) {
	sources, err := kvevents.Discover(ctx, e.client, e.name, e.o.EngineToken)
	if err != nil {
		if e.listed != nil && e.listed.Truth != "predictions" {
			e.ok("engine.kv_events", e.name, "not announced, and its cache is known by %s", e.listed.Truth)
			return
		}
		e.warn("engine.kv_events", e.name, err.Error(), eventsRemedy+"; without events the table is what requests imply")
		return
	}
	e.ranks = len(sources)
	replay, endpoints := 0, []string{}
	for _, s := range sources {
		endpoints = append(endpoints, s.Events)
		if s.Replay != "" {
			replay++
		}
	}
	switch {
	case replay < len(sources):
		e.warn("engine.kv_events", e.name, fmt.Sprintf("published at %s, without a replay socket", strings.Join(endpoints, " and ")), "add replay_endpoint to --kv-events-config: a gap in the stream is never filled otherwise")
	case e.listed != nil && e.listed.Events == nil:
		e.warn("engine.kv_events", e.name, "published, and nobody follows them", "set kv_events: auto for the worker, and a tokenizer for its pool")
	default:
		e.ok("engine.kv_events", e.name, "published at %s, with replay", strings.Join(endpoints, " and "))
	}
	switch {
	case len(sources) < 2:
	case e.ranked > 0 && e.ranked != len(sources):
		e.fail("engine.data_parallel", e.name, fmt.Sprintf("%d data-parallel ranks behind one port, and the worker list says %d", len(sources), e.ranked), fmt.Sprintf("set ranks: %d", len(sources)))
	case e.ranked > 0:
		e.ok("engine.data_parallel", e.name, "%d ranks behind one port, each a worker; requests name theirs by X-data-parallel-rank", len(sources))
	default:
		e.warn("engine.data_parallel", e.name, fmt.Sprintf("%d data-parallel ranks behind one port, each with a cache of its own: a request may meet another rank than the one that holds its prefix", len(sources)),
			fmt.Sprintf("best serve each rank on a port of its own (vLLM: instances without --data-parallel-size for a dense model, --data-parallel-external-lb for a mixture of experts) and list each as a worker; or set ranks: %d for this one", len(sources)))
	}
}

// completions is the path of a probe.
const completions = "/v1/chat/completions"

// probePrompt is some 600 tokens that no other prompt begins like, and no cache
// holds by chance.
func probePrompt(model string, stream bool, nonce string) []byte {
	body := map[string]any{
		"model": model, "max_tokens": 1, "temperature": 0,
		"messages": []map[string]string{{"role": "user", "content": "warmpath doctor " + nonce + ". " + strings.Repeat("Count the words of this sentence. ", 90) + "How many?"}},
	}
	if stream {
		body["stream"], body["stream_options"] = true, map[string]bool{"include_usage": true}
	}
	text, err := json.Marshal(body)
	if err != nil {
		panic("doctor: a prompt that can't be written: " + err.Error()) // maps of strings and numbers
	}
	return text
}

// usage is what an answer says of its tokens; nil pointers: not said.
type usage struct {
	PromptTokens *int `json:"prompt_tokens"`
	Details      *struct {
		CachedTokens *int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

func (u *usage) cached() *int {
	if u == nil || u.Details == nil {
		return nil
	}
	return u.Details.CachedTokens
}

// cachedRemedy makes engines report their hits.
const cachedRemedy = "start vLLM with --enable-prompt-tokens-details (SGLang: --enable-cache-report): without it nobody can tell whether predictions come true"

// probe sends the same prompt twice, and once more as a stream. Of several ranks
// it may meet another one each time, so it asks until one of them knows it.
func (e *engine) probe(ctx context.Context) {
	nonce := nonceOf(e.url)
	var u *usage
	asked := 0
	for asked < 2 || asked < 2*e.ranks && u.cached() != nil && *u.cached() == 0 {
		asked++
		var answer struct {
			Usage *usage `json:"usage"`
		}
		body, err := e.fetch(ctx, e.url, completions, e.o.EngineToken, probePrompt(e.model, false, nonce))
		if err == nil {
			err = json.Unmarshal(body, &answer)
		}
		if err != nil {
			e.fail("engine.completion", e.name, err.Error(), "the engine must answer a chat completion; look at its log")
			return
		}
		u = answer.Usage
	}
	e.ok("engine.completion", e.name, "%d completions of %s", asked, e.model)
	switch cached := u.cached(); {
	case u == nil || u.PromptTokens == nil:
		e.warn("engine.usage", e.name, "answers have no usage", "let the engine report usage: work is settled by estimate otherwise")
	case cached == nil:
		e.warn("engine.cached_tokens", e.name, "usage has no cached_tokens", cachedRemedy)
	case *cached == 0:
		e.fail("engine.cached_tokens", e.name, fmt.Sprintf("the same prompt of %d tokens %d times, and none was cached", *u.PromptTokens, asked), "turn prefix caching on; if it is, see that no proxy between balances over several engines")
	default:
		e.ok("engine.cached_tokens", e.name, "%d of %d tokens when asked again", *cached, *u.PromptTokens)
	}
	e.stream(ctx, nonce)
}

// stream looks for usage at the end of a stream.
func (e *engine) stream(ctx context.Context, nonce string) {
	body, err := e.fetch(ctx, e.url, completions, e.o.EngineToken, probePrompt(e.model, true, nonce))
	if err != nil {
		e.fail("engine.stream_usage", e.name, err.Error(), "the engine must answer streams; look at its log")
		return
	}
	var last *usage
	for line := range strings.SplitSeq(string(body), "\n") {
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data:")
		var event struct {
			Usage *usage `json:"usage"`
		}
		if ok && json.Unmarshal([]byte(data), &event) == nil && event.Usage != nil {
			last = event.Usage
		}
	}
	switch {
	case last == nil:
		e.warn("engine.stream_usage", e.name, "no usage at the end of a stream that asked for it", "the engine must honour stream_options.include_usage")
	case last.cached() == nil:
		e.warn("engine.stream_usage", e.name, "usage of streams has no cached_tokens", cachedRemedy)
	default:
		e.ok("engine.stream_usage", e.name, "usage with cached_tokens in the last event")
	}
}
