package eviction

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var start = time.Unix(1_700_000_000, 0)

// play feeds a detector each step with a total and a running share and returns
// the last notice.
func play(d *Detector, step time.Duration, steps int, f func(i int) (removed, running float64)) (n Notice, now time.Time) {
	for i := range steps {
		now = start.Add(time.Duration(i) * step)
		removed, running := f(i)
		d.Observe(removed, 100_000, running, now)
		n = d.Notice(now)
	}
	return n, now
}

func TestSteadyEvictionOfAFullCacheIsNormal(t *testing.T) {
	// 15,000 tokens/s in and out: as fast as the engine computes prompts.
	n, _ := play(&Detector{}, 500*time.Millisecond, 60, func(i int) (float64, float64) { return float64(i) * 7500, 0.6 })
	if n.Active() {
		t.Errorf("%+v", n)
	}
}

func TestAMassEvictionIsAnnouncedWhileItLastsAndEnds(t *testing.T) {
	if n, _ := play(&Detector{}, time.Second, 2, func(i int) (float64, float64) { return float64(i) * 40_000, 0.2 }); !n.Active() {
		t.Error("not seen within a second")
	}
	d := &Detector{}
	n, now := play(d, time.Second, 3, func(i int) (float64, float64) { return float64(i) * 40_000, 0.2 })
	if n.Share != 0.8 || n.In != 0 || n.For != lasts || !strings.Contains(n.Why, "40000 cached tokens") {
		t.Errorf("%+v", n)
	}
	if n := d.Notice(now.Add(lasts - time.Millisecond)); !n.Active() || n.For != time.Millisecond {
		t.Errorf("%+v", n)
	}
	if n := d.Notice(now.Add(lasts)); n.Active() {
		t.Errorf("goes on for ever: %+v", n)
	}
}

func TestRunningRequestsThatGrowIntoTheCacheAreAnnouncedAhead(t *testing.T) {
	// From 0.3 by 0.125 a second: at 0.55 the watermark is 3.2 s away.
	n, _ := play(&Detector{}, time.Second, 3, func(i int) (float64, float64) { return 0, 0.3 + 0.125*float64(i) })
	if n.In < 3100*time.Millisecond || n.In > 3300*time.Millisecond || n.For != lasts || n.Share < 0.99 || !strings.Contains(n.Why, "grow by 13 %") {
		t.Errorf("%+v", n)
	}
	for name, f := range map[string]func(i int) (float64, float64){
		"slow growth":    func(i int) (float64, float64) { return 0, 0.7 + 0.08*float64(i) },
		"far from full":  func(i int) (float64, float64) { return 0, 0.1 + 0.11*float64(i) },
		"little yet":     func(i int) (float64, float64) { return 0, 0.01 + 0.14*float64(i) },
		"shrinks":        func(i int) (float64, float64) { return 0, 0.9 - 0.1*float64(i) },
		"full already":   func(i int) (float64, float64) { return 0, 0.97 },
		"another engine": func(i int) (float64, float64) { return 90_000 - 40_000*float64(i), 0.5 },
	} {
		if n, _ := play(&Detector{}, time.Second, 3, f); n.Active() {
			t.Errorf("%s: %+v", name, n)
		}
	}
}

func TestThresholdsCanBeSet(t *testing.T) {
	removing := func(i int) (float64, float64) { return float64(i) * 10_000, 0 }
	growing := func(i int) (float64, float64) { return 0, 0.16 + 0.11*float64(i) }
	for name, c := range map[string]struct {
		config Config
		f      func(i int) (float64, float64)
		want   bool
	}{
		"default share":     {Config{}, removing, false},
		"lower share":       {Config{Share: 0.1}, removing, true},
		"default watermark": {Config{}, growing, false},
		"lower watermark":   {Config{Watermark: 0.9}, growing, true},
		"further ahead":     {Config{Ahead: 20 * time.Second}, growing, true},
	} {
		if n, _ := play(&Detector{Config: c.config}, time.Second, 3, c.f); n.Active() != c.want {
			t.Errorf("%s: %+v", name, n)
		}
	}
}

// Whatever comes, a notice is a share with an end, and memory stays small.
func TestNoticesAreWellFormedWhateverComes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d Detector
		now := start
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(-1000, 5000).Draw(t, "ms")) * time.Millisecond)
			d.Observe(rapid.Float64Range(0, 1e6).Draw(t, "removed"), rapid.Float64Range(0, 1e6).Draw(t, "capacity"), rapid.Float64Range(0, 1).Draw(t, "running"), now)
			n := d.Notice(now)
			if n.Share < 0 || n.Share > 1 || n.Active() && (n.For <= 0 || n.In < 0 || n.For > lasts || n.In > d.Ahead || n.Why == "") {
				t.Fatalf("%+v", n)
			}
			if len(d.running.samples) > 60 {
				t.Fatalf("%d samples", len(d.running.samples))
			}
		}
	})
}
