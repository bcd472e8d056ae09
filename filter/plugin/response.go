package plugin

import (
	"strconv"
	"unsafe"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/fleet"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/filter/usage"
)

// OnHttpResponseHeaders learns who really answered. The proxy may have
// retried, or may not have known the endpoint: the books follow its word, not
// ours.
func (s *stream) OnHttpResponseHeaders(_ int, endOfStream bool) types.Action {
	s.tellExplanation()
	if s.phase != phaseReleased {
		return types.ActionContinue
	}
	vm, f := s.plugin.vm, s.plugin.fleet
	s.answered = true
	s.status = s.readStatus()
	s.bodyEnded = endOfStream
	if s.gaveUp() {
		s.attempts = readAttempts(&vm.property)
		if s.status == 503 {
			// The proxy doesn't say when to come back.
			abi.SetHeader(abi.ResponseHeaders, "retry-after", s.retryIn(1))
		}
		return types.ActionContinue
	}
	if address, status := abi.Property(upstreamAddress, &vm.property); status == abi.OK && len(address) > 0 {
		s.served = s.servedAt(unsafe.String(unsafe.SliceData(address), len(address)))
		s.upstream = true
	} else {
		return types.ActionContinue // a local reply of the proxy
	}
	s.attempts = readAttempts(&vm.property)
	s.plugin.gate.Retries.Retried(int(s.attempts) - 1)
	s.follow()

	refused := s.status == 429 || s.status == 503
	if refused {
		s.forgetSent()
		s.noteUntried()
	}
	if refused && s.served != 0 {
		f.Avoid(s.served, abi.Now(), s.retryAfter())
		vm.metrics.Inc(metrics.Refusals, 0)
	}
	if s.served != 0 && (refused || s.plugin.config.ExposeWorker) {
		abi.SetHeader(abi.ResponseHeaders, workerHeader, fleet.FormatWorkerName(f.WorkerName(s.served)))
	}
	if s.attempts > 1 {
		abi.SetHeader(abi.ResponseHeaders, attemptsHeader, strconv.Itoa(int(s.attempts)))
	}
	if endOfStream || s.status != 200 || !s.measured && !s.ticket.Known() {
		return types.ActionContinue // a prompt that wasn't read is paid for by the engine's word
	}
	kind := s.usageKind()
	s.events = kind == usage.SSE
	if readsResponseBody {
		s.usage = vm.readers.take()
		s.usage.Reset(kind)
	} else {
		// The headers of a stream come with its first token.
		s.firstToken()
	}
	return types.ActionContinue
}

// gaveUp tells whether this is the proxy's own answer for workers that failed. Where
// a connection broke that had been made, upstream.address is there all the same.
func (s *stream) gaveUp() bool {
	return s.status >= 500 && s.responseFlags()&upstreamFailed != 0
}

// servedAt is the worker that answered at an address, 0 where nobody can say which
// of its ranks it was.
func (s *stream) servedAt(address string) uint16 {
	if s.named == 0 {
		return s.plugin.fleet.RefOf(address)
	}
	return s.plugin.fleet.RefOf(address, s.best, s.second)
}

// follow moves the request's claim to the worker that serves it and marks a
// worker that the proxy had to leave.
func (s *stream) follow() {
	vm, f := s.plugin.vm, s.plugin.fleet
	switch {
	case s.named == 0:
		// Nobody was named (observe, off): the request is booked where the
		// proxy's own balancer sent it.
		if s.served != 0 {
			s.adopt()
		}
		return
	case s.served == 0:
		vm.metrics.Inc(metrics.Fallback, metrics.FallbackEndpointUnknown)
		s.plugin.countPlacement(true)
		s.forgetSent()
		s.closeClaim()
		return
	case s.served == s.best:
		s.plugin.countPlacement(false)
	case s.served == s.second:
		s.plugin.countPlacement(false)
		vm.metrics.Inc(metrics.Reroutes, 0)
		f.Avoid(s.best, abi.Now(), 0)
	default:
		vm.metrics.Inc(metrics.Fallback, metrics.FallbackEndpoint)
		s.plugin.countPlacement(true)
		if s.attempts > 2 {
			f.Avoid(s.best, abi.Now(), 0)
			f.Avoid(s.second, abi.Now(), 0)
		}
	}
	if s.served != s.best || s.anyRank {
		s.forgetSent()
		s.predictedTokens, s.heldTokens = 0, 0 // nobody predicted anything for this worker
	}
	s.moveClaim(s.served)
}

// noteUntried counts a refusal that the client gets although a second worker was
// named: the proxy didn't try it, and gives no sign of that.
func (s *stream) noteUntried() {
	if s.named == 0 || s.second == 0 || s.single || s.attempts > 1 {
		return
	}
	if _, status := abi.Property(upstreamAttempts, &s.plugin.vm.property); status != abi.OK {
		return // this host doesn't say
	}
	s.plugin.vm.metrics.Inc(metrics.RetriesDenied, metrics.RetryByProxy)
	s.plugin.warnUntried()
}

// usageKind tells a stream of events from one JSON answer.
func (s *stream) usageKind() usage.Kind {
	vm := s.plugin.vm
	contentType, _ := abi.Header(abi.ResponseHeaders, "content-type", &vm.property)
	if i := indexByte(contentType, ';'); i >= 0 {
		contentType = contentType[:i]
	}
	if equalFold(trim(contentType), "text/event-stream") {
		return usage.SSE
	}
	return usage.JSON
}

func (s *stream) readStatus() uint16 {
	value, _ := abi.Header(abi.ResponseHeaders, ":status", &s.plugin.vm.property)
	return uint16(decimal(value))
}

// retryAfter is the Retry-After of a refusal in seconds, 0 without one or for
// the date form.
func (s *stream) retryAfter() int {
	value, _ := abi.Header(abi.ResponseHeaders, "retry-after", &s.plugin.vm.property)
	return decimal(value)
}

// readAttempts is the number of upstream attempts. The proxy stores it as a
// little-endian integer.
func readAttempts(scratch *abi.Scratch) uint8 {
	value, status := abi.Property(upstreamAttempts, scratch)
	if status != abi.OK || len(value) < 1 {
		return 1
	}
	return max(1, value[0])
}

// decimal reads a short whole number, 0 for anything else.
func decimal(b []byte) int {
	if len(b) > 6 {
		return 0
	}
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0
		}
		n = n*10 + int(c-'0')
	}
	return n
}

// OnHttpResponseTrailers ends a response with trailers.
func (s *stream) OnHttpResponseTrailers(int) types.Action {
	s.bodyEnded = true
	return types.ActionContinue
}
