package index

import (
	"slices"
	"time"
)

// learned is what done reports taught about one worker.
type learned struct {
	trust         trust
	prefill       rates
	decodeSeconds float64
	recent        fading
	hits          Hits
}

func newLearned(rate float64) *learned { return &learned{prefill: rates{prior: rate}} }

const (
	decodeStep = 0.1
	// A prefill shorter than this is mostly overhead and says little about rate.
	minPrefillTokens = 512
	minDecodeTokens  = 16
	// rateWindow samples are kept, the last ones.
	rateWindow = 31
	// priorSamples is for how many samples the configured rate stands.
	priorSamples = 3
)

// rates is the prefill rate of a worker: the median of the last samples. What
// makes a sample wrong makes it low and by any factor (a wait that nobody saw, a
// batch next door), so a mean would follow the few worst; half of the samples
// have to be wrong before the median is.
type rates struct {
	prior   float64 // tokens/s; 0 unknown
	samples [rateWindow]float64
	n       int // samples ever
}

func (r *rates) add(rate float64) {
	r.samples[r.n%rateWindow] = rate
	r.n++
}

// rate is in tokens/s, 0 for not known.
func (r *rates) rate() float64 {
	sorted := make([]float64, 0, rateWindow+priorSamples)
	sorted = append(sorted, r.samples[:min(r.n, rateWindow)]...)
	if r.prior > 0 && r.n < rateWindow {
		for range priorSamples {
			sorted = append(sorted, r.prior)
		}
	}
	if len(sorted) == 0 {
		return 0
	}
	slices.Sort(sorted)
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// learnRates takes prefill rate and decode time from a request that was
// answered. idle says that it found its worker without a queue.
func (x *Index) learnRates(m *model, d *Done, idle bool) {
	l := x.learned[m.ref]
	if idle && d.TTFT > 0 && d.PromptTokens > 0 && d.CachedTokens >= 0 {
		if uncached := d.PromptTokens - d.CachedTokens; uncached >= minPrefillTokens {
			l.prefill.add(float64(uncached) / d.TTFT.Seconds())
		}
	}
	if d.TTFT >= 0 && d.OutputTokens >= minDecodeTokens && d.Total > d.TTFT {
		sample := (d.Total - d.TTFT).Seconds() / float64(d.OutputTokens-1)
		if l.decodeSeconds == 0 {
			l.decodeSeconds = sample
		}
		l.decodeSeconds += decodeStep * (sample - l.decodeSeconds)
	}
}

// trust in what is said of a worker's cache is the share of proven prefixes that
// came true lately:
//
//	trust = (priorAnswers + came) / (priorAnswers + asked)
//
// An answer that names its cached tokens adds 1 to asked, if something of its
// prompt had been proven before, and to came the share of that which was there.
// Both fade by 1/e in trustFor. The prior answers came true: one miss leaves
// 0.75, ten in a row 0.23. As evidence fades, trust goes back to 1 by itself: a
// worker that isn't believed gets no hits that could clear it, so no event must
// be needed for that.
type trust struct {
	asked, came float64   // answers
	when        time.Time // that both are true for
}

const (
	trustFor     = 60 * time.Second
	priorAnswers = 3
)

// trusted is a trust of a given value, as a snapshot has it, that begins to fade
// with its first use.
func trusted(value float64) trust {
	return trust{asked: priorAnswers * (1/min(max(value, 0.01), 1) - 1)}
}

// prove takes an answer in: share of what had been proven was there.
func (t *trust) prove(share float64, now time.Time) {
	t.fade(now)
	t.asked++
	t.came += min(max(share, 0), 1)
}

// fade brings the evidence to now. A clock that went back fades nothing.
func (t *trust) fade(now time.Time) {
	if waited(t.when.Sub(now)) {
		return
	}
	if !t.when.IsZero() {
		left := fadeOver(now.Sub(t.when), trustFor)
		t.asked, t.came = t.asked*left, t.came*left
	}
	t.when = now
}

// value is the trust as of the last fade, 0..1.
func (t *trust) value() float64 { return (priorAnswers + t.came) / (priorAnswers + t.asked) }
