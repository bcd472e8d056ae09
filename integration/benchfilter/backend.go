package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/warmpath/warmpath/control"
	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/integration/bench"
	"github.com/warmpath/warmpath/integration/envoyrun"
)

// backend is what stands behind the Envoys: four cheap workers and a control
// service that knows them. The workers read the body and answer a fixed reply
// with usage, or a paced stream; their time is not in any figure.
type backend struct {
	addresses []string
	ports     map[int]int // documented port -> port of this run
	control   *control.Service
	specs     []discovery.Spec // of the control service
	policy    []byte
	cancel    context.CancelFunc
	done      chan error
	servers   []*http.Server
}

// startBackend starts workers and control by the shipped policy; more is YAML
// that is added to its pool "default", which then has no mode of its own if that
// gives one; end is YAML behind the pools.
func startBackend(ctx context.Context, more, end string) (*backend, error) {
	root, err := envoyrun.Root()
	if err != nil {
		return nil, err
	}
	policy, err := os.ReadFile(filepath.Join(root, "examples", "envoy", "policy.yaml"))
	if err != nil {
		return nil, fmt.Errorf("read the shipped policy: %w", err)
	}
	if more != "" {
		const pool = "- name: default\n"
		if bytes.Count(policy, []byte(pool)) != 1 {
			return nil, fmt.Errorf("the shipped policy has no pool %q to add to", "default")
		}
		at := bytes.Index(policy, []byte(pool))
		own := bytes.Replace(policy[at:], []byte(pool), []byte(pool+more+"\n"), 1)
		if strings.Contains(more, "mode:") {
			own = bytes.Replace(own, []byte("  mode: route"), []byte("  #"), 1)
		}
		policy = append(policy[:at:at], own...)
	}
	policy = append(policy, end...)
	b := &backend{ports: map[int]int{}, done: make(chan error, 1)}
	var specs []discovery.Spec
	for i := range 6 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.stop()
			return nil, err
		}
		server := &http.Server{Handler: http.HandlerFunc(bench.Answer), ErrorLog: log.New(io.Discard, "", 0)}
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
	b.specs, b.policy = specs, policy
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
	return b.envoyWith(ctx, binary, module, threads, func(*envoyrun.Options) {})
}

// envoyWith is envoy with options of the caller's.
func (b *backend) envoyWith(ctx context.Context, binary, module string, threads int, edit func(*envoyrun.Options)) (*envoyrun.Proxy, error) {
	o := envoyrun.Options{
		Binary: binary, Example: "envoy.yaml", Module: module, Ports: maps.Clone(b.ports),
		Concurrency: threads, LogLevel: "warning", StartLimit: 5 * time.Minute,
	}
	if module == "" {
		o.Bootstrap = func(tree envoyrun.Tree) { envoyrun.DropFilter(tree, "warmpath") }
	}
	edit(&o)
	return envoyrun.Start(ctx, o)
}
