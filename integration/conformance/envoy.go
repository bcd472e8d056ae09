package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/warmpath/warmpath/integration/envoyrun"
)

// Envoy is one process with one worker thread that plays scenarios one after
// the other. Each gets listeners of its own, added and removed by a watched
// file, and a vm_id of its own; the compiled module is shared.
type Envoy struct {
	AdminURL string
	// Recording: what the scenarios expect is not known yet.
	Recording bool

	cmd        *exec.Cmd
	exited     chan struct{}
	dir        string
	modules    map[string]string // path of wasm by name
	version    int
	barrierURL string
	http       http.Client

	upstream, upstream1, control *server
	deadPort                     int

	mu      sync.Mutex
	log     []string // Envoy's own lines, the last few
	current *envoyProxy
}

// StartEnvoy runs one. modules are wasm files by name; the caller calls Stop.
func StartEnvoy(ctx context.Context, binary string, modules map[string]string) (*Envoy, error) {
	e := &Envoy{exited: make(chan struct{}), modules: modules, http: http.Client{Timeout: 30 * time.Second}}
	for _, s := range []struct {
		at    **server
		actor string
		http1 bool
	}{{&e.upstream, upstream, false}, {&e.upstream1, upstream, true}, {&e.control, control, false}} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		*s.at = serve(l, s.actor, s.http1)
	}
	var err error
	if e.deadPort, err = freePort(); err != nil {
		return nil, err
	}
	if e.dir, err = os.MkdirTemp("", "warmpath-conformance-"); err != nil {
		return nil, err
	}
	if err := e.run(ctx, binary); err != nil {
		tail := strings.Join(e.tail(), "\n")
		e.Stop()
		return nil, fmt.Errorf("start envoy: %w\n%s", err, tail)
	}
	return e, nil
}

// freePort is a port where nobody listens. Envoy could choose one by itself, but
// a listener without a port of its own takes over the socket of one that drains.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func (e *Envoy) run(ctx context.Context, binary string) error {
	if err := e.put(e.path("lds.json"), tree{"resources": []any{}}); err != nil {
		return err
	}
	data, err := json.Marshal(e.bootstrap())
	if err != nil {
		return err
	}
	if err := os.WriteFile(e.path("bootstrap.json"), data, 0o644); err != nil {
		return err
	}
	e.cmd = exec.Command(binary, "-c", e.path("bootstrap.json"), "--concurrency", "1",
		"--base-id", "7302", "--disable-hot-restart", "--admin-address-path", e.path("admin.address"),
		"--drain-time-s", "1", "--parent-shutdown-time-s", "1",
		"--log-level", "warning", "--component-log-level", "wasm:info", "--log-format", "%t|%l|%n|%v")
	e.cmd.SysProcAttr = envoyrun.DieWithParent()
	stderr, err := e.cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := e.cmd.Start(); err != nil {
		return err
	}
	go func() {
		e.read(stderr)
		_ = e.cmd.Wait()
		close(e.exited)
	}()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return e.until(ctx, "envoy to serve", func() (bool, error) {
		if e.AdminURL == "" {
			text, err := os.ReadFile(e.path("admin.address"))
			if err != nil || len(text) == 0 {
				return false, nil
			}
			e.AdminURL = "http://" + strings.TrimSpace(string(text))
		}
		ports, err := e.ports(ctx)
		if err != nil || ports["barrier"] == 0 {
			return false, nil
		}
		e.barrierURL = fmt.Sprintf("http://127.0.0.1:%d/", ports["barrier"])
		return true, nil
	})
}

// poll is how often something is looked at again.
const poll = 10 * time.Millisecond

// until polls.
func (e *Envoy) until(ctx context.Context, what string, done func() (bool, error)) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-e.exited:
			return fmt.Errorf("envoy has ended while waiting for %s\n%s", what, strings.Join(e.tail(), "\n"))
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w\n%s", what, ctx.Err(), strings.Join(e.tail(), "\n"))
		case <-tick.C:
		}
	}
}

// read sorts Envoy's log: lines of modules go to the scenario that is played.
func (e *Envoy) read(r io.Reader) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		parts := strings.SplitN(line, "|", 4)
		e.mu.Lock()
		if len(parts) == 4 && parts[2] == "wasm" && strings.HasPrefix(parts[3], "wasm log") {
			if e.current != nil && parts[1] != "error" {
				e.current.moduleLine(parts[0], strings.TrimPrefix(parts[3], "wasm log"))
			}
		} else {
			if e.log = append(e.log, line); len(e.log) > 30 {
				e.log = e.log[1:]
			}
		}
		e.mu.Unlock()
	}
}

// tail returns Envoy's own last lines.
func (e *Envoy) tail() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.log)
}

func (e *Envoy) get(ctx context.Context, address string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	resp, err := e.http.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// ports of the active listeners, by name.
func (e *Envoy) ports(ctx context.Context) (map[string]int, error) {
	text, err := e.get(ctx, e.AdminURL+"/listeners?format=json")
	if err != nil {
		return nil, err
	}
	var list struct {
		Statuses []struct {
			Name  string `json:"name"`
			Local struct {
				Socket struct {
					Port int `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, err
	}
	ports := map[string]int{}
	for _, l := range list.Statuses {
		ports[l.Name] = l.Local.Socket.Port
	}
	return ports, nil
}

// stats reads counters and gauges whose names match.
func (e *Envoy) stats(ctx context.Context, pattern string) (map[string]int, error) {
	text, err := e.get(ctx, e.AdminURL+"/stats?filter="+url.QueryEscape(pattern))
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if n, err := strconv.Atoi(value); err == nil {
			out[name] = n
		}
	}
	return out, nil
}

// Dead says whether the process has ended, by itself.
func (e *Envoy) Dead() bool {
	select {
	case <-e.exited:
		return true
	default:
		return false
	}
}

// Stop ends the process and removes its files.
func (e *Envoy) Stop() {
	if e.cmd != nil && e.cmd.Process != nil {
		_ = e.cmd.Process.Kill() // nothing of it is needed any more
		<-e.exited
	}
	for _, s := range []*server{e.upstream, e.upstream1, e.control} {
		if s != nil {
			s.close()
		}
	}
	e.http.CloseIdleConnections()
	os.RemoveAll(e.dir)
}

// Play plays one scenario.
func (e *Envoy) Play(ctx context.Context, sc *Scenario) (*Scenario, error) {
	j := &journal{}
	p := &envoyProxy{e: e, journal: j, scenario: sc.Name, peers: map[string]clientSide{}}
	e.mu.Lock()
	e.current = p
	e.mu.Unlock()
	for _, s := range []*server{e.upstream, e.upstream1, e.control} {
		s.attend(j)
	}
	return sc.play(ctx, p, j)
}
