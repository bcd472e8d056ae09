package kvevents

// stream puts the batches of one publisher in order. It does no input or output.
type stream struct {
	m     *Map
	batch Batch

	known bool    // next is known
	next  uint64  // sequence number of the next batch
	last  float64 // the engine's time of the youngest batch applied
	any   bool    // a batch was applied since the process is known

	counts StreamCounts
	// unsure: batches were lost since the cache was last known to be empty, so
	// removals may be among them.
	unsure bool
}

// StreamCounts count batches since the stream began.
type StreamCounts struct {
	Batches    uint64 // applied
	Events     uint64
	Gaps       uint64 // times that a number was skipped
	Lost       uint64 // batches that no replay brought back
	Missed     uint64 // batches from before we listened that are out of the replay's reach
	Duplicates uint64 // batches that came twice, or late
	Restarts   uint64 // another process was seen behind the endpoint
	Bad        uint64 // batches that couldn't be read
}

type verdict uint8

const (
	applied verdict = iota
	duplicate
	gap       // a replay from next on should come first
	restarted // another process; a replay from 0 should come first
)

// take handles one batch. final applies it whatever came before: what is missing
// then is lost.
//
// A number that was passed already is either told twice or comes from a new
// process, which counts from 0 again. The engine's clock tells them apart: what
// is told twice is not younger than what was applied.
func (s *stream) take(seq uint64, payload []byte, final bool) (verdict, error) {
	err := Decode(payload, &s.batch)
	if err == nil && s.known && seq < s.next {
		if s.batch.Time <= s.last {
			s.counts.Duplicates++
			return duplicate, nil
		}
		s.restart()
		if seq > 0 && !final {
			return restarted, nil
		}
	}
	if s.known && seq < s.next {
		s.counts.Duplicates++ // unreadable, and it comes late
		return duplicate, err
	}
	if s.known && seq > s.next {
		if !final {
			return gap, nil
		}
		s.lose(seq - s.next)
	}
	if !s.known && seq > 0 {
		s.counts.Missed += seq
	}
	s.known, s.next = true, seq+1
	if err != nil {
		s.counts.Bad++
		s.lose(1)
		return applied, err
	}
	s.any, s.last = true, max(s.last, s.batch.Time)
	s.counts.Batches++
	s.counts.Events += uint64(len(s.batch.Events) + s.batch.Unknown)
	cleared := s.m.counts.Cleared
	s.m.Apply(&s.batch)
	if s.m.counts.Cleared != cleared {
		s.unsure = false
	}
	return applied, nil
}

func (s *stream) lose(n uint64) {
	if !s.any {
		s.counts.Missed += n
		return
	}
	s.counts.Lost += n
	s.unsure = true
}

// restart begins with the empty cache of a new process.
func (s *stream) restart() {
	s.counts.Restarts++
	s.known, s.next, s.last, s.any, s.unsure = true, 0, 0, false, false
	s.m.Clear()
}
