package share

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	whoSubject    = "share.who"
	modelsSubject = "share.models"
	heardSubject  = "share.heard"
	pieceBytes    = 512 << 10
	// keptSnapshot is how long a snapshot is kept for the rest of its pieces.
	keptSnapshot = 30 * time.Second
	// freshSnapshot is how long it serves others who begin: replicas start together.
	freshSnapshot = 5 * time.Second
	maxSnapshot   = 4 << 30
	findEvery     = 100 * time.Millisecond
	// coveredFor is how long after the first merge every replica there is has told
	// its position, for those whose version doesn't say what its index has heard.
	coveredFor = 3 * time.Second
)

// find merges the index of any replica that has one. It gives up when nobody says
// so for FindFor: this replica is the first.
func (s *Share) find(ctx context.Context) {
	end := time.Now().Add(s.cfg.FindFor)
	for ctx.Err() == nil {
		ask, cancel := context.WithTimeout(ctx, askTime)
		answer, err := s.cfg.Bus.Request(ask, whoSubject, nil)
		cancel()
		if err == nil {
			h, payload, bad := decode(answer)
			if bad == nil && h.kind == position {
				if entries, _ := decodePosition(payload); entries == 0 {
					// Of what it said long ago nothing is left, so nothing is lost with that:
					// what it keeps for some time to come is enough.
					s.known = map[uint64]uint64{h.origin: h.sequence + 1 - min(h.sequence, keptMessages/2)}
					return
				}
				if stamp, ok := s.merge(ctx, h.origin); ok {
					if s.known, err = s.heardThere(ctx, h.origin, stamp); err != nil {
						s.known = map[uint64]uint64{h.origin: h.sequence + 1}
						s.covered = time.Now().Add(coveredFor)
					}
					return
				}
			}
		}
		if !time.Now().Before(end) {
			return
		}
		wait := time.NewTimer(findEvery)
		select {
		case <-ctx.Done():
		case <-wait.C:
		}
		wait.Stop()
	}
}

// heal merges the index of a replica of which something was lost, or where that is
// gone of the one that has most.
func (s *Share) heal(ctx context.Context, now time.Time) {
	if now.Sub(s.healed) < healEvery {
		return
	}
	s.mu.Lock()
	var from uint64
	most, needed := -1, false
	for nonce, p := range s.peers {
		needed = needed || p.heal
		there := now.Sub(p.at) <= silentFor
		if there && (p.heal || p.entries > most) {
			if from, most = nonce, p.entries; p.heal {
				break
			}
		}
	}
	s.mu.Unlock()
	if !needed || most < 0 {
		return
	}
	s.healed = now
	if _, ok := s.merge(ctx, from); !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for nonce, p := range s.peers {
		if nonce == from || now.Sub(p.at) > silentFor {
			p.heal = false
		}
	}
}

// merge fetches the index of a replica, piece by piece, and takes it in. The stamp
// is the snapshot's there.
func (s *Share) merge(ctx context.Context, from uint64) (stamp uint64, ok bool) {
	snapshot, stamp, err := s.fetch(ctx, from)
	added := 0
	if err == nil {
		added, err = s.cfg.Merge(snapshot)
	}
	if err != nil {
		s.cfg.Log.Warn("index of another replica not merged", "replica", fmt.Sprintf("%016x", from), "err", err)
		return 0, false
	}
	s.counter.merges.Add(1)
	s.counter.merged.Add(uint64(added))
	s.cfg.Log.Info("index of another replica merged", "replica", fmt.Sprintf("%016x", from), "bytes", len(snapshot), "added", added)
	return stamp, true
}

// fetch asks for pieces: the request is stamp u64 and offset u64, the answer stamp
// u64, length of the whole u64 and the bytes from the offset on. Stamp 0 asks for
// a new snapshot.
func (s *Share) fetch(ctx context.Context, from uint64) (out []byte, stamp uint64, err error) {
	for {
		req := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, stamp), uint64(len(out)))
		ask, cancel := context.WithTimeout(ctx, 10*askTime)
		answer, err := s.cfg.Bus.Request(ask, fmt.Sprintf("%s.%016x", modelsSubject, from), req)
		cancel()
		if err != nil {
			return nil, 0, err
		}
		if len(answer) < 16 {
			return nil, 0, errors.New("the snapshot is gone")
		}
		at, total := binary.LittleEndian.Uint64(answer), binary.LittleEndian.Uint64(answer[8:])
		if stamp != 0 && at != stamp || total > maxSnapshot || len(answer) == 16 && uint64(len(out)) < total {
			return nil, 0, errors.New("the pieces don't belong together")
		}
		stamp = at
		if out = append(out, answer[16:]...); uint64(len(out)) >= total {
			return out, stamp, nil
		}
	}
}

// heard is what is in this replica's index, if a snapshot is made afterwards: pairs
// of a replica's nonce u64 and the number u64 of its message to come.
func (s *Share) heard() []byte {
	out := appendPair(nil, s.cfg.Self, s.log.last()+1)
	s.mu.Lock()
	defer s.mu.Unlock()
	for nonce, p := range s.peers {
		out = appendPair(out, nonce, p.next)
	}
	return out
}

func appendPair(b []byte, nonce, next uint64) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, nonce), next)
}

// heardThere asks a replica what was in its snapshot of that stamp. When it can't
// say any more, everything that it has kept is asked for.
func (s *Share) heardThere(ctx context.Context, from, stamp uint64) (map[uint64]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	answer, err := s.cfg.Bus.Request(ctx, fmt.Sprintf("%s.%016x", heardSubject, from), binary.LittleEndian.AppendUint64(nil, stamp))
	if err != nil {
		return nil, err
	}
	known := map[uint64]uint64{}
	for ; len(answer) >= 16; answer = answer[16:] {
		known[binary.LittleEndian.Uint64(answer)] = binary.LittleEndian.Uint64(answer[8:])
	}
	return known, nil
}

// lastSnapshot serves the pieces of one snapshot, which is made when a first piece
// is asked for.
type lastSnapshot struct {
	mu    sync.Mutex
	bytes []byte
	heard []byte // that is in it
	stamp uint64
	made  time.Time
}

// serve answers with one piece, or with nothing when the snapshot it belongs to is
// gone.
func (l *lastSnapshot) serve(req []byte, heard, snapshot func() []byte) []byte {
	if len(req) != 16 {
		return nil
	}
	stamp, offset := binary.LittleEndian.Uint64(req), binary.LittleEndian.Uint64(req[8:])
	l.mu.Lock()
	defer l.mu.Unlock()
	switch fresh := l.bytes != nil && time.Since(l.made) < freshSnapshot; {
	case stamp == 0 && !fresh:
		l.heard = heard()
		l.bytes, l.made = snapshot(), time.Now()
		l.stamp++
	case stamp != 0 && (stamp != l.stamp || l.bytes == nil):
		return nil
	}
	offset = min(offset, uint64(len(l.bytes)))
	out := binary.LittleEndian.AppendUint64(nil, l.stamp)
	out = binary.LittleEndian.AppendUint64(out, uint64(len(l.bytes)))
	return append(out, l.bytes[offset:min(offset+pieceBytes, uint64(len(l.bytes)))]...)
}

// drop gives the memory back once nobody can want the rest.
func (l *lastSnapshot) drop(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.made) > keptSnapshot {
		l.bytes = nil
	}
}

// serveHeard says what is in the snapshot of a stamp; nothing when it is gone.
func (l *lastSnapshot) serveHeard(req []byte) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(req) != 8 || l.bytes == nil || binary.LittleEndian.Uint64(req) != l.stamp {
		return nil
	}
	return l.heard
}
