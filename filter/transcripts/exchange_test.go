package transcripts

import (
	"bytes"
	"fmt"

	"github.com/warmpath/warmpath/hostsim"
)

// exchange is one request through a VM, with what came out.
type exchange struct {
	*hostsim.Stream
	out  hostsim.Recorder
	sent bytes.Buffer
	told int // lines that a story has shown
}

// send opens a stream in a worker VM with the given headers and, unless body
// is nil, the body in pieces of chunk bytes (0: whole).
func (p *proxy) send(vm int, headers *hostsim.HeaderMap, body []byte, chunk int) *exchange {
	x := &exchange{}
	x.Stream = p.fleet.Plugins[vm][0].NewStream(&x.out)
	x.RequestHeaders(headers, body == nil)
	if body != nil {
		x.body(body, chunk)
	}
	return x
}

func (x *exchange) body(body []byte, chunk int) {
	x.sent.Write(body)
	if chunk <= 0 || chunk > len(body) {
		chunk = max(len(body), 1)
	}
	for len(body) > chunk {
		x.RequestData(body[:chunk], false)
		body = body[chunk:]
	}
	x.RequestData(body, true)
}

// answer lets an upstream answer: address, status, attempts, and the body in
// the given pieces.
func (x *exchange) answer(address string, code, attempts int, contentType string, pieces ...string) {
	x.Info.UpstreamAddress = address
	x.Info.UpstreamRequestAttemptCount = uint64(attempts)
	x.ResponseHeaders(hostsim.NewHeaderMap(":status", fmt.Sprint(code), "content-type", contentType), len(pieces) == 0)
	for i, piece := range pieces {
		x.ResponseData([]byte(piece), i == len(pieces)-1)
	}
}

// endpoint is the endpoint header as it went to the router, or what the
// companion filters would make of it.
func (x *exchange) endpoint() string {
	if v, ok := x.FilterState("gw.dest"); ok {
		return string(v)
	}
	if x.out.Request == nil {
		return ""
	}
	return x.out.Request.Value("x-gateway-destination-endpoint")
}

func post(path string, more ...string) *hostsim.HeaderMap {
	h := append([]string{":method", "POST", ":path", path, ":authority", "llm", "content-type", "application/json"}, more...)
	return hostsim.NewHeaderMap(h...)
}
