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
