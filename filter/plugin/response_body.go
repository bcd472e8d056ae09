//go:build !noresponsebody

package plugin

import (
	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"github.com/warmpath/warmpath/filter/abi"
)

// readsResponseBody tells that this build looks at response bodies for the
// first token's time and the engine's own usage figures.
const readsResponseBody = true

// OnHttpResponseBody is called for every chunk of a streamed answer, which
// makes it the most frequent callback by far. An ordinary chunk costs one read
// of its tail: no clock, no metric, no allocation.
func (s *stream) OnHttpResponseBody(size int, endOfStream bool) types.Action {
	if s.usage != nil && size > 0 {
		if want := s.usage.Want(size); want > 0 {
			tail, status := abi.Buffer(abi.ResponseBody, size-want, want, &s.plugin.vm.tail)
			if status == abi.OK && len(tail) == want && s.usage.FeedTail(tail, size) {
				s.firstToken()
			}
		}
	}
	if endOfStream {
		s.bodyEnded = true
	}
	return types.ActionContinue
}
