package control

import (
	"testing"
	"time"

	"github.com/warmpath/warmpath/control/discovery"
)

// TestGatewaysLearnOfCachesAndRecentWork: from a dispatch report to the section that the cost
// rule's terms come from. A worker whose capacity nobody gave has no tail.
func TestGatewaysLearnOfCachesAndRecentWork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		list := specs(alpha, beta)
		list[1] = discovery.Spec{Address: beta}
		_, g := serving(t, newEngines(alpha, beta), Config{Workers: list})
		a, other := g.refOf(alpha), g.refOf(beta)
		path := prompt("system")
		units := float64(path[len(path)-1].End)
		_, first := g.dispatch(a, path)
		_, second := g.dispatch(other, path)
		g.send(nil, first, second)
		time.Sleep(3 * time.Second)
		g.catchUp()
		c, unknown := g.caches[a], g.caches[other]
		if c.FreeTokens != uint32(100_000-16*units) {
			t.Errorf("%d free of 100,000 with %v units held", c.FreeTokens, units)
		}
		if c.TailAgeMillis < 2000 || c.TailAgeMillis > 3100 {
			t.Errorf("the tail is %d ms old after 3 s", c.TailAgeMillis)
		}
		work := units * 16
		if got := float64(c.RecentTokens); got < 0.70*work || got > 0.82*work { // exp(-0.3) = 0.74, sent up to a second ago
			t.Errorf("%v of %v tokens count as recent after 3 s", got, work)
		}
		if unknown.TailAgeMillis != 0 || unknown.FreeTokens != 0 || unknown.RecentTokens == 0 {
			t.Errorf("a worker of unknown capacity: %+v", unknown)
		}
	})
}
