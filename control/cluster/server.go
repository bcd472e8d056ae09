package cluster

import (
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	serverStart = 10 * time.Second
	maxMessage  = 8 << 20
)

// inside is the NATS server of this process.
type inside struct {
	*server.Server
	forgets   bool   // its store is in memory
	temporary string // a directory to remove at the end
	word      string // that clients say, empty for none
	store     string // the directory, empty when it forgets
	mark      *storeMark
}

// startServer starts the server inside.
func startServer(cfg *Config) (*inside, error) {
	e := &cfg.Embedded
	in := &inside{forgets: e.StoreDir == ""}
	options := &server.Options{
		ServerName: cfg.Name, NoSigs: true, NoLog: true, DontListen: e.Listen == "",
		JetStream: true, DisableJetStreamBanner: true, StoreDir: e.StoreDir,
		JetStreamMaxMemory: maxBucket, JetStreamMaxStore: 4 * maxBucket,
		// What a replica agreed to must be true after a power failure, too.
		SyncAlways: true,
		MaxPayload: maxMessage, WriteDeadline: 2 * time.Second,
	}
	if in.forgets {
		var err error
		if options.StoreDir, err = temporary(); err != nil {
			return nil, Problem{"embedded.store_dir", fmt.Sprintf("the NATS server inside needs a directory: %v", err), "name one with nats.embedded.store_dir, or let the directory for temporary files be written"}
		}
		in.temporary = options.StoreDir
	}
	if !in.forgets {
		var err error
		if in.mark, err = checkStore(cfg); err == nil {
			err = in.mark.write(e.StoreDir)
		}
		if err != nil {
			return nil, err
		}
		in.store = e.StoreDir
	}
	if err := in.listeners(cfg, options); err != nil {
		in.stop()
		return nil, err
	}
	srv, err := server.NewServer(options)
	if err != nil {
		in.stop()
		return nil, fmt.Errorf("start the NATS server inside: %w", err)
	}
	in.Server = srv
	log := &serverLog{log: cfg.Log}
	srv.SetLoggerV2(log, false, false, false)
	srv.Start()
	if !srv.ReadyForConnections(serverStart) || !srv.JetStreamEnabled() {
		fault := log.last()
		in.stop()
		return nil, fmt.Errorf("start the NATS server inside (store %s): %w", options.StoreDir, fault)
	}
	return in, nil
}

// temporary makes the directory that JetStream wants even for what it keeps in memory. A container's
// files may be read only, but for its shared memory.
func temporary() (dir string, err error) {
	for _, parent := range []string{"", "/dev/shm"} {
		if dir, err = os.MkdirTemp(parent, "warmpath-nats-"); err == nil {
			return dir, nil
		}
	}
	return "", err
}

// listeners sets who may come in from outside.
func (in *inside) listeners(cfg *Config, o *server.Options) error {
	e := &cfg.Embedded
	secured, err := cfg.TLS.load()
	if err != nil {
		return err
	}
	if secured != nil {
		// Only who has a certificate of the same CA gets in, server or client.
		secured.ClientCAs, secured.ClientAuth = secured.RootCAs, tls.RequireAndVerifyClientCert
	}
	if e.Listen != "" {
		host, port, err := splitAddress(e.Listen)
		if err != nil {
			return fmt.Errorf("nats.embedded.listen: %w", err)
		}
		o.Host, o.Port = host, serverPort(port)
		if secured != nil {
			// The client inside comes without TLS: it has no network in between.
			o.TLSConfig, o.TLSVerify, o.TLSTimeout = secured, true, tlsTimeout
		}
	}
	if len(e.Routes) == 0 {
		return nil
	}
	if e.Listen == "" {
		// A server begins to talk to others only once it listens for clients: to nobody's use, and
		// nobody knows the word.
		o.DontListen, o.Host, o.Port = false, "127.0.0.1", server.RANDOM_PORT
		in.word = rand.Text()
		o.Authorization = in.word
	}
	host, port, err := splitAddress(e.ClusterListen)
	if err != nil {
		return fmt.Errorf("nats.embedded.cluster_listen: %w", err)
	}
	// All routes are given by the names that certificates are for: addresses that servers tell each
	// other would not be.
	o.Cluster = server.ClusterOpts{
		Name: cfg.Prefix, Host: host, Port: serverPort(port), Advertise: e.Advertise, NoAdvertise: true, PoolSize: -1,
		TLSConfig: secured, TLSTimeout: tlsTimeout, ConnectRetries: 1 << 30, PingInterval: 2 * time.Second, MaxPingsOut: 2,
	}
	for _, r := range e.Routes {
		o.Routes = append(o.Routes, &url.URL{Scheme: "nats-route", Host: r})
	}
	return nil
}

const tlsTimeout = 5 // seconds

// serverPort is a port in the server's options, where 0 is the default one and -1 a free one.
func serverPort(port int) int {
	if port == 0 {
		return server.RANDOM_PORT
	}
	return port
}

// stop ends the server and waits for it.
func (in *inside) stop() {
	if in.Server != nil {
		in.Shutdown()
		in.WaitForShutdown()
	}
	if in.temporary != "" {
		_ = os.RemoveAll(in.temporary)
	}
}

// serverLog passes what the server says on, and keeps the last fault.
type serverLog struct {
	log *slog.Logger

	mu    sync.Mutex
	fault string
}

func (l *serverLog) keep(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = text
}

// last is the last fault that the server told of.
func (l *serverLog) last() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fault == "" {
		return fmt.Errorf("not ready within %v", serverStart)
	}
	return errors.New(l.fault)
}

// Noticef implements server.Logger. What a server finds worth a notice is of no interest while it works.
func (l *serverLog) Noticef(format string, v ...any) {
	l.log.Debug("nats: " + fmt.Sprintf(format, v...))
}

// Warnf implements server.Logger.
func (l *serverLog) Warnf(format string, v ...any) { l.log.Warn("nats: " + fmt.Sprintf(format, v...)) }

// Errorf implements server.Logger.
func (l *serverLog) Errorf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.keep(text)
	l.log.Error("nats: " + text)
}

// Fatalf implements server.Logger; the server doesn't end the process.
func (l *serverLog) Fatalf(format string, v ...any) { l.Errorf(format, v...) }

// Debugf implements server.Logger.
func (l *serverLog) Debugf(string, ...any) {}

// Tracef implements server.Logger.
func (l *serverLog) Tracef(string, ...any) {}

// made notes that the store has documents.
func (in *inside) made() error {
	if in.forgets || in.mark.Documents {
		return nil
	}
	in.mark.Documents = true
	return in.mark.write(in.store)
}
