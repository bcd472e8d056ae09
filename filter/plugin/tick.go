package plugin

import (
	"github.com/warmpath/warmpath/filter/abi"
)

// OnTick does the deployment's deferred work, in the newest context only: an
// older one is draining and has nothing left but its streams.
func (p *Plugin) OnTick() {
	d := p.deployment
	if d == nil || len(d.plugins) == 0 || d.plugins[len(d.plugins)-1] != p {
		return
	}
	now := abi.Now()
	p.vm.current = p.id
	if !d.courier.Ahead() || now-d.tickedAt >= int64(p.config.Tick) {
		d.tickedAt = now
		d.fleet.Tick(now, d.courier.Working())
		d.gate.Tick(now, d.courier.Working())
	}
	d.courier.Tick(now)
	d.copies.tick(now)
	p.vm.metrics.Flush()
}

// OnQueueReady is how another VM says that a request which waits here may have
// a slot now, or, to the courier, that one has begun to wait or has been
// dispatched.
func (p *Plugin) OnQueueReady(queue uint32) {
	p.vm.current = p.id
	if p.gate == nil {
		return
	}
	now := abi.Now()
	switch tell, news := p.gate.Woken(queue, now); {
	case tell:
		p.deployment.courier.Hurry(now)
	case news:
		p.deployment.courier.News(now)
	}
}
