package discovery

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// watched runs Watch on a real file and returns what it applies, in order. The
// file events are the system's; the interval is long, so nothing but them can
// be the cause.
func watched(t *testing.T, path, known string, interval time.Duration) (applied chan string, stop func()) {
	t.Helper()
	applied = make(chan string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Watch(ctx, path, []byte(known), interval, quiet, func(b []byte) error {
			applied <- string(b)
			if string(b) == "bad" {
				return errors.New("refused")
			}
			return nil
		})
	}()
	return applied, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func next(t *testing.T, applied chan string, want string) {
	t.Helper()
	select {
	case got := <-applied:
		if got == "" && want != "" { // a write seen half done
			next(t, applied, want)
		} else if got != want {
			t.Fatalf("applied %q, want %q", got, want)
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("%q was never applied", want)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func replace(t *testing.T, path, text string) {
	t.Helper()
	write(t, path+".tmp", text)
	if err := os.Rename(path+".tmp", path); err != nil {
		t.Fatal(err)
	}
}

func TestAGoodFileIsAcceptedAgainAfterABadOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "workers.yaml")
	write(t, path, "good")
	applied, stop := watched(t, path, "good", time.Hour)
	defer stop()
	replace(t, path, "bad")
	next(t, applied, "bad")
	replace(t, path, "good") // byte for byte what was in force before
	next(t, applied, "good")
	write(t, path, "in place")
	next(t, applied, "in place")
}

func TestAFileThatIsWrittenInPlaceIsEmptyForAMomentOnly(t *testing.T) {
	c := contents{last: "good"}
	failed := errors.New("no such file")
	for i, step := range []struct {
		data string
		err  error
		want finding
	}{
		{"good", nil, same},
		{"", nil, same},          // truncated ...
		{"better", nil, changed}, // ... and written
		{"", nil, same},
		{"better", nil, same}, // the same again
		{"", nil, same},
		{"", nil, changed}, // it is empty: apply says what it thinks of it
		{"", nil, same},
		{"good", nil, changed},
		{"", failed, gone},
		{"", failed, same},
		{"", nil, changed}, // came back empty
		{"good", nil, changed},
	} {
		if got := c.look([]byte(step.data), step.err); got != step.want {
			t.Errorf("look %d, %q and %v: %d, want %d", i, step.data, step.err, got, step.want)
		}
	}
}

func TestWhatIsInForceIsLogged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, "good")
	var out bytes.Buffer // read when its writer has ended
	ctx, cancel := context.WithCancel(t.Context())
	applied, ended := make(chan string, 10), make(chan error, 1)
	go func() {
		ended <- Watch(ctx, path, []byte("good"), time.Hour, slog.New(slog.NewTextHandler(&out, nil)), func(b []byte) error {
			applied <- string(b)
			return nil
		})
	}()
	replace(t, path, "better")
	next(t, applied, "better")
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if log := out.String(); !strings.Contains(log, "file in force") || !strings.Contains(log, path) {
		t.Errorf("logged %q", log)
	}
}

func TestAFileThatGoesAndComesBackIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "workers.yaml")
	write(t, path, "good")
	applied, stop := watched(t, path, "good", time.Hour)
	defer stop()
	replace(t, path, "better")
	next(t, applied, "better")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	replace(t, path, "best")
	next(t, applied, "best")
}

// TestAConfigMapSwapIsSeen builds what kubelet builds: file -> ..data/file,
// ..data -> a folder with a time in its name, swapped by rename.
func TestAConfigMapSwapIsSeen(t *testing.T) {
	dir := t.TempDir()
	version := func(name, text string) {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name, "workers.yaml"), text)
		if err := os.Symlink(name, filepath.Join(dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version("..1", "first")
	path := filepath.Join(dir, "workers.yaml")
	if err := os.Symlink(filepath.Join("..data", "workers.yaml"), path); err != nil {
		t.Fatal(err)
	}
	applied, stop := watched(t, path, "first", time.Hour)
	defer stop()
	version("..2", "second")
	next(t, applied, "second")
}

func TestWithoutEventsTheFileIsReadAgainNowAndThen(t *testing.T) {
	// The folder doesn't exist yet, so there is nothing to watch.
	path := filepath.Join(t.TempDir(), "later", "workers.yaml")
	applied, stop := watched(t, path, "", 10*time.Millisecond)
	defer stop()
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	replace(t, path, "good")
	next(t, applied, "good")
}

func TestAFileThatIsFarTooLargeIsNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "workers.yaml")
	write(t, path, string(make([]byte, MaxListBytes+1)))
	if _, err := ReadBounded(path); err == nil {
		t.Error("read")
	}
}
