package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/warmpath/warmpath/gateway"
	"github.com/warmpath/warmpath/replicas"
)

func gatewayCommand() *cobra.Command {
	var (
		cfg                      gateway.Config
		module, tokenEnv         string
		name, deployment, access string
		controls, upstreams      []string
		upstreamTLS, explain     bool
	)
	cmd := &cobra.Command{
		Use:   "gateway",
		Short: "Run the module as a reverse proxy of its own, without Envoy",
		Long: `Runs warmpath.wasm in this process (wazero) as a reverse proxy for HTTP/1.1 and
HTTP/2 (h2c without a certificate). The workers are those of the control
service, or the ones given by --upstream.

On SIGTERM /readyz turns to 503, requests are still taken for --drain-delay, then
no more, and open ones have --drain-timeout to finish. A second signal ends the
process at once.`,
		Example: `  warmpath gateway --control http://127.0.0.1:8780
  warmpath gateway --control http://10.0.0.1:8780,http://10.0.0.2:8780,http://10.0.0.3:8780
  warmpath gateway --control http://127.0.0.1:8780 --upstream 10.0.0.7:8000 --upstream https://10.0.0.8:8443 --access-log -
  warmpath gateway --listen :8443 --tls-cert tls.crt --tls-key tls.key --drain-delay 5s --drain-timeout 10m`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if cfg.Module, err = readModule(module); err != nil {
				return err
			}
			token := os.Getenv(tokenEnv)
			if cfg.Plugin, err = pluginConfig(name, deployment, token, explain); err != nil {
				return err
			}
			cfg.Clusters = map[string][]string{controlCluster: controls}
			if cfg.Endpoints, err = gateway.NewEndpoints("", upstreams...); err != nil {
				return err
			}
			if len(upstreams) == 0 {
				cfg.Endpoints.TLS(upstreamTLS)
				control, err := replicas.New(controls, nil)
				if err != nil {
					return err
				}
				go cfg.Endpoints.Follow(cmd.Context(), control, token, time.Second, slog.Default())
			}
			if cfg.AccessLog, err = openLog(access, cmd.OutOrStdout()); err != nil {
				return err
			}
			cfg.CacheDir = wazeroCacheDir()
			g, err := gateway.New(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if cfg.CertFile != "" {
				defer onHangup(func() {
					if err := g.ReloadCertificate(); err != nil {
						slog.Warn("the certificate in force stays", "err", err)
					}
				})()
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "gateway at %s, metrics at http://%s/metrics\n", g.URL(), g.AdminAddr())
			return g.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Listen, "listen", "127.0.0.1:8080", "address for requests")
	f.StringVar(&cfg.AdminListen, "admin", "127.0.0.1:8081", "address for /metrics, /healthz, /readyz")
	f.StringSliceVar(&controls, "control", []string{defaultControl}, "control service; several URLs, comma-separated, are its replicas")
	f.StringVar(&tokenEnv, "token-env", "WARMPATH_TOKEN", "environment variable with the control service's bearer token")
	f.StringVar(&module, "module", "", "the module (default: warmpath.wasm beside this binary)")
	f.StringVar(&name, "name", hostName(), "this gateway's name in the control service's status")
	f.BoolVar(&explain, "explain", false, "x-warmpath-explain on every response: how the prompt was read, and the decision (it shows workers' addresses)")
	f.StringVar(&deployment, "deployment", "default", "deployment name: gateways of one deployment share a table")
	f.StringArrayVar(&upstreams, "upstream", nil, "worker ip:port or https://ip:port, repeatable (default: the control service's list)")
	f.BoolVar(&upstreamTLS, "upstream-tls", false, "the workers of the control service's list speak TLS")
	f.StringVar(&cfg.UpstreamCAFile, "upstream-ca", "", "PEM file with the CA of the workers' certificates (default: the system's)")
	f.StringVar(&cfg.UpstreamServerName, "upstream-server-name", "", "name that the workers' certificates bear (default: their IP address)")
	f.StringVar(&cfg.CertFile, "tls-cert", "", "PEM file with the certificate chain; it and the key are read again when they change")
	f.StringVar(&cfg.KeyFile, "tls-key", "", "PEM file with the certificate's private key")
	f.IntVar(&cfg.VMs, "vms", 0, "module instances (default: one per CPU)")
	f.StringVar(&access, "access-log", "", "file for one JSON line per request, - for standard output")
	f.DurationVar(&cfg.TokenTimeout, "token-timeout", time.Minute, "longest silence within a response")
	f.DurationVar(&cfg.FirstByteTimeout, "first-byte-timeout", 10*time.Minute, "longest wait for response headers, and then for the first byte")
	f.DurationVar(&cfg.ClientTimeout, "client-timeout", time.Minute, "longest silence of a client that has more to send or to take")
	f.DurationVar(&cfg.BodyTimeout, "body-timeout", 5*time.Minute, "longest arrival of a request body that the module waits for")
	f.IntVar(&cfg.BodyLimitBytes, "body-limit", 8<<20, "largest request body that the module may hold, in bytes")
	f.IntVar(&cfg.HeldLimitBytes, "held-limit", 256<<20, "held request bodies of all clients together, in bytes; buffers take up to three times that")
	f.DurationVar(&cfg.DrainDelay, "drain-delay", 0, "how long to take requests after SIGTERM while /readyz says 503")
	f.DurationVar(&cfg.DrainTimeout, "drain-timeout", 30*time.Second, "how long open requests may take after that")
	f.DurationVar(&cfg.RequestTimeout, "request-timeout", 0, "longest exchange in all (0: no limit)")
	return cmd
}

// onHangup runs f at each SIGHUP until stop.
func onHangup(f func()) (stop func()) {
	hangups, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		for {
			select {
			case <-hangups:
				f()
			case <-done:
				return
			}
		}
	}()
	return func() { signal.Stop(hangups); close(done) }
}

// controlCluster is the name under which the module calls the control service.
const controlCluster = "warmpath-control"

// pluginConfig is the module's configuration for the embedded gateway.
func pluginConfig(name, deployment, token string, explain bool) ([]byte, error) {
	control := map[string]any{"cluster": controlCluster}
	if token != "" {
		control["token"] = token
	}
	doc, err := json.Marshal(map[string]any{"deployment": deployment, "gateway": name, "control": control, "explain": explain})
	if err != nil {
		return nil, fmt.Errorf("encode the module's configuration: %w", err)
	}
	return doc, nil
}

// readModule reads the module from path, or from beside this binary.
func readModule(path string) ([]byte, error) {
	if path == "" {
		exe, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find warmpath.wasm: %w (give --module)", err)
		}
		path = filepath.Join(filepath.Dir(exe), "warmpath.wasm")
	}
	module, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the module: %w (make wasm builds it; --module names another place)", err)
	}
	return module, nil
}

// wazeroCacheDir keeps the compiled module between runs, "" where no cache
// directory is to be had: then compiling costs a few seconds at each start.
func wazeroCacheDir() string {
	base, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	dir := filepath.Join(base, "warmpath", "wazero")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return ""
	}
	return dir
}

func hostName() string {
	if name, err := os.Hostname(); err == nil {
		return name
	}
	return "gateway"
}

func openLog(path string, stdout io.Writer) (io.Writer, error) {
	switch path {
	case "":
		return nil, nil
	case "-":
		return stdout, nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open access log: %w", err)
	}
	return f, nil
}
