package plugin

import (
	"strconv"
	"time"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/config"
	"github.com/warmpath/warmpath/filter/fleet"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/route"
)

// Filter state for proxies that let the headers go before the body: the
// header_mutation filter behind this one turns it into headers. The decision
// is always written there too, because the header is removed before the
// access log is written.
const (
	destProperty     = "gw.dest"
	poolProperty     = "gw.pool"
	decisionProperty = "gw.decision"
)

// announce writes a choice where the proxy's router and access log read it.
func (s *stream) announce(pool *fleet.Pool, d *route.Decision, exact, steer bool, matches int, sentAgo time.Duration) {
	vm, f := s.plugin.vm, s.plugin.fleet
	s.setPool(pool)
	best := f.AddressOf(d.Best)
	if steer {
		list := append(vm.line[:0], f.EndpointOf(d.Best)...)
		if d.Second != 0 {
			list = append(list, ',')
			list = append(list, f.EndpointOf(d.Second)...)
		}
		vm.line = list
		s.set(endpointHeader, destProperty, list)
		if s.headersEditable() && s.once(d, f.Clock()) {
			abi.SetHeader(abi.RequestHeaders, retriesHeader, "0")
		}
		s.announceRank(d)
	}
	line := words(vm.line[:0])
	line.whole("hit=", int64(s.heldTokens))
	line.whole("/", int64(s.promptTokens))
	line.add(" w=")
	line.add(best)
	line.add(" why=")
	line.add(d.Why.String())
	line.whole(" n=", int64(matches))
	if d.SlowTokens > 0 {
		line.whole(" slow=", int64(d.SlowTokens))
	}
	if sentAgo > 0 {
		line.whole(" sent=", sentAgo.Milliseconds())
		line.add("ms")
	}
	if exact {
		line.add(" fp=exact")
	}
	if d.Control {
		line.add(" group=control")
	}
	if !steer {
		line.add(" mode=observe")
	}
	vm.line = line
	s.setDecision(line)
	if s.explanation != nil {
		rule := pool.View.Pool.Policy.Name
		if d.Control {
			rule = pool.View.Pool.Control.Policy.Name
		}
		s.explanation = appendWorkers(append(append(s.explanation, ' '), line...), f, d, rule)
	}
}

// announceRank names the data-parallel rank that a request is for, where the chosen worker shares
// its port with others. The header is the same for both attempts: it is left out where the second
// worker has another rank, or when the headers have left, and the engine chooses.
func (s *stream) announceRank(d *route.Decision) {
	rank := s.plugin.fleet.RankOf(d.Best)
	if rank < 0 {
		return
	}
	if s.anyRank = !d.Ranked || !s.headersEditable(); s.anyRank {
		return
	}
	abi.SetHeader(abi.RequestHeaders, rankHeader, strconv.Itoa(rank))
}

// announceFallback writes why the proxy's own balancer places the request. The
// decision header is set all the same: routes give every released request a
// long idle timeout by its presence.
func (s *stream) announceFallback(reason int) {
	vm := s.plugin.vm
	vm.line = append(append(vm.line[:0], "w=- why="...), metrics.Label(metrics.Fallback, reason)...)
	s.setDecision(vm.line)
	if s.explanation != nil {
		s.explanation = append(append(s.explanation, ' '), vm.line...)
	}
}

func (s *stream) setDecision(line []byte) {
	abi.SetProperty(decisionProperty, line)
	if s.headersEditable() {
		abi.SetHeader(abi.RequestHeaders, decisionHeader, text(line))
		return
	}
	// The companions write the headers when this callback has returned; the
	// route is then looked up again. Hosts without the function keep the
	// route of the headers.
	abi.CallForeign("clear_route_cache", nil, &s.plugin.vm.property)
}

// setPool names the pool: the route matches on it and picks the cluster.
func (s *stream) setPool(pool *fleet.Pool) {
	vm := s.plugin.vm
	vm.line = append(vm.line[:0], pool.View.Pool.Name...)
	s.set(poolHeader, poolProperty, vm.line)
}

func (s *stream) set(header, property string, value []byte) {
	if s.headersEditable() {
		abi.SetHeader(abi.RequestHeaders, header, text(value))
		return
	}
	abi.SetProperty(property, value)
}

// headersEditable tells that the request's headers have not left yet: they are
// stopped at, or this is their own callback.
func (s *stream) headersEditable() bool {
	return s.plugin.config.Hold == config.HoldHeaders || !s.bodySeen
}
