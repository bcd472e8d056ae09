package hostsim

import (
	"context"
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
	Main    *VM
	Workers []*VM
	// Plugins[w][p] is plugin p in worker w.
	Plugins [][]*Plugin
}

// Deploy starts a canary (with the plugins, so on_configure runs there), throws
// it away, then starts the main VM and the workers in order. On error nothing
// stays behind.
func (h *Host) Deploy(ctx context.Context, cfg FleetConfig) (*Fleet, error) { return nil, nil }

// Reconfigure tries the new plugin configurations on a canary, then puts them in
// force in every VM (see Plugin.Reconfigure). On error the old ones stay.
func (f *Fleet) Reconfigure(ctx context.Context, plugins []PluginConfig) error { return nil }

// Drain drains every VM: see VM.Drain. A module swap is Deploy of the new, then
// Drain of the old.
func (f *Fleet) Drain() {}

// Close closes every VM at once.
func (f *Fleet) Close() {}
