package cluster

import (
	"encoding/json"
	"fmt"
	"time"
)

// The leader's lease is a key that its holder rewrites every renewal. It works without comparing
// clocks of two machines:
//
//   - The holder leads until the lease's length after the *sending* of its last renewal that
//     succeeded, less a margin for the rate of its clock.
//   - Anybody else takes over only after it has seen one revision unchanged for the whole length and
//     the margin, by its own clock, and then by compare-and-set on that revision. It saw the revision
//     after it was written, and that was after it was sent, so its wait ends after the holder's.
//   - A key that doesn't exist is waited for in the same way: a store that was lost doesn't end the
//     lease that was in it.
//
// A term numbers the leaderships. It grows with every one: it is above the one in the key, and at
// least the time in nanoseconds, so that it grows over the loss of a store too, and over the step
// from a single control service to several.

// clockMargin is the part of a duration by which the rates of clocks may differ.
const clockMargin = 50

// forever is the lease of who is alone.
const forever = 100 * 365 * 24 * time.Hour

// record is the value of the key, JSON.
type record struct {
	Replica
	// Term of the leadership, 0 when it was given up.
	Term uint64 `json:"term"`
	// Renewal grows with each, so that no two values are the same.
	Renewal uint64 `json:"renewal"`
}

// seat is what a replica knows of the leader's lease. It is told the time, and isn't safe for
// concurrent use.
type seat struct {
	self   Replica
	length time.Duration
	// alone: nobody else can reach the store, so there is nobody to wait for.
	alone bool

	// What was seen last, and since when that is so.
	seen     bool
	revision uint64 // 0: the key doesn't exist
	holder   record
	since    time.Time

	// The own lease.
	term  uint64
	until time.Time
	wall  time.Time // the same by the wall clock, which goes on while a machine is suspended
}

// saw notes what the key is now.
func (s *seat) saw(revision uint64, value []byte, now time.Time) error {
	if s.seen && revision == s.revision {
		return nil
	}
	var holder record
	if revision != 0 {
		if err := json.Unmarshal(value, &holder); err != nil {
			return fmt.Errorf("read the leader's lease: %w", err)
		}
	}
	if s.seen && revision < s.revision && revision != 0 && holder.Term <= s.holder.Term {
		return nil // read from a server that lags
	}
	if holder.Nonce != s.self.Nonce {
		s.term = 0 // somebody else's: it was taken, or the store was lost
	}
	s.seen, s.revision, s.holder, s.since = true, revision, holder, now
	return nil
}

// leads tells whether this replica leads.
func (s *seat) leads(now time.Time) bool {
	return s.term != 0 && now.Before(s.until) && now.Round(0).Before(s.wall)
}

// wait is how long one revision has to be watched before it may be replaced.
func (s *seat) wait() time.Duration { return s.length + s.length/clockMargin }

// claimable is the time until what was seen last may be replaced, unless it changes;
// a long time for who leads, or has missed that time.
func (s *seat) claimable(now time.Time) time.Duration {
	if left := s.since.Add(s.wait()).Sub(now); s.term == 0 && left > 0 {
		return left
	}
	return forever
}

// claim returns what to write to get or keep the lease; ok is false while it is another's.
func (s *seat) claim(now time.Time) (value []byte, ok bool) {
	next := record{Replica: s.self, Renewal: s.holder.Renewal + 1}
	waited := now.Sub(s.since) >= s.wait()
	switch {
	case !s.seen:
		return nil, false
	case s.term != 0:
		// Even after its end: nobody else can have led while this is the revision.
		next.Term = s.term
	case s.revision != 0 && (s.holder.Term == 0 || s.holder.Nonce == s.self.Nonce), waited, s.alone:
		// Given up, taken by a claim of this replica whose answer was lost, or not renewed for too long.
		next.Term = max(s.holder.Term+1, uint64(now.UnixNano()))
	default:
		return nil, false
	}
	value, err := json.Marshal(&next)
	if err != nil {
		panic(fmt.Sprintf("cluster: lease can't be written: %v", err)) // strings and numbers
	}
	return value, true
}

// wrote notes that a claim, sent at that time, was written.
func (s *seat) wrote(revision uint64, value []byte, sent, now time.Time) error {
	if err := s.saw(revision, value, now); err != nil {
		return err
	}
	s.term = s.holder.Term
	length := s.length - s.length/clockMargin
	if s.alone {
		length = forever
	}
	s.until, s.wall = sent.Add(length), sent.Round(0).Add(length)
	return nil
}

// resign returns what to write to give the lease up; ok is false when there is none.
func (s *seat) resign() (value []byte, ok bool) {
	if s.term == 0 {
		return nil, false
	}
	s.term = 0
	value, err := json.Marshal(&record{Replica: s.self, Renewal: s.holder.Renewal + 1})
	return value, err == nil
}
