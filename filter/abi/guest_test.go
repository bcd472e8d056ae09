package abi_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
)

// The modules in testdata/guest and testdata/router, built once for all tests.
var guestWasm, routerWasm []byte

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
	if guestWasm, err = buildModule(dir, "guest"); err != nil {
		return 0, err
	}
	if routerWasm, err = buildModule(dir, "router"); err != nil {
		return 0, err
	}
	if wasmCache, err = wazero.NewCompilationCacheWithDir(filepath.Join(dir, "wazero")); err != nil {
		return 0, fmt.Errorf("open the cache of compiled modules: %w", err)
	}
	defer wasmCache.Close(context.Background())
	return m.Run(), nil
}

// cacheDir keeps the modules between runs: go build links again only if a source
// file has changed.
func cacheDir() string {
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir()
	}
	return filepath.Join(base, "warmpath", "abi-test")
}

// buildModule builds testdata/<name>, with build tags or without.
func buildModule(dir, name string, tags ...string) ([]byte, error) {
	path := filepath.Join(dir, strings.Join(append([]string{name}, tags...), "-")+".wasm")
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-trimpath", "-ldflags=-s -w",
		"-tags="+strings.Join(tags, ","), "-o", path, "./testdata/"+name)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the module %s: %w\n%s", name, err, out)
	}
	wasm, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the module %s: %w", name, err)
	}
	return wasm, nil
}
