package hosttest

import (
	"time"

	"github.com/warmpath/warmpath/hostsim"
)

// Option changes how a module is loaded.
type Option func(*settings)

type settings struct {
	vm             hostsim.VMConfig
	plugin         hostsim.PluginConfig
	workers        int // 0: one VM and nothing else
	clusters       map[string]func(*Call)
	upstream       func(Request) Response
	faults         []string
	symbols        string
	trace          func(hostsim.Event)
	traceAll       bool
	logLevel       hostsim.LogLevel
	memoryLimitMiB uint32
	node           hostsim.Node
}

func defaults() settings {
	return settings{
		vm:             hostsim.VMConfig{Name: "worker_0", FailurePolicy: hostsim.FailReload, ReloadBackoff: time.Second},
		plugin:         hostsim.PluginConfig{Name: "filter"},
		clusters:       map[string]func(*Call){},
		upstream:       func(Request) Response { return Response{Body: "ok"} },
		logLevel:       hostsim.LogInfo,
		memoryLimitMiB: 256,
		node:           hostsim.Node{ID: "hosttest", Cluster: "hosttest"},
	}
}

// Config is the plugin's configuration, what proxy_on_configure reads.
func Config(text string) Option {
	return func(s *settings) { s.plugin.Configuration = []byte(text) }
}

// VMConfig is the VM's configuration, what proxy_on_vm_start reads.
func VMConfig(text string) Option {
	return func(s *settings) { s.vm.Configuration = []byte(text) }
}

// AllowStopIteration sets Envoy's allow_on_headers_stop_iteration (since 1.35):
// a filter that stops at headers is then shown the body. Without it, as in Envoy,
// it sees no body until it is resumed.
func AllowStopIteration() Option {
	return func(s *settings) { s.plugin.AllowOnHeadersStopIteration = true }
}

// Cluster makes a cluster known to http_call. With a nil handler the test answers
// by hand: see [Filter.Call]. Calls to an unknown cluster fail inline.
func Cluster(name string, handler func(*Call)) Option {
	return func(s *settings) { s.clusters[name] = handler }
}

// Upstream answers what the filter lets through. Without it every request is
// answered 200 and "ok".
func Upstream(answer func(Request) Response) Option {
	return func(s *settings) { s.upstream = answer }
}

// Workers runs the filter as Envoy does: in a throw-away VM that tries the
// configuration, in the main thread's VM, and in n workers.
func Workers(n int) Option { return func(s *settings) { s.workers = n } }

// Faults are in force from the start: see [Filter.Fault].
func Faults(faults ...string) Option {
	return func(s *settings) { s.faults = append(s.faults, faults...) }
}

// FailurePolicy is what becomes of requests after a trap; the default is
// hostsim.FailReload with a back-off of one second.
func FailurePolicy(p hostsim.FailurePolicy, backoff time.Duration) Option {
	return func(s *settings) { s.vm.FailurePolicy, s.vm.ReloadBackoff = p, backoff }
}

// BufferLimit is how many bytes of a body may wait in the filter (1 MiB): above
// it Envoy answers 413.
func BufferLimit(bytes int) Option {
	return func(s *settings) { s.plugin.BufferLimitBytes = bytes }
}

// Env sets an environment variable of the module.
func Env(key, value string) Option {
	return func(s *settings) {
		if s.vm.Env == nil {
			s.vm.Env = map[string]string{}
		}
		s.vm.Env[key] = value
	}
}

// Names sets plugin_name, plugin_root_id and plugin_vm_id.
func Names(plugin, rootID, vmID string) Option {
	return func(s *settings) { s.plugin.Name, s.plugin.RootID, s.vm.VMID = plugin, rootID, vmID }
}

// LogLevel is the lowest level that is logged, info if not set.
func LogLevel(l hostsim.LogLevel) Option { return func(s *settings) { s.logLevel = l } }

// MemoryLimit bounds the linear memory of each VM; 256 MiB if not set.
func MemoryLimit(mib uint32) Option { return func(s *settings) { s.memoryLimitMiB = mib } }

// Symbols names the functions in stack traces after an unstripped build of the
// module (a file). Go modules do not need it.
func Symbols(path string) Option { return func(s *settings) { s.symbols = path } }

// TraceAll puts into transcripts also what the host allocates in the module and
// what the module asks of WASI (clocks, random numbers, standard output). Such
// transcripts change with every compiler: not for files.
func TraceAll() Option { return func(s *settings) { s.traceAll = true } }

// Trace is told every call between host and module as it happens.
func Trace(hear func(hostsim.Event)) Option { return func(s *settings) { s.trace = hear } }
