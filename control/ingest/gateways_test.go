package ingest

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/wire"
)

func TestWhatEveryGatewayHasPassed(t *testing.T) {
	const epoch = 70
	t0 := time.Unix(1_700_000_000, 0)
	type report struct {
		name           string
		nonce          uint64
		epoch, version uint64
		at             time.Duration
	}
	for name, c := range map[string]struct {
		reports []report
		now     time.Duration
		want    uint64
	}{
		"nobody":                       {nil, 0, math.MaxUint64},
		"the slowest counts":           {[]report{{"a", 1, epoch, 9, 0}, {"b", 2, epoch, 7, 0}}, 0, 7},
		"its last word counts":         {[]report{{"a", 1, epoch, 7, 0}, {"a", 1, epoch, 9, time.Second}}, time.Second, 9},
		"silent":                       {[]report{{"a", 1, epoch, 7, 0}, {"b", 2, epoch, 9, forgetAfter}}, forgetAfter, 7},
		"silent for too long":          {[]report{{"a", 1, epoch, 7, 0}, {"b", 2, epoch, 9, forgetAfter}}, forgetAfter + 1, 9},
		"of another epoch":             {[]report{{"a", 1, epoch, 9, 0}, {"b", 2, epoch - 1, 99, 0}}, 0, 0},
		"a younger courier speaks":     {[]report{{"a", 1, epoch, 7, 0}, {"a", 2, epoch, 9, time.Second}}, time.Second, 9},
		"two processes under a name":   {[]report{{"a", 1, epoch, 7, 0}, {"a", 2, epoch, 9, time.Second}, {"a", 1, epoch, 8, 2 * time.Second}}, 2 * time.Second, 8},
		"one that has no table so far": {[]report{{"a", 1, 0, 0, 0}}, 0, 0},
	} {
		g := NewGateways()
		for _, r := range c.reports {
			g.saw(&wire.Gateway{Name: r.name, Nonce: r.nonce, Epoch: r.epoch, Version: r.version}, nil, nil, false, t0.Add(r.at))
		}
		if got := g.Passed(epoch, t0.Add(c.now)); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestMakersOfCopiesAreThoseThatCanAndAreBusy(t *testing.T) {
	t0 := time.Unix(1_700_000_000, 0)
	hash, other := policy.Hash{1}, policy.Hash{2}
	has := func(h policy.Hash, vms uint16) map[policy.Hash]wire.Ready {
		return map[policy.Hash]wire.Ready{h: {Hash: h, VMs: vms}}
	}
	for name, c := range map[string]struct {
		gateway wire.Gateway
		ready   map[policy.Hash]wire.Ready
		pool    uint8
		now     time.Duration
		want    bool
	}{
		"busy, and can":                 {wire.Gateway{Copies: true}, has(hash, 2), 3, 0, true},
		"a moment ago":                  {wire.Gateway{Copies: true}, has(hash, 2), 3, MakerFor, true},
		"too long ago":                  {wire.Gateway{Copies: true}, has(hash, 2), 3, MakerFor + 1, false},
		"a module from before":          {wire.Gateway{}, has(hash, 2), 3, 0, false},
		"another vocabulary":            {wire.Gateway{Copies: true}, has(other, 2), 3, 0, false},
		"not all VMs have it":           {wire.Gateway{Copies: true}, has(hash, 1), 3, 0, false},
		"its requests were another's":   {wire.Gateway{Copies: true}, has(hash, 2), 4, 0, false},
		"its requests were another's 2": {wire.Gateway{Copies: true}, has(hash, 2), 255, 0, false},
	} {
		g := NewGateways()
		c.gateway.Name, c.gateway.Nonce, c.gateway.LiveRows = "g", 1, 2
		var pools poolSet
		pools.add(c.pool)
		for range 2 { // two processes under a name are one maker
			g.saw(&c.gateway, nil, c.ready, false, t0)
			c.gateway.Nonce++
		}
		c.gateway.Nonce = 1
		g.saw(&c.gateway, nil, c.ready, false, t0)
		g.dispatched("g", &pools, t0)
		got := g.Makers(3, hash, t0.Add(c.now))
		if want := []string{"g"}; c.want != slices.Equal(got, want) || !c.want && len(got) != 0 {
			t.Errorf("%s: %v", name, got)
		}
		if g.forget(t0.Add(LiveFor+1), LiveFor); len(g.last) != 0 {
			t.Errorf("%s: %d dispatches are remembered for ever", name, len(g.last))
		}
	}
}
