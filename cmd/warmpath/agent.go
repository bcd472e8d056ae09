package main

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/warmpath/warmpath/agent"
)

func agentCommand() *cobra.Command {
	var cfg agent.Config
	var front guardFlags
	var listen, tokenFile, tokenEnv, engineTokenEnv string
	cmd := &cobra.Command{
		Use:   "agent --engine URL --control URL",
		Short: "Stand beside an engine and tell the control service how it is",
		Long: `Reads the engine's metrics (vLLM, SGLang) and sends a heartbeat to the control
service about once a second: load, sizes and start of the engine, and a notice
when much of its cache goes at once or is about to.

The control service scrapes engines itself. An agent is for those that it can't
reach or that guard their metrics, and for what a scrape can't tell: the engine's
limits, an eviction ahead of time, and that the pod is about to end. KV events
stay the control service's business, with or without an agent.

SIGTERM: the heartbeats ask for a drain, no new requests are sent there, and the
agent ends when the engine has none left or --drain is over. Let the engine live
as long: give the pod a terminationGracePeriodSeconds above --drain.

The engine has to be in the worker list. The heartbeats name it by --worker; by
default by the address in --engine, or if that is loopback, by this machine's
address on the way to the control service.

GET /healthz says what the engine and the control service answered last. It is
200 for as long as the agent runs: neither being away is a reason to restart it.
` + guardHelp,
		Example: `  warmpath agent --engine http://127.0.0.1:8000 --control http://warmpath-control:8780 --token-file /etc/warmpath/token
  warmpath agent --engine http://127.0.0.1:8000 --control http://10.0.0.1:8780 --worker "$POD_IP:8000" --max-running 64
  warmpath agent --guard --engine http://127.0.0.1:8000 --guard-listen :8001 --max-running 64`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg.Token = tokenSource(tokenFile, tokenEnv)
			cfg.EngineToken = os.Getenv(engineTokenEnv)
			cfg.Logger = slog.Default()
			if err := front.open(&cfg); err != nil {
				return err
			}
			a, err := agent.New(cfg)
			if err != nil {
				return err
			}
			health := "nowhere"
			var ln net.Listener
			if listen != "" {
				if ln, err = net.Listen("tcp", listen); err != nil {
					return fmt.Errorf("listen on %s: %w (choose a free address with --listen, or none with --listen '')", listen, err)
				}
				health = "http://" + ln.Addr().String() + "/healthz"
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s %s, health at %s\n", front.role(), a.Worker(), health)
			return a.Run(cmd.Context(), ln)
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Engine, "engine", "http://127.0.0.1:8000", "the engine")
	f.StringSliceVar(&cfg.Control, "control", []string{defaultControl}, "control service; several URLs, comma-separated, are its replicas")
	f.StringVar(&cfg.Worker, "worker", "", "ip:port of the engine in the worker list (default: see above)")
	f.StringVar(&tokenFile, "token-file", "", "file with the control service's bearer token, read again for each heartbeat")
	f.StringVar(&tokenEnv, "token-env", "WARMPATH_TOKEN", "environment variable with it, for want of a file")
	f.StringVar(&engineTokenEnv, "engine-token-env", "WARMPATH_ENGINE_TOKEN", "environment variable with the engine's bearer token")
	f.StringVar(&cfg.MetricsPath, "metrics-path", "/metrics", "path of the engine's metrics")
	f.StringVar(&listen, "listen", "127.0.0.1:8790", "address of /healthz, with --guard also of /readyz and /metrics (:8790 for a kubelet); empty for none")
	f.DurationVar(&cfg.Interval, "interval", time.Second, "between two heartbeats, less up to a tenth of jitter")
	f.IntVar(&cfg.MaxRunning, "max-running", 0, "the engine's batch limit (vLLM --max-num-seqs); 0 as the worker list says")
	f.IntVar(&cfg.QueueLimit, "queue-limit", 0, "how many requests the engine lets wait; 0 as the worker list says")
	f.Float64Var(&cfg.Eviction.Share, "eviction-share", 0.2, "share of the cache removed within a second that is a mass eviction")
	f.Float64Var(&cfg.Eviction.Watermark, "eviction-watermark", 0.95, "share of the cache held by running requests that leaves room for nothing else")
	f.DurationVar(&cfg.Eviction.Ahead, "eviction-ahead", 5*time.Second, "how far ahead of that watermark notice is given")
	f.StringVar(&cfg.Events.Events, "kv-events", "", "the engine's KV events (tcp://127.0.0.1:5557), to count removals where its metrics don't (vLLM)")
	f.StringVar(&cfg.Events.Replay, "kv-replay", "", "their replay (tcp://127.0.0.1:5558): without it, what was stored before isn't counted when it goes")
	f.DurationVar(&cfg.DrainFor, "drain", 30*time.Second, "longest wait for the engine's requests after SIGTERM")
	front.register(f)
	return cmd
}

// tokenSource reads a bearer token each time it is asked.
func tokenSource(file, env string) func() (string, error) {
	if file == "" {
		return func() (string, error) { return os.Getenv(env), nil }
	}
	return func() (string, error) {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("read the token: %w (--token-file names it)", err)
		}
		return strings.TrimSpace(string(text)), nil
	}
}
