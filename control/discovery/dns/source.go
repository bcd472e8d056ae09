// Package dns finds workers by name: one address record, or one SRV record, for
// each.
//
// A name's way through the package: the resolver asks a name server and returns
// addresses with the time that they may be believed for; the book decides what
// that means for the list (another list, the same one, or none, because the
// server failed or an empty answer is too young to be believed) and when to ask
// again; the source tells it.
//
// Three answers are kept apart. Addresses are believed at once. A server that
// fails (SERVFAIL, REFUSED, a timeout) has said nothing: the last list holds. A
// server that says there is nobody (NXDOMAIN, or no record of the type) has said
// so, but a name server that has just started or lost its zone says the same,
// and a fleet emptied by mistake costs every cache in it: the last list holds
// until the answer has been the same for EmptyAfter.
//
// SRV targets of the lowest priority number are taken; weights say nothing here,
// since load does.
package dns

import (
	"context"
	"time"

	"github.com/warmpath/warmpath/control/discovery"
)

// Source follows one name.
type Source struct {
	name     string
	resolver *resolver
	book     book
}

// New returns a source for cfg.
func New(cfg discovery.DNS) (*Source, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	r, err := newResolver(&cfg)
	if err != nil {
		return nil, err
	}
	return &Source{name: cfg.String(), resolver: r, book: book{cfg: cfg}}, nil
}

// Name implements discovery.Source.
func (s *Source) Name() string { return s.name }

// Run implements discovery.Source.
func (s *Source) Run(ctx context.Context, tell func(discovery.Finding)) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		answer, err := s.resolver.resolve(ctx)
		if ctx.Err() != nil {
			return nil
		}
		finding, wait := s.book.take(answer, err, time.Now())
		tell(finding)
		timer.Reset(wait)
	}
}
