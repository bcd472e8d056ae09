// Package envoyrun runs one Envoy from a shipped example, so that what ships
// is what is tested and measured.
//
// An example travels like this: Start parses examples/envoy/*.yaml, puts free
// ports in place of the documented ones and this run's files in place of
// bin/warmpath.wasm and the watched filter file, writes both into a temporary
// directory, starts Envoy on them and waits until it serves. SwapFilter
// rewrites the watched file by rename, as an operator would. Stop ends the
// process and leaves nothing behind.
package envoyrun

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Documented ports of the examples.
const (
	ClientPort  = 8080
	AdminPort   = 9901
	ControlPort = 8780
)

// Options says what to run.
type Options struct {
	Binary      string        // path of envoy
	Example     string        // file under examples/envoy: envoy.yaml or envoy-buffer.yaml
	Module      string        // path of the module
	Ports       map[int]int   // documented port -> port of this run, for control and workers
	Concurrency int           // worker threads; 0 means 2
	Settings    func(Tree)    // edits the module's JSON configuration
	Wasm        func(Tree)    // edits the filter's typed_config (envoy...wasm.v3.Wasm)
	Bootstrap   func(Tree)    // edits the bootstrap after ports and paths are replaced
	LogLevel    string        // of Envoy; empty means info
	StartLimit  time.Duration // how long Start waits; 0 means 2 minutes (a module is compiled meanwhile)
}

// Proxy is one running Envoy.
type Proxy struct {
	ClientURL string // http://127.0.0.1:port, where clients send
	AdminURL  string

	cmd     *exec.Cmd
	exited  chan struct{}
	exitErr error
	dir     string
	shipped *filterFile
	current Filter
	version atomic.Int64
	admin   http.Client
	stop    sync.Once
}

// ErrNoV8 is returned for an Envoy that cannot run wasm: of the releases on
// PyPI, 1.38.3 was built without V8.
var ErrNoV8 = errors.New("this build of envoy has no V8 and cannot run a wasm module; take another release")

// baseID tells Envoys on one machine apart; hot restart is off, so it only
// has to differ from the default that an operator's own Envoy may use.
const baseID = "7301"

// Start runs Envoy and waits until it accepts clients. The caller calls Stop.
func Start(ctx context.Context, o Options) (*Proxy, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	if o.Concurrency == 0 {
		o.Concurrency = 2
	}
	if o.LogLevel == "" {
		o.LogLevel = "info"
	}
	if o.StartLimit == 0 {
		o.StartLimit = 2 * time.Minute
	}
	p := &Proxy{exited: make(chan struct{}), admin: http.Client{Timeout: 30 * time.Second}}
	if p.dir, err = os.MkdirTemp("", "warmpath-envoy-"); err != nil {
		return nil, fmt.Errorf("create a directory for envoy: %w", err)
	}
	if err := p.writeConfig(root, o); err != nil {
		os.RemoveAll(p.dir)
		return nil, err
	}
	if err := p.run(o); err != nil {
		os.RemoveAll(p.dir)
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.StartLimit)
	defer cancel()
	if err := p.waitServing(ctx); err != nil {
		tail := p.LogTail(12)
		p.Stop()
		return nil, fmt.Errorf("start envoy from %s: %w\n%s", o.Example, err, tail)
	}
	if strings.Contains(p.Log(), "Envoy was compiled without support for it") {
		p.Stop()
		return nil, fmt.Errorf("start envoy from %s: %w", o.Example, ErrNoV8)
	}
	return p, nil
}

// writeConfig writes the bootstrap and the watched file of this run.
func (p *Proxy) writeConfig(root string, o Options) error {
	folder := filepath.Join(root, "examples", "envoy")
	bootstrap, err := readTree(filepath.Join(folder, o.Example))
	if err != nil {
		return err
	}
	ports := map[int]int{ClientPort: 0, AdminPort: 0}
	for from, to := range o.Ports {
		ports[from] = to
	}
	replacePorts(bootstrap, ports)

	source := Find(bootstrap, "resource_api_version", "V3")
	watched, _ := source["path_config_source"].(Tree)
	shipped, ok := watched["path"].(string)
	if !ok {
		return fmt.Errorf("%s: the filter is not configured by a watched file (config_discovery with path_config_source)", o.Example)
	}
	if p.shipped, err = readFilter(filepath.Join(root, shipped)); err != nil {
		return err
	}
	watched["path"] = p.filterPath()
	settings := clone(p.shipped.settings)
	if o.Settings != nil {
		o.Settings(settings)
	}
	if err := p.writeFilter(Filter{Module: o.Module, Settings: settings, Wasm: o.Wasm}); err != nil {
		return err
	}
	if o.Bootstrap != nil {
		o.Bootstrap(bootstrap)
	}
	data, err := json.MarshalIndent(bootstrap, "", " ")
	if err != nil {
		return fmt.Errorf("encode the bootstrap: %w", err)
	}
	return os.WriteFile(p.path("bootstrap.json"), data, 0o644)
}

// run starts the process.
func (p *Proxy) run(o Options) error {
	access, err := os.Create(p.path("access.log"))
	if err != nil {
		return err
	}
	defer access.Close()
	log, err := os.Create(p.path("envoy.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = exec.Command(o.Binary,
		"-c", p.path("bootstrap.json"),
		"--concurrency", strconv.Itoa(o.Concurrency),
		"--base-id", baseID, "--disable-hot-restart",
		"--admin-address-path", p.path("admin.address"),
		"--log-level", o.LogLevel,
		"--drain-time-s", "1", "--parent-shutdown-time-s", "1",
		"--file-flush-interval-msec", "50",
	)
	p.cmd.Stdout, p.cmd.Stderr = access, log
	p.cmd.SysProcAttr = DieWithParent()
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", o.Binary, err)
	}
	go func() {
		p.exitErr = p.cmd.Wait()
		close(p.exited)
	}()
	return nil
}

// waitServing returns once the listener for clients accepts and the admin
// interface says LIVE. It sets the two addresses.
func (p *Proxy) waitServing(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-p.exited:
			return fmt.Errorf("envoy ended: %w", errors.Join(p.exitErr, errors.New("see its last lines below")))
		case <-ctx.Done():
			return fmt.Errorf("envoy does not serve yet: %w", ctx.Err())
		case <-tick.C:
		}
		if p.AdminURL == "" {
			address, err := os.ReadFile(p.path("admin.address"))
			if err != nil || len(bytes.TrimSpace(address)) == 0 {
				continue
			}
			p.AdminURL = "http://" + string(bytes.TrimSpace(address))
		}
		if p.serving(ctx) {
			return nil
		}
	}
}

// serving asks for the state and the address of the client listener.
func (p *Proxy) serving(ctx context.Context) bool {
	if state, err := p.Admin(ctx, "/ready"); err != nil || !strings.HasPrefix(state, "LIVE") {
		return false
	}
	text, err := p.Admin(ctx, "/listeners?format=json")
	if err != nil {
		return false
	}
	var listeners struct {
		Statuses []struct {
			Name  string `json:"name"`
			Local struct {
				Socket struct {
					Address string `json:"address"`
					Port    int    `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal([]byte(text), &listeners); err != nil {
		return false
	}
	for _, l := range listeners.Statuses {
		if l.Name == "llm" && l.Local.Socket.Port != 0 {
			p.ClientURL = fmt.Sprintf("http://%s:%d", l.Local.Socket.Address, l.Local.Socket.Port)
			return true
		}
	}
	return false
}

// Admin reads one page of the admin interface.
func (p *Proxy) Admin(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.AdminURL+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := p.admin.Do(req)
	if err != nil {
		return "", fmt.Errorf("ask envoy's admin interface for %s: %w", path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", fmt.Errorf("read %s from envoy's admin interface: %w", path, err)
	}
	return string(body), nil
}

// Settings returns a copy of the module's configuration as it is now.
func (p *Proxy) Settings() Tree { return clone(p.current.Settings) }

// Module returns the path of the module as it is now.
func (p *Proxy) Module() string { return p.current.Module }

// SwapFilter puts another module or other settings in place by renaming a new
// watched file over the old one. It does not wait for Envoy to take it.
func (p *Proxy) SwapFilter(f Filter) error {
	if f.Wasm == nil {
		f.Wasm = p.current.Wasm
	}
	return p.writeFilter(f)
}

func (p *Proxy) writeFilter(f Filter) error {
	data, err := p.shipped.render(f, int(p.version.Add(1)))
	if err != nil {
		return err
	}
	fresh := p.path("filter.fresh")
	if err := os.WriteFile(fresh, data, 0o644); err != nil {
		return fmt.Errorf("write the filter file: %w", err)
	}
	if err := os.Rename(fresh, p.filterPath()); err != nil {
		return fmt.Errorf("put the filter file in place: %w", err)
	}
	p.current = f
	return nil
}

// Exited is closed when the process has ended, whoever ended it.
func (p *Proxy) Exited() <-chan struct{} { return p.exited }

// PID is the process id.
func (p *Proxy) PID() int { return p.cmd.Process.Pid }

// Log returns Envoy's own log so far.
func (p *Proxy) Log() string { return p.read("envoy.log") }

// LogTail returns the last n lines of Envoy's log.
func (p *Proxy) LogTail(n int) string {
	lines := strings.Split(strings.TrimSpace(p.Log()), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}

// AccessLog returns the access log so far, one JSON object per line.
func (p *Proxy) AccessLog() string { return p.read("access.log") }

// Stop ends Envoy and removes its files.
func (p *Proxy) Stop() {
	p.stop.Do(func() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.exited:
		case <-time.After(10 * time.Second):
			_ = p.cmd.Process.Kill()
			<-p.exited
		}
		os.RemoveAll(p.dir)
	})
}

func (p *Proxy) path(name string) string { return filepath.Join(p.dir, name) }

func (p *Proxy) filterPath() string { return p.path("filter.json") }

func (p *Proxy) read(name string) string {
	data, err := os.ReadFile(p.path(name))
	if err != nil {
		return ""
	}
	return string(data)
}

// Eventually repeats check until it passes, and fails the test t when it hasn't
// within limit; the last error is told.
func Eventually(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, limit time.Duration, what string, check func() error,
) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, limit, err)
		}
		<-time.After(100 * time.Millisecond)
	}
}
