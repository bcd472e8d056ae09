package fingerprint_test

import (
	"bytes"
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/minio/highwayhash"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/warmpath/warmpath/shared/fingerprint/internal/vectors"
)

var update = flag.Bool("update", false, "rewrite testdata/golden.txt")

// The vectors are part of the wire format: a change here is a new wire version.
func TestFingerprintsEqualTheGoldenVectors(t *testing.T) {
	path := filepath.Join("testdata", "golden.txt")
	got := strings.Join(vectors.Lines(), "\n") + "\n"
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(golden(t), got); diff != "" {
		t.Errorf("fingerprints changed (-golden +now):\n%s", diff)
	}
}

// minio/highwayhash #17: assembly gave another hash after a compiler change. The gateway hashes
// in WebAssembly and control natively; both must agree.
func TestFingerprintsInWebAssemblyEqualTheGoldenVectors(t *testing.T) {
	module := filepath.Join(t.TempDir(), "vectors.wasm")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", module, "./internal/printvectors")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the vectors for wasip1: %v\n%s", err, out)
	}
	code, err := os.ReadFile(module)
	if err != nil {
		t.Fatal(err)
	}

	ctx := context.Background()
	runtime := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	defer func() {
		if err := runtime.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	wasi_snapshot_preview1.MustInstantiate(ctx, runtime)
	var stdout bytes.Buffer
	if _, err := runtime.InstantiateWithConfig(ctx, code, wazero.NewModuleConfig().WithStdout(&stdout)); err != nil && !strings.Contains(err.Error(), "exit_code(0)") {
		t.Fatal(err)
	}
	if diff := cmp.Diff(golden(t), stdout.String()); diff != "" {
		t.Errorf("WebAssembly hashes differently (-golden +wasm):\n%s", diff)
	}
}

func TestFingerprintsWithoutAssemblyEqualTheGoldenVectors(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "run", "-tags", "noasm", "./internal/printvectors").Output()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(golden(t), string(out)); diff != "" {
		t.Errorf("the portable code hashes differently (-golden +noasm):\n%s", diff)
	}
}

func golden(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "golden.txt"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The first vectors of google/highwayhash (highwayhash_test.cc, kExpected64): key 00..1f, data
// 00, 01, ...: our library is the published function and not one that merely agrees with itself.
func TestHighwayHashIsThePublishedFunction(t *testing.T) {
	key := make([]byte, 32)
	data := make([]byte, 64)
	for i := range key {
		key[i] = byte(i)
	}
	for i := range data {
		data[i] = byte(i)
	}
	for n, want := range map[int]uint64{0: 0x907A56DE22C26E53, 1: 0x7EAB43AAC7CDDD78, 2: 0xB8D0569AB0B53D62} {
		if got := highwayhash.Sum64(data[:n], key); got != want {
			t.Errorf("HighwayHash-64 of %d bytes = %x, published %x", n, got, want)
		}
	}
}
