//go:build !wasm

package plugin

import (
	"testing"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
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

// TestASliceIsWorkOfItsWorker: in flight, to be computed, and lately sent.
func TestASliceIsWorkOfItsWorker(t *testing.T) {
	host := abi.NewFake()
	host.Clock = 1_700_000_000_000_000_000
	t.Cleanup(abi.UseFake(host))
	vm := NewVM()
	abi.Start(vm)
	abi.OnContextCreate(1, 0)
	t.Cleanup(func() { abi.OnDelete(1) })
	if !abi.OnConfigure(1, 0) {
		t.Fatalf("refused: %v", host.Logs)
	}
	keys := wire.NewKeys("default")
	for key, value := range map[string][]byte{
		keys.Policy(): []byte(`{"pools":[{"name":"default","index":0,"models":["*"],"policy":{"name":"cost","copy_slice_tokens":512}}]}`),
		keys.Roster(): wire.AppendWorker(nil, &wire.Worker{Ref: 3, Generation: 1, Address: []byte("10.0.0.3:80")}),
		keys.Loads():  wire.AppendLoad(nil, &wire.Load{Ref: 3, State: 1, Trust: 1}),
		keys.Copies(): wire.AppendCopy(nil, &wire.Copy{Fingerprint: 7, Units: 40, Ref: 3, Maker: wire.MakerOf("gw-1")}),
		keys.Meta():   table.AppendMeta(nil, &table.Meta{Bits: 6, Ready: true, Epoch: 1, Version: 1, UpdatedUnixNanos: host.Clock, RosterVersion: 1, LoadsVersion: 1, PolicyVersion: 1}),
	} {
		host.Shared[key] = abi.FakeShared{Value: value, CAS: 1}
	}
	c, f := &vm.deployments[0].copies, vm.deployments[0].fleet
	f.Refresh(host.Clock)
	pool := policy.Pool{Name: "default", Policy: policy.Policy{CopySlice: 512}}
	h := &hotPrefix{root: 1, fingerprint: 7, pool: &pool, cluster: "x", before: "[", after: "]", ids: make([]uint32, 640), copies: 1}
	x := &copying{prefix: h, ref: 3, worker: f.WorkerName(3), claimed: host.Clock}
	c.list = append(c.list, x)
	c.next(x, host.Clock)
	host.Headers[abi.HTTPCallHeaders] = [][2]string{{":status", "200"}}
	for i, tokens := range []uint64{512, 128} {
		if len(host.HTTPCalls) != i+1 {
			t.Fatalf("%d calls: %v", len(host.HTTPCalls), host.Logs)
		}
		if line := f.Own.Of(3); line.InFlight != 1 || line.UncachedTokens != tokens {
			t.Errorf("slice %d: %+v in flight", i, line)
		}
		abi.OnHTTPCallResponse(1, host.HTTPCalls[i].ID, 1, 0, 0)
	}
	if n := f.Recent.Of(3, host.Clock); n != 640 {
		t.Errorf("%v tokens of recent work", n)
	}
	if f.Own.Of(3).InFlight != 0 || len(c.list) != 0 || len(host.HTTPCalls) != 2 {
		t.Errorf("%d copies are left, %d calls", len(c.list), len(host.HTTPCalls))
	}
}
