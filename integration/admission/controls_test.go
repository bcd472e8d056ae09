//go:build admission

package admission

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/integration/envoyrun"
)

// program builds the warmpath command.
func program(t *testing.T) string {
	t.Helper()
	root, err := envoyrun.Root()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "warmpath")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./cmd/warmpath")
	cmd.Dir = root
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the command: %v\n%s", err, text)
	}
	return path
}

// replicas are processes of `warmpath control`.
type replicas struct {
	t       *testing.T
	program string
	files   []string // configurations
	urls    []string

	mu      sync.Mutex
	running []*exec.Cmd
	said    [][]string // their last lines
	leader  int        // the one that said last that it leads, -1 none
	since   time.Time
	elected int
}

// partition is the time for which a gateway without control keeps to its floor. The
// test cuts no longer; beyond it level2 decides, which lets all pass by default.
const partition = "  max_partition_ms: 120000\n"

// startReplicas runs n of them until the test ends, with a NATS server in each.
func startReplicas(t *testing.T, n int, workers []discovery.Spec) *replicas {
	t.Helper()
	dir, routes := t.TempDir(), free(t, n)
	return startReplicasOn(t, n, workers, func(i int) map[string]any {
		return map[string]any{"name": fmt.Sprintf("control-%d", i), "embedded": map[string]any{
			"cluster_listen": routes[i], "routes": routes, "store_dir": filepath.Join(dir, fmt.Sprintf("store-%d", i)),
		}}
	})
}

// startReplicasOn runs n of them until the test ends; nats is each one's section of
// its configuration.
func startReplicasOn(t *testing.T, n int, workers []discovery.Spec, nats func(i int) map[string]any) *replicas {
	t.Helper()
	r := &replicas{t: t, program: program(t), running: make([]*exec.Cmd, n), said: make([][]string, n), leader: -1}
	dir, listen := t.TempDir(), free(t, n)
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	list, err := json.Marshal(map[string]any{"workers": workers})
	if err != nil {
		t.Fatal(err)
	}
	workersFile, policyFile := write("workers.yaml", list), write("policy.yaml", []byte(policyText+partition))
	for i := range n {
		text, err := json.Marshal(map[string]any{
			"listen": listen[i], "workers_file": workersFile, "policy_file": policyFile, "token": token, "nats": nats(i),
		})
		if err != nil {
			t.Fatal(err)
		}
		r.files = append(r.files, write(fmt.Sprintf("control-%d.yaml", i), text))
		r.urls = append(r.urls, "http://"+listen[i])
	}
	t.Cleanup(func() {
		for i := range r.running {
			r.kill(i)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for i, lines := range r.said {
			if t.Failed() {
				t.Logf("replica %d said last:\n%s", i, strings.Join(lines, "\n"))
			}
		}
	})
	for i := range n {
		r.start(i)
	}
	return r
}

// free are addresses that nobody listens to.
func free(t *testing.T, n int) (out []string) {
	t.Helper()
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		out = append(out, listener.Addr().String())
	}
	return out
}

var leads = regexp.MustCompile(`msg="?leads"?|\bleads replica=`)

// start runs replica i.
func (r *replicas) start(i int) {
	r.t.Helper()
	cmd := exec.Command(r.program, "control", "--config", r.files[i])
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	r.running[i] = cmd
	r.mu.Unlock()
	go func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			r.mu.Lock()
			r.said[i] = append(r.said[i][max(0, len(r.said[i])-29):], lines.Text())
			r.mu.Unlock()
			if leads.MatchString(lines.Text()) {
				r.mu.Lock()
				r.leader, r.since = i, time.Now()
				r.elected++
				r.mu.Unlock()
			}
			if testing.Verbose() && strings.Contains(lines.Text(), "ERROR") {
				fmt.Fprintf(os.Stderr, "control-%d: %s\n", i, lines.Text())
			}
		}
	}()
}

// kill ends replica i at once, as kill -9 does. It is quiet about one that doesn't
// run.
func (r *replicas) kill(i int) {
	r.mu.Lock()
	cmd := r.running[i]
	r.running[i] = nil
	r.mu.Unlock()
	if cmd != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// leads waits for a leader other than those before the n-th election.
func (r *replicas) leads(n int, limit time.Duration) (leader int, since time.Time) {
	r.t.Helper()
	envoyrun.Eventually(r.t, limit, "a leader", func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if leader, since = r.leader, r.since; r.elected < n || r.running[r.leader] == nil {
			return fmt.Errorf("%d elections so far", r.elected)
		}
		return nil
	})
	return leader, since
}

func (r *replicas) elections() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.elected
}

// cable is a TCP way to an address that can be cut.
type cable struct {
	to       string
	listener net.Listener
	mu       sync.Mutex
	cut      bool
	open     map[net.Conn]bool
}

// newCable lasts until the test ends.
func newCable(t *testing.T, to string) *cable {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{to: to, listener: listener, open: map[net.Conn]bool{}}
	t.Cleanup(func() { _ = listener.Close(); c.set(true) })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go c.carry(conn)
		}
	}()
	return c
}

func (c *cable) url() string { return "http://" + c.listener.Addr().String() }

// set cuts the cable, or joins it.
func (c *cable) set(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut = cut; cut {
		for conn := range c.open {
			_ = conn.Close()
		}
	}
}

// enter keeps a connection, unless the cable is cut.
func (c *cable) enter(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		_ = conn.Close()
		return false
	}
	c.open[conn] = true
	return true
}

func (c *cable) carry(conn net.Conn) {
	if !c.enter(conn) {
		return
	}
	far, err := new(net.Dialer).DialContext(context.Background(), "tcp", c.to)
	if err == nil && c.enter(far) {
		go func() {
			_, _ = io.Copy(far, conn)
			_ = far.Close()
		}()
		_, _ = io.Copy(conn, far)
		_ = far.Close()
	}
	_ = conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, conn)
	if err == nil {
		delete(c.open, far)
	}
}
