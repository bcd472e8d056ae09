// Command wasmprep prepares what the module is built with, so that a proxy
// compiles less of it and runs all of it:
//
//	go run ./build/wasmprep -dir bin/wasmprep
//	GOOS=wasip1 GOARCH=wasm go build -overlay bin/wasmprep/overlay.json -modfile bin/wasmprep/go.mod ...
//
// overlay.json puts two files of the installed Go in place of others. The first
// is a copy of the runtime's os_wasip1.go in which poll_oneoff is a function that
// reports no event. Envoy before 1.39 answers the real one with ENOSYS: there,
// the first garbage collection of a VM calls it (startTheWorld looks for ready
// network descriptors), throws "poll_oneoff failed", and the VM is gone. The
// module has no sockets and never sleeps, so there is no event to report; with
// the import gone, nothing in the module can block its thread.
//
// The second is internal/godebug, which package time brings along: a tenth of
// a MiB of code that only GODEBUG could wake, and a proxy's VM has none. In its
// place every setting has its default. (The runtime reads settings of its own,
// such as gctrace, by itself.)
//
// go.mod is the repository's with one replacement more: build/pretty for a
// package that would bring encoding/json along.
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

// noSettings is internal/godebug without an environment to read. An interface
// that Go has changed does not compile.
const noSettings = `package godebug

type Setting struct{ name string }

func New(name string) *Setting { return &Setting{name: name} }

func (s *Setting) Name() string {
	if s.Undocumented() {
		return s.name[1:]
	}
	return s.name
}

func (s *Setting) Undocumented() bool { return s.name != "" && s.name[0] == '#' }

func (s *Setting) String() string { return s.Name() + "=" }

func (s *Setting) Value() string { return "" }

func (s *Setting) IncNonDefault() {}
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("wasmprep", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dirFlag := flags.String("dir", "bin/wasmprep", "where to write overlay.json and go.mod")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	dir, err := filepath.Abs(*dirFlag)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = writeOverlay(dir)
	}
	if err == nil {
		err = writeModfile(dir)
	}
	if err != nil {
		fmt.Fprintf(stderr, "wasmprep: %v\n", err)
		return 1
	}
	return 0
}

// ask returns one variable of Go's environment.
func ask(name string) (string, error) {
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		return "", fmt.Errorf("ask go for %s: %w", name, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// writeOverlay writes the files that replace those of the installed Go and the
// overlay that names them.
func writeOverlay(dir string) error {
	root, err := ask("GOROOT")
	if err != nil {
		return err
	}
	wasip1 := filepath.Join(root, "src", "runtime", "os_wasip1.go")
	source, err := os.ReadFile(wasip1)
	if err != nil {
		return fmt.Errorf("read Go's runtime: %w", err)
	}
	patched, err := patch(string(source))
	if err != nil {
		return fmt.Errorf("%s: %w", wasip1, err)
	}
	replace := map[string]string{}
	for original, text := range map[string]string{
		wasip1: patched,
		filepath.Join(root, "src", "internal", "godebug", "godebug.go"): noSettings,
	} {
		file := filepath.Join(dir, filepath.Base(original))
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
		replace[original] = file
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o644)
}

// replacement keeps its path relative, as the built module records it: the same
// source has to give the same bytes wherever it lies.
const replacement = "\nreplace github.com/tidwall/pretty => ./build/pretty\n"

// writeModfile writes the go.mod and go.sum of the module's build.
func writeModfile(dir string) error {
	gomod, err := ask("GOMOD")
	if err != nil {
		return err
	}
	for _, name := range [...]string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(gomod), name))
		if err != nil {
			return err
		}
		if name == "go.mod" {
			text = append(text, replacement...)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func patch(source string) (string, error) {
	if n := strings.Count(source, imported); n != 1 {
		return "", fmt.Errorf("this Go release declares poll_oneoff otherwise (found %d times); compare with the text in build/wasmprep", n)
	}
	return strings.Replace(source, imported, stub, 1), nil
}
