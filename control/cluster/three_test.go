package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"
)

// replica is one of several in this process, each with a server inside.
type replica struct {
	*Cluster
	cfg    Config
	cancel context.CancelFunc
	done   chan error
	leads  chan uint64
}

// free returns addresses that nobody listens on. Routes must be known before servers start.
func free(t *testing.T, n int) []string {
	t.Helper()
	var out []string
	for range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		out = append(out, ln.Addr().String())
	}
	return out
}

func logger(t *testing.T, name string) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})).With("replica", name)
}

func start(t *testing.T, cfg Config) *replica {
	t.Helper()
	c, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r := &replica{Cluster: c, cfg: cfg, cancel: cancel, done: make(chan error, 1), leads: make(chan uint64, 16)}
	go func() { r.done <- c.Run(ctx, Handlers{Lead: func(term uint64) { r.leads <- term }}) }()
	t.Cleanup(r.end)
	return r
}

// end is an orderly end.
func (r *replica) end() {
	r.cancel()
	if r.done != nil {
		<-r.done
		r.done = nil
	}
	r.Close()
}

func trio(t *testing.T) []*replica {
	t.Helper()
	routes := free(t, 3)
	out := make([]*replica, 3)
	var group sync.WaitGroup
	for i := range out {
		cfg := Config{Name: fmt.Sprintf("r%d", i), Log: logger(t, fmt.Sprintf("r%d", i)), Embedded: Embedded{
			ClusterListen: routes[i], Routes: routes, StoreDir: t.TempDir(),
		}}
		group.Go(func() { out[i] = start(t, cfg) })
	}
	group.Wait()
	return out
}

func leaderOf(rs []*replica) (int, uint64) {
	for i, r := range rs {
		if r.Leads() {
			_, term, _ := r.Leader()
			return i, term
		}
	}
	return -1, 0
}

func until(t *testing.T, within time.Duration, what string, f func() bool) time.Duration {
	t.Helper()
	begin := time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		if time.Since(begin) > within {
			t.Fatalf("not within %v: %s", within, what)
		}
		<-tick.C
	}
	return time.Since(begin)
}

func TestThreeReplicasElectOneLeader(t *testing.T) {
	rs := trio(t)
	t.Log("first leader", until(t, 20*time.Second, "a leader", func() bool { i, _ := leaderOf(rs); return i >= 0 }))
	first, term := leaderOf(rs)
	t.Log(first, term)
	// kill: server gone without a word, lease not given up
	rs[first].transport.(*natsTransport).server.Shutdown()
	var second int
	// Servers that wait as long as NATS's own do take 4 s at least.
	t.Log("next leader", until(t, 4*time.Second, "the next leader", func() bool {
		second, _ = leaderOf(rs)
		return second >= 0 && second != first
	}))
	if _, next := leaderOf(rs); next <= term {
		t.Fatal(next, term)
	}
}

func TestTheElectionTimeoutsAreNATSOwnVariables(t *testing.T) {
	if !found {
		t.Error("NATS has no such variables any more: look at raft.go")
	}
}
