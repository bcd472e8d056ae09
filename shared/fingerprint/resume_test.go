package fingerprint

import (
	"testing"

	"pgregory.net/rapid"
)

func TestAResumedChainGoesOnAsIfItHadBeenFedEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfN(rapid.Uint32Range(0, 200_000), 16, 20_000).Draw(t, "ids")
		var whole Chain
		whole.Reset(7)
		at := uint32(0)
		fingerprints := map[uint32]uint64{0: 7}
		for u := uint32(1); int(u)*UnitTokens <= len(ids); u++ {
			whole.WriteTokens(ids[(u-1)*UnitTokens : u*UnitTokens])
			fingerprints[u] = whole.Fingerprint()
			if u == NextScheduled(at) {
				at = u
				var resumed Chain
				resumed.Resume(fingerprints[at], at)
				end := min(len(ids), int(NextScheduled(at))*UnitTokens)
				resumed.WriteTokens(ids[at*UnitTokens : end])
				var fresh Chain
				fresh.Reset(7)
				fresh.WriteTokens(ids[:end])
				if resumed.Units() != fresh.Units() || resumed.Fingerprint() != fresh.Fingerprint() {
					t.Fatalf("resumed at unit %d: %x at %d, want %x at %d", at, resumed.Fingerprint(), resumed.Units(), fresh.Fingerprint(), fresh.Units())
				}
				if at > 600 {
					break
				}
			}
		}
	})
}
