//go:build !wasm

package plugin

import (
	"time"

	"github.com/warmpath/warmpath/filter/body"
	"github.com/warmpath/warmpath/filter/config"
	"github.com/warmpath/warmpath/filter/fleet"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/route"
)

// Inspector decides about a request as a VM would and keeps the whole
// reasoning. It is no filter: its caller has put a table into the shared data
// of an abi.Fake.
type Inspector struct {
	vm    *VM
	Fleet *fleet.Fleet
}

// Reading is what the module makes of a request before it asks the table.
type Reading struct {
	Pool        *fleet.Pool // nil: no pool serves the model
	Model       string
	Reason      body.Reason // why there is no usable prefix, body.OK for none
	Mode        string      // exact, approximate, missing, inexact
	Tokens      int
	Checkpoints []fingerprint.Checkpoint

	prompt  prompt
	session uint64
}

// NewInspector makes an inspector; equal seeds give equal draws.
func NewInspector(deployment string, seed uint64) *Inspector {
	vm := NewVM()
	vm.rng = route.NewRand(seed)
	vm.metrics.Define()
	f := fleet.New(deployment, &vm.metrics, vm.rng)
	f.Configure(config.Default())
	return &Inspector{vm: vm, Fleet: f}
}

// LoadVocabularies takes those in that the policy names, from shared data. It
// answers false when a piece is missing or damaged.
func (i *Inspector) LoadVocabularies(now int64) bool {
	f := i.Fleet
	f.Refresh(now)
	want := uint32(1)<<len(f.PolicyVocabularies()) - 1
	for steps := 0; f.Vocabularies.Ready() != want; steps++ {
		if steps > 1000 {
			return false
		}
		f.Vocabularies.Tick(now)
	}
	return true
}

// Read reads a body. pool overrides the one that serves its model; session
// stands for the session header and may be empty.
func (i *Inspector) Read(raw []byte, endpoint body.Endpoint, pool, session string, now int64) Reading {
	vm, f := i.vm, i.Fleet
	f.Refresh(now)
	reason := body.Scan(raw, endpoint, &vm.request)
	r := Reading{Model: string(vm.request.Model), Reason: reason}
	r.Pool = f.PoolOf(r.Model)
	if pool != "" {
		r.Pool = f.PoolNamed(pool)
	}
	if session != "" {
		r.session = fingerprint.Hash(session)
	} else {
		r.session = sessionOf(&vm.request)
	}
	r.prompt = prompt{reason: reason}
	if reason == body.OK && r.Pool != nil {
		r.prompt = vm.fingerprint(&vm.request, r.Pool, now)
		r.Mode = r.prompt.mode.String()
	}
	r.Reason, r.Tokens, r.Checkpoints = r.prompt.reason, r.prompt.tokens, r.prompt.checkpoints
	return r
}

// Sent makes the inspector a gateway that sent all of the prompt to ref itself, so long ago. It
// answers false for a worker that isn't there.
func (i *Inspector) Sent(r *Reading, ref uint16, ago time.Duration, now int64) bool {
	i.Fleet.Refresh(now)
	if i.Fleet.AddressOf(ref) == "" {
		return false
	}
	i.Fleet.Remember(ref, r.Checkpoints, ago, now)
	return true
}

// Decide chooses. The decision is valid until the next one.
func (i *Inspector) Decide(r *Reading, now int64) (*route.View, *route.Request, *route.Decision) {
	vm, f := i.vm, i.Fleet
	request := vm.ask(f, r.Pool, &r.prompt, r.session, [2]uint32{})
	view, d := f.ViewAt(r.Pool, now), &vm.decision
	d.Explain = true
	route.Choose(request, view, f.Since(now), vm.rng, d)
	return view, request, d
}
