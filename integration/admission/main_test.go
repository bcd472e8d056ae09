//go:build admission

package admission

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/warmpath/warmpath/gateway"
	"github.com/warmpath/warmpath/integration/envoyrun"
	"github.com/warmpath/warmpath/integration/modules"
)

var (
	requests = flag.Int("requests", 5000, "requests against the limit of 100 slots")
	aborts   = flag.Int("aborts", 3000, "requests whose clients leave")
	counts   = flag.Bool("counts", false, "the workers' metrics tell how many requests they have, which frees slots of gateways that are silent")
	scale    = flag.Float64("scale", 10, "how many times faster than 2 s on average the workers answer")
)

const (
	gateways = 8
	vms      = 2
	token    = "admission-test"
)

// job is what a gateway process is told by its environment.
type job struct {
	Name, Module string
	Control      []string // URLs of the replicas
	Workers      []string
}

const jobVariable = "WARMPATH_ADMISSION_GATEWAY"

var module string // path of the wasm module

func TestMain(m *testing.M) {
	if text := os.Getenv(jobVariable); text != "" {
		os.Exit(serve(text))
	}
	flag.Parse()
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "warmpath-admission-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		root, err := envoyrun.Root()
		if err == nil {
			module, err = modules.Build(context.Background(), root, dir, modules.Filter)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// serve is a gateway process: it prints its two addresses and serves until its
// input ends.
func serve(text string) int {
	err := func() error {
		var j job
		if err := json.Unmarshal([]byte(text), &j); err != nil {
			return err
		}
		code, err := os.ReadFile(j.Module)
		if err != nil {
			return err
		}
		known, err := gateway.NewEndpoints("default", j.Workers...)
		if err != nil {
			return err
		}
		plugin, err := json.Marshal(map[string]any{
			"gateway": j.Name, "control": map[string]string{"cluster": "control", "token": token},
		})
		if err != nil {
			return err
		}
		ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer cancel()
		go func() { // the parent is gone
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel()
		}()
		g, err := gateway.New(ctx, gateway.Config{
			Listen: "127.0.0.1:0", AdminListen: "127.0.0.1:0", Module: code, Plugin: plugin, VMs: vms,
			Clusters: map[string][]string{"control": j.Control}, Endpoints: known, DrainTimeout: time.Second,
			HeldTimeout: 2 * time.Minute, CacheDir: filepath.Join(os.TempDir(), "warmpath-wazero-cache"), Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return err
		}
		fmt.Println(g.Addr(), g.AdminAddr())
		return g.Run(ctx)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// process is one gateway.
type process struct {
	url, admin string
	process    *os.Process
}

// pause lets the process stand still for a time, as one that gets no CPU does.
func (p process) pause(d time.Duration) error {
	if err := p.process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	<-time.After(d)
	return p.process.Signal(syscall.SIGCONT)
}

// start runs the gateways until the test ends; control is where each finds the
// replicas of control.
func start(t *testing.T, control func(gateway int) []string, workers []string) []process {
	t.Helper()
	out := make([]process, 0, gateways)
	for i := range gateways {
		text, err := json.Marshal(job{Name: "gw-" + strconv.Itoa(i), Module: module, Control: control(i), Workers: workers})
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), jobVariable+"="+string(text), "GOMAXPROCS=2")
		cmd.Stderr = os.Stderr
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = stdin.Close()
			_ = cmd.Wait()
		})
		line, err := bufio.NewReader(stdout).ReadString('\n')
		if err != nil {
			t.Fatalf("gateway %d doesn't say where it is: %v", i, err)
		}
		addresses := strings.Fields(line)
		out = append(out, process{"http://" + addresses[0], "http://" + addresses[1], cmd.Process})
	}
	return out
}
