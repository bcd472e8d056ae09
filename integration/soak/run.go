package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmpath/warmpath/hostsim"
	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
)

const (
	vmID    = "warmpath"
	workers = 16
	// loadLimit bounds the load of the base.
	loadLimit = 5 * time.Minute
	// lightPause is between two requests of a VM while the base loads.
	lightPause = 5 * time.Millisecond
)

// rig is a host with its VMs and the stand-in for control.
type rig struct {
	base    *base
	prompts *prompts
	meter   *meter
	host    *hostsim.Host
	fleet   *hostsim.Fleet
	server  *http.Server
}

func (r *rig) close(ctx context.Context) {
	if r.fleet != nil {
		r.fleet.Close()
	}
	if r.host != nil {
		_ = r.host.Close(ctx) // nothing depends on it any more
	}
	_ = r.server.Close()
}

// newRig builds the base and compiles the module; deploy starts the VMs.
func newRig(ctx context.Context, o options, wasm []byte) (*rig, *hostsim.Module, error) {
	rng := rand.New(rand.NewPCG(o.Seed, 0))
	prompts, err := newPrompts(max(min(4096, o.Entries/100), 16), rng)
	if err != nil {
		return nil, nil, err
	}
	base, err := newBase(o.Entries, prompts.entries(workers, rng), workers, o.Changes, rng)
	if err != nil {
		return nil, nil, err
	}
	if err := base.name(o.Vocabularies); err != nil {
		return nil, nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, fmt.Errorf("listen for the courier: %w", err)
	}
	r := &rig{base: base, prompts: prompts, meter: newMeter(), server: &http.Server{Handler: base, ReadHeaderTimeout: time.Minute}}
	go func() { _ = r.server.Serve(listener) }() // ends with close
	calls, err := hostsim.NewHTTPDispatcher(map[string]string{"warmpath-control": "http://" + listener.Addr().String()}, nil)
	if err != nil {
		r.close(ctx)
		return nil, nil, err
	}
	r.host, err = hostsim.NewHost(ctx, hostsim.Options{
		Calls: calls, LogLevel: hostsim.LogWarn, MemoryLimitMiB: 256,
		CacheDir: filepath.Join(os.TempDir(), "warmpath-wazero-cache"),
	})
	if err != nil {
		r.close(ctx)
		return nil, nil, err
	}
	module, err := r.host.Compile(r.meter.context(ctx), "warmpath", wasm)
	if err != nil {
		r.close(ctx)
		return nil, nil, err
	}
	return r, module, nil
}

func (r *rig) deploy(ctx context.Context, o options, module *hostsim.Module) (err error) {
	r.fleet, err = r.host.Deploy(ctx, hostsim.FleetConfig{
		VM: hostsim.VMConfig{Module: module, VMID: vmID}, Workers: o.VMs, NoMain: true,
		Plugins: []hostsim.PluginConfig{{
			Name: "warmpath", Configuration: []byte(`{"gateway":"soak"}`),
			AllowOnHeadersStopIteration: true, BufferLimitBytes: 8 << 20,
		}},
	})
	return err
}

// ready tells whether the whole base is in the proxy's shared data.
func (r *rig) ready() bool {
	value, _, _ := r.host.SharedData(vmID, wire.NewKeys("default").Meta())
	meta, err := table.DecodeMeta(value)
	return err == nil && meta.Ready
}

// loaded tells whether every VM has the vocabularies.
func (r *rig) loaded() bool {
	return r.metric("warmpath.vocabulary_loads.loaded") >= uint64(len(r.fleet.Workers)*len(r.base.vocabularies))
}

// memory is the linear memory of every VM, in bytes.
func (r *rig) memory() (out []uint64) {
	for _, vm := range r.fleet.Workers {
		out = append(out, vm.Stats().MemoryBytes)
	}
	return out
}

func (r *rig) metric(name string) uint64 {
	m, _ := r.host.Metric(name)
	return m.Value
}

func soak(ctx context.Context, o options, wasm []byte, progress io.Writer) (*report, error) {
	fmt.Fprintf(progress, "building a base of %d entries\n", o.Entries)
	r, module, err := newRig(ctx, o, wasm)
	if err != nil {
		return nil, err
	}
	defer r.close(ctx)
	out := &report{Requests: o.Requests, Entries: r.base.entries, VMs: o.VMs, SettledAt: o.Settled, CallbackBudget: o.Callback, GrowthBudget: o.Growth, MemoryBudget: o.Memory}
	for _, v := range r.base.vocabularies {
		out.Vocabularies = append(out.Vocabularies, len(v.file))
	}
	if err := r.deploy(ctx, o, module); err != nil {
		return nil, err
	}
	r.meter.take() // start-up
	players := make([]*player, o.VMs)
	for i := range players {
		players[i] = &player{
			plugin: r.fleet.Plugins[i][0], prompts: r.prompts,
			rng: rand.New(rand.NewPCG(o.Seed, uint64(i+1))), number: uint64(i) << 40,
		}
	}
	if err := r.load(ctx, players, out); err != nil {
		return nil, err
	}
	out.Base = summarize(r.meter.take())
	fmt.Fprintf(progress, "base of %d entries loaded in %v\n", out.Entries, out.LoadTime.Round(time.Millisecond))
	out.sample(0, r.memory(), residentBytes())
	if err := r.play(ctx, o, players, out, progress); err != nil {
		return nil, err
	}
	out.Traffic = summarize(r.meter.take())
	r.finish(players, out)
	out.judge()
	return out, nil
}

// load waits for the base, with light traffic on every VM.
func (r *rig) load(ctx context.Context, players []*player, out *report) error {
	ctx, cancel := context.WithTimeout(ctx, loadLimit)
	defer cancel()
	began := time.Now()
	var wg sync.WaitGroup
	var loaded atomic.Bool
	for _, p := range players {
		wg.Go(func() {
			tick := time.NewTicker(lightPause)
			defer tick.Stop()
			for !loaded.Load() && ctx.Err() == nil {
				p.plugin.VM().Do(func() { p.next(true) })
				<-tick.C
			}
		})
	}
	for !r.ready() && ctx.Err() == nil {
		<-time.After(time.Millisecond)
	}
	out.LoadTime = time.Since(began)
	for !r.loaded() && ctx.Err() == nil {
		<-time.After(time.Millisecond)
	}
	out.VocabularyTime = time.Since(began)
	loaded.Store(true)
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("load the base: %w after %v (%d of %d ranges fetched)", err, loadLimit, r.base.fetched.Load(), len(r.base.ranges))
	}
	for _, p := range players {
		p.plugin.VM().Do(p.drain)
		p.counts = counts{}
	}
	return nil
}

// play sends all requests, in rounds after which memory is looked at.
func (r *rig) play(ctx context.Context, o options, players []*player, out *report, progress io.Writer) error {
	began := time.Now()
	cpu := processCPU()
	for done := 0; done < o.Requests; {
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		round := min(max(o.Settled/2, o.VMs), o.Requests-done)
		var wg sync.WaitGroup
		for i, p := range players {
			share := round / len(players)
			if i == 0 {
				share += round % len(players)
			}
			wg.Go(func() {
				for range share {
					p.plugin.VM().Do(func() { p.next(false) })
				}
			})
		}
		wg.Wait()
		done += round
		memory := r.memory()
		out.sample(done, memory, residentBytes())
		fmt.Fprintf(progress, "%8d requests, %5.0f/s, VM memory %s MiB\n", done, float64(done)/time.Since(began).Seconds(), mebibytes(memory))
	}
	out.PlayTime = time.Since(began)
	out.CPUPerRequest = (processCPU() - cpu) / time.Duration(o.Requests)
	return nil
}

// finish ends what is open and collects the books.
func (r *rig) finish(players []*player, out *report) {
	for _, p := range players {
		p.plugin.VM().Do(p.drain)
		out.Counts.add(p.counts)
	}
	// Metrics reach the host at the next tick, reports by the next batch.
	deadline := time.Now().Add(5 * time.Second)
	for ended := false; !ended && time.Now().Before(deadline); {
		<-time.After(50 * time.Millisecond)
		out.Dispatched = r.metric("warmpath.dispatched")
		out.InFlight = int64(out.Dispatched) - int64(r.metric("warmpath.released"))
		out.Reported = r.base.reported.Load()
		ended = out.InFlight == 0 && out.Reported >= 2*int64(out.Dispatched)
	}
	for _, vm := range r.fleet.Workers {
		out.Traps += vm.Stats().Traps
	}
	out.Panics = r.metric("warmpath.panics")
	for _, tier := range []string{"lt1k", "1k_4k", "4k_16k", "gt16k"} {
		out.Lookups += r.metric("warmpath.lookups." + tier)
		out.Hits += r.metric("warmpath.hits." + tier)
	}
	out.PagesWritten = r.metric("warmpath.pages_written")
	out.ReportsLost = r.metric("warmpath.reports_lost")
	out.Takeovers = r.metric("warmpath.courier_takeovers")
	out.Changes = r.base.changed.Load()
}
