//go:build engine

package engine

import (
	"io"
	"net"
	"sync"
	"testing"
)

// cutter passes connections on to a target until it is told to cut them.
type cutter struct {
	listener net.Listener
	target   string

	mu   sync.Mutex
	open map[net.Conn]bool
	shut bool
}

// newCutter listens for connections to a tcp:// endpoint.
func newCutter(t *testing.T, endpoint string) *cutter {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{listener: listener, target: endpoint[len("tcp://"):], open: map[net.Conn]bool{}}
	go c.accept()
	t.Cleanup(func() { listener.Close(); c.cut(true) })
	return c
}

func (c *cutter) endpoint() string { return "tcp://" + c.listener.Addr().String() }

func (c *cutter) accept() {
	for {
		in, err := c.listener.Accept()
		if err != nil {
			return
		}
		if !c.keep(in) {
			continue
		}
		out, err := net.Dial("tcp", c.target)
		if err != nil || !c.keep(out) {
			in.Close()
			continue
		}
		for _, way := range [2][2]net.Conn{{in, out}, {out, in}} {
			go func() {
				_, _ = io.Copy(way[0], way[1])
				way[0].Close()
				way[1].Close()
			}()
		}
	}
}

// keep notes a connection to be cut; it closes one that comes while shut.
func (c *cutter) keep(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shut {
		conn.Close()
		return false
	}
	c.open[conn] = true
	return true
}

// cut closes every connection. While shut is true new ones are closed, too.
func (c *cutter) cut(shut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shut = shut
	for conn := range c.open {
		conn.Close()
	}
	clear(c.open)
}
