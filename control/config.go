package control

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/warmpath/warmpath/control/cluster"
	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/control/index"
	"github.com/warmpath/warmpath/control/publish"
	"github.com/warmpath/warmpath/shared/table"
)

// natsStore is what the name of the state file gets for the store of the NATS server
// inside, where no other is named.
const natsStore = ".nats"

// DefaultListen is where control listens unless told otherwise.
const DefaultListen = "127.0.0.1:8780"

// DefaultLoadsInterval is how often changed loads are published at most.
const DefaultLoadsInterval = 50 * time.Millisecond

// Config of a Service. The zero value is a service on DefaultListen without
// workers.
type Config struct {
	// Listen is host:port; port 0 takes a free one. Beyond loopback a Token is
	// required, or Insecure.
	Listen string
	// Listener is used instead of Listen when set.
	Listener net.Listener
	// Token guards everything but /healthz and /readyz.
	Token string
	// HeartbeatToken is one for engines and agents: it opens POST /v1/heartbeat and
	// nothing else. Empty: they use Token.
	HeartbeatToken string
	// Insecure allows to listen beyond loopback without a token.
	Insecure bool

	// Workers is the list, or WorkersFile names the file it is read from. Give one
	// of them, or neither and use PUT /v1/workers.
	Workers     []discovery.Spec
	WorkersFile string
	// Sources find workers by themselves, beside that list.
	Sources []discovery.Source
	// Discovery is what the configuration file says about sources; who makes a
	// Service makes Sources of it.
	Discovery Discovery
	// Policy is the policy document (YAML or JSON), or PolicyFile names its file.
	// Neither: one pool per pool name of the worker list, policy cost.
	Policy     []byte
	PolicyFile string
	// ReadInterval is how often files are read again where events don't arrive. 5 s.
	ReadInterval time.Duration

	Health  discovery.HealthConfig
	Fleet   discovery.FleetConfig
	Index   index.Config
	Publish publish.Config

	// CoalesceInterval: entry changes are published at most this often, the first
	// after a pause at once. 25 ms, between 10 ms and 1 s.
	CoalesceInterval time.Duration
	// LoadsInterval: the same for changed loads. In fleets of up to 64 workers what
	// gateways tell goes out after half of it. DefaultLoadsInterval.
	LoadsInterval time.Duration
	// StateFile keeps refs and index over a restart. Empty: nothing is kept.
	StateFile string
	// StateInterval is how often it is written. 30 s.
	StateInterval time.Duration
	// NATS joins this service with others to one; nil: it is alone. A server inside
	// without a store keeps one beside StateFile.
	NATS *cluster.Config
	// transport takes the place of NATS in tests.
	transport cluster.Transport
	// Learn is how long after a start without state gateways are told to keep the
	// pages they have. 10 s; negative turns it off.
	Learn time.Duration
	// HealAfter is when, after such a start, gateways compare digests, so that
	// what they kept and nobody confirmed goes. 10 min.
	HealAfter time.Duration
	// ShutdownTimeout bounds the drain. 5 s.
	ShutdownTimeout time.Duration

	Logger *slog.Logger
	// Transport is used for probes instead of a plain one.
	Transport http.RoundTripper
	// Version is shown in the status.
	Version string
}

// Discovery is the section of the configuration file with that name.
type Discovery struct {
	// AdaptersInterval is how often workers are asked again which adapters they
	// serve. 10 s; negative turns it off.
	AdaptersInterval time.Duration          `yaml:"adapters_interval"`
	DNS              []discovery.DNS        `yaml:"dns"`
	Kubernetes       []discovery.Kubernetes `yaml:"kubernetes"`
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	if c.Listen == "" {
		c.Listen = DefaultListen
	}
	def(&c.ReadInterval, 5*time.Second)
	def(&c.Discovery.AdaptersInterval, 10*time.Second)
	def(&c.CoalesceInterval, 25*time.Millisecond)
	def(&c.LoadsInterval, DefaultLoadsInterval)
	def(&c.StateInterval, 30*time.Second)
	def(&c.Learn, 10*time.Second)
	def(&c.HealAfter, 10*time.Minute)
	def(&c.ShutdownTimeout, 5*time.Second)
	if c.Fleet.Failures == 0 {
		c.Fleet.Failures = c.Health.Failures
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.NATS != nil {
		nats := c.NATS.WithDefaults()
		if e := &nats.Embedded; len(nats.URLs) == 0 && e.StoreDir == "" && len(e.Routes) == 0 && e.ClusterListen == "" && c.StateFile != "" {
			e.StoreDir = c.StateFile + natsStore
		}
		c.NATS = &nats
	}
	return c
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// validate finds what can't work, each with its remedy.
func (c *Config) validate() error {
	var errs []error
	bad := func(field, what, remedy string) {
		errs = append(errs, discovery.Problem{Source: "config", Field: field, What: what, Remedy: remedy})
	}
	interval := func(field string, d, low, high time.Duration) {
		if d < low || d > high {
			bad(field, fmt.Sprintf("%v is outside %v..%v", d, low, high), "leave it out for the default")
		}
	}
	if len(c.Workers) > 0 && c.WorkersFile != "" {
		bad("workers_file", "given beside an inline list", "keep one of workers and workers_file")
	}
	if c.Policy != nil && c.PolicyFile != "" {
		bad("policy_file", "given beside an inline policy", "keep one of policy and policy_file")
	}
	if c.StateFile != "" {
		if dir := filepath.Dir(c.StateFile); !isDir(dir) {
			bad("state_file", dir+" is not a directory, the state could never be saved", "make it first")
		}
	}
	if c.NATS != nil {
		errs = append(errs, c.NATS.Validate())
	}
	interval("coalesce_interval", c.CoalesceInterval, 10*time.Millisecond, time.Second)
	interval("loads_interval", c.LoadsInterval, 10*time.Millisecond, 10*time.Second)
	interval("read_interval", c.ReadInterval, 100*time.Millisecond, time.Hour)
	interval("state_interval", c.StateInterval, time.Second, time.Hour)
	interval("heal_after", c.HealAfter, c.Learn, 24*time.Hour)
	for field, d := range map[string]time.Duration{
		"health.interval_up": c.Health.IntervalUp, "health.interval_down": c.Health.IntervalDown,
		"health.metrics_interval": c.Health.Metrics, "health.timeout": c.Health.Timeout,
	} {
		if d != 0 {
			interval(field, d, 10*time.Millisecond, time.Minute)
		}
	}
	if d := c.Discovery.AdaptersInterval; d > 0 {
		interval("discovery.adapters_interval", d, time.Second, time.Hour)
	}
	names := map[string]bool{}
	for _, source := range c.Sources {
		if names[source.Name()] {
			bad("discovery", source.Name()+" is given twice", "keep one of the two")
		}
		names[source.Name()] = true
	}
	for field, path := range map[string]string{"health.path": c.Health.Path, "health.metrics_path": c.Health.MetricsPath} {
		if path != "" && !strings.HasPrefix(path, "/") && (path != "-" || field != "health.metrics_path") {
			bad(field, strconv.Quote(path)+" is not a path", "begin it with /")
		}
	}
	if c.Index.MaxBytes != 0 && c.Index.MaxBytes < 1<<20 {
		bad("index.max_bytes", fmt.Sprintf("%d is under 1 MiB", c.Index.MaxBytes), "leave it out for 512 MiB")
	}
	if low, high := cmp.Or(c.Publish.MinBits, 10), cmp.Or(c.Publish.MaxBits, 16); low > high {
		bad("table", fmt.Sprintf("min_bits %d is over max_bits %d", low, high), "set both")
	}
	if c.Publish.MaxBytes != 0 && c.Publish.MaxBytes < 64*table.PageBytes {
		bad("table.max_bytes", fmt.Sprintf("%d is under %d, the smallest table", c.Publish.MaxBytes, 64*table.PageBytes), "leave it out for max_bits alone")
	}
	if !table6to16(c.Publish.MinBits) || !table6to16(c.Publish.MaxBits) {
		bad("table", "no such size class", "min_bits and max_bits are 6, 8, 10, 12, 14 or 16")
	}
	for field, token := range map[string]string{"token": c.Token, "heartbeat_token": c.HeartbeatToken} {
		if strings.TrimSpace(token) != token || strings.ContainsAny(token, "\r\n") {
			bad(field, "has white space at an end or a line break", "write the token without it")
		}
	}
	if c.HeartbeatToken != "" && c.Token == "" {
		bad("heartbeat_token", "given without token", "set token too, or everything is open anyway")
	}
	return errors.Join(errs...)
}

func table6to16(bits uint8) bool {
	return bits == 0 || bits >= 6 && bits <= 16 && bits%2 == 0
}

// listen binds, and refuses to be open to others without a token.
func (c *Config) listen() (net.Listener, error) {
	ln := c.Listener
	if ln == nil {
		var err error
		if ln, err = net.Listen("tcp", c.Listen); err != nil {
			return nil, fmt.Errorf("listen on %s: %w (choose a free address with listen)", c.Listen, err)
		}
	}
	if c.Token == "" && !c.Insecure && !loopback(ln.Addr()) {
		addr := ln.Addr().String()
		if c.Listener == nil {
			_ = ln.Close()
		}
		return nil, discovery.Problem{
			Source: "config", Field: "token", What: "none, but " + addr + " is reachable from outside",
			Remedy: "set token (or token_file), listen on 127.0.0.1, or set insecure: true to run open on purpose",
		}
	}
	return ln, nil
}

func loopback(a net.Addr) bool {
	ap, err := netip.ParseAddrPort(a.String())
	return a.Network() == "unix" || err == nil && ap.Addr().Unmap().IsLoopback()
}

// fileConfig is the YAML form of Config.
type fileConfig struct {
	Listen       string           `yaml:"listen"`
	Token        string           `yaml:"token"`
	TokenFile    string           `yaml:"token_file"`
	BeatToken    string           `yaml:"heartbeat_token"`
	BeatFile     string           `yaml:"heartbeat_token_file"`
	Insecure     bool             `yaml:"insecure"`
	Workers      []discovery.Spec `yaml:"workers"`
	WorkersFile  string           `yaml:"workers_file"`
	Policy       map[string]any   `yaml:"policy"`
	PolicyFile   string           `yaml:"policy_file"`
	Discovery    Discovery        `yaml:"discovery"`
	ReadInterval time.Duration    `yaml:"read_interval"`
	Health       struct {
		Path            string        `yaml:"path"`
		MetricsPath     string        `yaml:"metrics_path"`
		IntervalUp      time.Duration `yaml:"interval_up"`
		IntervalDown    time.Duration `yaml:"interval_down"`
		MetricsInterval time.Duration `yaml:"metrics_interval"`
		Timeout         time.Duration `yaml:"timeout"`
		Failures        int           `yaml:"failures"`
		Token           string        `yaml:"token"`
	} `yaml:"health"`
	Index struct {
		MaxBytes int64 `yaml:"max_bytes"`
	} `yaml:"index"`
	Table struct {
		MinBits  uint8 `yaml:"min_bits"`
		MaxBits  uint8 `yaml:"max_bits"`
		MaxBytes int64 `yaml:"max_bytes"`
	} `yaml:"table"`
	CoalesceInterval time.Duration `yaml:"coalesce_interval"`
	LoadsInterval    time.Duration `yaml:"loads_interval"`
	StateFile        string        `yaml:"state_file"`
	StateInterval    time.Duration `yaml:"state_interval"`
	Learn            time.Duration `yaml:"learn"`
	HealAfter        time.Duration `yaml:"heal_after"`
	NATS             *struct {
		URLs        []string         `yaml:"urls"`
		Credentials string           `yaml:"credentials"`
		Name        string           `yaml:"name"`
		Prefix      string           `yaml:"prefix"`
		Lease       time.Duration    `yaml:"lease"`
		TLS         cluster.TLS      `yaml:"tls"`
		Embedded    cluster.Embedded `yaml:"embedded"`
	} `yaml:"nats"`
}

// LoadConfig reads the YAML config of `warmpath control`. Unknown keys are
// refused with their line.
func LoadConfig(path string) (Config, error) {
	data, err := discovery.ReadBounded(path)
	if err != nil {
		return Config{}, fmt.Errorf("read config: %w", err)
	}
	return ParseConfig(path, data)
}

// ParseConfig is LoadConfig on bytes; source names them in errors.
func ParseConfig(source string, data []byte) (Config, error) {
	var f fileConfig
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&f); err != nil && !errors.Is(err, io.EOF) {
		return Config{}, discovery.Problem{
			Source: source, What: strings.Join(strings.Fields(err.Error()), " "),
			Remedy: "control/README.md lists the keys; durations are written 500ms, 10s, 5m",
		}
	}
	c := Config{
		Listen: f.Listen, Token: f.Token, HeartbeatToken: f.BeatToken, Insecure: f.Insecure, Workers: f.Workers, WorkersFile: f.WorkersFile, PolicyFile: f.PolicyFile,
		Discovery: f.Discovery, ReadInterval: f.ReadInterval, CoalesceInterval: f.CoalesceInterval, LoadsInterval: f.LoadsInterval,
		StateFile: f.StateFile, StateInterval: f.StateInterval, Learn: f.Learn, HealAfter: f.HealAfter,
		Health: discovery.HealthConfig{
			Path: f.Health.Path, MetricsPath: f.Health.MetricsPath, IntervalUp: f.Health.IntervalUp, IntervalDown: f.Health.IntervalDown,
			Metrics: f.Health.MetricsInterval, Timeout: f.Health.Timeout, Failures: f.Health.Failures, Token: f.Health.Token,
		},
		Index:   index.Config{MaxBytes: f.Index.MaxBytes},
		Publish: publish.Config{MinBits: f.Table.MinBits, MaxBits: f.Table.MaxBits, MaxBytes: f.Table.MaxBytes},
	}
	if n := f.NATS; n != nil {
		c.NATS = &cluster.Config{
			URLs: n.URLs, Credentials: n.Credentials, Name: n.Name, Prefix: n.Prefix, Lease: n.Lease, TLS: n.TLS, Embedded: n.Embedded,
		}
	}
	if err := readToken(source, "token", f.TokenFile, &c.Token); err != nil {
		return Config{}, err
	}
	if err := readToken(source, "heartbeat_token", f.BeatFile, &c.HeartbeatToken); err != nil {
		return Config{}, err
	}
	if f.Policy != nil {
		text, err := yaml.Marshal(f.Policy)
		if err != nil {
			return Config{}, fmt.Errorf("%s: policy: %w", source, err)
		}
		c.Policy = text
	}
	return c, nil
}

// readToken reads the file of a token, where one is named. key is that of the
// token itself.
func readToken(source, key, path string, token *string) error {
	if path == "" {
		return nil
	}
	field := key + "_file"
	if *token != "" {
		return discovery.Problem{Source: source, Field: field, What: "given beside " + key, Remedy: "keep one"}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", field, err)
	}
	if *token = strings.TrimSpace(string(text)); *token == "" {
		return discovery.Problem{Source: source, Field: field, What: path + " is empty", Remedy: "write the token into it, or drop " + field}
	}
	return nil
}
