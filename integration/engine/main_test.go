//go:build engine

package engine

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/warmpath/warmpath/integration/envoyrun"
	"github.com/warmpath/warmpath/integration/modules"
)

var (
	figuresFile  = flag.String("figures", "", "write the figures here, as JSON")
	events       = flag.Int("events", 1000, "engine events whose way into the table is timed")
	requests     = flag.Int("requests", 400, "requests whose prediction is compared with the engine's answer")
	envoyVersion = flag.String("envoy", "1.40.0", "Envoy of the second run")
)

// installed is what TestMain has prepared.
var installed struct {
	home   *Home
	model  *Model
	module string // path of warmpath.wasm
}

// interrupted ends when somebody ends the run: engines must not outlive it.
var interrupted context.Context

// measured are the figures of each front.
var measured = map[string]map[string]any{}

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (code int, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	interrupted = ctx
	if installed.home, err = Install(ctx, os.Stderr); err != nil {
		return 1, err
	}
	if installed.model, err = installed.home.WriteModel(ctx); err != nil {
		return 1, err
	}
	root, err := envoyrun.Root()
	if err != nil {
		return 1, err
	}
	dir, err := os.MkdirTemp("", "warmpath-engine-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	if installed.module, err = modules.Build(ctx, root, dir, modules.Filter); err != nil {
		return 1, err
	}
	code = m.Run()
	return code, tellFigures()
}

// tellFigures prints what was measured, and writes it where -figures says.
func tellFigures() error {
	if len(measured) == 0 {
		return nil
	}
	text, err := json.MarshalIndent(measured, "", "  ")
	if err != nil {
		return err
	}
	fmt.Println(string(text))
	if *figuresFile == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(*figuresFile), 0o755); err != nil {
		return err
	}
	return os.WriteFile(*figuresFile, append(text, '\n'), 0o644)
}
