package hosttest

import (
	"os"
	"os/exec"
	"path/filepath"
)

// BuildGo builds a Go package as a proxy-wasm module, as for Envoy
// (GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared), and returns the file,
// which is gone when the test ends. Go's build cache makes it cheap when nothing
// has changed. flags go before the package: "-tags", "x".
func BuildGo(t T, pkg string, flags ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "filter.wasm")
	// The state of the repository in the module would make it another one with
	// every commit, to be compiled anew.
	args := append([]string{"build", "-buildmode=c-shared", "-buildvcs=false", "-o", out}, flags...)
	cmd := exec.Command("go", append(args, pkg)...)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=")
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("hosttest: build %s: %v\n%s", pkg, err, msg)
	}
	return out
}
