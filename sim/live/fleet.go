package live

import (
	"errors"
	"fmt"

	"github.com/warmpath/warmpath/sim/engine"
)

// A Fleet is several workers of one configuration.
type Fleet struct{ Workers []*Worker }

// StartFleet starts n workers, named "worker-1" and so on, on ports of their
// own. c.Name and c.Listener are ignored.
func StartFleet(n int, c Config) (*Fleet, error) {
	f := &Fleet{}
	for i := range n {
		c.Name, c.Listener = fmt.Sprintf("worker-%d", i+1), nil
		w, err := Start(c)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("start worker %d of %d: %w", i+1, n, err), f.Close())
		}
		f.Workers = append(f.Workers, w)
	}
	return f, nil
}

// Close ends all workers.
func (f *Fleet) Close() error {
	var all error
	for _, w := range f.Workers {
		all = errors.Join(all, w.Close())
	}
	return all
}

// Addresses of the workers, host:port.
func (f *Fleet) Addresses() []string {
	var out []string
	for _, w := range f.Workers {
		out = append(out, w.address)
	}
	return out
}

// Stats of each worker.
func (f *Fleet) Stats() []engine.Stats {
	var out []engine.Stats
	for _, w := range f.Workers {
		out = append(out, w.Stats())
	}
	return out
}

// Residency tells how often the fleet's caches hold the same thing.
type Residency struct {
	// ResidentTokens in all caches together, in full blocks.
	ResidentTokens int `json:"resident_tokens"`
	// DistinctTokens of those, each block counted once.
	DistinctTokens int `json:"distinct_tokens"`
	// DuplicatedTokens are the rest: cache spent on further copies.
	DuplicatedTokens int `json:"duplicated_tokens"`
	// Prefixes that at least one worker holds whole.
	Prefixes int `json:"prefixes"`
	// CopiesPerPrefix is the mean number of workers that hold one of those.
	CopiesPerPrefix float64 `json:"copies_per_prefix"`
	// MaxCopies is the most workers that hold the same prefix.
	MaxCopies int `json:"max_copies"`
}

// Residency of the fleet now. prefixes are the blocks of the prompts to count
// copies of, e.g. PrefixBlocks of each tenant's system prompt.
func (f *Fleet) Residency(prefixes [][]engine.BlockHash) Residency {
	var r Residency
	distinct := map[engine.BlockHash]struct{}{}
	copies := make([]int, len(prefixes))
	for _, w := range f.Workers {
		d := w.driver.Load()
		d.mu.Lock()
		for h := range d.engine.Resident() {
			r.ResidentTokens += engine.BlockTokens
			distinct[h] = struct{}{}
		}
		for i, p := range prefixes {
			if len(p) > 0 && d.engine.Holds(p) == len(p) {
				copies[i]++
			}
		}
		d.mu.Unlock()
	}
	r.DistinctTokens = len(distinct) * engine.BlockTokens
	r.DuplicatedTokens = r.ResidentTokens - r.DistinctTokens
	total := 0
	for _, n := range copies {
		if n > 0 {
			r.Prefixes++
		}
		total += n
		r.MaxCopies = max(r.MaxCopies, n)
	}
	if r.Prefixes > 0 {
		r.CopiesPerPrefix = float64(total) / float64(r.Prefixes)
	}
	return r
}
