package control

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/warmpath/warmpath/control/kvevents"
)

// What KV events have told is saved in a folder beside the state file, one file
// for each source (kvevents/save.go draws it), so that a prefix which an engine
// stored long ago and only hits since is known after a restart: a hit emits
// nothing, and the engine's replay is short. A source that nothing came from is
// not written again; a damaged file costs its own source only.

// eventsKept is how long the file of a source that isn't followed is kept.
const eventsKept = 24 * time.Hour

const eventsSuffix = ".wpev"

func (s *Service) eventsDir() string { return s.cfg.StateFile + ".events" }

// eventsFile is where the source of an identity is saved.
func (s *Service) eventsFile(identity string) string {
	return filepath.Join(s.eventsDir(), fmt.Sprintf("%016x%s", xxhash.Sum64String(identity), eventsSuffix))
}

func (k *feedKey) identity(e kvevents.Endpoint) string {
	return strings.Join([]string{k.address, k.pool, strconv.FormatUint(k.generation, 10), k.vocabulary, e.Events, e.Topic}, "\x00")
}

// restoreEvents lets a new source begin with what was saved of it before this
// process started.
func (s *Service) restoreEvents(ref uint16, source followed, told *sink, log *slog.Logger) {
	if _, begun := s.feeds.begun.LoadOrStore(source.identity, true); begun || s.cfg.StateFile == "" {
		return
	}
	path := s.eventsFile(source.identity)
	data, err := readBounded(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var saved kvevents.Saved
	if err == nil {
		told.recalling = true
		saved, err = source.Restore(data, source.identity)
		told.recalling = false
	}
	if err != nil {
		log.Warn("saved KV events ignored, asking the engine for what its replay has", "file", path, "err", err)
		return
	}
	s.index.RecallDone(ref, time.Now())
	log.Info("KV events restored", "file", path, "saved", saved.At, "blocks", saved.Blocks, "next", saved.Next)
}

// saveEvents writes what changed since it was called last, and returns how many
// bytes.
func (s *Service) saveEvents(now time.Time) (written int64, _ error) {
	feeds := s.feeds.list(func(f *feed) bool { return !f.stale })
	var errs []error
	var data []byte
	followed := map[string]bool{}
	for _, f := range feeds {
		for _, source := range f.ranks() {
			path := s.eventsFile(source.identity)
			followed[filepath.Base(path)] = true
			var ok bool
			if data, ok = source.AppendSave(data[:0], source.identity, now); !ok {
				continue
			}
			err := os.MkdirAll(s.eventsDir(), 0o700)
			if err == nil {
				err = writeWhole(path, data)
			}
			if err != nil {
				source.Unsaved()
				errs = append(errs, fmt.Errorf("save KV events of %s: %w", f.key.address, err))
				continue
			}
			written += int64(len(data))
		}
	}
	return written, errors.Join(append(errs, s.forgetEvents(followed, now))...)
}

// forgetEvents removes the files of sources that nobody has followed for long.
func (s *Service) forgetEvents(followed map[string]bool, now time.Time) error {
	files, err := os.ReadDir(s.eventsDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, file := range files {
		if followed[file.Name()] || !strings.HasSuffix(file.Name(), eventsSuffix) {
			continue
		}
		if info, statErr := file.Info(); statErr == nil && now.Sub(info.ModTime()) > eventsKept {
			err = errors.Join(err, os.Remove(filepath.Join(s.eventsDir(), file.Name())))
		}
	}
	return err
}
