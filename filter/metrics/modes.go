package metrics

import "github.com/warmpath/warmpath/filter/abi"

// Mode says what a prompt's fingerprints were made of.
type Mode uint8

const (
	// Exact: of the tokens that the engine sees.
	Exact Mode = iota
	// Approximate: of the prompt's text; the pool has no vocabulary in force.
	Approximate
	// Missing: of the prompt's text, although the pool has one in force: this VM
	// has not loaded it, or doesn't know the template.
	Missing
	// Inexact: of the prompt's text, as this prompt's tokens can't be told.
	Inexact
	modes
)

var modeNames = [modes]string{"exact", "approximate", "missing", "inexact"}

// String is the label's value.
func (m Mode) String() string { return modeNames[m] }

// Modes counts the prompts of one pool by mode:
// "warmpath.fingerprint_mode.<pool>.<mode>". Pools come from the policy, so no
// client can make these grow.
type Modes struct {
	set      *Set
	pool     string
	counters [modes]abi.Metric
	defined  [modes]bool
	pending  [modes]uint64
}

// Pool finds or makes the counters of a pool.
func (s *Set) Pool(name string) *Modes {
	for _, p := range s.pools {
		if p.pool == name {
			return p
		}
	}
	p := &Modes{set: s, pool: name}
	s.pools = append(s.pools, p)
	return p
}

// Inc counts one prompt.
func (p *Modes) Inc(m Mode) {
	p.pending[m]++
	p.set.dirty = true
}

func (p *Modes) flush() {
	for m, n := range p.pending {
		if n == 0 || !p.set.defined {
			continue
		}
		if !p.defined[m] {
			p.defined[m] = true
			p.counters[m], _ = abi.DefineMetric(abi.Counter, "warmpath.fingerprint_mode."+p.pool+"."+modeNames[m])
		}
		p.counters[m].Add(int64(n))
		p.pending[m] = 0
	}
}
