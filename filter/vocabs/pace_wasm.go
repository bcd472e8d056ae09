package vocabs

import "runtime/debug"

// ordinary is about what a VM's heap holds besides vocabularies.
const ordinary = 4 << 20

// keepPace lets the heap grow by as much garbage between two collections as it
// would without still bytes of vocabularies: the collector's goal is a share of
// all that is alive, and these bytes cost it nothing to look at.
func keepPace(still int) {
	debug.SetGCPercent(100 * ordinary / (ordinary + still))
}
