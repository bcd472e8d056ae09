package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/warmpath/warmpath/control"
	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/integration/bench"
	"github.com/warmpath/warmpath/integration/envoyrun"
)

// token is what the module shows to the control service.
const token = "change-me"

// rig is the two proxies and what stands behind them: four workers and a control
// service that knows them. Workers and client run in this process; their time is
// in no figure.
type rig struct {
	plain, steered *process
	client         *bench.Client
	servers        []*http.Server
	cancel         context.CancelFunc
	done           chan error
}

func startRig(ctx context.Context, module string) (r *rig, err error) {
	r = &rig{client: bench.NewClient(4), cancel: func() {}, done: make(chan error, 1)}
	defer func() {
		if err != nil {
			r.stop()
		}
	}()
	root, err := envoyrun.Root()
	if err != nil {
		return nil, err
	}
	policy, err := os.ReadFile(filepath.Join(root, "examples", "envoy", "policy.yaml"))
	if err != nil {
		return nil, fmt.Errorf("read the shipped policy: %w", err)
	}
	var specs []discovery.Spec
	var addresses []string
	for range 4 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		server := &http.Server{Handler: http.HandlerFunc(bench.Answer), ErrorLog: log.New(io.Discard, "", 0)}
		go server.Serve(listener)
		r.servers = append(r.servers, server)
		addresses = append(addresses, listener.Addr().String())
		specs = append(specs, discovery.Spec{
			Address: listener.Addr().String(), Pool: "default", MaxRunning: 4096, QueueLimit: 65535,
			CapacityTokens: 4 << 20, BlockTokens: 16, PrefillTokensPerSecond: 1_000_000,
		})
	}
	service, err := control.New(control.Config{Listen: "127.0.0.1:0", Token: token, Workers: specs, Policy: policy})
	if err != nil {
		return nil, fmt.Errorf("start the control service: %w", err)
	}
	serving, cancel := context.WithCancel(ctx)
	r.cancel = cancel
	go func() { r.done <- service.Run(serving) }()
	select {
	case <-service.Ready():
	case <-time.After(20 * time.Second):
		return nil, errors.New("the control service is not ready after 20 s")
	}
	list := strings.Join(addresses, ",")
	if r.plain, err = startProcess(ctx, "-workers", list); err != nil {
		return nil, err
	}
	if r.steered, err = startProcess(ctx, "-workers", list, "-module", module, "-control", service.URL()); err != nil {
		return nil, err
	}
	return r, r.waitSteered(ctx)
}

func (r *rig) stop() {
	for _, p := range []*process{r.plain, r.steered} {
		if p != nil {
			p.stop()
		}
	}
	r.cancel()
	for _, s := range r.servers {
		s.Close()
	}
}

// process is one of the proxies.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	url   string
	admin string
}

func startProcess(ctx context.Context, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, append([]string{serveCommand}, args...)...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = envoyrun.DieWithParent()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, stdin: stdin}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	address, admin, _ := strings.Cut(strings.TrimSpace(line), " ")
	if err != nil || address == "" {
		p.stop()
		return nil, fmt.Errorf("a proxy of %v did not start: %w", args, err)
	}
	p.url, p.admin = "http://"+address, "http://"+admin
	return p, nil
}

func (p *process) stop() {
	p.stdin.Close()
	_ = p.cmd.Wait()
}

// cpu is the process's time so far.
func (p *process) cpu() (time.Duration, error) { return envoyrun.CPU(p.cmd.Process.Pid) }

func (p *process) post(body []byte) (*http.Request, error) {
	req, err := http.NewRequest(http.MethodPost, p.url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return req, nil
}

// waitSteered returns once the module steers: a measurement of requests that
// pass unread would be a lie.
func (r *rig) waitSteered(ctx context.Context) error {
	bodies := bench.NewBodies(4000)
	var last string
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		before, err := r.steered.counts()
		if err != nil {
			return err
		}
		if err := r.client.All(ctx, 16, func(int) (*http.Request, error) { return r.steered.post(bodies.Next()) }); err != nil {
			return err
		}
		<-time.After(300 * time.Millisecond) // a tick hands the counters over
		after, err := r.steered.counts()
		if err != nil {
			return err
		}
		looked, fell := after["warmpath_lookups_total"]-before["warmpath_lookups_total"], after["warmpath_fallback_total"]-before["warmpath_fallback_total"]
		if looked >= 16 && fell == 0 {
			return nil
		}
		last = fmt.Sprintf("%.0f of 16 looked up, %.0f fell back", looked, fell)
	}
	return fmt.Errorf("the module does not steer after 30 s (%s)", last)
}

// counts reads the gateway's counters, labels summed up.
func (p *process) counts() (map[string]float64, error) {
	resp, err := http.Get(p.admin + "/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read the gateway's metrics: %w", err)
	}
	sums := map[string]float64{}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			sums[name] += m.GetCounter().GetValue()
		}
	}
	return sums, nil
}
