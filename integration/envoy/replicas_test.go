//go:build envoy

package envoy

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/warmpath/warmpath/control"
	"github.com/warmpath/warmpath/control/cluster"
	"github.com/warmpath/warmpath/integration/envoyrun"
	"github.com/warmpath/warmpath/shared/table"
)

// trio is three replicas of control, each with a NATS server inside.
type trio struct {
	addresses []string
	services  []*control.Service // nil: killed
	stops     []func()
}

// TestReplicasOfControl kills the replica that Envoy keeps to, on every version.
func TestReplicasOfControl(t *testing.T) {
	for _, version := range versions(t) {
		t.Run(version, func(t *testing.T) {
			var c trio
			for range 3 {
				c.addresses = append(c.addresses, freeAddress(t))
			}
			r := newRig(t, version, modes[0], func(o *envoyrun.Options) {
				shipped := o.Bootstrap
				o.Bootstrap = func(tree envoyrun.Tree) {
					shipped(tree)
					c.list(tree)
				}
			})
			c.start(r)
			r.waitSteering()
			r.scenario("replicas: the one that is killed under load costs no request and no whole table", func(r *rig) { replicaKilled(r, &c) })
		})
	}
}

// list names the replicas in Envoy's cluster, as the example says.
func (c *trio) list(tree envoyrun.Tree) {
	var endpoints []any
	for _, address := range c.addresses {
		endpoints = append(endpoints, envoyrun.Tree{"endpoint": envoyrun.Tree{"address": envoyrun.Tree{
			"socket_address": envoyrun.Tree{"address": "127.0.0.1", "port_value": portOf(address)},
		}}})
	}
	assignment := envoyrun.Find(tree, "cluster_name", "warmpath-control")
	assignment["endpoints"] = []any{envoyrun.Tree{"lb_endpoints": endpoints}}
}

// start runs all three until the test ends.
func (c *trio) start(r *rig) {
	r.t.Helper()
	var routes []string
	for range c.addresses {
		routes = append(routes, freeAddress(r.t))
	}
	for i, address := range c.addresses {
		config := r.controlConfig()
		config.Listen = address
		config.NATS = &cluster.Config{Name: fmt.Sprintf("control-%d", i), Embedded: cluster.Embedded{
			ClusterListen: routes[i], Routes: routes, StoreDir: filepath.Join(r.t.TempDir(), "store"),
		}}
		service, err := control.New(config)
		if err != nil {
			r.t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- service.Run(ctx) }()
		c.services = append(c.services, service)
		c.stops = append(c.stops, sync.OnceFunc(func() {
			cancel()
			if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
				r.t.Errorf("replica: %v", err)
			}
		}))
		r.t.Cleanup(c.stops[i])
	}
	for _, service := range c.services {
		select {
		case <-service.Ready():
		case <-time.After(30 * time.Second):
			r.t.Fatal("a replica is not ready after 30 s")
		}
	}
}

// keptTo is the replica that Envoy reports to now.
func (c *trio) keptTo(r *rig) (found int) {
	r.t.Helper()
	r.eventually(20*time.Second, "a replica that Envoy keeps to", func() error {
		found = -1
		for i, service := range c.services {
			if service == nil {
				continue
			}
			for _, g := range service.Status().Gateways {
				if !g.Elsewhere && g.Age < 3 {
					found = i
				}
			}
		}
		if found < 0 {
			return errors.New("no replica has a gateway of its own")
		}
		return nil
	})
	return found
}

func (c *trio) kill(i int) {
	c.stops[i]()
	c.services[i] = nil
}

// replicaKilled: with the load away what comes from control after a kill is counted;
// under load every request must be served.
func replicaKilled(r *rig, c *trio) {
	ctx := r.t.Context()
	r.crowd(ctx, 8, nil, func(l *load) bool { return l.sent.Load() > 200 })
	r.idle()
	first := c.keptTo(r)
	size := c.services[first].Table().Stats()
	whole := int64(size.Bytes)
	received := func() int64 {
		stats, err := r.proxy.Stats(ctx, `^cluster\.warmpath-control\.upstream_cx_rx_bytes_total$`)
		if err != nil {
			r.t.Fatal(err)
		}
		return stats["cluster.warmpath-control.upstream_cx_rx_bytes_total"]
	}
	before, compared := received(), r.counters()[metric("resyncs")]
	c.kill(first)
	second := c.keptTo(r)
	r.eventually(20*time.Second, "the table of the next replica", func() error {
		if n := r.counters()[metric("resyncs")]; n == compared {
			return errors.New("not compared yet")
		}
		return nil
	})
	<-time.After(time.Second)
	came := received() - before
	r.t.Logf("replica %d killed, Envoy went on with %d: %d bytes came from it; the table has %d entries in %d bytes of pages, at least %d pages", first, second, came, size.Entries, whole, whole/table.PageBytes)
	if came > whole/4 || whole < 100*table.PageBytes {
		r.t.Errorf("%d bytes came after the kill, the whole table is %d", came, whole)
	}

	fallback := r.counters().Sum(metric("fallback."))
	var once sync.Once
	killed := make(chan struct{})
	l := r.crowd(ctx, 8, nil, func(l *load) bool {
		if l.sent.Load() > 100 {
			once.Do(func() {
				go func() {
					c.kill(second)
					close(killed)
				}()
			})
		}
		return l.sent.Load() >= 300
	})
	<-killed
	r.t.Log(l)
	if n := l.failedBefore(); n > 0 {
		r.t.Errorf("%d requests failed", n)
	}
	r.flushed(func() {
		if rose := r.counters().Sum(metric("fallback.")) - fallback; rose > 0 {
			r.t.Errorf("%d requests were not steered: the table was gone", rose)
		}
	})
	if third := c.keptTo(r); third == second {
		r.t.Errorf("still at replica %d, which is dead", second)
	}
}
