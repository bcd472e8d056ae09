package index

// Holds tells whether a worker is believed to hold a fingerprint.
func (x *Index) Holds(fingerprint uint64, ref uint16) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.models[ref]
	if m == nil {
		return false
	}
	_, ok := m.at[fingerprint]
	return ok
}

// IsSpread tells whether a worker has several caches of which a request meets one by chance (Spread).
func (x *Index) IsSpread(ref uint16) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.models[ref]
	return m != nil && m.spread
}

// UnderWay shows to which worker every dispatch went that isn't done yet, and its path, in any order.
// f keeps nothing of it and doesn't call the index.
func (x *Index) UnderWay(f func(chosen uint16, path []Checkpoint)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, p := range x.pending.byID {
		f(p.chosen, p.path)
	}
}
