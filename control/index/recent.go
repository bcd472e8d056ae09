package index

import (
	"math"
	"sort"
	"time"

	"github.com/warmpath/warmpath/shared/fingerprint"
)

// recentFor is the time in which work fades to 1/e: a few turns of a worker's queue, so that
// what it was given counts until its reports show it.
const recentFor = 10 * time.Second

// fading is a sum whose parts lose weight with age.
type fading struct {
	value float64
	when  time.Time
}

// add counts v (which may be negative: the sum stays above 0) at now.
func (f *fading) add(v float64, now time.Time) {
	if late := f.when.Sub(now); waited(late) {
		f.value = max(0, f.value+v*fadeOver(late, recentFor))
		return
	}
	f.value, f.when = max(0, f.at(now)+v), now
}

// waited tells of what comes so late whether it had to wait for its worker. What
// comes later still comes from a clock that went back.
func waited(late time.Duration) bool { return late > 0 && late <= 2*earlyFor }

// at is the sum at now. A clock that went back fades nothing.
func (f *fading) at(now time.Time) float64 {
	if f.value == 0 {
		return 0
	}
	return f.value * fadeOver(now.Sub(f.when), recentFor)
}

// fadeOver is what age leaves of a thing that fades by 1/e in span. A negative
// age leaves it whole.
func fadeOver(age, span time.Duration) float64 {
	return math.Exp(-float64(max(age, 0)) / float64(span))
}

// moveWork corrects whose work a request was, now that it is known: nobody's when it wasn't
// answered, another's when another served it.
func (x *Index) moveWork(p *pending, d *Done, answered bool, now time.Time) {
	served := d.Served
	switch {
	case !answered:
		served = 0
	case served == 0 && p.counted:
		served = p.chosen
	}
	if p.counted && served == p.chosen {
		return
	}
	left := fadeOver(now.Sub(p.at), recentFor)
	if l := x.learned[p.chosen]; l != nil && p.counted {
		l.recent.add(-p.work*left, now)
	}
	if l := x.learned[served]; l != nil {
		work := float64(p.promptUnits) * fingerprint.UnitTokens
		if d.PromptTokens >= 0 && d.CachedTokens >= 0 {
			work = float64(max(0, d.PromptTokens-d.CachedTokens))
		}
		l.recent.add(work*left, now)
	}
}

// timeline tells when a number of the sequence was given out, to within about a
// five-hundredth of the whole time that it covers.
type timeline struct {
	marks []mark
	every time.Duration // between two marks
}

type mark struct {
	seq uint64
	at  time.Time
}

const (
	timelineMarks = 1024
	timelineFirst = 50 * time.Millisecond
)

func (t *timeline) add(seq uint64, now time.Time) {
	t.every = max(t.every, timelineFirst)
	if n := len(t.marks); n > 0 && (now.Sub(t.marks[n-1].at) < t.every || seq <= t.marks[n-1].seq) {
		return
	}
	if len(t.marks) == timelineMarks {
		// Every second one goes: what is old may be known less sharply.
		for i := range timelineMarks / 2 {
			t.marks[i] = t.marks[2*i]
		}
		t.marks = t.marks[:timelineMarks/2]
		t.every *= 2
	}
	t.marks = append(t.marks, mark{seq, now})
}

// of is the latest time at which seq can have been given out, zero for a sequence without
// times. Numbers from before the first mark (of a restored snapshot) count as given out then.
func (t *timeline) of(seq uint64) time.Time {
	if len(t.marks) == 0 {
		return time.Time{}
	}
	after := sort.Search(len(t.marks), func(i int) bool { return t.marks[i].seq > seq })
	return t.marks[max(after-1, 0)].at
}
