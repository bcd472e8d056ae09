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
// logged; keeping the last good state is apply's business.
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
	last, missing := string(known), false
	read := func() {
		data, err := ReadBounded(path)
		switch {
		case err != nil && !missing:
			missing = true
			log.Error("file can't be read, keeping the last good state", "file", path, "err", err)
		case err == nil && (missing || string(data) != last):
			missing, last = false, string(data)
			if err := apply(data); err != nil {
				log.Error("file refused, keeping the last good state", "file", path, "err", err)
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
