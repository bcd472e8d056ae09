package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/warmpath/warmpath/control"
	"github.com/warmpath/warmpath/control/cluster"
	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/control/discovery/dns"
	"github.com/warmpath/warmpath/control/discovery/kubernetes"
)

func controlCommand() *cobra.Command {
	var file, listen, workers, policy, state, tokenEnv string
	var nats []string
	var learn time.Duration
	cmd := &cobra.Command{
		Use:   "control",
		Short: "Run the control service: worker list, health, cache-location table",
		Long: `Runs the service that the modules of every proxy talk to. It watches the worker
list, checks and scrapes the workers, learns from the gateways' reports which
worker holds which prefix, and pushes that table to them. Workers are also found
by DNS names and in Kubernetes (section discovery of the configuration file).

The API listens on loopback without a token; anywhere else it asks for one, taken
from the environment variable that --token-env names. GET /openapi.yaml describes
the API. Flags win over the file.

What several control services must agree on is kept by NATS: by a server inside this
process, which listens nowhere, or by those that the section nats of the configuration
file or --nats name (docs/cluster.md).`,
		Example: `  warmpath control --workers workers.yaml
  WARMPATH_TOKEN=... warmpath control --config control.yaml --listen 0.0.0.0:8780
  warmpath control --config control.yaml --nats tls://nats-0:4222,tls://nats-1:4222,tls://nats-2:4222`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var cfg control.Config
			if file != "" {
				var err error
				if cfg, err = control.LoadConfig(file); err != nil {
					return err
				}
			}
			set := func(flag string, field *string, value string) {
				if cmd.Flags().Changed(flag) || *field == "" {
					*field = value
				}
			}
			set("listen", &cfg.Listen, listen)
			set("workers", &cfg.WorkersFile, workers)
			set("policy", &cfg.PolicyFile, policy)
			set("state", &cfg.StateFile, state)
			if cmd.Flags().Changed("learn") || cfg.Learn == 0 {
				cfg.Learn = learn
			}
			if token := os.Getenv(tokenEnv); token != "" {
				cfg.Token = token
			}
			if cfg.NATS == nil {
				cfg.NATS = &cluster.Config{}
			}
			if len(nats) > 0 {
				cfg.NATS.URLs = nats
			}
			cfg.Logger, cfg.Version = slog.Default(), buildVersion()
			var err error
			if cfg.Sources, err = sources(&cfg.Discovery); err != nil {
				return err
			}
			service, err := control.New(cfg)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "control service at %s\n", service.URL())
			return service.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&file, "config", "", "YAML configuration file")
	f.StringVar(&listen, "listen", control.DefaultListen, "address of the API")
	f.StringVar(&workers, "workers", "", "worker list (YAML), watched for changes")
	f.StringVar(&policy, "policy", "", "routing policy (YAML), watched for changes; none: one pool per pool of the worker list, policy cost")
	f.StringVar(&state, "state", "", "file that keeps the table over a restart")
	f.StringSliceVar(&nats, "nats", nil, "URLs of an external NATS cluster with JetStream, by which several control services act as one")
	f.StringVar(&tokenEnv, "token-env", "WARMPATH_TOKEN", "environment variable with the API's bearer token")
	f.DurationVar(&learn, "learn", 10*time.Second, "after a restart without state: how long gateways keep their own table")
	return cmd
}

// sources makes what the configuration's section discovery says. control itself
// doesn't: who embeds it need not link a Kubernetes client.
func sources(d *control.Discovery) ([]discovery.Source, error) {
	inCluster, err := sourcesOf(d.Kubernetes, kubernetes.New)
	byName, dnsErr := sourcesOf(d.DNS, dns.New)
	return append(inCluster, byName...), errors.Join(err, dnsErr)
}

func sourcesOf[C any, S discovery.Source](items []C, make func(C) (S, error)) (out []discovery.Source, err error) {
	for i, item := range items {
		source, bad := make(item)
		if bad != nil {
			err = errors.Join(err, fmt.Errorf("item %d: %w", i+1, bad))
			continue
		}
		out = append(out, source)
	}
	return out, err
}
