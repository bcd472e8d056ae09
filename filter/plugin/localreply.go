package plugin

import (
	"strconv"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/metrics"
)

// Error bodies in the dialects of the endpoints, as OpenAI's and Anthropic's
// own services answer when they are overloaded.
const (
	noWorkerOpenAI    = `{"error":{"message":"No worker is available for this model; retry later.","type":"server_error","param":null,"code":"no_worker"}}`
	noWorkerAnthropic = `{"type":"error","error":{"type":"overloaded_error","message":"No worker is available for this model; retry later."}}`
)

// retryAfterSpread is how many seconds Retry-After varies by, so that refused
// clients don't come back all at once.
const retryAfterSpread = 3

// refuseNoWorker answers 503: the pool is known and nobody in it can serve.
func (s *stream) refuseNoWorker() types.Action {
	reply := noWorkerOpenAI
	if s.endpoint.Anthropic() {
		reply = noWorkerAnthropic
	}
	seconds := 1 + s.plugin.vm.rng.IntN(retryAfterSpread)
	s.phase = phaseRefused
	status := abi.SendLocalResponse(503, "warmpath_no_worker", [][2]string{
		{"content-type", "application/json"},
		{"retry-after", strconv.Itoa(seconds)},
	}, []byte(reply), -1)
	if status != abi.OK {
		s.phase = phasePassing // better an answer of the cluster's than none
		return types.ActionContinue
	}
	s.plugin.vm.metrics.Inc(metrics.Outcomes, metrics.OutcomeLocal)
	return types.ActionPause
}
