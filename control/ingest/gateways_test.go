package ingest

import (
	"math"
	"testing"
	"time"

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
