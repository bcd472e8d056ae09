package main

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
	"strconv"
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

// answer mirrors what the guest prints.
type answer struct {
	Error        string  `json:"error"`
	Nanos        []int64 `json:"nanos"`
	IDs          int     `json:"ids"`
	Bytes        int     `json:"bytes"`
	Slices       int     `json:"slices"`
	Longest      int64   `json:"longestNanos"`
	HeapBytes    uint64  `json:"heapBytes"`
	EncoderBytes uint64  `json:"encoderBytes"`
	Exhausted    bool    `json:"exhausted"`
}

// host is a running program that answers lines: the guest somewhere, or the
// Python side.
type host struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
}

func startHost(ctx context.Context, name, program string, args ...string) (*host, error) {
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
	return &host{name, cmd, in, bufio.NewReaderSize(out, 1<<20)}, nil
}

func (h *host) stop() {
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

func (h *host) line(question string) (string, error) {
	if _, err := io.WriteString(h.in, question+"\n"); err != nil {
		return "", fmt.Errorf("%s: %w", h.name, err)
	}
	line, err := h.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("%s ended while asked %q: %w", h.name, question, err)
	}
	return strings.TrimSpace(line), nil
}

// ask asks a guest.
func (h *host) ask(question string, args ...any) (answer, error) {
	question = fmt.Sprintf(question, args...)
	line, err := h.line(question)
	if err != nil {
		return answer{}, err
	}
	var a answer
	if err := json.Unmarshal([]byte(line), &a); err != nil {
		return answer{}, fmt.Errorf("%s answered %q: %w", h.name, line, err)
	}
	if a.Error != "" {
		return answer{}, fmt.Errorf("%s, asked %q: %s", h.name, question, a.Error)
	}
	return a, nil
}

// askReference asks the Python side for one pass over a framed file.
func (h *host) askReference(path string) (answer, error) {
	line, err := h.line(path + " 1")
	if err != nil {
		return answer{}, err
	}
	nanos, ids, _ := strings.Cut(line, " ")
	n, err1 := strconv.ParseInt(nanos, 10, 64)
	k, err2 := strconv.Atoi(ids)
	if err := errors.Join(err1, err2); err != nil {
		return answer{}, fmt.Errorf("%s answered %q: %w", h.name, line, err)
	}
	return answer{Nanos: []int64{n}, IDs: k}, nil
}

// guests builds the guest and starts it natively, in V8 and in wazero. Paths in
// questions are relative to folder.
func guests(ctx context.Context, folder string, names []string) (hosts []*host, err error) {
	stopAll := func() {
		for _, h := range hosts {
			h.stop()
		}
	}
	defer func() {
		if err != nil {
			stopAll()
		}
	}()
	native, wasm, script := filepath.Join(folder, "guest"), filepath.Join(folder, "guest.wasm"), filepath.Join(folder, "v8.mjs")
	build := func(out string, env ...string) error {
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, "github.com/warmpath/warmpath/integration/tokenizers/guest")
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
		var h *host
		switch name {
		case "native":
			h, err = startHost(ctx, name, "sh", "-c", `cd "$1" && exec ./guest`, "sh", folder)
		case "v8":
			h, err = startHost(ctx, name, "node", "--no-warnings", "--no-liftoff", "--no-wasm-lazy-compilation", script, wasm, folder)
		case "wazero":
			h, err = startHost(ctx, name, self, "wazero", wasm, folder)
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

// runWazero is the process in which wazero runs the guest; its monotonic clock
// is the process's CPU time.
func runWazero(ctx context.Context, args []string, stdout, stderr io.Writer) error {
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
