package gateway

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// guest is the compiled testdata/guest module.
var guest []byte

func TestMain(m *testing.M) {
	code, err := withGuest(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if code == 0 {
		if err := goleak.Find(goleak.IgnoreTopFunction("internal/poll.runtime_pollWait")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func withGuest(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "gateway-guest")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "guest.wasm")
	build := exec.Command("go", "build", "-buildmode=c-shared", "-trimpath", "-ldflags=-s -w", "-o", out, "./testdata/guest")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=")
	if msg, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build the guest: %w\n%s", err, msg)
	}
	if guest, err = os.ReadFile(out); err != nil {
		return 1, err
	}
	return m.Run(), nil
}
