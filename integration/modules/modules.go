// Package modules builds the wasm module of this repository for tests and
// measurements, with whatever build tags they need.
package modules

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Packages that build into a module.
const (
	Filter = "filter"                  // warmpath.wasm
	Faults = "integration/faultmodule" // the same, with faults on order
	Custom = "examples/custom-policy"  // the same, with a rule of its own
)

// Build compiles one of the packages below root into dir and returns the path
// of the .wasm file. The tag "noresponsebody" leaves the response-body
// callback out.
func Build(ctx context.Context, root, dir, pkg string, tags ...string) (string, error) {
	name := filepath.Base(pkg)
	prepared := filepath.Join(dir, "wasmprep")
	prepare := exec.CommandContext(ctx, "go", "run", "./build/wasmprep", "-dir", prepared)
	prepare.Dir = root
	if text, err := prepare.CombinedOutput(); err != nil {
		return "", fmt.Errorf("prepare the module's build: %w\n%s", err, text)
	}
	args := []string{"build", "-overlay", filepath.Join(prepared, "overlay.json"), "-modfile", filepath.Join(prepared, "go.mod"), "-buildmode=c-shared", "-trimpath", "-buildvcs=false", "-ldflags=-s -w"}
	if len(tags) > 0 {
		name += "-" + strings.Join(tags, "-")
		args = append(args, "-tags", strings.Join(tags, ","))
	}
	out := filepath.Join(dir, name+".wasm")
	cmd := exec.CommandContext(ctx, "go", append(args, "-o", out, "./"+pkg)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the module (tags %v): %w\n%s", tags, err, text)
	}
	return out, nil
}
