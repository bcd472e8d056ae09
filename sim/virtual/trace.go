package virtual

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/warmpath/warmpath/sim/engine"
)

// traceBlock is how many tokens one hash of a Mooncake trace covers.
const traceBlock = 512

// Trace is a recorded workload in Mooncake's format: one JSON object a line,
// timestamp (ms), input_length, output_length and hash_ids, one for each 512
// tokens of the prompt; equal ids mean equal tokens from the start.
// https://github.com/kvcache-ai/Mooncake
type Trace struct{ lines []traceLine }

type traceLine struct {
	Timestamp float64  `json:"timestamp"`
	Input     int      `json:"input_length"`
	Output    int      `json:"output_length"`
	Hashes    []uint64 `json:"hash_ids"`
}

// ReadTrace reads a trace.
func ReadTrace(path string) (*Trace, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the trace: %w", err)
	}
	defer file.Close()
	t := &Trace{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l traceLine
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("trace %s, line %d: %w", path, len(t.lines)+1, err)
		}
		if l.Input < 1 || l.Output < 0 || l.Timestamp < 0 || len(l.Hashes) < (l.Input+traceBlock-1)/traceBlock {
			return nil, fmt.Errorf("trace %s, line %d: %d input and %d output tokens at %v ms with %d hashes: give a hash for every %d tokens", path, len(t.lines)+1, l.Input, l.Output, l.Timestamp, len(l.Hashes), traceBlock)
		}
		t.lines = append(t.lines, l)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the trace %s: %w", path, err)
	}
	if len(t.lines) == 0 {
		return nil, fmt.Errorf("trace %s is empty", path)
	}
	slices.SortStableFunc(t.lines, func(a, b traceLine) int { return cmp.Compare(a.Timestamp, b.Timestamp) })
	return t, nil
}

// Source plays the trace at so many requests a second, the first n of it at
// most. Its timestamps are multiples of some seconds; the seed spreads requests
// over the time to the next one.
func (t *Trace) Source(seed uint64, rate float64, n int) Source {
	rng := rand.New(rand.NewPCG(seed, 6))
	s := &traceSource{lines: t.lines[:min(n, len(t.lines))]}
	last := t.lines[len(t.lines)-1].Timestamp
	grain := 0.0
	for i := 1; i < len(t.lines); i++ {
		if d := t.lines[i].Timestamp - t.lines[i-1].Timestamp; d > 0 && (grain == 0 || d < grain) {
			grain = d
		}
	}
	stretch := float64(len(t.lines)) / rate / max(last+grain, 1) * float64(time.Second)
	for i := range s.lines {
		s.order = append(s.order, due{time.Duration((s.lines[i].Timestamp + grain*rng.Float64()) * stretch), i})
	}
	slices.SortFunc(s.order, func(a, b due) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.line, b.line)) })
	return s
}

type traceSource struct {
	lines []traceLine
	order []due
	next  int
}

type due struct {
	at   time.Duration
	line int
}

// Open returns the next line.
func (s *traceSource) Open() (time.Duration, *Request, bool) {
	if s.next == len(s.order) {
		return 0, nil, false
	}
	d := s.order[s.next]
	s.next++
	l := &s.lines[d.line]
	r := &Request{ID: uint64(s.next), Prompt: l.Input, Output: max(l.Output, 1)}
	const whole = traceBlock / engine.BlockTokens
	answer := mixHash(0xa5, uint64(d.line)) // nobody else's
	r.blocks = make([]engine.BlockHash, (r.Prompt+r.Output)/engine.BlockTokens)
	named, key := uint64(0), uint64(0)
	for i := range r.blocks {
		if (i+1)*engine.BlockTokens > r.Prompt {
			r.blocks[i] = block(answer, i)
			continue
		}
		if i%whole == 0 {
			named = chain(named, l.Hashes[i/whole])
		}
		r.blocks[i] = block(named, i)
		key = chain(key, l.Hashes[i/whole]<<8+uint64(i%whole))
		if i < ringUnits {
			r.ring = key
		}
		if i < 2*whole { // nobody names a session: the first two blocks of the trace
			r.Session = key
		}
	}
	return d.at, r, true
}

// After has nothing: a trace holds every turn.
func (*traceSource) After(*Request, time.Duration) (time.Duration, *Request, bool) {
	return 0, nil, false
}
