package index

import "time"

// pending is a dispatch that waits for its done report.
type pending struct {
	id          RequestID
	at          time.Time
	seq         uint64
	chosen      uint16
	idle        bool
	copy        bool   // of a prefix, made by a gateway
	born        uint64 // nodes so far, when it was
	inserted    bool   // the path stands in the chosen worker's model because of it
	confirmed   uint32 // units proven at the chosen worker when it was dispatched
	promptUnits uint32
	counted     bool    // work stands in the chosen worker's recent work
	work        float64 // uncached tokens
	path        []Checkpoint
}

// observed: somebody was chosen, but only on paper.
func (p *pending) observed() bool { return p.chosen != 0 && !p.counted }

func (p *pending) bytes() int64 { return 160 + 16*int64(len(p.path)) }

// pendingSet holds dispatches by id, bounded in bytes, oldest out first.
type pendingSet struct {
	max   int64
	bytes int64
	byID  map[RequestID]pending
	queue []queued // in order of arrival; entries may be stale
	head  int
}

type queued struct {
	id  RequestID
	seq uint64
}

func newPendingSet(maxBytes int64) pendingSet {
	return pendingSet{max: maxBytes, byID: map[RequestID]pending{}}
}

func (s *pendingSet) has(id RequestID) bool {
	_, ok := s.byID[id]
	return ok
}

// add returns how many older ones had to go.
func (s *pendingSet) add(p pending) (dropped int) {
	if old, ok := s.byID[p.id]; ok {
		s.bytes -= old.bytes()
		dropped++
	}
	s.byID[p.id] = p
	s.bytes += p.bytes()
	s.queue = append(s.queue, queued{p.id, p.seq})
	for s.bytes > s.max {
		if s.dropOldest() {
			dropped++
		}
	}
	s.trim()
	return dropped
}

func (s *pendingSet) take(id RequestID) (pending, bool) {
	p, ok := s.byID[id]
	if ok {
		delete(s.byID, id)
		s.bytes -= p.bytes()
	}
	return p, ok
}

func (s *pendingSet) expire(before time.Time) (dropped int) {
	for s.head < len(s.queue) {
		q := s.queue[s.head]
		if p, ok := s.byID[q.id]; ok && p.seq == q.seq && !p.at.Before(before) {
			break
		}
		if s.dropOldest() {
			dropped++
		}
	}
	s.trim()
	return dropped
}

func (s *pendingSet) dropOldest() bool {
	q := s.queue[s.head]
	s.head++
	p, ok := s.byID[q.id]
	if !ok || p.seq != q.seq {
		return false
	}
	delete(s.byID, q.id)
	s.bytes -= p.bytes()
	return true
}

// trim gives the room of what left the queue back.
func (s *pendingSet) trim() {
	for s.head < len(s.queue) {
		q := s.queue[s.head]
		if p, ok := s.byID[q.id]; ok && p.seq == q.seq {
			break
		}
		s.head++
	}
	if s.head > 1024 && s.head*2 > len(s.queue) {
		s.queue = append([]queued(nil), s.queue[s.head:]...)
		s.head = 0
	}
}
