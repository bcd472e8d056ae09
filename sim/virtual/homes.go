package virtual

import (
	"slices"
	"time"

	"github.com/warmpath/warmpath/shared/homes"
	"github.com/warmpath/warmpath/shared/route"
	"github.com/warmpath/warmpath/sim/engine"
)

// planEvery is how often control plans the homes of hot prefixes.
const planEvery = 500 * time.Millisecond

// plan does what control does for hot prefixes. It learns of dispatches as late as of
// predictions, so the gateways have the plan that much later.
func (f *Fleet) plan() {
	var workers []homes.Worker
	for i, w := range f.workers {
		if w.up {
			workers = append(workers, homes.Worker{Ref: refOf(i), InFlight: f.books.total[i].inFlight})
		}
	}
	var out []route.Home
	var wanted []wantedCopy
	for _, p := range f.planner.Plan(f.now, workers, f.makers(), f.underWay, f.index.holds(f.now, f.generations)) {
		if len(p.Homes) > 0 {
			out = append(out, route.Home{Fingerprint: p.Fingerprint, Units: p.Units, Refs: slices.Clone(p.Homes)})
		}
		for _, c := range p.Copies {
			wanted = append(wanted, wantedCopy{p.Fingerprint, int(p.Units), workerOf(c.Ref), int(c.Maker) - 1})
		}
	}
	f.at(f.now+f.cfg.Delays.Prediction, event{kind: giveHomes, homes: out, wanted: wanted})
	f.at(f.now+planEvery, event{kind: planHomes})
}

// underWay shows what every request begins with that was dispatched and isn't done.
func (f *Fleet) underWay(each func(homes.Begins)) {
	var r *Request
	begins := func(fingerprint uint64, units uint32) bool {
		blocks := r.promptBlocks()
		return int(units) <= len(blocks) && uint64(blocks[units-1]) == fingerprint
	}
	for _, r = range f.live {
		each(begins)
	}
}

// holds tells who has a checkpoint now.
func (x *index) holds(now time.Duration, generations []uint32) func(fingerprint uint64, ref uint16) bool {
	return func(fingerprint uint64, ref uint16) bool {
		e := x.placeOf(engine.BlockHash(fingerprint))
		if e == nil {
			return false
		}
		w := workerOf(ref)
		k := e.of(w, generations[w])
		return k != nil && k.from <= now && (k.until == 0 || k.until > now)
	}
}
