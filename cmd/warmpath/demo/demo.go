// Package demo plays one workload against the whole path, once per policy:
// simulated workers, control service, embedded gateways with the real module,
// and an open-loop client over HTTP. Run returns what was measured; Print draws
// it.
package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/warmpath/warmpath/control"
	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/gateway"
	"github.com/warmpath/warmpath/hostsim"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
	"github.com/warmpath/warmpath/sim/engine"
	"github.com/warmpath/warmpath/sim/live"
	"github.com/warmpath/warmpath/sim/loadgen"
	"github.com/warmpath/warmpath/sim/pace"
	"github.com/warmpath/warmpath/sim/workload"
)

// Policies of the demo: the name shown, and the module's rule behind it.
//
// warmpath is threshold here, not the default rule: engines' time is up to 25 times as fast as the clock,
// so what is known of a worker is as much older, and cost minds that more. At four times (--workload with
// time_scale 4) cost had a mean TTFT of 97 ms and threshold 111; at 25 on a quiet machine 130 and 146, on a
// busy one 170 to 262 and 182.
var Policies = []Policy{
	{"round_robin", policy.RoundRobin},
	{"session_hash", policy.SessionHash},
	{"warmpath", policy.Threshold},
	{"cost", policy.Cost},
	{"weighted", policy.Weighted},
	{"chwbl", policy.CHWBL},
	{"least_load", policy.LeastLoad},
	{"random", policy.Random},
}

// Policy is one run.
type Policy struct {
	Name string
	Rule policy.Name
}

// settings is the rule with its defaults, as the policy of a pool names them. Those of cost that are times
// are engines' times, and the module goes by the clock: scale engine seconds pass in each of its own.
func (p Policy) settings(scale float64) map[string]any {
	settings := map[string]any{"name": p.Rule.String()}
	if p.Rule == policy.Cost {
		defaults := policy.Default(p.Rule)
		for name, engine := range map[string]time.Duration{
			"spread_weight_ms": defaults.SpreadWeight, "tail_decay_ms": defaults.TailDecay,
			"ramp_ms": defaults.Ramp, "ramp_first_ms": defaults.RampFirst,
		} {
			settings[name] = max(1, math.Round(float64(engine.Milliseconds())/scale))
		}
		settings["decode_step_us"] = math.Round(float64(defaults.DecodeStep.Microseconds()) / scale)
	}
	return settings
}

// Options of one demo.
type Options struct {
	Workload *workload.Workload
	Module   []byte // warmpath.wasm
	CacheDir string // of compiled modules
	Gateways int
	VMs      int     // module instances per gateway
	Capacity float64 // times the workload's capacity per worker
	Policies []Policy
	// Tokenizer makes workers and module use a model's own tokens; nil: the
	// workers' toy tokens, and the module compares text.
	Tokenizer *Tokenizer
	// Progress is called a few times a second; it must be quick.
	Progress func(policy string, p loadgen.Progress)
	Logger   *slog.Logger
	Version  string // of the program, for the control service's status
}

// Tokenizer is a model's vocabulary and chat template: for the policy by file
// and names, for the workers as they are.
type Tokenizer struct {
	File, Template, Engine string
	Live                   *live.Tokenizer
}

// Run plays the workload under each policy, one after the other, each on fresh
// workers, a fresh control service and fresh gateways.
func Run(ctx context.Context, opts Options) (*Report, error) {
	spec := opts.Workload.Spec
	report := &Report{
		Requests: spec.Requests, Workers: spec.Fleet.Workers, Gateways: opts.Gateways,
		Seed: spec.Seed, TimeScale: spec.Fleet.TimeScale, Capacity: opts.Capacity,
		Policies: map[string]*Outcome{},
	}
	for _, policy := range opts.Policies {
		runtime.GC() // what one run leaves behind is not the next one's work
		outcome, err := runPolicy(ctx, opts, policy)
		if err != nil {
			return report, fmt.Errorf("run %s: %w", policy.Name, err)
		}
		report.Order = append(report.Order, policy.Name)
		report.Policies[policy.Name] = outcome
	}
	return report, nil
}

func runPolicy(ctx context.Context, opts Options, policy Policy) (*Outcome, error) {
	spec := opts.Workload.Spec
	params := spec.Fleet.EngineParams(opts.Capacity)
	clock := pace.NewClock(spec.Fleet.TimeScale)
	config := live.Config{Engine: params, Clock: clock, TimeScale: spec.Fleet.TimeScale, EventTokens: -1, Models: []string{spec.Model}}
	prefixBlocks := live.PrefixBlocks
	if opts.Tokenizer != nil {
		config.Tokenizer, prefixBlocks = opts.Tokenizer.Live, opts.Tokenizer.Live.PrefixBlocks
	}
	fleet, err := live.StartFleet(spec.Fleet.Workers, config)
	if err != nil {
		return nil, err
	}
	defer func() { _ = fleet.Close() }()

	ctx, stop := context.WithCancel(ctx)
	var services errgroup.Group
	defer func() { _ = services.Wait() }()
	defer stop()

	service, err := startControl(ctx, &services, opts, params, fleet.Addresses(), policy)
	if err != nil {
		return nil, err
	}
	gateways, err := startGateways(ctx, &services, opts, fleet.Addresses(), service)
	if err != nil {
		return nil, err
	}
	targets := make([]string, len(gateways))
	for i, g := range gateways {
		targets[i] = g.URL()
	}
	services.Go(func() error { clock.Govern(ctx); return nil })
	var curve []float64
	result, err := loadgen.Run(ctx, loadgen.Config{
		Targets: targets, Workload: opts.Workload, Clock: clock,
		Progress: func(p loadgen.Progress) {
			curve = append(curve, 100*p.HitRate)
			if opts.Progress != nil {
				opts.Progress(policy.Name, p)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	outcome := outcomeOf(result, fleet, opts.Workload, prefixBlocks, gateways)
	outcome.curve = curve
	return outcome, nil
}

func startControl(ctx context.Context, services *errgroup.Group, opts Options, params engine.Params, addresses []string, policy Policy) (*control.Service, error) {
	specs := make([]discovery.Spec, len(addresses))
	for i, a := range addresses {
		specs[i] = discovery.Spec{
			Address: a, Pool: "default", MaxRunning: params.MaxRunning, QueueLimit: params.MaxQueued,
			CapacityTokens: params.CapacityTokens(), BlockTokens: engine.BlockTokens,
		}
	}
	pool := map[string]any{"name": "default", "index": 0, "models": []string{"*"}, "mode": "route", "policy": policy.settings(opts.Workload.Spec.Fleet.TimeScale)}
	if t := opts.Tokenizer; t != nil {
		pool["tokenizer"] = map[string]any{"file": t.File, "template": t.Template, "engine": t.Engine}
	}
	doc, err := json.Marshal(map[string]any{"pools": []any{pool}})
	if err != nil {
		return nil, err
	}
	service, err := control.New(control.Config{
		Listen: "127.0.0.1:0", Workers: specs, Policy: doc, Logger: opts.Logger, Version: opts.Version,
		CoalesceInterval: 10 * time.Millisecond, // the engines' time runs faster than the clock
	})
	if err != nil {
		return nil, err
	}
	services.Go(func() error { return service.Run(ctx) })
	select {
	case <-service.Ready():
		return service, nil
	case <-time.After(20 * time.Second):
		return nil, errors.New("the control service did not become ready within 20 s; is the machine overloaded?")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func startGateways(ctx context.Context, services *errgroup.Group, opts Options, addresses []string, service *control.Service) ([]*gateway.Gateway, error) {
	var gateways []*gateway.Gateway
	for i := range opts.Gateways {
		endpoints, err := gateway.NewEndpoints("default", addresses...)
		if err != nil {
			return nil, err
		}
		// Intervals a tenth of production's, as the engines run that much faster.
		plugin, err := json.Marshal(map[string]any{
			"gateway": fmt.Sprintf("gw-%d", i+1), "tick_ms": 20,
			"control": map[string]any{"cluster": "warmpath-control", "batch_interval_ms": 25},
		})
		if err != nil {
			return nil, err
		}
		g, err := gateway.New(ctx, gateway.Config{
			Listen: "127.0.0.1:0", Module: opts.Module, Plugin: plugin, Endpoints: endpoints,
			Clusters: map[string][]string{"warmpath-control": {service.URL()}},
			VMs:      opts.VMs, CacheDir: opts.CacheDir, Logger: opts.Logger, DrainTimeout: 2 * time.Second,
		})
		if err != nil {
			return nil, err
		}
		services.Go(func() error { return g.Run(ctx) })
		gateways = append(gateways, g)
	}
	ready, what, patience := tableReady, "got no table from the control service", 20*time.Second
	if opts.Tokenizer != nil {
		ready, what, patience = exactReady, "did not turn exact", time.Minute
	}
	deadline := time.Now().Add(patience)
	for _, g := range gateways {
		for !ready(g.Host()) {
			if time.Now().After(deadline) {
				return nil, fmt.Errorf("a gateway %s within %v; run with --verbose to see its log", what, patience)
			}
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	return gateways, nil
}

// tableReady looks for the courier's word that the table is complete.
func tableReady(h *hostsim.Host) bool {
	value, _, ok := h.SharedData("warmpath", wire.NewKeys("default").Meta())
	if !ok {
		return false
	}
	meta, err := table.DecodeMeta(value)
	return err == nil && meta.Ready
}

// exactReady looks for the courier's word that prompts are keyed by tokens:
// control says so once every VM has the vocabulary.
func exactReady(h *hostsim.Host) bool {
	value, _, _ := h.SharedData("warmpath", wire.NewKeys("default").Exact())
	return tableReady(h) && bytes.Contains(value, []byte(`"active":true`))
}

// PolicyNames lists what --policies takes.
func PolicyNames() string {
	names := make([]string, len(Policies))
	for i, p := range Policies {
		names[i] = p.Name
	}
	return strings.Join(names, ", ")
}
