// Package guests runs one program natively, in V8 and in wazero, to compare what the same code
// costs there. A guest is a Go command that answers lines on standard input with lines on standard
// output and measures with package cputime.
package guests

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	_ "embed"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/warmpath/warmpath/integration/vocabfiles"
)

//go:embed v8.mjs
var v8Script []byte

// Host is a running program that answers lines: a guest somewhere, or another that it is held
// against.
type Host struct {
	Name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
}

// Start starts a program.
func Start(ctx context.Context, name, program string, args ...string) (*Host, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return &Host{name, cmd, in, bufio.NewReaderSize(out, 1<<20)}, nil
}

// Stop ends the program.
func (h *Host) Stop() {
	h.in.Close()
	done := make(chan struct{})
	go func() { _ = h.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		_ = h.cmd.Process.Kill()
		<-done
	}
}

// Line asks one line.
func (h *Host) Line(question string) (string, error) {
	if _, err := io.WriteString(h.in, question+"\n"); err != nil {
		return "", fmt.Errorf("%s: %w", h.Name, err)
	}
	line, err := h.Read()
	if err != nil {
		return "", fmt.Errorf("asked %q: %w", question, err)
	}
	return line, nil
}

// Read waits for a line that the program says by itself.
func (h *Host) Read() (string, error) {
	line, err := h.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("%s ended: %w", h.Name, err)
	}
	return strings.TrimSpace(line), nil
}

// Ask asks one line and reads the answer's JSON into it.
func (h *Host) Ask(answer any, question string, args ...any) error {
	line, err := h.Line(fmt.Sprintf(question, args...))
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(line), answer); err != nil {
		return fmt.Errorf("%s answered %q: %w", h.Name, line, err)
	}
	return nil
}

// StartAll builds the guest, a package of this repository, into folder and starts it in the hosts
// of names: native, v8, wazero. Paths in questions are relative to folder. The program that calls
// it runs RunWazero when its first argument is "wazero".
func StartAll(ctx context.Context, pkg, folder string, names []string) (hosts []*Host, err error) {
	defer func() {
		if err != nil {
			StopAll(hosts)
		}
	}()
	native, wasm, script := filepath.Join(folder, "guest"), filepath.Join(folder, "guest.wasm"), filepath.Join(folder, "v8.mjs")
	build := func(out string, env ...string) error {
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, "github.com/warmpath/warmpath/"+pkg)
		cmd.Env = append(os.Environ(), env...)
		if msg, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build the guest (run this inside the repository): %w: %s", err, vocabfiles.LastLines(msg, 3))
		}
		return nil
	}
	if err := errors.Join(build(native), build(wasm, "GOOS=wasip1", "GOARCH=wasm"), os.WriteFile(script, v8Script, 0o644)); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		var h *Host
		switch name {
		case "native":
			h, err = Start(ctx, name, "sh", "-c", `cd "$1" && exec ./guest`, "sh", folder)
		case "v8":
			h, err = Start(ctx, name, "node", "--no-warnings", "--no-liftoff", "--no-wasm-lazy-compilation", script, wasm, folder)
		case "wazero":
			h, err = Start(ctx, name, self, "wazero", wasm, folder)
		default:
			err = fmt.Errorf("no host %q; there are native, v8, wazero", name)
		}
		if err != nil {
			return hosts, err
		}
		hosts = append(hosts, h)
	}
	return hosts, nil
}

// StopAll stops hosts.
func StopAll(hosts []*Host) {
	for _, h := range hosts {
		h.Stop()
	}
}

// RunWazero is the process in which wazero runs the guest; its monotonic clock
// is the process's CPU time.
func RunWazero(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) != 2 {
		return errors.New("want the module and the folder it may read")
	}
	module, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	rt := wazero.NewRuntime(ctx)
	defer rt.Close(ctx)
	wasi_snapshot_preview1.MustInstantiate(ctx, rt)
	cpu := func() int64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			panic(err) // the benchmark measures nothing without it
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	config := wazero.NewModuleConfig().WithStdin(os.Stdin).WithStdout(stdout).WithStderr(stderr).WithArgs("guest").
		WithFSConfig(wazero.NewFSConfig().WithReadOnlyDirMount(args[1], "/")).WithNanotime(cpu, 1).WithSysWalltime()
	if _, err := rt.InstantiateWithConfig(ctx, module, config); err != nil {
		return fmt.Errorf("run the guest in wazero: %w", err)
	}
	return nil
}
