package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/warmpath/warmpath/control/cluster"
	"github.com/warmpath/warmpath/control/discovery"
)

// A reference means the same worker at every replica, so that a gateway that goes
// from one to another keeps its pages: the document "members" is the list of all
// references, those that rest among them. Each replica finds and probes workers by
// itself; one that finds a process that isn't in the list adds it by
// compare-and-set. Only the leader takes references out.

const (
	membersKey     = "members"
	membersVersion = 1
	// agreedQuarantine is how long a ref rests where other replicas have gateways
	// that this one doesn't hear.
	agreedQuarantine = time.Hour
)

// members is the document.
type members struct {
	Version int      `json:"version"`
	Refs    []member `json:"refs"`
}

type member struct {
	Ref        uint16 `json:"ref"`
	Address    string `json:"address"`
	Pool       string `json:"pool"`
	Generation uint64 `json:"generation,string"`
}

// memberBook is what a replica keeps of the document.
type memberBook struct {
	wanted chan struct{}        // workers without a reference
	over   chan []discovery.Ref // references that rested long enough
	hints  []discovery.Ref      // of the state file

	mu       sync.Mutex
	revision uint64 // taken over
}

func newMemberBook() memberBook {
	return memberBook{wanted: make(chan struct{}, 1), over: make(chan []discovery.Ref, 1)}
}

// takeMembers takes a list over, unless a newer one was.
func (s *Service) takeMembers(list []discovery.Ref, revision uint64) {
	s.members.mu.Lock()
	defer s.members.mu.Unlock()
	if revision >= s.members.revision {
		s.members.revision = revision
		s.fleet.Agree(list, time.Now())
	}
}

func (m *members) list() []discovery.Ref {
	out := make([]discovery.Ref, 0, len(m.Refs))
	for _, r := range m.Refs {
		out = append(out, discovery.Ref{Ref: r.Ref, Identity: discovery.Identity{Address: r.Address, Pool: r.Pool, Generation: r.Generation}})
	}
	return out
}

func membersOf(list []discovery.Ref) *members {
	m := &members{Version: membersVersion, Refs: make([]member, 0, len(list))}
	for _, r := range list {
		m.Refs = append(m.Refs, member{r.Ref, r.Address, r.Pool, r.Generation})
	}
	return m
}

func decodeMembers(text []byte) (*members, error) {
	var m members
	if err := decodeDocument(text, &m, &m.Version, membersVersion); err != nil {
		return nil, fmt.Errorf("read the worker references: %w", err)
	}
	return &m, nil
}

func (s *Service) readMembers(ctx context.Context) (*members, uint64, error) {
	e, err := s.cluster.Get(ctx, membersKey)
	if errors.Is(err, cluster.ErrNoKey) {
		return &members{Version: membersVersion}, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	m, err := decodeMembers(e.Value)
	return m, e.Revision, err
}

// firstMembers takes over the list that there is. What was restored under
// references that mean others there goes: the index of another replica is better.
func (s *Service) firstMembers(ctx context.Context) error {
	m, revision, err := s.readMembers(ctx)
	if err != nil {
		return err
	}
	agreed := m.list()
	for _, h := range s.members.hints {
		same := slices.ContainsFunc(agreed, func(r discovery.Ref) bool { return r.Identity == h.Identity && r.Ref == h.Ref })
		other := slices.ContainsFunc(agreed, func(r discovery.Ref) bool { return r.Identity == h.Identity || r.Ref == h.Ref })
		if other && !same {
			s.log.Warn("the index of the state file is dropped: its worker references are others than the replicas agreed on", "address", h.Address)
			s.index.DropRestored()
			s.members.hints = nil
			break
		}
	}
	s.takeMembers(agreed, revision)
	return nil
}

// membersLoop adds workers to the list when there are new ones, and takes out what
// is over.
func (s *Service) membersLoop(ctx context.Context) {
	again := time.NewTimer(0)
	again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case over := <-s.members.over:
			if err := s.dropMembers(ctx, over); err != nil {
				s.log.Debug("references of workers that are gone stay for now", "err", err)
			}
			continue
		case <-s.members.wanted:
		case <-again.C:
		}
		if err := s.addMembers(ctx); err != nil && ctx.Err() == nil {
			if !errors.Is(err, cluster.ErrNotReady) && !errors.Is(err, cluster.ErrConflict) {
				s.log.Warn("worker references not agreed on", "err", err)
			}
			again.Reset(documentAgain / 4)
		}
	}
}

func (s *Service) addMembers(ctx context.Context) error {
	return s.editMembers(ctx, func(list []discovery.Ref) []discovery.Ref {
		return discovery.Propose(list, s.fleet.Wanted(), s.members.hints)
	})
}

// dropMembers takes references out whose rest is over.
func (s *Service) dropMembers(ctx context.Context, over []discovery.Ref) error {
	return s.editMembers(ctx, func(list []discovery.Ref) []discovery.Ref {
		return slices.DeleteFunc(list, func(r discovery.Ref) bool { return slices.Contains(over, r) })
	})
}

// editMembers changes the list, and takes it over. Nothing is written when the
// length stays: references come and go, and never change.
func (s *Service) editMembers(ctx context.Context, edit func([]discovery.Ref) []discovery.Ref) error {
	ctx, cancel := context.WithTimeout(ctx, documentTime)
	defer cancel()
	m, revision, err := s.readMembers(ctx)
	if err != nil {
		return err
	}
	next := edit(m.list())
	if len(next) != len(m.Refs) {
		text, err := json.Marshal(membersOf(next))
		if err != nil {
			return fmt.Errorf("write the worker references: %w", err)
		}
		if revision, err = s.cluster.Put(ctx, membersKey, text, revision); err != nil {
			return err
		}
	}
	s.takeMembers(next, revision)
	return nil
}

// membersChanged hears of a change of the list.
func (s *Service) membersChanged(e cluster.Entry) {
	m, err := decodeMembers(e.Value)
	if err != nil {
		s.log.Error("worker references not taken over", "err", err)
		return
	}
	s.takeMembers(m.list(), e.Revision)
}

// releaseAgreed ends rests where references are agreed on: the leader does.
func (s *Service) releaseAgreed(passed uint64, busy func(ref uint16) bool, now time.Time) {
	if !s.cluster.Leads() {
		return
	}
	if over := s.fleet.Releasable(passed, busy, now); len(over) > 0 {
		select {
		case s.members.over <- over:
		default: // those of before are under way
		}
	}
}
