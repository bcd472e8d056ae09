//go:build !wasm

package fleet

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/config"
	"github.com/warmpath/warmpath/shared/wire"
)

func TestAPoolHasTheCopiesThatAreThisGatewaysToMake(t *testing.T) {
	host := proxy(t)
	f := vm(t)
	cfg := config.Default()
	cfg.Gateway = "gw-a"
	f.Configure(cfg)
	key := wire.NewKeys("default").Copies()
	copies := func(payload []byte) []wire.Copy {
		host.Clock += int64(time.Second)
		publish(host, 3, uint64(host.Clock), onePool)
		put(host, key, payload)
		f.Refresh(host.Clock)
		return f.pools[0].Copies
	}
	if got := copies(nil); len(got) != 0 {
		t.Errorf("without a section: %+v", got)
	}
	self := wire.MakerOf("gw-a")
	mine := []wire.Copy{{Fingerprint: 5, Units: 128, Ref: 1, Maker: self}, {Fingerprint: 5, Units: 128, Ref: 3, Maker: self}}
	payload := func(extra ...wire.Copy) (b []byte) {
		for _, c := range append(append([]wire.Copy{}, extra...), mine...) {
			b = wire.AppendCopy(b, &c)
		}
		return b
	}
	got := copies(payload(wire.Copy{Fingerprint: 5, Units: 128, Ref: 2, Maker: wire.MakerOf("gw-b")}, wire.Copy{Fingerprint: 6, Units: 9, Pool: 77, Ref: 1, Maker: self}))
	if diff := cmp.Diff(mine, got); diff != "" {
		t.Error(diff)
	}
	for ref, want := range map[uint16]bool{1: true, 2: false, 3: true, 9: false} {
		if got := f.CopyWanted(5, ref); got != want {
			t.Errorf("worker %d: wanted %v", ref, got)
		}
	}
	if f.CopyWanted(6, 1) {
		t.Error("another pool's is wanted")
	}
	f.Avoid(3, host.Clock, 0)
	if f.CopyWanted(5, 3) {
		t.Error("wanted at a worker that has just failed")
	}
	host.Clock += int64(avoidDefault + refreshEvery)
	f.Refresh(host.Clock)
	if !f.CopyWanted(5, 3) {
		t.Error("not wanted any more after its mark has ended")
	}
	host.Clock += int64(freshFor)
	f.Refresh(host.Clock)
	if f.CopyWanted(5, 1) {
		t.Error("wanted as of a plan of half a minute ago")
	}
	if got := copies(append(payload(), 1)); len(got) != 0 {
		t.Errorf("a damaged section: %+v", got)
	}
	if got := copies(payload(wire.Copy{Fingerprint: 1, Ref: 1, Maker: self})); len(got) != 0 { // of no units
		t.Errorf("a damaged record: %+v", got)
	}
	f.metrics.Flush()
	if n := host.Metrics["warmpath.bad_data.copies"].Value; n != 2 {
		t.Errorf("%d damaged sections are counted", n)
	}
	var many []byte
	for ref := range uint16(1000) {
		many = wire.AppendCopy(many, &wire.Copy{Fingerprint: 5, Units: 1, Ref: ref + 1, Maker: self})
	}
	if got := copies(many); len(got) != maxClaims {
		t.Errorf("%d of 1,000 are kept", len(got))
	}
}

// TestACopyIsClaimedByOneVMUntilItsTimeHasCome: whoever asks, and whatever it has read before.
func TestACopyIsClaimedByOneVMUntilItsTimeHasCome(t *testing.T) {
	host := proxy(t)
	a, b := vm(t), vm(t)
	now := start
	claim := func(f *Fleet, fp uint64, ref uint16, renew, want bool) {
		t.Helper()
		f.setClock(now)
		if got := f.ClaimCopy(fp, ref, renew, ClaimTime); got != want {
			t.Errorf("after %v: %v", time.Duration(now-start), got)
		}
	}
	claim(a, 7, 1, false, true)
	claim(a, 7, 1, false, false)
	claim(b, 7, 1, false, false)
	claim(b, 7, 2, false, true) // another worker's
	claim(b, 8, 1, false, true) // another prefix
	claim(a, 7, 2, false, false)
	if got := len(host.Shared[a.Keys.ClaimsKey].Value); got != 3*claimBytes {
		t.Errorf("%d bytes", got)
	}
	now += int64(ClaimTime - 1)
	claim(b, 7, 1, false, false)
	claim(a, 7, 1, true, true)
	now++
	claim(b, 7, 2, false, true) // its own has ended
	claim(b, 7, 1, false, false)
	now += int64(ClaimTime) - 1
	claim(b, 7, 1, false, true) // the other VM renewed it no more
	if got := len(host.Shared[a.Keys.ClaimsKey].Value); got != 3*claimBytes {
		t.Errorf("%d bytes: places are not used again", got)
	}
	// A clock that was set back makes a claim no longer.
	now -= int64(time.Hour)
	claim(a, 7, 1, false, true)
}

func TestThereIsRoomForSoManyClaims(t *testing.T) {
	host := proxy(t)
	f, other := vm(t), vm(t)
	f.setClock(start)
	other.setClock(start)
	for i := range maxClaims {
		if !f.ClaimCopy(uint64(i+1), 1, false, ClaimTime) {
			t.Fatalf("claim %d refused", i)
		}
	}
	for _, f := range []*Fleet{f, other, vm(t)} {
		f.setClock(start)
		if f.ClaimCopy(1000, 1, false, ClaimTime) {
			t.Error("one more was claimed")
		}
	}
	if got := len(host.Shared[f.Keys.ClaimsKey].Value); got != maxClaims*claimBytes {
		t.Errorf("%d bytes", got)
	}
	other.setClock(start + int64(ClaimTime))
	if !other.ClaimCopy(1000, 1, false, ClaimTime) {
		t.Error("refused though all others have ended")
	}
}

// TestAClaimThatOthersWereQuickerThanIsNone, and leaves nothing.
func TestAClaimThatOthersWereQuickerThanIsNone(t *testing.T) {
	host := proxy(t)
	f := vm(t)
	f.setClock(start)
	if !f.ClaimCopy(6, 1, false, ClaimTime) {
		t.Fatal("refused")
	}
	host.Refuse["proxy_set_shared_data"] = abi.CASMismatch
	if f.ClaimCopy(7, 1, false, ClaimTime) {
		t.Error("claimed")
	}
	delete(host.Refuse, "proxy_set_shared_data")
	if !f.ClaimCopy(7, 1, false, ClaimTime) {
		t.Error("it takes its own word for another's claim")
	}
}

func TestClaimsThatNobodyCanReadAreWrittenOver(t *testing.T) {
	host := proxy(t)
	f := vm(t)
	f.setClock(start)
	for _, value := range []string{"rubbish", string(make([]byte, 5000))} {
		put(host, f.Keys.ClaimsKey, []byte(value))
		f.claims.n = 0
		if !f.ClaimCopy(7, 1, false, ClaimTime) {
			t.Errorf("%d bytes of rubbish: refused", len(value))
		}
	}
}
