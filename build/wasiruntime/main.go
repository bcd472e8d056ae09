// Command wasiruntime lets Go's runtime do without WASI's poll_oneoff, which
// Envoy before 1.39 answers with ENOSYS: there, the first garbage collection
// of a VM calls it (startTheWorld looks for ready network descriptors), throws
// "poll_oneoff failed", and the VM is gone.
//
//	go run ./build/wasiruntime -dir bin/wasiruntime
//	GOOS=wasip1 GOARCH=wasm go build -overlay bin/wasiruntime/overlay.json ...
//
// It writes a copy of one file of the installed runtime, os_wasip1.go, in which
// poll_oneoff is a function that reports no event, and the overlay that puts it
// in place. The module has no sockets and never sleeps, so there is no event to
// report; with the import gone, nothing in the module can block its thread.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// imported is the declaration as Go's runtime has it; stub takes its place.
// A toolchain that words it otherwise is an error here, not a silent miss.
const (
	imported = `//go:wasmimport wasi_snapshot_preview1 poll_oneoff
//go:noescape
func poll_oneoff(in *subscription, out *event, nsubscriptions size, nevents *size) errno
`
	stub = `//go:nosplit
func poll_oneoff(in *subscription, out *event, nsubscriptions size, nevents *size) errno {
	*nevents = 0
	return 0
}
`
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("wasiruntime", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("dir", "bin/wasiruntime", "where to write os_wasip1.go and overlay.json")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	overlay, err := write(*dir)
	if err != nil {
		fmt.Fprintf(stderr, "wasiruntime: %v\n", err)
		return 1
	}
	fmt.Fprintln(stdout, overlay)
	return 0
}

// write returns the path of the overlay.
func write(dir string) (string, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("ask go for GOROOT: %w", err)
	}
	original := filepath.Join(strings.TrimSpace(string(out)), "src", "runtime", "os_wasip1.go")
	source, err := os.ReadFile(original)
	if err != nil {
		return "", fmt.Errorf("read Go's runtime: %w", err)
	}
	patched, err := patch(string(source))
	if err != nil {
		return "", fmt.Errorf("%s: %w", original, err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	replacement := filepath.Join(dir, "os_wasip1.go")
	if err := os.WriteFile(replacement, []byte(patched), 0o644); err != nil {
		return "", err
	}
	data, err := json.Marshal(map[string]any{"Replace": map[string]string{original: replacement}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, data, 0o644)
}

func patch(source string) (string, error) {
	if n := strings.Count(source, imported); n != 1 {
		return "", fmt.Errorf("this Go release declares poll_oneoff otherwise (found %d times); compare with the text in build/wasiruntime", n)
	}
	return strings.Replace(source, imported, stub, 1), nil
}
