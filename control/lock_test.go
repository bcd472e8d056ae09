package control

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestASecondServiceWithTheStateFileOfARunningOneIsRefused(t *testing.T) {
	cfg := Config{Listen: "127.0.0.1:0", StateFile: filepath.Join(t.TempDir(), "state")}
	first := serve(t, newEngines(), cfg)
	_, err := New(cfg)
	for _, want := range []string{cfg.StateFile, fmt.Sprintf("process %d on ", os.Getpid()), "a state file of its own"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	first.stop()
	serve(t, newEngines(), cfg).stop()
}

// A process that was killed leaves its file, whose number another may have by
// now: in a container it is 1 every time.
func TestALockFileThatNobodyHoldsStopsNobody(t *testing.T) {
	cfg := Config{Listen: "127.0.0.1:0", StateFile: filepath.Join(t.TempDir(), "state")}
	left := fmt.Sprintf("process %d on a host with a name that is longer\n", os.Getpid())
	if err := os.WriteFile(cfg.StateFile+lockSuffix, []byte(left), 0o600); err != nil {
		t.Fatal(err)
	}
	serve(t, newEngines(), cfg)
	now, err := os.ReadFile(cfg.StateFile + lockSuffix)
	if host, _ := os.Hostname(); err != nil || string(now) != fmt.Sprintf("process %d on %s\n", os.Getpid(), host) {
		t.Errorf("%q, %v", now, err)
	}
}

func TestAServiceThatCannotStartLeavesItsStateFileFree(t *testing.T) {
	cfg := Config{Listen: "127.0.0.1:0", StateFile: filepath.Join(t.TempDir(), "state")}
	bad := cfg
	bad.WorkersFile = filepath.Join(t.TempDir(), "missing.yaml")
	if _, err := New(bad); err == nil {
		t.Fatal("started without its list")
	}
	for range 2 {
		s, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestWithoutALockFileTheServiceStarts(t *testing.T) {
	cfg := Config{Listen: "127.0.0.1:0", StateFile: filepath.Join(t.TempDir(), "state")}
	if err := os.Mkdir(cfg.StateFile+lockSuffix, 0o700); err != nil {
		t.Fatal(err)
	}
	serve(t, newEngines(), cfg)
}
