package control

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/control/discovery/adapters"
	"github.com/warmpath/warmpath/shared/policy"
)

// The state file, little endian:
//
//	offset size
//	0      4    magic "WPST"
//	4      4    version, 4; 1 has no exact pools, 1 and 2 no heats in the snapshot,
//	            1 to 3 nothing that pools serve
//	8      8    time of writing, unix ns
//	16     1    flags: 1 the fleet was switched off
//	17     3    0
//	20     4    number of refs, those that rest among them, then for each
//	0      2    ref
//	2      8    generation
//	10     1    a, length of the address
//	11     1    p, length of the pool's name
//	12     1    flags: 1 drained at run time
//	13     a+p  address, pool
//
// then the number of pools whose fingerprints are over tokens, u8, and for each
//
//	offset size
//	0      16   hash of the vocabulary
//	16     8    xxHash64 of engine, 0 and template
//	24     1    p, length of the pool's name
//	25     p    pool
//
// then what the workers of pools serve, base models and adapters,
//
//	offset size
//	0      4    n, its length
//	4      n    JSON, {"pool": {"base": ["name"], "adapters": [{"name": "", "root": ""}]}}
//
// then the index snapshot (control/index/snapshot.go draws it), and at the very
// end 8 bytes: xxHash64 of all before. It is written to a temporary file beside
// it and renamed, so a crash leaves the old one.
const (
	stateMagic   = "WPST"
	stateVersion = 4
	stateFixed   = 24
	refFixed     = 13
	exactFixed   = 25
	maxState     = 8 << 30
	// stateFresh: what was confirmed this recently is still believed.
	stateFresh = 5 * time.Minute
)

type state struct {
	saved    time.Time
	off      bool
	refs     []discovery.Ref
	exact    []exactMark
	serving  map[string]adapters.Served
	snapshot []byte
}

// exactMark says that a pool's fingerprints were over these tokens.
type exactMark struct {
	pool       string
	vocabulary policy.Hash
	rendering  uint64
}

func markOf(pool string, t *tokenizer) exactMark {
	return exactMark{pool, t.vocabulary.Hash, xxhash.Sum64String(t.engine + "\x00" + t.template)}
}

func appendState(b []byte, s *state, snapshot func([]byte) []byte) []byte {
	b = append(b, stateMagic...)
	b = binary.LittleEndian.AppendUint32(b, stateVersion)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.saved.UnixNano()))
	b = append(b, flag(s.off), 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(s.refs)))
	for _, r := range s.refs {
		b = binary.LittleEndian.AppendUint16(b, r.Ref)
		b = binary.LittleEndian.AppendUint64(b, r.Generation)
		b = append(b, byte(len(r.Address)), byte(len(r.Pool)), flag(r.Drained))
		b = append(append(b, r.Address...), r.Pool...)
	}
	b = append(b, byte(min(len(s.exact), 255)))
	for _, e := range s.exact[:min(len(s.exact), 255)] {
		b = append(b, e.vocabulary[:]...)
		b = binary.LittleEndian.AppendUint64(b, e.rendering)
		b = append(append(b, byte(len(e.pool))), e.pool...)
	}
	serving, _ := json.Marshal(s.serving) // names and paths can always be written
	b = binary.LittleEndian.AppendUint32(b, uint32(len(serving)))
	b = append(b, serving...)
	b = snapshot(b)
	return binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b))
}

func flag(on bool) byte {
	if on {
		return 1
	}
	return 0
}

func decodeState(b []byte) (*state, error) {
	if len(b) < stateFixed+8 {
		return nil, errors.New("cut short")
	}
	version := binary.LittleEndian.Uint32(b[4:])
	switch {
	case string(b[:4]) != stateMagic:
		return nil, errors.New("not a warmpath state file")
	case version < 1 || version > stateVersion:
		return nil, fmt.Errorf("version %d, this program reads 1 to %d", version, stateVersion)
	}
	body, sum := b[:len(b)-8], binary.LittleEndian.Uint64(b[len(b)-8:])
	if xxhash.Sum64(body) != sum {
		return nil, errors.New("checksum doesn't match")
	}
	s := &state{saved: time.Unix(0, int64(binary.LittleEndian.Uint64(b[8:]))), off: b[16] == 1}
	n := binary.LittleEndian.Uint32(b[20:])
	at := stateFixed
	for range n {
		r := body[min(at, len(body)):]
		if len(r) < refFixed || len(r) < refFixed+int(r[10])+int(r[11]) {
			return nil, fmt.Errorf("refs cut short at byte %d", at)
		}
		a, p := refFixed+int(r[10]), refFixed+int(r[10])+int(r[11])
		s.refs = append(s.refs, discovery.Ref{
			Ref: binary.LittleEndian.Uint16(r), Drained: r[12] == 1,
			Identity: discovery.Identity{Address: string(r[refFixed:a]), Pool: string(r[a:p]), Generation: binary.LittleEndian.Uint64(r[2:])},
		})
		at += p
	}
	rest := body[at:]
	if version > 1 {
		var err error
		if rest, err = s.decodeExact(rest); err != nil {
			return nil, err
		}
	}
	if version > 3 {
		var err error
		if rest, err = s.decodeServing(rest); err != nil {
			return nil, err
		}
	}
	s.snapshot = rest
	return s, nil
}

func (s *state) decodeServing(b []byte) (rest []byte, err error) {
	if len(b) < 4 || len(b)-4 < int(binary.LittleEndian.Uint32(b)) {
		return nil, errors.New("what pools serve is cut short")
	}
	n := 4 + int(binary.LittleEndian.Uint32(b))
	if err := json.Unmarshal(b[4:n], &s.serving); err != nil {
		return nil, fmt.Errorf("what pools serve: %w", err)
	}
	return b[n:], nil
}

func (s *state) decodeExact(b []byte) (rest []byte, err error) {
	cut := errors.New("exact pools cut short")
	if len(b) == 0 {
		return nil, cut
	}
	n, b := int(b[0]), b[1:]
	for range n {
		if len(b) < exactFixed || len(b) < exactFixed+int(b[24]) {
			return nil, cut
		}
		end := exactFixed + int(b[24])
		s.exact = append(s.exact, exactMark{string(b[exactFixed:end]), policy.Hash(b[:16]), binary.LittleEndian.Uint64(b[16:])})
		b = b[end:]
	}
	return b, nil
}

// restore reads the state file. A missing or damaged one is no error: the
// service learns anew. It reports whether the index was restored.
func (s *Service) restore() bool {
	if s.cfg.StateFile == "" {
		return false
	}
	data, err := readBounded(s.cfg.StateFile)
	if errors.Is(err, fs.ErrNotExist) {
		s.log.Info("no state file yet", "file", s.cfg.StateFile)
		return false
	}
	var st *state
	if err == nil {
		st, err = decodeState(data)
	}
	if err == nil {
		err = s.index.RestoreSnapshot(st.snapshot, time.Since(st.saved) < stateFresh)
	}
	if err != nil {
		s.log.Warn("state file ignored, learning anew", "file", s.cfg.StateFile, "err", err)
		return false
	}
	for _, r := range st.refs {
		s.fleet.RestoreRef(r)
	}
	s.fleet.RestoreDone(time.Now())
	s.members.hints = st.refs
	s.offHeld, s.wasExact, s.adapted = st.off, st.exact, st.serving
	s.log.Info("state restored", "file", s.cfg.StateFile, "saved", st.saved, "refs", len(st.refs), "bytes", len(data))
	return true
}

func readBounded(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxState {
		return nil, fmt.Errorf("not a regular file of at most %d bytes", int64(maxState))
	}
	return os.ReadFile(path)
}

// saveLoop writes the state file every StateInterval, and at once when a switch
// that people rely on was thrown.
func (s *Service) saveLoop(ctx context.Context) {
	tick := time.NewTicker(s.cfg.StateInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-s.saveSoon:
		}
		if err := s.save(time.Now()); err != nil {
			s.log.Error("state not saved", "err", err)
		}
	}
}

// saveBook is what came of the saves.
type saveBook struct {
	mu    sync.Mutex
	last  time.Time // of a whole one; zero never
	took  time.Duration
	bytes int64
	err   error
}

// save writes the state file, and beside it what KV events have told.
func (s *Service) save(now time.Time) error {
	if s.cfg.StateFile == "" {
		return nil
	}
	began := time.Now()
	n, err := s.saveAll(now)
	s.saved.mu.Lock()
	defer s.saved.mu.Unlock()
	if s.saved.err = err; err == nil {
		s.saved.last, s.saved.took, s.saved.bytes = now, time.Since(began), n
	}
	return err
}

// saveStatus is what the status says of the saves, nil without a state file.
func (s *Service) saveStatus(now time.Time) *api.Saved {
	if s.cfg.StateFile == "" {
		return nil
	}
	s.saved.mu.Lock()
	defer s.saved.mu.Unlock()
	out := &api.Saved{Age: age(now, s.saved.last), Seconds: s.saved.took.Seconds(), Bytes: s.saved.bytes}
	if s.saved.err != nil {
		out.Error = s.saved.err.Error()
	}
	return out
}

// saveAll returns how many bytes it wrote.
func (s *Service) saveAll(now time.Time) (int64, error) {
	s.policyMu.Lock()
	st := &state{saved: now, off: s.offHeld, refs: s.fleet.Refs(), serving: s.adapted}
	for name, p := range s.exact {
		if p.serving != nil {
			st.exact = append(st.exact, markOf(name, p.serving))
		}
	}
	s.policyMu.Unlock()
	data := appendState(nil, st, s.index.AppendSnapshot)
	err := writeWhole(s.cfg.StateFile, data)
	if err != nil {
		err = fmt.Errorf("write state file: %w", err)
	}
	n, eventsErr := s.saveEvents(now)
	return int64(len(data)) + n, errors.Join(err, eventsErr)
}

// writeWhole writes a file whole or not at all.
func writeWhole(path string, data []byte) error {
	dir, base := filepath.Split(path)
	f, err := os.CreateTemp(filepath.Clean(dir+"."), base+".tmp*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails after the rename, as it should
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return err
}
