package plugin

import (
	"strconv"
	"unsafe"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/body"
	"github.com/warmpath/warmpath/filter/config"
	"github.com/warmpath/warmpath/filter/fleet"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/fingerprint"
)

// Headers of the contract with proxies, clients and workers.
const (
	endpointHeader = "x-gateway-destination-endpoint"
	ownPrefix      = "x-warmpath-"
	poolHeader     = "x-warmpath-pool"
	decisionHeader = "x-warmpath-decision"
	excludeHeader  = "x-warmpath-exclude"
	workerHeader   = "x-warmpath-worker"
	explainHeader  = "x-warmpath-explain"
	attemptsHeader = "x-warmpath-attempts"
	reasonHeader   = "x-warmpath-reason"
	priorityHeader = "x-vllm-priority"
	retriesHeader  = "x-envoy-max-retries"
	rankHeader     = "x-data-parallel-rank"
)

// head is what the request's headers say, without reference to their bytes.
type head struct {
	endpoint      body.Endpoint
	post          bool
	json          bool
	compressed    bool
	contentLength int64 // -1 when not stated
	session       uint64
	exclude       [2]uint32 // opaque worker names, 0 for none
	authorization []byte    // the first, valid in this callback
	pairs         abi.Pairs // all of them as the client sent them, valid in this callback
}

// OnHttpRequestHeaders decides what to do with a request before its body: pass
// it untouched, route it by load alone, or hold it until its prompt is known.
func (s *stream) OnHttpRequestHeaders(_ int, endOfStream bool) types.Action {
	vm := s.plugin.vm
	h := s.readHead()
	s.endpoint, s.session, s.exclude = h.endpoint, h.session, h.exclude
	if h.endpoint == body.None {
		return types.ActionContinue
	}
	vm.metrics.Inc(metrics.Endpoints, int(h.endpoint))
	s.arrived = abi.Now()
	f := s.plugin.fleet
	f.Refresh(s.arrived)
	s.plugin.gate.Refresh(s.arrived)
	vm.current = s.id
	if s.plugin.config.Hold == config.HoldBuffer && f.MakesCopies() {
		s.authorization, s.keyKept = string(h.authorization), true
	}

	reason := body.OK
	switch {
	case endOfStream || !h.endpoint.HasBody() || !h.post || h.contentLength == 0:
		reason = body.NoBody
	case h.compressed:
		reason = body.Compressed
	case !h.json:
		reason = body.NotJSON
	case h.contentLength > int64(s.plugin.config.BodyCapBytes):
		reason = body.OverCap
	}
	if reason != body.NoBody && s.arrive(h.pairs) {
		return types.ActionPause
	}
	if reason != body.OK {
		return s.routeUnread(reason)
	}
	if !f.KnowsPools() {
		// Cold start: nothing that the body says could change the answer,
		// and a pool's long idle timeout is not ours to give.
		return s.pass(nil, metrics.FallbackNoTable)
	}
	s.phase = phaseHeld
	if s.plugin.config.Hold == config.HoldBuffer {
		return types.ActionContinue
	}
	return types.ActionPause
}

// readHead reads all headers with one host call and removes those that only
// the module may set, first of all: whatever happens later, a client cannot
// name its own endpoint.
func (s *stream) readHead() head {
	vm := s.plugin.vm
	h := head{contentLength: -1}
	pairs, status := abi.HeaderPairs(abi.RequestHeaders, &vm.headers)
	if status != abi.OK {
		return h
	}
	h.pairs = pairs
	session := s.plugin.config.SessionHeader
	for key, value, ok := pairs.Next(); ok; key, value, ok = pairs.Next() {
		name := unsafe.String(unsafe.SliceData(key), len(key))
		switch name {
		case ":method":
			h.post = string(value) == "POST"
		case ":path":
			h.endpoint, _ = body.Match(unsafe.String(unsafe.SliceData(value), len(value)))
		case "content-type":
			h.json = isJSON(value)
		case "content-length":
			if n, err := strconv.ParseInt(string(value), 10, 64); err == nil && n >= 0 {
				h.contentLength = n
			}
		case "content-encoding":
			h.compressed = len(value) > 0 && !equalFold(value, "identity")
		case "authorization":
			if h.authorization == nil {
				h.authorization = value
			}
		case endpointHeader:
			abi.RemoveHeader(abi.RequestHeaders, endpointHeader)
		default:
			if len(name) > len(ownPrefix) && name[:len(ownPrefix)] == ownPrefix {
				if name == excludeHeader {
					h.exclude = parseExclude(value, h.exclude)
				}
				abi.RemoveHeader(abi.RequestHeaders, name)
			}
		}
		if name == session && len(value) > 0 {
			h.session = fingerprint.Hash(unsafe.String(unsafe.SliceData(value), len(value)))
		}
	}
	return h
}

// parseExclude reads at most two opaque worker names, separated by commas.
// What is no worker name is ignored.
func parseExclude(value []byte, names [2]uint32) [2]uint32 {
	for len(value) > 0 {
		item := value
		if i := indexByte(value, ','); i >= 0 {
			item, value = value[:i], value[i+1:]
		} else {
			value = nil
		}
		name, ok := fleet.ParseWorkerName(trim(item))
		switch {
		case !ok || name == names[0]:
		case names[0] == 0:
			names[0] = name
		case names[1] == 0:
			names[1] = name
		}
	}
	return names
}

// isJSON accepts application/json and application/<something>+json, with or
// without parameters.
func isJSON(contentType []byte) bool {
	if i := indexByte(contentType, ';'); i >= 0 {
		contentType = contentType[:i]
	}
	t := trim(contentType)
	return equalFold(t, "application/json") ||
		len(t) > 5 && equalFold(t[len(t)-5:], "+json") && len(t) > 12 && equalFold(t[:12], "application/")
}

func trim(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}

func indexByte(b []byte, c byte) int {
	for i, x := range b {
		if x == c {
			return i
		}
	}
	return -1
}

// equalFold compares with a lower-case ASCII word.
func equalFold(b []byte, word string) bool {
	if len(b) != len(word) {
		return false
	}
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != word[i] {
			return false
		}
	}
	return true
}
