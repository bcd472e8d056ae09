package control

import (
	"context"
	"time"

	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/control/ingest"
	"github.com/warmpath/warmpath/control/share"
)

// findFor is how long a replica with others beside it looks for one that knows
// something before it serves what it has.
const findFor = 3 * time.Second

// startSharing makes this service one of several that tell each other what they
// hear. It is called between New and Run; look says whether others may be there
// that can't be reached yet.
func (s *Service) startSharing(bus share.Bus, self uint64, look bool) {
	cfg := share.Config{
		Bus: bus, Self: self, Log: s.log, Apply: s.heardElsewhere,
		Snapshot: func() []byte { return s.index.AppendSnapshot(nil) },
		Merge: func(snapshot []byte) (added int, err error) {
			defer kick(s.dirty)
			return s.index.Merge(snapshot, time.Now())
		},
		Table: s.table.Digest,
	}
	if look {
		cfg.FindFor = findFor
	}
	s.share = share.New(cfg)
}

// shareLoop tells and hears until ctx ends. The table is served once the index of
// another replica has come, or nobody has one: gateways that come back would lose
// what they have for an empty one.
func (s *Service) shareLoop(ctx context.Context) error {
	if s.share == nil {
		return nil
	}
	found := make(chan struct{})
	defer func() { <-found }()
	go func() {
		defer close(found)
		select {
		case <-s.share.Found():
			kick(s.urgent)
		case <-ctx.Done():
		}
	}()
	return s.share.Run(ctx)
}

// caughtUp tells whether the table may be served. What came from another replica
// is better than what gateways have kept. Of the publish loop.
func (s *Service) caughtUp() bool {
	if s.share == nil {
		return true
	}
	select {
	case <-s.share.Found():
	default:
		return false
	}
	if s.learning.Load() && s.share.Stats(time.Now()).Merges > 0 {
		s.learning.Store(false)
		s.learnUntil = time.Time{}
		s.table.KeepUntil(time.Time{})
	}
	return true
}

// tellBatch tells the others of a batch that was taken.
func (s *Service) tellBatch(frame []byte, order uint64) {
	if s.share != nil {
		for _, part := range ingest.ForOthers(frame, order, share.MaxPayload) {
			s.share.Tell(share.Batch, part)
		}
	}
}

// heardElsewhere takes in what another replica heard.
func (s *Service) heardElsewhere(kind share.Kind, payload []byte) {
	var err error
	switch kind {
	case share.Batch:
		if err = s.ingest.Shared(payload, time.Now()); err == nil {
			kick(s.batched)
		}
	case share.Heartbeat:
		_, err = s.takeHeartbeat(payload)
	}
	if err != nil {
		// It was taken there. Here the worker may not be known yet.
		s.log.Debug("what another replica heard isn't taken", "kind", kind, "err", err)
	}
}

// tablesOfOthers says of other replicas, by nonce, whether their table was the same
// as this one's when they last said so.
func (s *Service) tablesOfOthers(now time.Time) map[uint64]string {
	out := map[uint64]string{}
	if s.share == nil {
		return out
	}
	for _, p := range s.share.Stats(now).Peers {
		out[p.Nonce] = api.TableDiffers
		if p.Same {
			out[p.Nonce] = api.TableSame
		}
	}
	return out
}

// dropped counts messages of other replicas that found no room: in NATS's queue of
// this replica, or in its own.
func (s *Service) dropped() uint64 {
	n := s.cluster.Dropped()
	if s.share != nil {
		n += s.share.Stats(time.Now()).Dropped
	}
	return n
}
