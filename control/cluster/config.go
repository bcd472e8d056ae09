package cluster

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Config of a Cluster. The zero value is one replica with a NATS server of its own, which listens
// nowhere and keeps nothing over a restart.
type Config struct {
	// Name of this replica, unlike that of any other; the host's by default. A server inside has it
	// too, and its store belongs to it: keep it over a restart.
	Name string
	// Prefix of bucket and subjects, so that several deployments can share a NATS cluster.
	// "warmpath".
	Prefix string
	// Lease is how long a leader leads without being able to renew. 1.5 s with servers inside, 3 s
	// with external ones, which take longer to elect a leader of their own; 500 ms to 1 min.
	Lease time.Duration
	// URLs of an external NATS cluster (nats:// or tls://, with user:password@ where it wants one).
	// No server runs inside then.
	URLs []string
	// Credentials is a file with a user's JWT and seed, as nsc writes it. External only.
	Credentials string
	// TLS for clients of an external cluster, and for routes and clients of servers inside.
	TLS TLS
	// Embedded is the server inside.
	Embedded Embedded
	// URL is where this replica's API is found, for people who read the status.
	URL string
	// Version of the program, likewise.
	Version string
	// Wire is the wire version that it speaks, likewise.
	Wire uint8

	Log *slog.Logger
}

// TLS are PEM files. With CA alone, servers are verified; Cert and Key show who this is. Servers
// inside need all three: they accept only routes and clients with a certificate of that CA.
type TLS struct {
	CA   string `yaml:"ca"`
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// Embedded configures the NATS server inside.
type Embedded struct {
	// Listen is host:port for NATS clients from outside (the nats CLI); empty: none.
	Listen string `yaml:"listen"`
	// ClusterListen is host:port for the servers of the other replicas.
	ClusterListen string `yaml:"cluster_listen"`
	// Advertise is host:port under which the others reach ClusterListen, where that differs.
	Advertise string `yaml:"advertise"`
	// Routes are the ClusterListen addresses of all replicas, this one among them: host:port.
	Routes []string `yaml:"routes"`
	// StoreDir is where documents are kept. Empty: in memory, for a replica without Routes.
	StoreDir string `yaml:"store_dir"`
}

const (
	leaseEmbedded = 1500 * time.Millisecond
	leaseExternal = 3 * time.Second
	minLease      = 500 * time.Millisecond
	maxLease      = time.Minute
	// maxRoutes bounds the servers inside: each has all documents, and more make writing slower.
	maxRoutes = 5
)

// Problem is a setting that can't work.
type Problem struct {
	Field, What, Remedy string
}

func (p Problem) Error() string { return fmt.Sprintf("nats.%s: %s (%s)", p.Field, p.What, p.Remedy) }

// Servers is how many servers hold the documents, 0 for an external cluster.
func (c *Config) Servers() int {
	if len(c.URLs) > 0 {
		return 0
	}
	return max(1, len(c.Embedded.Routes))
}

// alone tells whether nobody else can reach the documents.
func (c *Config) alone() bool {
	return len(c.URLs) == 0 && c.Embedded.Listen == "" && len(c.Embedded.Routes) == 0
}

// WithDefaults fills in what was left out.
func (c Config) WithDefaults() Config {
	if c.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "control"
		}
		c.Name = host
	}
	c.Prefix = cmp.Or(c.Prefix, "warmpath")
	if c.Lease == 0 {
		c.Lease = leaseEmbedded
		if len(c.URLs) > 0 {
			c.Lease = leaseExternal
		}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

var (
	prefixRule = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)
	nameRule   = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
)

// Validate finds what can't work, each with its remedy. Call it on what WithDefaults returned.
func (c *Config) Validate() error {
	var errs []error
	bad := func(field, what, remedy string) { errs = append(errs, Problem{field, what, remedy}) }
	if !nameRule.MatchString(c.Name) {
		bad("name", fmt.Sprintf("%q is no name of a replica", c.Name), "use up to 64 letters, digits, dots, dashes and underscores")
	}
	if !prefixRule.MatchString(c.Prefix) {
		bad("prefix", fmt.Sprintf("%q is no prefix", c.Prefix), "use up to 32 letters, digits, dashes and underscores")
	}
	if c.Lease < minLease || c.Lease > maxLease {
		bad("lease", fmt.Sprintf("%v is outside %v..%v", c.Lease, minLease, maxLease), "leave it out for the default")
	}
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		bad("tls", "cert and key go together", "give both files, or neither")
	}
	if len(c.URLs) > 0 {
		c.validateExternal(bad)
	} else {
		c.validateEmbedded(bad)
	}
	return errors.Join(errs...)
}

func (c *Config) validateExternal(bad func(field, what, remedy string)) {
	e := &c.Embedded
	if e.Listen != "" || e.ClusterListen != "" || e.StoreDir != "" || e.Advertise != "" || len(e.Routes) > 0 {
		bad("embedded", "given beside urls", "keep urls for an external NATS cluster, or embedded for a server inside")
	}
	for _, text := range c.URLs {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) {
			bad("urls", fmt.Sprintf("%q is no URL of a NATS server", text), "write nats://host:4222 or tls://host:4222")
		}
	}
}

func (c *Config) validateEmbedded(bad func(field, what, remedy string)) {
	e := &c.Embedded
	if c.Credentials != "" {
		bad("credentials", "given without urls", "name the external NATS cluster with urls, or drop credentials: servers inside know each other by tls")
	}
	for field, address := range map[string]string{"embedded.listen": e.Listen, "embedded.cluster_listen": e.ClusterListen, "embedded.advertise": e.Advertise} {
		if address != "" {
			if _, _, err := splitAddress(address); err != nil {
				bad(field, err.Error(), "write host:port")
			}
		}
	}
	for _, r := range e.Routes {
		if _, _, err := splitAddress(r); err != nil {
			bad("embedded.routes", err.Error(), "write the cluster_listen addresses of all replicas as host:port")
		}
	}
	clustered := e.ClusterListen != "" || len(e.Routes) > 0
	n := len(e.Routes)
	switch {
	case !clustered:
	case e.ClusterListen == "":
		bad("embedded.cluster_listen", "routes are given, but the others can't reach this replica", "give the address for the servers of the other replicas, host:port")
	case n == 0:
		bad("embedded.routes", "cluster_listen is given, but no others are named", "list the cluster_listen addresses of all replicas, this one among them")
	case n%2 == 0:
		bad("embedded.routes", fmt.Sprintf("%d replicas: with one gone the others are no majority, or no more than with one less", n), "list an odd number, 3 or 5, this one among them")
	case n == 1:
		bad("embedded.routes", "one replica is no cluster", "list all three replicas, or drop cluster_listen and routes")
	case n > maxRoutes:
		bad("embedded.routes", fmt.Sprintf("%d servers inside", n), "keep to 3 or 5 and let further replicas be clients of an external NATS cluster (urls)")
	}
	if clustered && e.StoreDir == "" {
		bad("embedded.store_dir", "missing: a replica that forgets what it agreed to breaks the agreement", "name a directory that outlives the process, one for each replica")
	}
	open := clustered && !loopback(e.ClusterListen) || e.Listen != "" && !loopback(e.Listen)
	switch secured := c.TLS.CA != "" && c.TLS.Cert != ""; {
	case open && !secured:
		bad("tls", "the server inside would be open to the network without", "give ca, cert and key: only servers and clients with a certificate of that CA get in")
	case (e.Listen != "" || clustered) && !secured && c.TLS != (TLS{}):
		bad("tls", "a server inside needs ca, cert and key", "give all three files")
	case e.Listen == "" && !clustered && c.TLS != (TLS{}):
		bad("tls", "given, but the server inside listens nowhere", "drop tls, or give embedded.listen or embedded.routes")
	}
}

// splitAddress reads host:port; port 0 is a free one.
func splitAddress(text string) (host string, port int, err error) {
	host, service, err := net.SplitHostPort(text)
	if err != nil {
		return "", 0, err
	}
	if port, err = strconv.Atoi(service); err != nil || port < 0 || port > 65535 || strings.ContainsAny(host, "/@ ") {
		return "", 0, fmt.Errorf("%q is no address", text)
	}
	return host, port, nil
}

func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// load reads the files; nil without any.
func (t *TLS) load() (*tls.Config, error) {
	if *t == (TLS{}) {
		return nil, nil
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		text, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("read nats.tls.ca: %w", err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(text) {
			return nil, Problem{"tls.ca", t.CA + " has no certificate", "name a PEM file with the CA's certificate"}
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("read nats.tls.cert and key: %w", err)
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}
