package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/warmpath/warmpath/hostsim"
)

const (
	// openStreams is how many requests a VM has under way at a time.
	openStreams = 16
	// bigEvery and brokenEvery: one request in so many has a 1 MB body, or one
	// that is no prompt.
	bigEvery, brokenEvery = 4000, 100
	pieceBytes            = 16 << 10
)

// player plays requests through one VM. All its methods run on the VM's thread.
type player struct {
	plugin  *hostsim.Plugin
	prompts *prompts
	rng     *rand.Rand
	number  uint64
	open    [openStreams]*exchange
	at      int
	buffer  []byte
	counts  counts
}

// counts are what became of the requests.
type counts struct {
	Requests int `json:"requests"`
	Steered  int `json:"steered"`
	Passed   int `json:"passed"`
	Local    int `json:"local_replies"`
	Aborted  int `json:"aborted"`
	Refused  int `json:"refused"`
	Broken   int `json:"upstream_failures"`
	Bytes    int `json:"body_bytes"`
}

func (c *counts) add(o counts) {
	c.Requests += o.Requests
	c.Steered += o.Steered
	c.Passed += o.Passed
	c.Local += o.Local
	c.Aborted += o.Aborted
	c.Refused += o.Refused
	c.Broken += o.Broken
	c.Bytes += o.Bytes
}

// exchange is one request and the part of a proxy around the filter.
type exchange struct {
	*hostsim.Stream
	out    proxy
	events bool // the answer is an event stream
}

// proxy is where the filter lets things through to.
type proxy struct {
	endpoint string
	replied  bool
}

func (x *proxy) RequestHeaders(h *hostsim.HeaderMap, _ bool) {
	x.endpoint, _, _ = strings.Cut(h.Value("x-gateway-destination-endpoint"), ",")
}
func (x *proxy) RequestData([]byte, bool)                 {}
func (x *proxy) RequestTrailers(*hostsim.HeaderMap)       {}
func (x *proxy) ResponseHeaders(*hostsim.HeaderMap, bool) {}
func (x *proxy) ResponseData([]byte, bool)                {}
func (x *proxy) ResponseTrailers(*hostsim.HeaderMap)      {}
func (x *proxy) LocalReply(hostsim.LocalReply)            { x.replied = true }
func (x *proxy) Reset(string)                             { x.replied = true }

// next ends the oldest open request and begins another. With only small set,
// no body is over 100 KB.
func (p *player) next(onlySmall bool) {
	p.end(p.at)
	p.open[p.at] = p.begin(onlySmall)
	p.at = (p.at + 1) % openStreams
}

// drain ends all open requests.
func (p *player) drain() {
	for i := range p.open {
		p.end(i)
	}
}

func (p *player) begin(onlySmall bool) *exchange {
	p.number++
	p.counts.Requests++
	x := &exchange{}
	path := "/v1/chat/completions"
	switch {
	case !onlySmall && p.rng.IntN(bigEvery) == 0:
		p.buffer = p.prompts.big[p.rng.IntN(len(p.prompts.big))].write(p.buffer[:0], p.number)
	case !onlySmall && p.rng.IntN(brokenEvery) == 0:
		p.buffer = append(p.buffer[:0], p.prompts.broken[p.rng.IntN(len(p.prompts.broken))]...)
	default:
		small := &p.prompts.small[p.rng.IntN(len(p.prompts.small))]
		p.buffer = small.write(p.buffer[:0], p.number)
		path, x.events = small.path, small.stream
	}
	p.counts.Bytes += len(p.buffer)
	x.Stream = p.plugin.NewStream(&x.out)
	x.RequestHeaders(hostsim.NewHeaderMap(
		":method", "POST", ":path", path, ":authority", "llm", "content-type", "application/json",
		"content-length", strconv.Itoa(len(p.buffer)), "x-session-id", strconv.FormatUint(p.number%5000, 10),
	), false)
	body := p.buffer
	if p.rng.IntN(50) == 0 { // the client goes away in the middle of its upload
		x.RequestData(body[:len(body)/2], false)
		x.Close()
		p.counts.Aborted++
		return nil
	}
	for len(body) > pieceBytes {
		x.RequestData(body[:pieceBytes], false)
		body = body[pieceBytes:]
	}
	x.RequestData(body, true)
	switch {
	case x.out.replied:
		p.counts.Local++
		return nil
	case x.out.endpoint == "":
		p.counts.Passed++
	default:
		p.counts.Steered++
	}
	return x
}

var event = []byte(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}]}` + "\n\n")

// end lets the upstream answer, or not.
func (p *player) end(i int) {
	x := p.open[i]
	p.open[i] = nil
	if x == nil || x.Done() {
		return
	}
	x.Info.UpstreamAddress = x.out.endpoint
	if x.out.endpoint == "" {
		x.Info.UpstreamAddress = address(0)
	}
	x.Info.UpstreamRequestAttemptCount = 1
	fate := p.rng.IntN(100)
	switch {
	case fate < 2:
		p.counts.Refused++
		x.ResponseHeaders(hostsim.NewHeaderMap(":status", "503", "content-type", "application/json"), false)
		x.ResponseData([]byte(`{"error":{"message":"queue full"}}`), true)
	case fate < 3:
		p.counts.Broken++
		x.UpstreamReset("connection_termination")
	case fate < 6: // gone before the first byte
		p.counts.Aborted++
		x.Close()
	case x.events:
		p.answerStream(x, fate < 10)
	default:
		prompt := 100 + p.rng.IntN(20000)
		x.ResponseHeaders(hostsim.NewHeaderMap(":status", "200", "content-type", "application/json"), false)
		x.ResponseData(fmt.Appendf(nil, `{"id":"1","choices":[{"index":0,"message":{"role":"assistant","content":"yes"}}],"usage":{"prompt_tokens":%d,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":%d}}}`, prompt, prompt/2), true)
	}
}

// answerStream sends events and the usage behind them, or is cut by the client.
func (p *player) answerStream(x *exchange, abort bool) {
	x.ResponseHeaders(hostsim.NewHeaderMap(":status", "200", "content-type", "text/event-stream"), false)
	for range 3 + p.rng.IntN(6) {
		x.ResponseData(event, false)
	}
	if abort {
		p.counts.Aborted++
		x.Close()
		return
	}
	prompt := 100 + p.rng.IntN(20000)
	x.ResponseData(fmt.Appendf(nil, "data: {\"id\":\"1\",\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":9,\"prompt_tokens_details\":{\"cached_tokens\":%d}}}\n\ndata: [DONE]\n\n", prompt, prompt/3), false)
	x.ResponseData(nil, true)
}
