package abi_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tetratelabs/wazero"
)

// guestWasm is the module in testdata/guest, built once for all tests.
var guestWasm []byte

// wasmCache keeps compiled modules between test runs.
var wasmCache wazero.CompilationCache

func TestMain(m *testing.M) {
	code, err := buildAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(code)
}

func buildAndRun(m *testing.M) (int, error) {
	dir := cacheDir()
	var err error
	if guestWasm, err = buildGuest(dir, "guest.wasm"); err != nil {
		return 0, err
	}
	if wasmCache, err = wazero.NewCompilationCacheWithDir(filepath.Join(dir, "wazero")); err != nil {
		return 0, fmt.Errorf("open the cache of compiled modules: %w", err)
	}
	defer wasmCache.Close(context.Background())
	return m.Run(), nil
}

// cacheDir keeps the guest between runs: go build links again only if a source
// file has changed.
func cacheDir() string {
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir()
	}
	return filepath.Join(base, "warmpath", "abi-test")
}

func buildGuest(dir, name string, flags ...string) ([]byte, error) {
	path := filepath.Join(dir, name)
	args := append([]string{"build", "-buildmode=c-shared", "-trimpath", "-ldflags=-s -w", "-o", path}, flags...)
	cmd := exec.Command("go", append(args, "./testdata/guest")...)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the guest module: %w\n%s", err, out)
	}
	wasm, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the guest module: %w", err)
	}
	return wasm, nil
}
