package discovery

import (
	"maps"
	"slices"
	"time"
)

// Drained returns the addresses that are drained at run time, in order, listed or
// not.
func (f *Fleet) Drained() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.drained))
}

// SetDrained replaces the run-time drains by those of canonical addresses. One that
// isn't listed is drained from the moment it is.
func (f *Fleet) SetDrained(addresses []string, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := map[string]bool{}
	for _, a := range addresses {
		next[a] = true
	}
	if maps.Equal(next, f.drained) {
		return
	}
	f.drained = next
	for _, w := range f.workers {
		f.settle(w, now)
	}
	f.hooks.Changed(true)
}

// Listed returns the canonical form of the address of a listed worker.
func (f *Fleet) Listed(address string) (canonical string, err error) {
	if canonical, err = canonicalAddress(address); err != nil {
		return "", Problem{Source: "drain", Field: "address", What: err.Error(), Remedy: "give the address as GET /v1/workers shows it"}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.workers[canonical]; !ok {
		return "", Problem{Source: "drain", Field: "address", What: canonical + " is not in the worker list", Remedy: "see GET /v1/workers for the addresses"}
	}
	return canonical, nil
}
