package plugin

import (
	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/body"
)

// OnHttpRequestBody waits for the end of a held request's body. Its size is
// cumulative while the request is held; a last call may repeat the size.
func (s *stream) OnHttpRequestBody(size int, endOfStream bool) types.Action {
	s.bodySeen = true
	s.plugin.vm.current = s.id
	if s.phase == phaseHeld {
		s.plugin.bodies = true // requests that flow show theirs in any set-up
	}
	switch {
	case s.phase != phaseHeld:
		return s.resting()
	case size > s.plugin.config.BodyCapBytes:
		// Without a Content-Length this is the first moment to know. The
		// rest of the body streams behind the headers.
		return s.routeUnread(body.OverCap)
	case endOfStream:
		return s.routeHeld(size)
	}
	s.heldBytes = size
	return types.ActionPause
}

// OnHttpRequestTrailers ends the body of a request with trailers: on HTTP/2
// the body callback is then never told of the end.
func (s *stream) OnHttpRequestTrailers(int) types.Action {
	if s.phase != phaseHeld {
		return s.resting()
	}
	s.bodySeen = true
	s.plugin.vm.current = s.id
	return s.routeHeld(s.heldBytes)
}

// routeHeld reads the whole body and routes by it.
func (s *stream) routeHeld(size int) types.Action {
	vm := s.plugin.vm
	if size == 0 {
		return s.routeUnread(body.Empty)
	}
	raw, status := abi.Buffer(abi.RequestBody, 0, size, &vm.bodies)
	if status != abi.OK || len(raw) == 0 {
		return s.routeUnread(body.NoBody)
	}
	s.heldBytes = size
	action := s.routeBody(raw)
	vm.bodies.Trim(keptBodyBytes)
	return action
}

// keptBodyBytes is the size of the body scratch block that stays allocated
// between requests: that of a 1.6 MB body. A larger body gets a block of its
// own for its moment. Not less: a collection is slow to end in a busy VM (it
// advances within callbacks only), and blocks that are dropped meanwhile add
// up; linear memory never shrinks again.
const keptBodyBytes = 2 << 20

// resting is the answer of callbacks that have nothing left to decide: a
// stream with a local reply and one that waits for a slot stay stopped, all
// others flow.
func (s *stream) resting() types.Action {
	if s.phase == phaseRefused || s.phase == phaseWaiting {
		return types.ActionPause
	}
	return types.ActionContinue
}
