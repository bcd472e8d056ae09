package gateway

import (
	"sync/atomic"

	"github.com/warmpath/warmpath/hostsim"
)

// lane is one VM and how many exchanges are at it right now. A VM has one thread,
// and a callback over a large body holds it for milliseconds.
type lane struct {
	plugin *hostsim.Plugin
	inside atomic.Int32
}

// do runs f on the lane's VM.
func (l *lane) do(f func()) {
	l.inside.Add(1)
	defer l.inside.Add(-1)
	l.plugin.VM().Do(f)
}

// shortest is the lane with the fewest exchanges at it; among equals, each in
// turn.
func (g *Gateway) shortest() *lane {
	first := int(g.next.Add(1) % uint64(len(g.lanes)))
	best, least := g.lanes[first], g.lanes[first].inside.Load()
	for i := 1; i < len(g.lanes) && least > 0; i++ {
		l := g.lanes[(first+i)%len(g.lanes)]
		if n := l.inside.Load(); n < least {
			best, least = l, n
		}
	}
	return best
}
