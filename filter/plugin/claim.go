package plugin

import (
	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/wire"
)

// openClaim books the request on ref.
func (s *stream) openClaim(ref uint16) {
	f := s.plugin.fleet
	f.Recent.Add(ref, float64(s.uncachedTokens()), f.Clock())
	if s.claim.Open(f.Own, ref, s.uncachedTokens()) {
		s.plugin.vm.metrics.Inc(metrics.Dispatched, 0)
	} else {
		s.plugin.vm.metrics.Inc(metrics.RowsFull, 0)
	}
	f.Touched(ref)
}

// moveClaim books the request on the worker that really serves it.
func (s *stream) moveClaim(ref uint16) {
	f, from := s.plugin.fleet, s.claim.Ref()
	if from != 0 && from != ref {
		f.Recent.Add(from, -float64(s.uncachedTokens()), f.Clock())
		f.Recent.Add(ref, float64(s.uncachedTokens()), f.Clock())
	}
	if !s.claim.Move(f.Own, ref) {
		s.plugin.vm.metrics.Inc(metrics.Released, 0)
	}
	f.Touched(from)
	f.Touched(ref)
}

// firstToken notes that the worker has begun to answer: its prefill is done.
func (s *stream) firstToken() {
	f := s.plugin.fleet
	s.claim.FirstToken(f.Own)
	f.Touched(s.claim.Ref())
	s.firstTokenAt = abi.Now()
	if s.ticket.Known() {
		s.plugin.vm.current = s.id
		defer s.plugin.gate.FirstToken(&s.ticket, s.ttftMillis(), s.events, s.firstTokenAt)
	}
	if s.events {
		s.plugin.vm.metrics.TTFT(s.ttftMillis())
		s.countGroup(metrics.GroupFirstTokens, 1)
		s.countGroup(metrics.GroupTTFTMillis, s.ttftMillis())
	}
}

// closeClaim returns what the request still has booked. Whoever ends the
// stream calls it; only the first call counts.
func (s *stream) closeClaim() {
	f, ref := s.plugin.fleet, s.claim.Ref()
	if s.claim.Close(f.Own) {
		s.plugin.vm.metrics.Inc(metrics.Released, 0)
		f.Touched(ref)
	}
}

func (s *stream) ttftMillis() uint64 {
	return uint64(max(0, s.firstTokenAt-s.arrived)) / 1_000_000
}

// reportDispatch tells control, by way of the courier, that ref will hold the
// prompt.
func (s *stream) reportDispatch(ref uint16, checkpoints []fingerprint.Checkpoint) {
	s.claimed = ref
	report := &s.plugin.vm.report
	*report = wire.Report{
		Pool: s.pool, Chosen: ref,
		PromptUnits:  s.promptTokens / fingerprint.UnitTokens,
		MatchedUnits: s.predictedTokens / fingerprint.UnitTokens,
	}
	s.reportID = s.plugin.fleet.Reports.Dispatch(report, checkpoints)
}

// noteSent remembers, until the table can tell, that the prompt is on its way to ref.
func (s *stream) noteSent(ref uint16, p *prompt, known uint32) {
	s.sentCell = s.plugin.fleet.NoteSent(s.reportID, ref, p.checkpoints, known, int(s.uncachedTokens()), p.ringKey)
	s.noted = true
}

// forgetSent takes that back: the request failed, or went elsewhere.
func (s *stream) forgetSent() {
	if s.noted {
		s.noted = false
		s.plugin.fleet.ForgetSent(s.reportID, s.sentCell)
	}
}

// observedTotal bounds the checkpoints that a VM keeps for requests whose
// worker is not known yet: half a megabyte.
const observedTotal = 32 << 10

// keepForObserve keeps the checkpoints of a request that is not steered: which
// worker will hold them is known only when it answers.
func (s *stream) keepForObserve(checkpoints []fingerprint.Checkpoint) {
	vm := s.plugin.vm
	if len(checkpoints) == 0 || vm.observed+len(checkpoints) > observedTotal {
		return
	}
	vm.observed += len(checkpoints)
	s.kept = append([]fingerprint.Checkpoint(nil), checkpoints...)
}

// adopt books and reports an observed request at the worker that serves it.
func (s *stream) adopt() {
	if s.served != s.best {
		s.predictedTokens, s.heldTokens = 0, 0
	}
	s.openClaim(s.served)
	s.reportDispatch(s.served, s.kept)
	s.dropKept()
}

func (s *stream) dropKept() {
	s.plugin.vm.observed -= len(s.kept)
	s.kept = nil
}
