package homes

import (
	"slices"
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/fingerprint"
)

// BenchmarkPlanFull plans with all counters that a pool has room for, 30 hot prefixes among them, 128
// workers of which half hold each, 4,000 requests under way, and 8 makers.
func BenchmarkPlanFull(b *testing.B) {
	const hotOnes, requests = 30, 8000
	p := NewPlanner()
	var paths [][]fingerprint.Checkpoint
	var now time.Duration
	for own := uint64(1); len(p.Heat.counters) < maxCounters-maxOpened && own < requests; own++ {
		now += 100 * time.Microsecond
		path := path(own%hotOnes, 20, 60, own)
		p.Heat.Add(path, now)
		if len(paths) < 4000 {
			paths = append(paths, path)
		}
	}
	var at []fingerprint.Checkpoint
	begins := func(fp uint64, units uint32) bool {
		i, ok := slices.BinarySearchFunc(at, units, func(c fingerprint.Checkpoint, units uint32) int { return int(c.End) - int(units) })
		return ok && at[i].Fingerprint == fp
	}
	underWay := func(each func(Begins)) {
		for _, at = range paths {
			each(begins)
		}
	}
	holds := func(fp uint64, ref uint16) bool { return (fp>>32+uint64(ref))%2 == 0 }
	all, makers := workers(128, 20), []uint64{1, 2, 3, 4, 5, 6, 7, 8}
	b.ReportMetric(float64(len(p.Heat.counters)), "counters")
	for b.Loop() {
		p.Plan(now, all, makers, underWay, holds)
	}
	b.ReportMetric(float64(len(p.Heat.counters)), "counters")
	b.ReportMetric(float64(len(p.Prefixes())), "prefixes")
}
