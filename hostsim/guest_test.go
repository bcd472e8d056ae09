package hostsim

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// start is the virtual time at which every test begins.
var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// cacheDir holds the built guest and its machine code between runs.
func cacheDir(t testing.TB) string {
	t.Helper()
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir()
	}
	dir := filepath.Join(base, "warmpath-hostsim-test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// guestWasm builds testdata/guest, or takes it from the cache if neither its
// source nor the toolchain has changed.
func guestWasm(t testing.TB) []byte {
	t.Helper()
	wasm, err := buildGuest(cacheDir(t))
	if err != nil {
		t.Fatal(err)
	}
	return wasm
}

var guestOnce sync.Mutex

func buildGuest(dir string) ([]byte, error) {
	guestOnce.Lock()
	defer guestOnce.Unlock()
	sources, err := filepath.Glob("testdata/guest/*.go")
	if err != nil {
		return nil, err
	}
	slices.Sort(sources)
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version())
	for _, name := range sources {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		fmt.Fprintln(sum, name, len(b))
		sum.Write(b)
	}
	cached := filepath.Join(dir, "guest-"+hex.EncodeToString(sum.Sum(nil)[:8])+".wasm")
	if b, err := os.ReadFile(cached); err == nil {
		return b, nil
	}
	fresh := fmt.Sprintf("%s.%d", cached, os.Getpid())
	defer os.Remove(fresh)
	cmd := exec.Command("go", "build", "-trimpath", "-buildmode=c-shared", "-ldflags=-s -w", "-o", fresh, "./testdata/guest")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build testdata/guest: %w\n%s", err, out)
	}
	if err := os.Rename(fresh, cached); err != nil {
		return nil, err
	}
	return os.ReadFile(cached)
}

// newTestHost is a host on a virtual clock that reuses compiled code.
func newTestHost(t testing.TB, opts Options) *Host {
	t.Helper()
	if opts.Clock == nil {
		opts.Clock = NewVirtualClock(start)
	}
	opts.CacheDir = filepath.Join(cacheDir(t), "compiled")
	h, err := NewHost(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return h
}

func compileGuest(t testing.TB, h *Host) *Module {
	t.Helper()
	m, err := h.Compile(context.Background(), "guest", guestWasm(t))
	if err != nil {
		t.Fatal(err)
	}
	return m
}
