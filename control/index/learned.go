package index

// learned is what done reports taught about one worker.
type learned struct {
	trust         float64
	prefillRate   float64
	decodeSeconds float64
	recent        fading
}

func newLearned(rate float64) *learned { return &learned{trust: 1, prefillRate: rate} }

const (
	// trustStep: ten bad answers in a row take trust from 1 to 0.35, ten good
	// ones bring it back the same way.
	trustStep = 0.1
	rateStep  = 0.1
	// A prefill shorter than this is mostly overhead and says little about rate.
	minPrefillTokens = 512
	minDecodeTokens  = 16
)

// prove moves trust towards share, the part of a proven prefix that was there.
func (l *learned) prove(share float64) {
	l.trust += trustStep * (min(max(share, 0), 1) - l.trust)
}

func follow(value *float64, sample float64) {
	if *value == 0 {
		*value = sample
		return
	}
	*value += rateStep * (sample - *value)
}

// learnRates takes prefill rate and decode time from a request that was
// answered. idle says that it found its worker without a queue.
func (x *Index) learnRates(m *model, d *Done, idle bool) {
	l := x.learned[m.ref]
	if idle && d.TTFT > 0 && d.PromptTokens > 0 && d.CachedTokens >= 0 {
		if uncached := d.PromptTokens - d.CachedTokens; uncached >= minPrefillTokens {
			follow(&l.prefillRate, float64(uncached)/d.TTFT.Seconds())
		}
	}
	if d.TTFT >= 0 && d.OutputTokens >= minDecodeTokens && d.Total > d.TTFT {
		follow(&l.decodeSeconds, (d.Total-d.TTFT).Seconds()/float64(d.OutputTokens-1))
	}
}
