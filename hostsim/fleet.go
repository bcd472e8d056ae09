package hostsim

import (
	"context"
	"fmt"
)

// FleetConfig is one filter config as Envoy deploys it.
type FleetConfig struct {
	VM      VMConfig // Name is set per VM: "main", "worker_0"...
	Plugins []PluginConfig
	Workers int
	// NoCanary skips the throw-away VM which Envoy starts first to try the
	// configuration. NoMain skips the VM of the main thread, which ticks but
	// never gets a stream.
	NoCanary, NoMain bool
}

// Fleet is the VMs of one filter config.
type Fleet struct {
	Main    *VM // nil with NoMain
	Workers []*VM
	// Plugins[w][p] is plugin p in worker w.
	Plugins [][]*Plugin

	host   *Host
	cfg    FleetConfig
	onMain []*Plugin
}

// Deploy starts a canary (with the plugins, so on_configure runs there), throws
// it away, then starts the main VM and the workers in order. On error nothing
// stays behind.
func (h *Host) Deploy(ctx context.Context, cfg FleetConfig) (*Fleet, error) {
	f := &Fleet{host: h, cfg: cfg}
	// Shared data must not die with the canary, nor between it and the workers.
	space := h.shared.acquire(cfg.VM.VMID)
	defer h.shared.release(space)
	if err := f.canary(ctx, cfg.Plugins); err != nil {
		return nil, err
	}
	if !cfg.NoMain {
		vm, plugins, err := h.startVM(ctx, cfg.VM, "main", cfg.Plugins)
		if err != nil {
			return nil, err
		}
		f.Main, f.onMain = vm, plugins
	}
	for i := range cfg.Workers {
		vm, plugins, err := h.startVM(ctx, cfg.VM, "worker_"+itoa(i), cfg.Plugins)
		if err != nil {
			f.Close()
			return nil, err
		}
		f.Workers = append(f.Workers, vm)
		f.Plugins = append(f.Plugins, plugins)
	}
	return f, nil
}

func (f *Fleet) canary(ctx context.Context, plugins []PluginConfig) error {
	if f.cfg.NoCanary {
		return nil
	}
	vm, _, err := f.host.startVM(ctx, f.cfg.VM, "canary", plugins)
	if err != nil {
		return err
	}
	vm.Do(vm.Close)
	return nil
}

// startVM starts a VM with its plugins on its thread, or leaves nothing behind.
func (h *Host) startVM(ctx context.Context, cfg VMConfig, name string, plugins []PluginConfig) (*VM, []*Plugin, error) {
	cfg.Name = name
	vm, err := h.NewVM(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	started := make([]*Plugin, 0, len(plugins))
	vm.Do(func() {
		for _, pc := range plugins {
			p, perr := vm.AddPlugin(pc)
			if perr != nil {
				err = perr
				vm.Close()
				return
			}
			started = append(started, p)
		}
	})
	return vm, started, err
}

// Reconfigure tries the new plugin configurations on a canary, then puts them in
// force in every VM (see Plugin.Reconfigure). The number and order of plugins
// stay. If the canary fails, the old ones stay in force everywhere; if a VM
// fails after that, it keeps its old one and the error names it.
func (f *Fleet) Reconfigure(ctx context.Context, plugins []PluginConfig) error {
	if len(plugins) != len(f.cfg.Plugins) {
		return fmt.Errorf("reconfigure fleet: %d plugins given, %d deployed (deploy a new fleet to change their number)", len(plugins), len(f.cfg.Plugins))
	}
	if err := f.canary(ctx, plugins); err != nil {
		return err
	}
	f.cfg.Plugins = plugins
	var first error
	f.each(func(vm *VM, started []*Plugin) {
		for i, p := range started {
			if err := p.Reconfigure(plugins[i]); err != nil && first == nil {
				first = err
			}
		}
	})
	return first
}

// each runs g on every VM's thread, main first.
func (f *Fleet) each(g func(vm *VM, plugins []*Plugin)) {
	if f.Main != nil {
		f.Main.Do(func() { g(f.Main, f.onMain) })
	}
	for i, vm := range f.Workers {
		vm.Do(func() { g(vm, f.Plugins[i]) })
	}
}

// Drain drains every VM: see VM.Drain. A module swap is Deploy of the new, then
// Drain of the old.
func (f *Fleet) Drain() { f.each(func(vm *VM, _ []*Plugin) { vm.Drain() }) }

// Close closes every VM at once.
func (f *Fleet) Close() { f.each(func(vm *VM, _ []*Plugin) { vm.Close() }) }
