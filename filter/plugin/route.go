package plugin

import (
	"time"
	"unsafe"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/admission"
	"github.com/warmpath/warmpath/filter/body"
	"github.com/warmpath/warmpath/filter/fleet"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/route"
)

// lookupBudget bounds the pages one lookup may get, 3 to 4 us each. Turn ends
// come first; what is beyond them is searched in strides, then where those say:
// a prompt that nobody holds costs 6 to 11.
const lookupBudget = 24

// routeBody routes by the whole body of a held request.
func (s *stream) routeBody(raw []byte) types.Action {
	vm := s.plugin.vm
	began := abi.Now()
	s.phase = phasePassing // should anything below panic, the request flows
	s.plugin.fleet.Refresh(began)
	req := &vm.request
	reason := body.Scan(raw, s.endpoint, req)
	pool := s.plugin.fleet.PoolOf(text(req.Model))
	if !s.ticket.Entered() {
		switch s.enter(pool, len(raw), true, began) {
		case admission.Waiting:
			s.phase = phaseWaiting
			return types.ActionPause
		case admission.Refused:
			return types.ActionPause
		}
		if s.ticket.Queued() {
			return s.routeWaited() // others were read meanwhile
		}
	}
	if s.session == 0 {
		s.session = sessionOf(req)
	}
	p := prompt{reason: reason}
	if reason == body.OK && pool != nil {
		p = vm.fingerprint(req, pool, began)
	}
	return s.route(pool, &p, began)
}

// routeUnread routes a request whose body is not read, by load alone.
func (s *stream) routeUnread(reason body.Reason) types.Action {
	began := abi.Now()
	s.phase = phasePassing
	s.plugin.fleet.Refresh(began)
	pool := s.plugin.fleet.PoolOf("")
	if s.enter(pool, s.heldBytes, false, began) == admission.Refused {
		return types.ActionPause
	}
	return s.route(pool, &prompt{reason: reason}, began)
}

// sessionOf is the session that the body names: prompt_cache_key, then user.
func sessionOf(req *body.Request) uint64 {
	switch {
	case len(req.PromptCacheKey) > 0:
		return fingerprint.Hash(text(req.PromptCacheKey))
	case len(req.User) > 0:
		return fingerprint.Hash(text(req.User))
	}
	return 0
}

// route chooses a worker of the pool and lets the request go there.
func (s *stream) route(pool *fleet.Pool, p *prompt, began int64) types.Action {
	vm, f := s.plugin.vm, s.plugin.fleet
	if p.reason != body.OK {
		vm.metrics.Inc(metrics.NoKey, int(p.reason))
	}
	s.keepExplanation(pool, p)
	switch {
	case !f.Ready():
		return s.pass(pool, metrics.FallbackNoTable)
	case pool == nil:
		return s.pass(nil, metrics.FallbackNoPool)
	}
	s.pool = pool.View.Pool.Index
	s.measured = p.reason == body.OK
	if n := len(p.checkpoints); n > 0 {
		// The last few bytes are in no checkpoint, but in the length.
		s.prompt = p.checkpoints[n-1].Fingerprint + uint64(s.heldBytes)
	}
	s.promptTokens = clamp32(p.tokens)
	s.tier = uint8(metrics.Tier(p.tokens))

	request := vm.ask(f, pool, p, s.session, s.exclude)
	if len(request.Exclude) > 0 {
		vm.metrics.Inc(metrics.Excluded, 0)
	}
	d := &vm.decision
	d.Explain = s.plugin.config.Explain
	route.Choose(request, f.ViewAt(pool, began), f.Since(began), vm.rng, d)
	if d.Best == 0 {
		return s.noWorker(pool, began)
	}
	s.predictedTokens, s.heldTokens = clamp32(d.MatchedTokens), clamp32(d.HeldTokens)
	known, sentAgo := knownAt(d.Best, request)
	if s.reserve(pool, began) {
		return types.ActionPause
	}
	s.plugin.gate.Dispatched(&s.ticket)
	vm.metrics.Inc(metrics.Decisions, int(d.Why))
	s.grouped, s.control = pool.View.Pool.Control.Share > 0, d.Control
	s.countGroup(metrics.GroupDecisions, 1)
	s.countLookup(d, known)

	var steer bool
	switch {
	case f.Off():
		vm.metrics.Inc(metrics.Fallback, metrics.FallbackOff)
	case pool.View.Pool.Mode == policy.Observe:
		vm.metrics.Inc(metrics.Fallback, metrics.FallbackObserve)
	default:
		steer = true
	}
	s.phase = phaseReleased
	s.best, s.second = d.Best, d.Second
	if steer {
		s.named = d.Best
		s.openClaim(d.Best)
		s.reportDispatch(d.Best, p.checkpoints)
	} else {
		s.keepForObserve(p.checkpoints)
	}
	s.announce(pool, d, p.exact(), steer, len(request.Matches), sentAgo)
	if steer && !s.anyRank {
		s.noteSent(d.Best, p, known)
	}
	vm.metrics.Decision(uint64(max(0, abi.Now()-began)) / 1000)
	if len(pool.Copies) > 0 && !s.control && p.exact() {
		abi.Guard("copies", func() { s.makeCopies(pool, p) })
	}
	return types.ActionContinue
}

// ask looks the prompt up and makes the request that route.Choose decides about.
func (vm *VM) ask(f *fleet.Fleet, pool *fleet.Pool, p *prompt, session uint64, exclude [2]uint32) *route.Request {
	request := &vm.routeRequest
	request.PromptTokens = p.tokens
	request.RingKey, request.SessionKey = p.ringKey, session
	request.Sequence = pool.NextSequence()
	request.Checkpoints, request.Exact = p.checkpoints, p.exact()
	request.Exclude = f.Excluded(exclude, request.Exclude[:0])
	request.Matches, request.SlowMatches = request.Matches[:0], request.SlowMatches[:0]
	request.Sent = request.Sent[:0]
	if len(p.checkpoints) > 0 {
		request.Matches = f.Find(pool, p.checkpoints, lookupBudget, request.Matches)
		request.AddSent(f.FindSent(p.checkpoints, p.ringKey, p.tokens, request.Matches, request.Sent))
	}
	if p.exact() {
		request.SlowMatches = f.FindSlow(pool, p.checkpoints, lookupBudget, request.SlowMatches)
	}
	return request
}

// knownAt is how many units of a request the table knew at the chosen worker, and how long ago this
// gateway sent more of it there: 0 for not lately.
func knownAt(best uint16, r *route.Request) (known uint32, ago time.Duration) {
	for i := range r.Sent {
		if s := &r.Sent[i]; s.Ref == best {
			if s.Units > s.Known {
				ago = max(s.Ago, time.Millisecond)
			}
			return s.Known, ago
		}
	}
	for i := range r.Matches {
		if r.Matches[i].Ref == best {
			return r.Matches[i].Units, 0
		}
	}
	return 0, 0
}

// countLookup counts a request whose prefix was looked up, by prompt length. The table knows so
// many units of it at the chosen worker.
func (s *stream) countLookup(d *route.Decision, known uint32) {
	if !s.measured {
		return
	}
	m, tier := &s.plugin.vm.metrics, int(s.tier)
	m.Inc(metrics.Lookups, tier)
	m.Add(metrics.LookupTokens, tier, uint64(s.promptTokens))
	s.countGroup(metrics.GroupLookupTokens, uint64(s.promptTokens))
	s.countGroup(metrics.GroupMatchedTokens, uint64(d.MatchedTokens))
	switch {
	case d.MatchedTokens > 0:
		m.Inc(metrics.Hits, tier)
		m.Add(metrics.MatchedTokens, tier, uint64(d.MatchedTokens))
	case known > 0:
		m.Add(metrics.BelowBlockTokens, tier, uint64(known)*fingerprint.UnitTokens)
	}
}

// countGroup counts for the request's group, in a pool that has a control group.
func (s *stream) countGroup(family metrics.Family, n uint64) {
	group := metrics.GroupMain
	if s.control {
		group = metrics.GroupControl
	}
	if s.grouped && n > 0 {
		s.plugin.vm.metrics.Add(family, group, n)
	}
}

// pass lets a request go to the cluster's own balancer. With a pool known the
// request still gets that pool's route and its timeouts.
func (s *stream) pass(pool *fleet.Pool, reason int) types.Action {
	s.phase = phasePassing
	s.plugin.gate.Dispatched(&s.ticket)
	s.plugin.vm.metrics.Inc(metrics.Fallback, reason)
	if pool != nil {
		s.setPool(pool)
	}
	s.announceFallback(reason)
	return types.ActionContinue
}

// noWorker answers a request that nobody can take. Only a fresh table may say
// so; from an old one, unknown is not none.
func (s *stream) noWorker(pool *fleet.Pool, now int64) types.Action {
	f := s.plugin.fleet
	if !f.Fresh(now) || f.Off() || pool.View.Pool.Mode == policy.Observe {
		return s.pass(pool, metrics.FallbackNoWorker)
	}
	s.plugin.vm.metrics.Inc(metrics.NoWorker, 0)
	return s.refuseNoWorker()
}

// uncachedTokens is what the worker has to prefill for this request.
func (s *stream) uncachedTokens() uint32 {
	return s.promptTokens - min(s.promptTokens, s.predictedTokens)
}

func clamp32(n int) uint32 { return uint32(min(max(n, 0), 1<<31-1)) }

// text views bytes as a string for the length of a call.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
