package discovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Source finds workers by itself: DNS, Kubernetes.
type Source interface {
	// Name tells the source from all others of a service, for people:
	// "kubernetes pods llm app=vllm".
	Name() string
	// Run tells what it finds until ctx ends, one call after the other. Each
	// replaces the one before. A source says the same again when it knows it
	// anew: the age of a list counts from there.
	Run(ctx context.Context, tell func(Finding)) error
}

// Finding is what a source knows now: the whole list, or why there is none.
type Finding struct {
	// Workers is the whole list. Without meaning when Err is set: the list before
	// it stays in force.
	Workers []Spec
	// Skipped are those left out of the list, and why; or why it is empty.
	Skipped []error
	// Ignored are settings of listed workers that nobody knows.
	Ignored []error
	// Err is why there is no list.
	Err error
}

// Lists joins the lists of several sources into the one that the fleet has. An
// address that several sources list is taken from the first of them. Methods
// are safe for concurrent use; time comes from the caller.
type Lists struct {
	mu      sync.Mutex
	sources []*sourceList // in the order of precedence
}

type sourceList struct {
	name    string
	told    bool // a list, at least once
	specs   []Spec
	skipped []error
	ignored []error
	at      time.Time // of the last list
	changed time.Time // when it was another one
	err     error
	errAt   time.Time // since when there is an error
}

// SourceStatus is how one source stands.
type SourceStatus struct {
	Name    string
	Listed  bool // it has given a list
	Workers int
	At      time.Time // of the last list that it stood by, zero never
	Changed time.Time // when that list became another one
	Err     error     // why there is none since; nil in good order
	ErrAt   time.Time
	Skipped []error
	Ignored []error
}

// NewLists returns lists for the named sources, the first of which wins.
func NewLists(names ...string) *Lists {
	l := &Lists{}
	for _, name := range names {
		l.sources = append(l.sources, &sourceList{name: name})
	}
	return l
}

// Tell takes a finding in. It returns the joined list when that is another one
// than before and every source has given a list: until then nobody can tell a
// worker that is gone from one that isn't found yet.
//
// A list that can't be joined (too many workers) changes nothing and is the
// source's error.
func (l *Lists) Tell(name string, f Finding, now time.Time) (joined []Spec, changed bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.sources, func(s *sourceList) bool { return s.name == name })
	if i < 0 {
		return nil, false, fmt.Errorf("no source %q", name)
	}
	s := l.sources[i]
	if f.Err != nil {
		s.fail(f.Err, now)
		return nil, false, nil
	}
	before, complete := s.specs, len(l.missing()) == 0
	s.specs = slices.Clone(f.Workers)
	for i := range s.specs {
		s.specs[i].Source = name
	}
	joined, twice := l.join()
	if joined, err = Check(joined); err != nil {
		s.specs = before
		s.fail(err, now)
		return nil, false, err
	}
	if !s.told || !slices.Equal(before, s.specs) {
		s.changed, changed = now, true
	}
	s.told, s.at, s.err, s.errAt = true, now, nil, time.Time{}
	s.skipped, s.ignored = slices.Clone(f.Skipped), slices.Clone(f.Ignored)
	for _, t := range twice {
		if t.by == s {
			s.skipped = append(s.skipped, fmt.Errorf("%s: listed by %s already", t.address, t.first.name))
		}
	}
	if len(l.missing()) > 0 {
		return nil, false, nil
	}
	return joined, changed || !complete, nil
}

func (s *sourceList) fail(err error, now time.Time) {
	if s.err == nil {
		s.errAt = now
	}
	s.err = err
}

// listedTwice is an address that by lists after first did.
type listedTwice struct {
	address   string
	first, by *sourceList
}

func (l *Lists) join() (joined []Spec, twice []listedTwice) {
	from := map[string]*sourceList{} // by ip:port: who lists one of its ranks lists all
	for _, s := range l.sources {
		for _, spec := range s.specs {
			if first := from[Endpoint(spec.Address)]; first != nil && first != s {
				twice = append(twice, listedTwice{spec.Address, first, s})
				continue
			}
			from[Endpoint(spec.Address)] = s
			joined = append(joined, spec.perRank()...)
		}
	}
	return joined, twice
}

func (l *Lists) missing() []*sourceList {
	var out []*sourceList
	for _, s := range l.sources {
		if !s.told {
			out = append(out, s)
		}
	}
	return out
}

// Missing says which sources have not given a list yet, and why; nil when all
// have.
func (l *Lists) Missing() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, s := range l.missing() {
		if s.err != nil {
			errs = append(errs, s.err)
		} else {
			errs = append(errs, fmt.Errorf("%s: no list yet", s.name))
		}
	}
	return errors.Join(errs...)
}

// Status returns how each source stands, in the order of precedence.
func (l *Lists) Status() []SourceStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]SourceStatus, 0, len(l.sources))
	for _, s := range l.sources {
		out = append(out, SourceStatus{
			Name: s.name, Listed: s.told, Workers: len(s.specs), At: s.at, Changed: s.changed, Err: s.err, ErrAt: s.errAt, Skipped: s.skipped, Ignored: s.ignored,
		})
	}
	return out
}
