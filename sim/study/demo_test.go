package study

import (
	"testing"

	"github.com/warmpath/warmpath/sim/workload"
)

func runDemo(t *testing.T, capacity float64, policy Policy) Result {
	t.Helper()
	spec := workload.Demo()
	w, err := workload.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(w, spec.Fleet.Workers, spec.Fleet.EngineParams(capacity), policy)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("all %.3f, first turns %.3f, follow-ups %.3f, TTFT mean %v p50 %v p99 %v, busy %.2f (CoV %.2f), requests CoV %.2f, %v",
		r.All.HitRate(), r.FirstTurns.HitRate(), r.FollowUps.HitRate(),
		r.TTFTMean, r.TTFTP50, r.TTFTP99, r.MeanBusy, r.BusyCoV, r.RequestCoV, r.Duration)
	if r.All.Requests != spec.Requests || r.Refused != 0 {
		t.Errorf("%d of %d requests done, %d refused", r.All.Requests, spec.Requests, r.Refused)
	}
	return r
}

func between(t *testing.T, what string, got, low, high float64) {
	t.Helper()
	if got < low || got > high {
		t.Errorf("%s %.3f, want %.2f to %.2f", what, got, low, high)
	}
}

// The bands that demo.yaml was tuned for.
func TestDemoTellsThePoliciesApart(t *testing.T) {
	t.Run("round robin", func(t *testing.T) {
		t.Parallel()
		r := runDemo(t, 1, RoundRobin())
		between(t, "hit rate", r.All.HitRate(), .25, .35)
		between(t, "busy", r.MeanBusy, .5, .97)
		between(t, "mean TTFT in seconds", r.TTFTMean.Seconds(), .3, 2)
	})
	t.Run("session hash", func(t *testing.T) {
		t.Parallel()
		r := runDemo(t, 1, SessionHash())
		between(t, "first turns", r.FirstTurns.HitRate(), .45, .55)
		between(t, "follow-ups", r.FollowUps.HitRate(), .85, 1)
	})
	t.Run("prefix home", func(t *testing.T) {
		t.Parallel()
		r := runDemo(t, 1, PrefixHome(1.5))
		between(t, "hit rate", r.All.HitRate(), .88, 1)
		between(t, "first turns", r.FirstTurns.HitRate(), .84, 1)
		between(t, "busy CoV", r.BusyCoV, 0, .1)
		between(t, "mean TTFT in seconds", r.TTFTMean.Seconds(), .03, .2)
	})
	t.Run("prefix home, half the capacity", func(t *testing.T) {
		t.Parallel()
		r := runDemo(t, .5, PrefixHome(1.5))
		between(t, "hit rate", r.All.HitRate(), .6, .88)
	})
}
