package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Watch calls apply with the contents of the file at path whenever they change,
// until ctx ends. known is what was applied before the call.
//
// The folder is watched, not the file: editors and atomic writers replace the
// file, and a Kubernetes ConfigMap swaps a symbolic link (..data) two levels up.
// Where events don't arrive (network file systems) the file is read again every
// interval.
//
// apply is asked once for each content that differs from the one before it,
// good or bad, so a good file is accepted again after a bad one. Its error is
// logged; keeping the last good state is apply's business. What is in force is
// logged, too.
func Watch(ctx context.Context, path string, known []byte, interval time.Duration, log *slog.Logger, apply func([]byte) error) error {
	var events chan fsnotify.Event
	var errs chan error
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		defer watcher.Close()
		if err = watcher.Add(filepath.Dir(path)); err == nil {
			events, errs = watcher.Events, watcher.Errors
		}
	}
	if err != nil {
		log.Warn("file events not available, reading again instead", "file", path, "every", interval, "err", err)
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	seen := contents{last: string(known)}
	read := func() {
		data, err := ReadBounded(path)
		switch seen.look(data, err) {
		case gone:
			log.Error("file can't be read, keeping the last good state", "file", path, "err", err)
		case changed:
			if err := apply(data); err != nil {
				log.Error("file refused, keeping the last good state", "file", path, "err", err)
			} else {
				log.Info("file in force", "file", path)
			}
		}
	}
	read()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			read()
		case _, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			read()
		case err := <-errs:
			if err != nil {
				log.Warn("file events lost, reading again", "file", path, "err", err)
				read()
			} else {
				errs = nil
			}
		}
	}
}

// contents is what a watched file held when it was looked at last.
type contents struct {
	last             string
	missing, emptied bool
}

type finding uint8

const (
	same finding = iota
	changed
	gone
)

// look compares with the look before. A file that is written in place is empty for a moment: that
// counts only when it still is at the next look.
func (c *contents) look(data []byte, err error) finding {
	switch {
	case err != nil && c.missing:
		return same
	case err != nil:
		c.missing = true
		return gone
	case len(data) == 0 && c.last != "" && !c.emptied && !c.missing:
		c.emptied = true
		return same
	case !c.missing && string(data) == c.last:
		c.emptied = false
		return same
	}
	c.missing, c.emptied, c.last = false, false, string(data)
	return changed
}

// ReadBounded reads a file of at most MaxListBytes.
func ReadBounded(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > MaxListBytes {
		return nil, fmt.Errorf("%s has %d bytes, the limit is %d: check the path", path, info.Size(), MaxListBytes)
	}
	return os.ReadFile(path)
}
