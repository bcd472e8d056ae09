package kvevents

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"
)

const (
	dialTimeout   = 3 * time.Second
	replayTimeout = 5 * time.Second // between two frames
)

// connection is a ZMTP connection of its own, without the queues and goroutines
// of a zmq4 socket: what isn't read yet stays with the kernel and the engine, so
// a slow reader slows the engine's queue down and nothing is dropped in between.
type connection struct {
	*zmq4.Conn
	net net.Conn
}

// connect dials tcp://host:port and shakes hands. The end of ctx closes it.
func connect(ctx context.Context, endpoint string, kind zmq4.SocketType) (*connection, func(), error) {
	address, ok := strings.CutPrefix(endpoint, "tcp://")
	if !ok {
		return nil, nil, fmt.Errorf("connect %s: only tcp:// endpoints can be reached from here", endpoint)
	}
	// An idle engine says nothing for hours; a host that is gone is found out by probes.
	d := net.Dialer{Timeout: dialTimeout, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}}
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, nil, fmt.Errorf("connect %s: %w", endpoint, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	shut := func() { stop(); _ = c.Close() }
	_ = c.SetDeadline(time.Now().Add(dialTimeout))
	z, err := zmq4.Open(&guard{Conn: c, r: bufio.NewReaderSize(c, 64<<10), greeting: 64}, null.Security(), kind, nil, false, nil)
	if err != nil {
		shut()
		return nil, nil, fmt.Errorf("connect %s: %w", endpoint, err)
	}
	_ = c.SetDeadline(time.Time{})
	return &connection{z, c}, shut, nil
}

// message reads the last two frames of the next message: the sequence number
// and the payload. What stands before them (topic, empty delimiter) differs
// between releases. end tells that a replay is over.
func (c *connection) message() (seq uint64, payload []byte, end bool, err error) {
	for {
		msg, err := c.RecvMsg()
		if err != nil {
			return 0, nil, false, err
		}
		if msg.Type == zmq4.CmdMsg {
			continue
		}
		n := len(msg.Frames)
		if n < 2 || len(msg.Frames[n-2]) != 8 {
			return 0, nil, false, fmt.Errorf("a message of %d frames without a sequence number: not a publisher of KV events", n)
		}
		s := int64(binary.BigEndian.Uint64(msg.Frames[n-2]))
		if s < 0 {
			return 0, nil, true, nil
		}
		return uint64(s), msg.Frames[n-1], false, nil
	}
}

// guard refuses frames and messages that are too long before the library makes
// room for them, and reads ahead.
type guard struct {
	net.Conn
	r        *bufio.Reader
	greeting int    // bytes until the first frame
	left     uint64 // bytes of the current frame, its header included
	message  uint64 // bytes of the current message up to the end of that frame
}

// Flags of a frame.
const (
	frameMore = 1 << iota // another frame of the message follows
	frameLong             // its length has 8 bytes
)

var errFrame = errors.New("a message is longer than any batch of events")

func (g *guard) Read(p []byte) (int, error) {
	if g.greeting > 0 {
		n, err := g.r.Read(p[:min(len(p), g.greeting)])
		g.greeting -= n
		return n, err
	}
	if g.left == 0 {
		head, err := g.r.Peek(2)
		if err != nil {
			return 0, err
		}
		flags := head[0]
		g.left = 2 + uint64(head[1])
		if flags&frameLong != 0 {
			if head, err = g.r.Peek(9); err != nil {
				return 0, err
			}
			size := binary.BigEndian.Uint64(head[1:])
			if size > MaxPayloadBytes {
				return 0, errFrame
			}
			g.left = 9 + size
		}
		if g.message += g.left; g.message > MaxPayloadBytes+64<<10 { // topic and number are short
			return 0, errFrame
		}
		if flags&frameMore == 0 {
			g.message = 0
		}
	}
	n, err := g.r.Read(p[:min(uint64(len(p)), g.left)])
	g.left -= uint64(n)
	return n, err
}
