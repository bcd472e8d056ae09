package plugin

import (
	"bytes"
	"encoding/binary"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/filter/usage"
	"github.com/warmpath/warmpath/shared/wire"
)

// Property paths, segments joined by NUL.
const (
	upstreamAddress  = "upstream\x00address"
	upstreamAttempts = "upstream\x00request_attempt_count"
	responseFlags    = "response\x00flags"
	responseDetails  = "response\x00code_details"
	responseSize     = "response\x00size"
	nodeID           = "node\x00id"
)

// upstreamFailed are Envoy's response flags for an upstream that failed:
// request timeout, local and remote reset, connection failure and termination,
// overflow.
const upstreamFailed = 1<<2 | 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7

// OnHttpStreamDone is the one place where a request's books are closed,
// whatever ended it: answer, refusal, abort, reset.
func (s *stream) OnHttpStreamDone() {
	vm := s.plugin.vm
	vm.current = s.id
	uncached := int64(-1)
	// Last: others may go on with what becomes free, and use the VM's memory. And in
	// any case: no panic below may keep a slot.
	defer func() { s.leave(uncached) }()
	switch s.phase {
	case phaseHeld:
		s.doneHeld()
	case phaseReleased:
		s.closeClaim()
		uncached = s.doneReleased()
	}
	s.plugin.fleet.StreamEnded()
	s.dropKept()
	if s.usage != nil {
		vm.readers.give(s.usage)
		s.usage = nil
	}
}

// doneHeld ends a request that was never released: its client left, or the
// proxy never showed us the body. A proxy that has shown one is set up well:
// there it was the client.
func (s *stream) doneHeld() {
	vm := s.plugin.vm
	if s.bodySeen || s.plugin.bodies {
		vm.metrics.Inc(metrics.HeldAborted, 0)
		return
	}
	vm.metrics.Inc(metrics.HoldNeverReleased, 0)
	s.plugin.warnHold()
}

// doneReleased reports the end of a dispatched request. It answers what the
// worker had to prefill, below 0 for not known.
func (s *stream) doneReleased() (uncached int64) {
	vm, f := s.plugin.vm, s.plugin.fleet
	outcome, now := s.outcome(), abi.Now()
	vm.metrics.Inc(metrics.Outcomes, s.counted(outcome))
	if outcome == metrics.OutcomeUpstreamFailure {
		if s.named != 0 && !s.upstream {
			f.Avoid(s.named, now, 0)
			if s.attempts > 1 && s.second != 0 {
				f.Avoid(s.second, now, 0)
			}
		}
		s.noteFailure(now)
	}
	if !s.upstream || s.status >= 300 {
		s.forgetSent()
	}
	if s.firstTokenAt == 0 && (outcome == metrics.OutcomeUpstreamFailure || outcome == metrics.OutcomeRefused) {
		s.plugin.gate.Unserved(&s.ticket)
	}
	done := wire.Report{
		Pool: s.pool, Chosen: s.claimed, Served: s.served, ID: s.reportID,
		Status: s.status, Outcome: wire.Outcome(outcome + 1), Attempts: max(1, s.attempts),
		PredictedTokens: s.heldTokens, CachedTokens: wire.UnknownTokens,
		PromptTokens: wire.UnknownTokens, OutputTokens: wire.UnknownTokens,
		TTFTMillis: wire.NoTTFT, TotalMillis: uint32(max(0, now-s.arrived) / 1_000_000),
	}
	if s.firstTokenAt != 0 && s.events {
		done.TTFTMillis = uint32(s.ttftMillis())
	}
	s.settle(&done, outcome)
	if s.reportID != 0 {
		f.Reports.Done(&done)
	}
	switch {
	case done.PromptTokens == wire.UnknownTokens:
	case done.CachedTokens != wire.UnknownTokens:
		return int64(max(0, done.PromptTokens-done.CachedTokens))
	case !s.measured: // nothing was reserved that could count instead
		return int64(done.PromptTokens)
	}
	return -1
}

// settle fills in what the engine said about the request. Without its word a
// complete answer is counted as missing usage and settled by its size.
func (s *stream) settle(done *wire.Report, outcome int) {
	if s.usage != nil {
		if u, ok := s.usage.Finish(); ok {
			s.settleUsage(done, u)
			return
		}
	}
	if outcome != metrics.OutcomeComplete || s.status != 200 || !s.measured {
		return
	}
	s.plugin.vm.metrics.Inc(metrics.UsageMissing, 0)
	if tokens, ok := s.estimateOutput(); ok {
		done.OutputTokens = tokens
	}
}

func (s *stream) settleUsage(done *wire.Report, u usage.Usage) {
	m, tier := &s.plugin.vm.metrics, int(s.tier)
	done.PromptTokens = clampSigned(u.PromptTokens)
	done.OutputTokens = clampSigned(u.CompletionTokens)
	if !u.CachedKnown {
		return
	}
	done.CachedTokens = clampSigned(u.CachedTokens)
	if !s.measured {
		return // no lookup to compare it with
	}
	m.Add(metrics.ConfirmedTokens, tier, uint64(max(0, u.CachedTokens)))
	s.countGroup(metrics.GroupConfirmedTokens, uint64(max(0, u.CachedTokens)))
	m.Add(metrics.CameTrueTokens, tier, uint64(max(0, min(u.CachedTokens, int64(s.heldTokens)))))
}

// sseBytesPerToken is the size of one event of a chat stream with one token,
// as vLLM writes it.
const sseBytesPerToken = 200

// estimateOutput guesses the output tokens from the response's size.
func (s *stream) estimateOutput() (int32, bool) {
	value, status := abi.Property(responseSize, &s.plugin.vm.property)
	if status != abi.OK || len(value) != 8 {
		return 0, false
	}
	size := binary.LittleEndian.Uint64(value)
	if s.events {
		return clampSigned(int64(size / sseBytesPerToken)), true
	}
	return clampSigned(int64(size / bytesPerToken)), true
}

// outcome tells how a dispatched request ended.
func (s *stream) outcome() int {
	switch {
	case !s.answered:
		return metrics.OutcomeClientAbort
	case !s.upstream:
		return metrics.OutcomeUpstreamFailure
	case s.status == 429 || s.status == 503:
		return metrics.OutcomeRefused
	case s.bodyEnded:
		return metrics.OutcomeComplete
	}
	switch {
	case s.responseFlags()&upstreamFailed != 0:
		return metrics.OutcomeUpstreamFailure
	case readsResponseBody || s.leftByClient():
		// Where bodies are read, the end of this one would have been seen.
		return metrics.OutcomeClientAbort
	}
	return metrics.OutcomeComplete
}

// counted is the outcome by which a request is counted: what came to its end with
// an error of the engine is not taken for an answer.
func (s *stream) counted(outcome int) int {
	if outcome == metrics.OutcomeComplete && s.status >= 300 {
		return metrics.OutcomeError
	}
	return outcome
}

// leftByClient tells by the proxy's words for how the stream ended.
func (s *stream) leftByClient() bool {
	value, status := abi.Property(responseDetails, &s.plugin.vm.property)
	return status == abi.OK && bytes.HasPrefix(value, []byte("downstream"))
}

func (s *stream) responseFlags() uint64 {
	value, status := abi.Property(responseFlags, &s.plugin.vm.property)
	if status != abi.OK || len(value) != 8 {
		return 0
	}
	return binary.LittleEndian.Uint64(value)
}

func clampSigned(n int64) int32 { return int32(min(max(n, 0), 1<<31-1)) }
