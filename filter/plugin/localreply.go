package plugin

import (
	"strconv"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/quota"
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
	headers := [][2]string{{"content-type", "application/json"}, {"retry-after", s.retryIn(1)}, {reasonHeader, "no_worker"}}
	if s.reply(503, "warmpath_no_worker", headers, reply) {
		return types.ActionPause
	}
	return types.ActionContinue
}

// messages are what a refused client reads.
var messages = [quota.Reasons]string{
	quota.TenantConcurrency: "Too many requests at once for this tenant; retry when some have ended.",
	quota.TenantRequests:    "The request rate of this tenant is used up; retry later.",
	quota.TenantTokens:      "The token rate of this tenant is used up; retry later.",
	quota.BypassConcurrency: "Too many requests at once with this secret; retry when some have ended.",
	quota.NoLease:           "This tenant's limit can't be checked at the moment; retry later.",
	quota.QueueFull:         "All workers are busy and the queue is full; retry later.",
	quota.QueueWait:         "All workers are busy and the wait would be too long; retry later.",
	quota.QueueTimeout:      "All workers were busy for as long as the request may wait; retry later.",
}

// refuse answers for the gate: 429 where the limit is the client's, 503 where it
// is the fleet's. It answers false when the proxy doesn't take the answer; the
// request then flows.
func (s *stream) refuse(why quota.Reason) bool {
	status, kind, code := 503, "server_error", "overloaded"
	if why.Yours() {
		status, kind, code = 429, "rate_limit_error", "rate_limit_exceeded"
	}
	text := `{"error":{"message":"` + messages[why] + `","type":"` + kind + `","param":null,"code":"` + code + `"}}`
	if s.endpoint.Anthropic() {
		if !why.Yours() {
			kind = "overloaded_error"
		}
		text = `{"type":"error","error":{"type":"` + kind + `","message":"` + messages[why] + `"}}`
	}
	return s.reply(status, "warmpath_"+why.String(), [][2]string{
		{"content-type", "application/json"},
		{"retry-after", s.retryIn(s.ticket.RetryAfter)},
		{reasonHeader, why.String()},
	}, text)
}

// retryIn is a Retry-After of some seconds or a little more.
func (s *stream) retryIn(seconds int) string {
	spread := max(retryAfterSpread, seconds/4)
	return strconv.Itoa(max(1, seconds) + s.plugin.vm.rng.IntN(spread))
}

// reply answers the request, and tells whether the proxy has taken the answer.
func (s *stream) reply(code int, details string, headers [][2]string, text string) bool {
	s.phase = phaseRefused
	if abi.SendLocalResponse(code, details, headers, []byte(text), -1) != abi.OK {
		s.phase = phasePassing // better an answer of the cluster's than none
		return false
	}
	s.plugin.vm.metrics.Inc(metrics.Outcomes, metrics.OutcomeLocal)
	return true
}
