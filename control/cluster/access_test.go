package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
)

// authority signs certificates for loopback.
type authority struct {
	t    *testing.T
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	ca   string // file
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.key = newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.ca = a.file("ca.pem", "CERTIFICATE", der)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) file(name, kind string, der []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// issue returns the files of a server or client.
func (a *authority) issue(name string) TLS {
	a.t.Helper()
	key := newKey(a.t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return TLS{CA: a.ca, Cert: a.file(name+".pem", "CERTIFICATE", der), Key: a.file(name+".key", "EC PRIVATE KEY", private)}
}

// external runs a NATS server that isn't ours.
func external(t *testing.T, o *server.Options) string {
	t.Helper()
	o.Host, o.Port, o.NoSigs, o.NoLog, o.JetStream, o.StoreDir = "127.0.0.1", server.RANDOM_PORT, true, true, true, t.TempDir()
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(5 * time.Second) {
		t.Fatal("NATS server not ready")
	}
	return s.ClientURL()
}

// works tells whether documents can be written.
func works(t *testing.T, c *Cluster) {
	t.Helper()
	until(t, 10*time.Second, "a document", func() bool {
		_, err := c.Put(within(t, time.Second), "policy", []byte("one"), 0)
		return err == nil
	})
}

func refusedWith(t *testing.T, cfg Config, want ...string) {
	t.Helper()
	c, err := Open(t.Context(), cfg)
	if err == nil {
		c.Close()
		t.Fatalf("taken, want an error with %q", want)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%v, want %q in it", err, w)
		}
	}
}

func TestAnExternalClusterAsksForCredentials(t *testing.T) {
	operator, _ := nkeys.CreateOperator()
	operatorKey, _ := operator.PublicKey()
	account, _ := nkeys.CreateAccount()
	accountKey, _ := account.PublicKey()
	system, _ := nkeys.CreateAccount()
	systemKey, _ := system.PublicKey()
	resolver := &server.MemAccResolver{}
	for _, key := range []string{accountKey, systemKey} {
		claims := jwt.NewAccountClaims(key)
		if key == accountKey {
			claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
		}
		text, err := claims.Encode(operator)
		if err != nil {
			t.Fatal(err)
		}
		if err := resolver.Store(key, text); err != nil {
			t.Fatal(err)
		}
	}
	operatorClaims := jwt.NewOperatorClaims(operatorKey)
	url := external(t, &server.Options{TrustedOperators: []*jwt.OperatorClaims{operatorClaims}, AccountResolver: resolver, SystemAccount: systemKey})

	user, _ := nkeys.CreateUser()
	userKey, _ := user.PublicKey()
	token, err := jwt.NewUserClaims(userKey).Encode(account)
	if err != nil {
		t.Fatal(err)
	}
	seed, _ := user.Seed()
	creds, err := jwt.FormatUserConfig(token, seed)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "user.creds")
	if err := os.WriteFile(file, creds, 0o600); err != nil {
		t.Fatal(err)
	}
	refusedWith(t, Config{URLs: []string{url}}, "nats.credentials", "nsc generate creds")
	refusedWith(t, Config{URLs: []string{url}, Credentials: file + ".none"}, "nats.credentials")
	c, err := Open(t.Context(), Config{URLs: []string{url}, Credentials: file})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	works(t, c)
}

func TestAnExternalClusterAsksForCertificates(t *testing.T) {
	a := newAuthority(t)
	of := a.issue("nats")
	secured, err := of.load()
	if err != nil {
		t.Fatal(err)
	}
	secured.ClientCAs, secured.ClientAuth = secured.RootCAs, tls.RequireAndVerifyClientCert
	url := external(t, &server.Options{TLSConfig: secured, TLSTimeout: 5})
	url = "tls://" + strings.TrimPrefix(strings.TrimPrefix(url, "nats://"), "tls://")
	refusedWith(t, Config{URLs: []string{url}}, "nats.tls")
	other := newAuthority(t)
	refusedWith(t, Config{URLs: []string{url}, TLS: other.issue("stranger")}, "nats.tls")
	c, err := Open(t.Context(), Config{URLs: []string{url}, TLS: a.issue("control")})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	works(t, c)
}

func TestServersInsideLetInOnlyWhoHasACertificateOfTheirCA(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	routes := free(t, 3)
	open := func(i int, of TLS) *Cluster {
		c, err := Open(t.Context(), Config{Name: string(rune('a' + i)), TLS: of, Embedded: Embedded{ClusterListen: routes[i], Routes: routes, StoreDir: t.TempDir()}})
		if err != nil {
			t.Error(err)
			return nil
		}
		t.Cleanup(c.Close)
		return c
	}
	all := make([]*Cluster, 3)
	var group sync.WaitGroup
	for i := range all {
		group.Go(func() {
			by := a
			if i == 2 {
				by = other
			}
			all[i] = open(i, by.issue(string(rune('a'+i))))
		})
	}
	group.Wait()
	if t.Failed() {
		return
	}
	// Two of three are a majority of servers, but not enough for the first documents.
	until(t, 10*time.Second, "routes", func() bool { return all[0].transport.(*natsTransport).server.NumRoutes() > 0 })
	if n := all[2].transport.(*natsTransport).server.NumRoutes(); n != 0 {
		t.Errorf("%d routes of a server with a certificate of another CA", n)
	}
	got := make(chan struct{}, 1)
	stop, err := all[1].Subscribe("events", func([]byte) {
		select {
		case got <- struct{}{}:
		default:
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	until(t, 10*time.Second, "a message over TLS", func() bool {
		if err := all[0].Publish("events", nil); err != nil {
			t.Fatal(err)
		}
		select {
		case <-got:
			return true
		default:
			return false
		}
	})
}

func TestAnExternalClusterThatIsNotThereIsWaitedFor(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	address := free(t, 1)[0]
	c, err := Open(ctx, Config{URLs: []string{"nats://" + address}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.Problem() == nil {
		t.Error("no problem without a server")
	}
	if _, err := c.Get(within(t, time.Second), "policy"); err == nil {
		t.Error("read without a server")
	}
}

func TestHalfAClusterIsRefusedWithWhatToDo(t *testing.T) {
	three := []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}
	for want, cfg := range map[string]Config{
		"list an odd number":                 {Embedded: Embedded{ClusterListen: "127.0.0.1:1", Routes: three[:2], StoreDir: "x"}},
		"list all three replicas":            {Embedded: Embedded{ClusterListen: "127.0.0.1:1", Routes: three[:1], StoreDir: "x"}},
		"list the cluster_listen addresses":  {Embedded: Embedded{ClusterListen: "127.0.0.1:1", StoreDir: "x"}},
		"give the address for the servers":   {Embedded: Embedded{Routes: three, StoreDir: "x"}},
		"a directory that outlives":          {Embedded: Embedded{ClusterListen: "127.0.0.1:1", Routes: three}},
		"keep to 3 or 5":                     {Embedded: Embedded{ClusterListen: "127.0.0.1:1", Routes: append(three, three[0], three[1], three[0], three[1]), StoreDir: "x"}},
		"open to the network":                {Embedded: Embedded{ClusterListen: "10.0.0.1:1", Routes: three, StoreDir: "x"}},
		"give all three files":               {TLS: TLS{CA: "ca"}, Embedded: Embedded{Listen: "127.0.0.1:0"}},
		"listens nowhere":                    {TLS: TLS{CA: "ca", Cert: "c", Key: "k"}},
		"cert and key go together":           {TLS: TLS{Cert: "c"}, URLs: []string{"nats://h:1"}},
		"keep urls for an external":          {URLs: []string{"nats://h:1"}, Embedded: Embedded{StoreDir: "x"}},
		"write nats://host:4222":             {URLs: []string{"http://h:1"}},
		"servers inside know each other":     {Credentials: "x"},
		"use up to 64 letters":               {Name: "a b"},
		"use up to 32 letters":               {Prefix: "a.b"},
		"leave it out for the default":       {Lease: time.Millisecond},
		"write the cluster_listen addresses": {Embedded: Embedded{ClusterListen: "127.0.0.1:1", Routes: []string{"a", "b:1", "c:2"}, StoreDir: "x"}},
	} {
		cfg = cfg.WithDefaults()
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	fine := Config{Embedded: Embedded{ClusterListen: "127.0.0.1:1", Routes: three, StoreDir: "x"}}.WithDefaults()
	if err := fine.Validate(); err != nil {
		t.Error(err)
	}
}
