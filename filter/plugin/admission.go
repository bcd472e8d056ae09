package plugin

import (
	"strconv"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/admission"
	"github.com/warmpath/warmpath/filter/body"
	"github.com/warmpath/warmpath/filter/fleet"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/quota"
	"github.com/warmpath/warmpath/shared/route"
)

// arrive asks the gate about a request whose headers have come, and tells
// whether it was turned away.
func (s *stream) arrive(headers abi.Pairs) bool {
	g := s.plugin.gate
	if !g.Active() {
		return false
	}
	who := g.Identify(headers)
	if g.Settings().PriorityHeader {
		abi.SetHeader(abi.RequestHeaders, priorityHeader, strconv.Itoa(int(who.Class)))
	}
	why := g.Arrive(&s.ticket, who, s.arrived)
	return why != quota.None && s.refuse(why)
}

// enter asks the gate for a slot of the pool. A request whose body is not held
// can't wait for one.
func (s *stream) enter(pool *fleet.Pool, bytes int, held bool, now int64) admission.Verdict {
	if pool == nil || !s.ticket.Known() {
		return admission.Admitted
	}
	verdict, why := s.plugin.gate.Enter(&s.ticket, s, pool.View.Pool.Index, bytes, held, now)
	if verdict == admission.Refused && !s.refuse(why) {
		return admission.Admitted
	}
	return verdict
}

// Admitted lets a request go that has waited for its slot. It is called within
// another stream's callback, or at a tick.
func (s *stream) Admitted() {
	if s.phase != phaseWaiting {
		return // it went on by itself when its callback panicked
	}
	vm := s.plugin.vm
	abi.SetEffectiveContext(s.id)
	action := types.ActionContinue
	abi.Guard("admitted", func() { action = s.routeWaited() })
	if action == types.ActionContinue {
		abi.Continue(abi.StreamRequest)
	}
	abi.SetEffectiveContext(vm.current)
}

// routeWaited routes a request that has waited. Its body is read again: others
// were meanwhile.
func (s *stream) routeWaited() types.Action {
	vm := s.plugin.vm
	s.phase = phasePassing
	raw, status := abi.Buffer(abi.RequestBody, 0, s.heldBytes, &vm.bodies)
	if status != abi.OK || len(raw) == 0 {
		return s.routeUnread(body.NoBody)
	}
	action := s.routeBody(raw)
	vm.bodies.Trim(keptBodyBytes)
	return action
}

// Refused turns away a request that has waited.
func (s *stream) Refused(why quota.Reason) {
	if s.phase != phaseWaiting {
		return
	}
	abi.SetEffectiveContext(s.id)
	if !s.refuse(why) {
		abi.Continue(abi.StreamRequest)
	}
	abi.SetEffectiveContext(s.plugin.vm.current)
}

// reserve books the prompt's uncached tokens on its tenant's balance, and tells
// whether it was turned away.
func (s *stream) reserve(pool *fleet.Pool, now int64) bool {
	g := s.plugin.gate
	why := g.Reserve(&s.ticket, pool.View.Pool.Index, s.uncachedTokens(), now)
	return why != quota.None && s.refuse(why)
}

// once tells that the request must not be tried a second time.
func (s *stream) once(d *route.Decision, now int64) bool {
	g := s.plugin.gate
	switch {
	case d.Second == 0:
		return true
	case !g.Active():
		return false
	case g.Resets.Dangerous(s.prompt, now):
		s.plugin.vm.metrics.Inc(metrics.RetriesDenied, metrics.RetryDangerous)
	case g.Retries.Spent():
		s.plugin.vm.metrics.Inc(metrics.RetriesDenied, metrics.RetryBudgetSpent)
	default:
		return false
	}
	s.single = true
	return true
}

// upstreamReset are Envoy's response flags for an upstream that broke off: remote
// reset, connection termination, protocol error (a body that ends too early).
const upstreamReset = 1<<4 | 1<<6 | 1<<23

// noteFailure remembers who broke off at this prompt, and counts the retry of a
// request that failed twice.
func (s *stream) noteFailure(now int64) {
	g := s.plugin.gate
	if !g.Active() {
		return
	}
	twice := !s.upstream && s.second != 0 && !s.single
	if twice {
		g.Retries.Retried(1)
	}
	if s.responseFlags()&upstreamReset == 0 {
		return
	}
	if s.upstream {
		g.NoteReset(s.prompt, s.served, now)
		return
	}
	g.NoteReset(s.prompt, s.best, now)
	if twice {
		g.NoteReset(s.prompt, s.second, now)
	}
}

// leave gives back what the request has of its tenant's and its class'. uncached
// is what the engine said, below 0 for nothing.
func (s *stream) leave(uncached int64) {
	if s.ticket.Known() {
		s.plugin.gate.Done(&s.ticket, uncached, abi.Now())
	}
}

// explainAdmission appends whose the request is and how long it has waited.
func (s *stream) explainAdmission(b []byte) []byte {
	if !s.ticket.Asked() {
		return b
	}
	t := &s.ticket
	return append(b, " class=p"+strconv.Itoa(int(t.Class))+" tenant="+s.plugin.gate.TenantName(t.Tenant)+
		" waited="+strconv.FormatInt(t.Waited/1_000_000, 10)+"ms"...)
}
