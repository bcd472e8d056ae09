package main

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
)

// A snapshot file is a zip archive: snapshot.json says when and where it was taken, every other
// file is what the control service answered to one path.
const (
	snapshotFormat = 1
	snapshotHeader = "snapshot.json"
)

type snapshotInfo struct {
	Format  int       `json:"format"`
	Taken   time.Time `json:"taken"`
	Control string    `json:"control"`
}

// snapshotName is the name in the archive of an answer to a path.
func snapshotName(path string) string {
	return strings.NewReplacer("?", "/", "&", "/", "=", "-").Replace(strings.TrimPrefix(path, "/"))
}

// snapshotWriter keeps answers until they are written.
type snapshotWriter struct {
	info    snapshotInfo
	paths   []string
	answers [][]byte
}

func newSnapshotWriter(taken time.Time, control string) *snapshotWriter {
	return &snapshotWriter{info: snapshotInfo{Format: snapshotFormat, Taken: taken.Round(0), Control: control}}
}

// keep makes a getter that keeps what another one gets.
func (s *snapshotWriter) keep(get func(context.Context, string) ([]byte, error)) func(context.Context, string) ([]byte, error) {
	return func(ctx context.Context, path string) ([]byte, error) {
		answer, err := get(ctx, path)
		if err == nil {
			s.paths, s.answers = append(s.paths, path), append(s.answers, answer)
		}
		return answer, err
	}
}

func (s *snapshotWriter) write(file string) error {
	info, err := json.Marshal(s.info)
	if err != nil {
		return fmt.Errorf("encode %s: %w", snapshotHeader, err)
	}
	var b bytes.Buffer
	archive := zip.NewWriter(&b)
	add := func(name string, content []byte) error {
		w, err := archive.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate, Modified: s.info.Taken})
		if err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	}
	err = add(snapshotHeader, append(info, '\n'))
	for i, path := range s.paths {
		err = errors.Join(err, add(snapshotName(path), s.answers[i]))
	}
	if err = errors.Join(err, archive.Close()); err == nil {
		err = os.WriteFile(file, b.Bytes(), 0o600) // it has the policy, with hashes of keys
	}
	if err != nil {
		return fmt.Errorf("save the snapshot: %w", err)
	}
	return nil
}

// savedSnapshot is a snapshot file that was opened.
type savedSnapshot struct {
	source
	taken time.Time
}

func openSnapshot(file string) (*savedSnapshot, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("open the snapshot: %w", err)
	}
	unreadable := func(err error) error {
		return fmt.Errorf("read the snapshot %s: %w (was it made with explain --save?)", file, err)
	}
	archive, err := zip.NewReader(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		return nil, unreadable(err)
	}
	head, err := fs.ReadFile(archive, snapshotHeader)
	if err != nil {
		return nil, unreadable(err)
	}
	var info snapshotInfo
	if err := json.Unmarshal(head, &info); err != nil {
		return nil, unreadable(err)
	}
	if info.Format != snapshotFormat {
		return nil, unreadable(fmt.Errorf("its format is %d, this build reads %d", info.Format, snapshotFormat))
	}
	s := &savedSnapshot{taken: info.Taken}
	s.source = source{name: file, get: func(_ context.Context, path string) ([]byte, error) {
		answer, err := fs.ReadFile(archive, snapshotName(path))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, unreadable(fmt.Errorf("nothing was kept of %s", path))
		}
		if err != nil {
			return nil, unreadable(err)
		}
		return answer, nil
	}}
	return s, nil
}
