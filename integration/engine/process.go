package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/warmpath/warmpath/integration/engines"
)

const (
	// BlockTokens is the size of the engine's blocks; on a CPU a multiple of 32.
	BlockTokens = 32
	// MaxModelTokens is the longest prompt and answer together.
	MaxModelTokens = 4096
	// MaxRunning is how many requests the engine runs at a time.
	MaxRunning = 8

	// healthLimit is how long each rank of an engine may take to start; a minute on
	// an idle machine with two cores.
	healthLimit = 20 * time.Minute
	// priority is the niceness of engines: tests and proxies go first.
	priority = 10
)

// Options says what to run.
type Options struct {
	Home   *Home
	Model  *Model
	Name   string // of its log
	Blocks int    // of the prefix cache
	// Ranks behind its one port, each with a cache of so many blocks; 0 is one.
	Ranks int
	// ReplayBatches is how many batches of events a replay can go back.
	ReplayBatches int
}

// Process is one running engine.
type Process struct {
	Options
	Address        string // 127.0.0.1:port, kept over a restart
	Events, Replay string // tcp:// endpoints, of the first rank

	cmd    *exec.Cmd
	exited chan struct{}
	log    string
	mu     sync.Mutex
}

// New chooses free ports for an engine. The caller calls Run, and Kill at the end.
func New(o Options) (*Process, error) {
	p := &Process{Options: o}
	var addresses [3]string
	for i := range addresses {
		address, done, err := freePorts(max(1, o.Ranks))
		if err != nil {
			return nil, fmt.Errorf("find a port for the engine: %w", err)
		}
		defer done()
		addresses[i] = address
	}
	p.Address, p.Events, p.Replay = addresses[0], "tcp://"+addresses[1], "tcp://"+addresses[2]
	log, err := os.CreateTemp("", "engine-"+o.Name+"-*.log")
	if err != nil {
		return nil, err
	}
	p.log = log.Name()
	log.Close()
	return p, nil
}

// freePorts takes n ports in a row, until done, and returns the address of the
// first.
func freePorts(n int) (address string, done func(), err error) {
	var taken []net.Listener
	done = func() {
		for _, l := range taken {
			l.Close()
		}
		taken = nil
	}
	for range 20 {
		first, err := engines.Listen()
		if err != nil {
			return "", nil, err
		}
		taken = append(taken, first)
		port := first.Addr().(*net.TCPAddr).Port
		for len(taken) < n {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+len(taken)))
			if err != nil {
				break
			}
			taken = append(taken, l)
		}
		if len(taken) == n {
			return first.Addr().String(), done, nil
		}
		done()
	}
	return "", nil, fmt.Errorf("no %d free ports in a row", n)
}

// Run starts the process, for the first time or again, and waits until it is
// healthy.
func (p *Process) Run(ctx context.Context) error {
	log, err := os.OpenFile(p.log, os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.Home.Python, p.arguments()...)
	cmd.Env = append(os.Environ(),
		"HF_HUB_OFFLINE=1", "TRANSFORMERS_OFFLINE=1", "VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1",
		"VLLM_CPU_KVCACHE_SPACE=1", "VLLM_CPU_OMP_THREADS_BIND=nobind", "OMP_NUM_THREADS=1",
		"VLLM_SERVER_DEV_MODE=1",                // /reset_prefix_cache
		"VLLM_ALLOW_RUNTIME_LORA_UPDATING=True", // /v1/load_lora_adapter
		"VLLM_HOST_IP=127.0.0.1",
	)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = processGroup()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the engine: %w", err)
	}
	_ = syscall.Setpriority(syscall.PRIO_PGRP, cmd.Process.Pid, priority)
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait()
	}()
	p.mu.Lock()
	p.cmd, p.exited = cmd, exited
	p.mu.Unlock()
	if err := p.waitHealthy(ctx); err != nil {
		p.Kill()
		return fmt.Errorf("engine %s is not healthy: %w; its log %s ends with: %s", p.Name, err, p.log, p.logTail())
	}
	return nil
}

// arguments are the engine's command line. The vllm command itself asks for
// another package's metadata and fails.
func (p *Process) arguments() []string {
	port := func(endpoint string) string { return endpoint[strings.LastIndexByte(endpoint, ':')+1:] }
	// Bound to every interface, as it is shipped: who discovers it must put the
	// engine's address in.
	events, _ := json.Marshal(map[string]any{
		"enable_kv_cache_events": true, "publisher": "zmq", "topic": "kv@" + p.Address,
		"endpoint": "tcp://*:" + port(p.Events), "replay_endpoint": "tcp://*:" + port(p.Replay), "buffer_steps": p.ReplayBatches,
	})
	arguments := []string{
		"-m", "vllm.entrypoints.openai.api_server",
		"--model", p.Model.Dir, "--served-model-name", ModelName, AliasName, "--host", "127.0.0.1", "--port", port(p.Address),
		"--dtype", "float32", "--enforce-eager",
		"--max-model-len", strconv.Itoa(MaxModelTokens), "--max-num-seqs", strconv.Itoa(MaxRunning), "--max-num-batched-tokens", strconv.Itoa(MaxModelTokens),
		"--block-size", strconv.Itoa(BlockTokens), "--num-gpu-blocks-override", strconv.Itoa(p.Blocks),
		"--enable-prefix-caching", "--enable-prompt-tokens-details",
		"--enable-lora", "--max-loras", "1", "--max-lora-rank", strconv.Itoa(adapterRank), "--lora-modules", AdapterName + "=" + p.Model.Adapter,
		"--kv-events-config", string(events),
	}
	if p.Ranks > 1 {
		arguments = append(arguments, "--data-parallel-size", strconv.Itoa(p.Ranks))
	}
	return arguments
}

func (p *Process) waitHealthy(ctx context.Context) error {
	limit := healthLimit * time.Duration(max(1, p.Ranks))
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := p.Get(ctx, "/health"); err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return errors.New("it has ended")
		case <-ctx.Done():
			return fmt.Errorf("no /health within %v", limit)
		case <-tick.C:
		}
	}
}

// URL is the engine's base URL.
func (p *Process) URL() string { return "http://" + p.Address }

// Get reads a page of the engine.
func (p *Process) Get(ctx context.Context, path string) ([]byte, error) {
	return p.call(ctx, http.MethodGet, path, nil)
}

// Post sends JSON and returns the answer's body; another status than 200 is an
// error.
func (p *Process) Post(ctx context.Context, path string, body any) ([]byte, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return p.call(ctx, http.MethodPost, path, strings.NewReader(string(text)))
}

var client = &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}

func (p *Process) call(ctx context.Context, method, path string, body io.Reader) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, p.URL()+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s answers %d: %.300s", method, path, resp.StatusCode, answer)
	}
	return answer, err
}

// Signal sends a signal to the engine's main process, or to all of its group.
func (p *Process) Signal(signal syscall.Signal, group bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	pid := p.cmd.Process.Pid
	if group {
		pid = -pid
	}
	return syscall.Kill(pid, signal)
}

// Kill ends every process of the engine at once and waits for it.
func (p *Process) Kill() {
	p.mu.Lock()
	cmd, exited := p.cmd, p.exited
	p.cmd = nil // its number may become another's
	p.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	<-exited
	// Children are the kernel's to reap; until their sockets are closed the ports
	// aren't free.
	for _, endpoint := range []string{p.Address, p.Events[len("tcp://"):], p.Replay[len("tcp://"):]} {
		waitClosed(endpoint)
	}
}

func waitClosed(address string) {
	deadline := time.After(10 * time.Second)
	for {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			return
		}
		conn.Close()
		select {
		case <-deadline:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// RemoveLog removes the log; one of a failed run is worth keeping.
func (p *Process) RemoveLog() { _ = os.Remove(p.log) }

// Log is the path of the log.
func (p *Process) Log() string { return p.log }

// logTail is the last lines that tell of an error.
func (p *Process) logTail() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	var lines []string
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, "Error") || strings.Contains(line, "ERROR") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	if len(lines) == 0 {
		lines = strings.Split(strings.TrimSpace(string(data)), "\n")
	}
	return strings.Join(lines[max(0, len(lines)-3):], " / ")
}
