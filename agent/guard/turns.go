package guard

// turns divides what comes free between P0 and P1, 7 to 3 by work while both wait
// (as the classes of a fleet do by default, docs/admission.md), so that neither
// starves. P2 has its turn when nobody else waits.
//
// It is start-time fair queueing over the two, as quota.Queue is over tenants.
type turns struct {
	virtual float64     // start of the last turn
	finish  [p2]float64 // of each class' last turn
}

var turnWeights = [p2]float64{p0: 0.7, p1: 0.3}

// begin is called when the first of a class waits.
func (u *turns) begin(class uint8) {
	if class < p2 {
		u.finish[class] = max(u.finish[class], u.virtual)
	}
}

// pick is whose turn it is among those that wait, false for nobody's.
func (u *turns) pick(first, second, third bool) (class uint8, ok bool) {
	switch {
	case first && second && u.finish[p1] < u.finish[p0]:
		return p1, true
	case first:
		return p0, true
	case second:
		return p1, true
	}
	return p2, third
}

// took charges a class for a turn.
func (u *turns) took(class uint8, work float64) {
	if class < p2 {
		u.virtual = max(u.virtual, u.finish[class])
		u.finish[class] += work / turnWeights[class]
	}
}
