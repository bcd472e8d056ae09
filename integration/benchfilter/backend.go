package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/warmpath/warmpath/control"
	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/integration/envoyrun"
)

// backend is what stands behind the Envoys: four cheap workers and a control
// service that knows them. The workers read the body and answer a fixed reply
// with usage, or a paced stream; their time is not in any figure.
type backend struct {
	addresses []string
	ports     map[int]int // documented port -> port of this run
	control   *control.Service
	cancel    context.CancelFunc
	done      chan error
	servers   []*http.Server
}

func startBackend(ctx context.Context) (*backend, error) {
	root, err := envoyrun.Root()
	if err != nil {
		return nil, err
	}
	policy, err := os.ReadFile(filepath.Join(root, "examples", "envoy", "policy.yaml"))
	if err != nil {
		return nil, fmt.Errorf("read the shipped policy: %w", err)
	}
	b := &backend{ports: map[int]int{}, done: make(chan error, 1)}
	var specs []discovery.Spec
	for i := range 6 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.stop()
			return nil, err
		}
		server := &http.Server{Handler: http.HandlerFunc(answer), ErrorLog: log.New(io.Discard, "", 0)}
		go server.Serve(listener)
		b.servers = append(b.servers, server)
		address := listener.Addr().String()
		b.addresses = append(b.addresses, address)
		b.ports[9001+i] = listener.Addr().(*net.TCPAddr).Port
		spec := discovery.Spec{
			Address: address, Pool: "default", MaxRunning: 4096, QueueLimit: 65535,
			CapacityTokens: 4 << 20, BlockTokens: 16, PrefillTokensPerSecond: 1_000_000,
		}
		if i >= 4 {
			spec.Pool = "small"
		}
		specs = append(specs, spec)
	}
	b.control, err = control.New(control.Config{
		Listen: "127.0.0.1:0", Token: "change-me", Workers: specs, Policy: policy,
	})
	if err != nil {
		b.stop()
		return nil, fmt.Errorf("start the control service: %w", err)
	}
	host, err := net.ResolveTCPAddr("tcp", b.control.Addr())
	if err != nil {
		b.stop()
		return nil, err
	}
	b.ports[envoyrun.ControlPort] = host.Port
	ctx, b.cancel = context.WithCancel(ctx)
	go func() { b.done <- b.control.Run(ctx) }()
	select {
	case <-b.control.Ready():
		return b, nil
	case <-time.After(20 * time.Second):
		b.stop()
		return nil, fmt.Errorf("the control service is not ready after 20 s")
	}
}

func (b *backend) stop() {
	if b.cancel != nil {
		b.cancel()
		<-b.done
	}
	for _, s := range b.servers {
		s.Close()
	}
}

// envoy starts one Envoy from the shipped example; without a module the filter
// is taken out of it.
func (b *backend) envoy(ctx context.Context, binary, module string, threads int) (*envoyrun.Proxy, error) {
	o := envoyrun.Options{
		Binary: binary, Example: "envoy.yaml", Module: module, Ports: b.ports,
		Concurrency: threads, LogLevel: "warning", StartLimit: 5 * time.Minute,
	}
	if module == "" {
		o.Bootstrap = func(tree envoyrun.Tree) { envoyrun.DropFilter(tree, "warmpath") }
	}
	return envoyrun.Start(ctx, o)
}

const reply = `{"id":"r","object":"chat.completion","model":"default","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":100,"completion_tokens":1,"total_tokens":101,"prompt_tokens_details":{"cached_tokens":64}}}`

// Headers by which a stream is ordered.
const (
	chunksHeader = "x-bench-chunks"
	everyHeader  = "x-bench-every-us"
)

// event is one chunk of a stream, about 200 bytes as engines send them.
var event = []byte(`data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1790000000,"model":"default","choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}]}` + "\n\n")

const lastEvents = `data: {"id":"chatcmpl-0123456789abcdef","choices":[],"usage":{"prompt_tokens":100,"completion_tokens":1000,"prompt_tokens_details":{"cached_tokens":64}}}` + "\n\ndata: [DONE]\n\n"

func answer(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	chunks, _ := strconv.Atoi(r.Header.Get(chunksHeader))
	if chunks == 0 {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, reply)
		return
	}
	every, _ := strconv.Atoi(r.Header.Get(everyHeader))
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	tick := time.NewTicker(time.Duration(every) * time.Microsecond)
	defer tick.Stop()
	for range chunks {
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
		w.Write(event)
		flush.Flush()
	}
	io.WriteString(w, lastEvents)
}

// client sends requests from a few goroutines, each with its own connection.
type client struct {
	http  *http.Client
	crowd int
}

func newClient(crowd int) *client {
	return &client{crowd: crowd, http: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: crowd, DisableCompression: true},
		Timeout:   2 * time.Minute,
	}}
}

// all runs n requests, built by make, and returns the first error.
func (c *client) all(ctx context.Context, n int, build func(i int) (*http.Request, error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var wg sync.WaitGroup
	for range c.crowd {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range next {
				if err := c.one(ctx, i, build); err != nil {
					cancel(err)
				}
			}
		}()
	}
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}

func (c *client) one(ctx context.Context, i int, build func(i int) (*http.Request, error)) error {
	req, err := build(i)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req.WithContext(ctx))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}
