//go:build !wasm

package plugin

import (
	"testing"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/metrics"
)

// TestASliceThatIsNeverAnsweredIsGivenUp, be it that the proxy forgets the call.
func TestASliceThatIsNeverAnsweredIsGivenUp(t *testing.T) {
	host, s := begin(t, `{}`)
	c := &s.plugin.deployment.copies
	h := &hotPrefix{copies: 2, ids: make([]uint32, 32)}
	now := abi.Now()
	for i := range int64(2) {
		x := &copying{prefix: h, ref: 7, deadline: now + i}
		x.claim.Open(c.fleet.Own, 7, 100)
		c.list = append(c.list, x)
	}
	if n := c.tokens(); n != 32 {
		t.Errorf("%d tokens", n)
	}
	first := c.list[0]
	c.tick(now + 1)
	if len(c.list) != 1 || !first.over || h.copies != 1 || c.tokens() != 32 {
		t.Errorf("%d copies, %d tokens", len(c.list), c.tokens())
	}
	if line := c.fleet.Own.Of(7); line.InFlight != 1 || line.UncachedTokens != 100 {
		t.Errorf("%+v in flight", line)
	}
	c.answered(first, 16, 0) // late
	s.plugin.OnPluginDone()
	if len(c.list) != 0 || c.fleet.Own.Of(7).InFlight != 0 || c.tokens() != 0 {
		t.Errorf("the end of the plugin context leaves %d", len(c.list))
	}
	c.vm.metrics.Flush()
	for reason, name := range map[int]string{metrics.CopyTimeout: "timeout", metrics.CopyGone: "gone"} {
		if n := host.Metrics["warmpath.copies_failed."+name].Value; n != 1 || metrics.Label(metrics.CopiesFailed, reason) != name {
			t.Errorf("%s: %d", name, n)
		}
	}
}
