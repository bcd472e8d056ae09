package discovery

import "time"

// Retirements counts how many refs have been retired so far.
func (f *Fleet) Retirements() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refs.retired
}

// Published says that the table of that version names none of the refs of the
// first n retirements any more, neither in its roster nor in an entry.
func (f *Fleet) Published(n, version uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refs.published(n, version)
}

// Release lets retired refs name other workers whose quarantine is over, that
// are gone from the table of version passed, which every gateway has, and that
// busy doesn't know requests of. It returns how many go on resting.
func (f *Fleet) Release(passed uint64, busy func(ref uint16) bool, now time.Time) (resting int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refs.release(passed, busy, now)
	return len(f.refs.resting)
}
