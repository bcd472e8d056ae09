package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/warmpath/warmpath/control"
	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/gateway"
	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/sim/engine"
	"github.com/warmpath/warmpath/sim/live"
)

// rig is a whole system.
type rig struct {
	fleet    *live.Fleet
	gateways []*gateway.Gateway
	seen     map[uint64]bool // dispatches of long prompts, by id
	looks    *looks
	services errgroup.Group
	cancel   context.CancelFunc
}

// looks is control's way to the engines. It notes when it has looked at the one that gets something
// to do.
type looks struct {
	at string

	mu    sync.Mutex
	taken [][2]time.Time // asked, answered
}

// RoundTrip makes a request as http.DefaultTransport does.
func (l *looks) RoundTrip(req *http.Request) (*http.Response, error) {
	asked := time.Now()
	res, err := http.DefaultTransport.RoundTrip(req)
	if err == nil && req.URL.Host == l.at && req.URL.Path == "/metrics" {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.taken = append(l.taken, [2]time.Time{asked, time.Now()})
	}
	return res, err
}

// before returns the ms from the first look that can have found what began to its arrival.
func (l *looks) before(arrived, began time.Time) (ms float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.taken) - 1; i >= 0; i-- {
		look := l.taken[i]
		if look[1].After(arrived) {
			continue
		}
		if ms != 0 && look[0].Before(began.Add(acceptance)) {
			break
		}
		ms = float64(arrived.Sub(look[1])) / float64(time.Millisecond)
	}
	return ms
}

// acceptance is what an engine takes at most to show a request.
const acceptance = 20 * time.Millisecond

func startRig(ctx context.Context, module string) (r *rig, err error) {
	code, err := os.ReadFile(module)
	if err != nil {
		return nil, fmt.Errorf("read the module (make wasm builds it): %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	r = &rig{cancel: cancel, seen: map[uint64]bool{}, looks: &looks{}}
	defer func() {
		if err != nil {
			r.stop()
		}
	}()
	params := engine.DefaultParams()
	if r.fleet, err = live.StartFleet(2, live.Config{Engine: params}); err != nil {
		return nil, err
	}
	var workers []discovery.Spec
	for _, address := range r.fleet.Addresses() {
		workers = append(workers, discovery.Spec{
			Address: address, Pool: "default", MaxRunning: params.MaxRunning, QueueLimit: params.MaxQueued,
			CapacityTokens: params.CapacityTokens(), BlockTokens: engine.BlockTokens,
		})
	}
	r.looks.at = r.fleet.Addresses()[0]
	service, err := control.New(control.Config{
		Transport: r.looks,
		Listen:    "127.0.0.1:0", Workers: workers, Logger: slog.New(slog.DiscardHandler),
		Policy: []byte(`{"pools":[{"name":"default","models":["*"],"mode":"route","policy":{"name":"cost"}}]}`),
	})
	if err != nil {
		return nil, fmt.Errorf("start the control service: %w", err)
	}
	r.services.Go(func() error { return service.Run(ctx) })
	select {
	case <-service.Ready():
	case <-time.After(patience):
		return nil, errors.New("the control service did not become ready")
	}
	for i := range 2 {
		g, err := r.startGateway(ctx, i, code, service.URL())
		if err != nil {
			return nil, err
		}
		r.gateways = append(r.gateways, g)
	}
	for _, g := range r.gateways {
		if _, err := until(ctx, "the first table of a gateway", time.Now(), func() bool {
			value, _, _ := g.Host().SharedData(vmID, keys.Meta())
			meta, err := table.DecodeMeta(value)
			return err == nil && meta.Ready
		}); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *rig) startGateway(ctx context.Context, i int, module []byte, control string) (*gateway.Gateway, error) {
	endpoints, err := gateway.NewEndpoints("default", r.fleet.Addresses()...)
	if err != nil {
		return nil, err
	}
	plugin, err := json.Marshal(map[string]any{"gateway": fmt.Sprintf("gw-%d", i+1), "control": map[string]string{"cluster": "control"}})
	if err != nil {
		return nil, err
	}
	g, err := gateway.New(ctx, gateway.Config{
		Listen: "127.0.0.1:0", Module: module, Plugin: plugin, Endpoints: endpoints, Clusters: map[string][]string{"control": {control}},
		VMs: 1, DrainTimeout: time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, fmt.Errorf("start gateway %d: %w", i+1, err)
	}
	r.services.Go(func() error { return g.Run(ctx) })
	return g, nil
}

func (r *rig) stop() {
	r.cancel()
	_ = r.services.Wait() // they were told to
	if r.fleet != nil {
		_ = r.fleet.Close()
	}
}
