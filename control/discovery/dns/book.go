package dns

import (
	"errors"
	"fmt"
	"time"

	"github.com/warmpath/warmpath/control/discovery"
)

// book is what the answers so far come to.
type book struct {
	cfg        discovery.DNS
	emptySince time.Time // first of the empty answers in a row; zero: the last one wasn't
	failures   int       // in a row
}

// take returns what an answer means for the list, and how long it lasts.
func (b *book) take(a answer, err error, now time.Time) (f discovery.Finding, wait time.Duration) {
	if err != nil {
		// Asked again soon, then ever more rarely.
		wait = b.cfg.MinInterval << min(b.failures, 16)
		b.failures++
		return discovery.Finding{Err: fmt.Errorf("%s: %w (the last list holds)", b.cfg, err)}, min(wait, b.cfg.Interval)
	}
	b.failures = 0
	wait = min(max(a.ttl, b.cfg.MinInterval), b.cfg.Interval)
	f = b.list(a)
	switch {
	case len(f.Workers) > 0:
		b.emptySince = time.Time{}
		return f, wait
	case b.emptySince.IsZero():
		b.emptySince = now
	}
	if left := b.cfg.EmptyAfter - now.Sub(b.emptySince); left > 0 {
		f.Err = fmt.Errorf("%s: %s; believed once it has been so for %v, the last list holds until then", b.cfg, b.nobody(a), b.cfg.EmptyAfter)
		return f, min(wait, max(left, b.cfg.MinInterval))
	}
	f.Skipped = append(f.Skipped, errors.New(b.nobody(a)))
	return f, wait
}

func (b *book) nobody(a answer) string {
	if a.why != "" {
		return a.why
	}
	return "no address that can be used"
}

func (b *book) list(a answer) (f discovery.Finding) {
	f.Skipped = append(f.Skipped, a.skipped...)
	seen := map[string]bool{}
	for _, at := range a.at {
		spec, err := b.cfg.Spec(at.Addr(), at.Port(), 0)
		switch {
		case err != nil:
			f.Skipped = append(f.Skipped, err)
		case !seen[spec.Address]:
			seen[spec.Address] = true
			f.Workers = append(f.Workers, spec)
		}
	}
	return f
}
