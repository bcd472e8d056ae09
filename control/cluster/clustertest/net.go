// Package clustertest has a Transport without NATS, for tests in virtual time: a network of
// replicas in one process whose faults are the test's.
//
// A call takes the way of a message there and back: it waits, is applied to the store, whole and in
// one order for all, and its answer waits again. A fault can stop either way, or let a call be
// applied long after its caller has given up. Published messages take the first half of that way.
package clustertest

import (
	"context"
	"crypto/rand"
	"maps"
	"sync"
	"time"

	"github.com/warmpath/warmpath/control/cluster"
)

// Net is the network, and the store behind it.
type Net struct {
	mu     sync.Mutex
	rev    uint64
	keys   map[string]cluster.Entry
	before map[string]cluster.Entry // what each was before its last change
	down   bool
	nodes  map[*Node]bool
}

// NewNet returns a network with an empty store.
func NewNet() *Net {
	return &Net{keys: map[string]cluster.Entry{}, before: map[string]cluster.Entry{}, nodes: map[*Node]bool{}}
}

// SetDown takes the majority away from everybody, or gives it back.
func (n *Net) SetDown(down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = down
}

// Lose forgets the whole store.
func (n *Net) Lose() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.keys)
	clear(n.before)
	n.rev = 0
}

// Fault says what happens to one call.
type Fault struct {
	// There and Back are how long either way takes.
	There, Back time.Duration
	// LostThere and LostBack: it never arrives.
	LostThere, LostBack bool
	// Stale: a read answers what was before.
	Stale bool
}

// Node is one replica's access to the network, a cluster.Transport.
type Node struct {
	net   *Net
	fault func() Fault

	mu     sync.Mutex
	cut    bool
	closed chan struct{}
	subs   map[*subscription]bool
}

type subscription struct {
	subject string
	inbox   chan message
	done    chan struct{}
}

type message struct {
	data  []byte
	reply string
}

// Join adds a replica. fault, which may be nil, is asked at every call.
func (n *Net) Join(fault func() Fault) *Node {
	if fault == nil {
		fault = func() Fault { return Fault{} }
	}
	node := &Node{net: n, fault: fault, closed: make(chan struct{}), subs: map[*subscription]bool{}}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.nodes[node] = true
	return node
}

// SetCut takes the node off the network, or back on. What is under way arrives.
func (n *Node) SetCut(cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
}

func (n *Node) isCut() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut
}

// way does f on the other side and waits for its answer, or the end of ctx.
func (n *Node) way(ctx context.Context, f func(Fault)) error {
	fault := n.fault()
	done := make(chan struct{})
	lost := n.isCut() || fault.LostThere
	after(fault.There, func() {
		if lost {
			return
		}
		f(fault)
		if !fault.LostBack && !n.isCut() {
			after(fault.Back, func() { close(done) })
		}
	})
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return cluster.ErrNotReady
	case <-n.closed:
		return cluster.ErrNotReady
	}
}

func after(d time.Duration, f func()) {
	if d <= 0 {
		f()
		return
	}
	time.AfterFunc(d, f)
}

// Get implements cluster.Transport.
func (n *Node) Get(ctx context.Context, key string) (cluster.Entry, error) {
	var out cluster.Entry
	var failed error
	if err := n.way(ctx, func(f Fault) {
		n.net.mu.Lock()
		defer n.net.mu.Unlock()
		e, ok := n.net.keys[key]
		if f.Stale {
			e, ok = n.net.before[key], n.net.before[key].Revision != 0
		}
		switch {
		case n.net.down:
			failed = cluster.ErrNotReady
		case !ok:
			failed = cluster.ErrNoKey
		}
		out = e
	}); err != nil {
		return cluster.Entry{}, err
	}
	if failed != nil {
		return cluster.Entry{}, failed
	}
	return out, nil
}

// Put implements cluster.Transport.
func (n *Node) Put(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	var out uint64
	var failed error
	if err := n.way(ctx, func(Fault) { out, failed = n.net.put(key, value, revision) }); err != nil {
		return 0, err
	}
	return out, failed
}

func (n *Net) put(key string, value []byte, revision uint64) (uint64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.down:
		return 0, cluster.ErrNotReady
	case n.keys[key].Revision != revision:
		return 0, cluster.ErrConflict
	}
	n.rev++
	n.before[key] = n.keys[key]
	n.keys[key] = cluster.Entry{Value: value, Revision: n.rev}
	return n.rev, nil
}

// watchEvery is how often a watch looks; the order of what it sees is the store's.
const watchEvery = 10 * time.Millisecond

// Watch implements cluster.Transport.
func (n *Node) Watch(ctx context.Context, key string, f func(cluster.Entry)) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for last := uint64(0); ; {
		n.net.mu.Lock()
		e, down := n.net.keys[key], n.net.down
		n.net.mu.Unlock()
		if e.Revision != 0 && e.Revision != last && !down && !n.isCut() {
			last = e.Revision
			f(e)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-n.closed:
			return cluster.ErrNotReady
		case <-tick.C:
		}
	}
}

// inbox bounds what waits for a subscriber; more is lost.
const inbox = 1024

// Subscribe implements cluster.Transport.
func (n *Node) Subscribe(subject string, f func(data []byte, reply string)) (stop func(), err error) {
	s := &subscription{subject: subject, inbox: make(chan message, inbox), done: make(chan struct{})}
	n.mu.Lock()
	n.subs[s] = true
	n.mu.Unlock()
	var group sync.WaitGroup
	group.Go(func() {
		for {
			select {
			case m := <-s.inbox:
				f(m.data, m.reply)
			case <-s.done:
				return
			case <-n.closed:
				return
			}
		}
	})
	return sync.OnceFunc(func() {
		n.mu.Lock()
		delete(n.subs, s)
		n.mu.Unlock()
		close(s.done)
		group.Wait()
	}), nil
}

// Publish implements cluster.Transport.
func (n *Node) Publish(subject string, data []byte) error {
	n.send(subject, message{append([]byte(nil), data...), ""})
	return nil
}

// send delivers to who subscribes when it arrives, and returns how many that may be.
func (n *Node) send(subject string, m message) (subscribers int) {
	fault := n.fault()
	if n.isCut() {
		return 0
	}
	n.net.mu.Lock()
	nodes := maps.Clone(n.net.nodes)
	n.net.mu.Unlock()
	for node := range nodes {
		if !node.isCut() {
			subscribers += node.subscribers(subject)
		}
	}
	if !fault.LostThere {
		after(fault.There, func() {
			for node := range nodes {
				node.deliver(subject, m)
			}
		})
	}
	return subscribers
}

func (n *Node) subscribers(subject string) (count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for s := range n.subs {
		if s.subject == subject {
			count++
		}
	}
	return count
}

func (n *Node) deliver(subject string, m message) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut {
		return
	}
	for s := range n.subs {
		if s.subject == subject {
			select {
			case s.inbox <- m:
			default:
			}
		}
	}
}

// Request implements cluster.Transport.
func (n *Node) Request(ctx context.Context, subject string, data []byte) ([]byte, error) {
	answers := make(chan []byte, 1)
	reply := rand.Text()
	stop, err := n.Subscribe(reply, func(data []byte, _ string) {
		select {
		case answers <- data:
		default:
		}
	})
	if err != nil {
		return nil, err
	}
	defer stop()
	if n.send(subject, message{append([]byte(nil), data...), reply}) == 0 {
		return nil, cluster.ErrNobody
	}
	select {
	case out := <-answers:
		return out, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-n.closed:
		return nil, cluster.ErrNobody
	}
}

// Dropped implements cluster.Transport: messages wait here for whoever takes them.
func (n *Node) Dropped() uint64 { return 0 }

// Problem implements cluster.Transport.
func (n *Node) Problem() error {
	n.net.mu.Lock()
	defer n.net.mu.Unlock()
	if n.net.down || n.isCut() {
		return cluster.ErrNotReady
	}
	return nil
}

// Close implements cluster.Transport: the replica is gone as if it had been killed.
func (n *Node) Close() {
	n.net.mu.Lock()
	gone := !n.net.nodes[n]
	delete(n.net.nodes, n)
	n.net.mu.Unlock()
	if !gone {
		close(n.closed)
	}
}
