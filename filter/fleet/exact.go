package fleet

import (
	"math/bits"
	"strconv"
	"strings"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/filter/vocabs"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/wire"
	"github.com/warmpath/warmpath/tokenizer/chat"
)

// exact is how a pool's prompts become tokens in this VM.
type exact struct {
	policy   *policy.Exact
	template chat.Template
	known    bool // the template
	vocabs   *vocabs.Set
	modes    *metrics.Modes
}

// Exact is what a prompt of the pool is rendered and encoded with, or the mode
// that it is fingerprinted in without: Approximate while the policy has nothing
// in force for the pool, Missing when it has and this VM can't follow. Count
// what came of it with CountMode.
func (p *Pool) Exact() (template chat.Template, loaded *vocabs.Loaded, mode metrics.Mode) {
	e := &p.exact
	if e.policy == nil || !e.policy.Active {
		return chat.Template{}, nil, metrics.Approximate
	}
	if loaded = e.vocabs.Get(e.policy.Vocabulary.Hash); loaded == nil || !e.known {
		return chat.Template{}, nil, metrics.Missing
	}
	return e.template, loaded, metrics.Exact
}

// templateOf finds the template that a policy names or spells out.
func templateOf(e *policy.Exact) (t chat.Template, known bool) {
	if !strings.HasPrefix(e.Template, "{") {
		return chat.ByName(e.Template, e.Engine)
	}
	declared, err := chat.ParseDeclarative([]byte(e.Template))
	if err != nil {
		return chat.Template{}, false
	}
	return chat.WithDeclarative(declared, e.Engine)
}

// CountMode counts a prompt of the pool by what its fingerprints were made of.
func (p *Pool) CountMode(mode metrics.Mode) { p.exact.modes.Inc(mode) }

// setExact tells the VM's vocabularies what a new policy names.
func (f *Fleet) setExact(set *policy.Set) {
	f.Vocabularies.Want(set.Vocabularies)
	for _, pool := range f.pools {
		p := pool.View.Pool
		pool.exact = exact{policy: p.Exact, vocabs: f.Vocabularies, modes: f.metrics.Pool(p.Name)}
		if p.Exact == nil {
			continue
		}
		if pool.exact.template, pool.exact.known = templateOf(p.Exact); !pool.exact.known && f.toldTemplate != p.Exact.Template {
			f.toldTemplate = p.Exact.Template
			abi.Log(abi.LogWarn, "warmpath: pool "+p.Name+": this module doesn't know the chat template "+strconv.Quote(p.Exact.Template)+
				" of engine "+strconv.Quote(p.Exact.Engine)+"; the pool stays in approximate mode here until the module is as new as the control service")
		}
	}
}

// PolicyVocabularies are what the policy names, in the order of a row's bits.
func (f *Fleet) PolicyVocabularies() []policy.Vocabulary {
	if f.policy == nil {
		return nil
	}
	return f.policy.Vocabularies
}

// countReady adds what a live VM has loaded, if it speaks of the same policy.
func (f *Fleet) countReady(row *wire.Row) {
	if row.PolicyVersion != uint16(f.policyAt) {
		return
	}
	for left := row.Vocabularies; left != 0; left &= left - 1 {
		f.siblings.ready[bits.TrailingZeros32(left)]++
	}
}

// VMsReady is the number of live VMs of this gateway that have vocabulary i of
// the policy loaded, as of the last look.
func (f *Fleet) VMsReady(i int) int { return f.siblings.ready[i] }
