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
	pieceBytes    = 512 << 10
	// keptSnapshot is how long a snapshot is kept for the rest of its pieces.
	keptSnapshot = 30 * time.Second
	// freshSnapshot is how long it serves others who begin: replicas start together.
	freshSnapshot = 5 * time.Second
	maxSnapshot   = 4 << 30
	findEvery     = 100 * time.Millisecond
	// coveredFor is how long after the first merge every replica there is has told
	// its position.
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
				if entries, _ := decodePosition(payload); entries == 0 || s.merge(ctx, h.origin) {
					s.mu.Lock()
					// What came before is in its index.
					s.peers[h.origin] = &peer{next: h.sequence + 1, entries: entries, at: time.Now()}
					s.mu.Unlock()
					if entries > 0 {
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
	if !s.merge(ctx, from) {
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

// merge fetches the index of a replica, piece by piece, and takes it in.
func (s *Share) merge(ctx context.Context, from uint64) bool {
	snapshot, err := s.fetch(ctx, from)
	added := 0
	if err == nil {
		added, err = s.cfg.Merge(snapshot)
	}
	if err != nil {
		s.cfg.Log.Warn("index of another replica not merged", "replica", fmt.Sprintf("%016x", from), "err", err)
		return false
	}
	s.counter.merges.Add(1)
	s.counter.merged.Add(uint64(added))
	s.cfg.Log.Info("index of another replica merged", "replica", fmt.Sprintf("%016x", from), "bytes", len(snapshot), "added", added)
	return true
}

// fetch asks for pieces: the request is stamp u64 and offset u64, the answer stamp
// u64, length of the whole u64 and the bytes from the offset on. Stamp 0 asks for
// a new snapshot.
func (s *Share) fetch(ctx context.Context, from uint64) ([]byte, error) {
	var out []byte
	stamp := uint64(0)
	for {
		req := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, stamp), uint64(len(out)))
		ask, cancel := context.WithTimeout(ctx, 10*askTime)
		answer, err := s.cfg.Bus.Request(ask, fmt.Sprintf("%s.%016x", modelsSubject, from), req)
		cancel()
		if err != nil {
			return nil, err
		}
		if len(answer) < 16 {
			return nil, errors.New("the snapshot is gone")
		}
		at, total := binary.LittleEndian.Uint64(answer), binary.LittleEndian.Uint64(answer[8:])
		if stamp != 0 && at != stamp || total > maxSnapshot || len(answer) == 16 && uint64(len(out)) < total {
			return nil, errors.New("the pieces don't belong together")
		}
		stamp = at
		if out = append(out, answer[16:]...); uint64(len(out)) >= total {
			return out, nil
		}
	}
}

// lastSnapshot serves the pieces of one snapshot, which is made when a first piece
// is asked for.
type lastSnapshot struct {
	mu    sync.Mutex
	bytes []byte
	stamp uint64
	made  time.Time
}

// serve answers with one piece, or with nothing when the snapshot it belongs to is
// gone.
func (l *lastSnapshot) serve(req []byte, snapshot func() []byte) []byte {
	if len(req) != 16 {
		return nil
	}
	stamp, offset := binary.LittleEndian.Uint64(req), binary.LittleEndian.Uint64(req[8:])
	l.mu.Lock()
	defer l.mu.Unlock()
	switch fresh := l.bytes != nil && time.Since(l.made) < freshSnapshot; {
	case stamp == 0 && !fresh:
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
