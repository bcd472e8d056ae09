package conformance

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/warmpath/warmpath/hostsim"
)

// peer is one HTTP/2 connection of an actor, frame by frame, so that each data
// command is one frame and each frame of the proxy is seen as it is.
type peer struct {
	actor   string
	journal *journal
	conn    net.Conn
	server  bool
	opened  func(stream string, on *peer, id uint32) // server: a request has come

	mu     sync.Mutex
	moved  *sync.Cond // windows, settings, end
	framer *http2.Framer
	encode *hpack.Encoder
	block  bytes.Buffer
	window map[uint32]int64 // what may still be sent; 0 is the connection
	first  int64            // window of new streams
	ready  bool             // the peer's settings have come
	closed bool
	lastID uint32

	names map[uint32]string // of streams
	begun map[uint32]bool   // headers have come; more headers are trailers
	ended map[uint32]bool   // the other side has sent all
}

// grant is what a peer may send us without asking: more than any scenario does.
const grant = 64 << 20

// newPeer takes over a connection.
func newPeer(conn net.Conn, actor string, server bool, j *journal) *peer {
	p := &peer{
		actor: actor, journal: j, conn: conn, server: server, framer: http2.NewFramer(conn, conn),
		window: map[uint32]int64{0: 65535}, first: 65535, names: map[uint32]string{}, begun: map[uint32]bool{}, ended: map[uint32]bool{},
	}
	p.moved = sync.NewCond(&p.mu)
	p.encode = hpack.NewEncoder(&p.block)
	p.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	return p
}

// hello sends the preface and settings.
func (p *peer) hello() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.server {
		if _, err := p.conn.Write([]byte(http2.ClientPreface)); err != nil {
			return err
		}
	}
	if err := p.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: grant}); err != nil {
		return err
	}
	return p.framer.WriteWindowUpdate(0, grant)
}

// read takes frames until the connection ends.
func (p *peer) read() {
	if p.server {
		preface := make([]byte, len(http2.ClientPreface))
		for n := 0; n < len(preface); {
			k, err := p.conn.Read(preface[n:])
			if err != nil {
				return
			}
			n += k
		}
	}
	for {
		f, err := p.framer.ReadFrame()
		if err != nil {
			break
		}
		p.take(f)
	}
	p.mu.Lock()
	p.closed = true
	p.moved.Broadcast()
	p.mu.Unlock()
}

func (p *peer) take(f http2.Frame) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := f.Header().StreamID
	say := func(a Action) {
		p.journal.add(event{actor: p.actor, stream: p.names[id], Action: a})
	}
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if f.IsAck() {
			return
		}
		if v, ok := f.Value(http2.SettingInitialWindowSize); ok {
			for open := range p.window {
				if open != 0 {
					p.window[open] += int64(v) - p.first
				}
			}
			p.first = int64(v)
		}
		p.ready = true
		_ = p.framer.WriteSettingsAck()
		p.moved.Broadcast()
	case *http2.PingFrame:
		if !f.IsAck() {
			_ = p.framer.WritePing(true, f.Data)
		}
	case *http2.WindowUpdateFrame:
		if _, open := p.window[id]; open {
			p.window[id] += int64(f.Increment)
		}
		p.moved.Broadcast()
	case *http2.MetaHeadersFrame:
		fields := make([]hostsim.Header, 0, len(f.Fields))
		for _, h := range f.Fields {
			fields = append(fields, hostsim.Header{Key: h.Name, Value: h.Value})
		}
		kind := Headers
		if p.begun[id] {
			kind = Trailers
		} else if p.server {
			p.window[id] = p.first
			p.names[id] = valueOf(fields, streamHeader)
			p.opened(p.names[id], p, id)
		}
		p.begun[id] = true
		p.ended[id] = f.StreamEnded()
		say(Action{Kind: kind, Headers: fields, End: f.StreamEnded()})
	case *http2.DataFrame:
		p.ended[id] = f.StreamEnded()
		say(Action{Kind: Data, Data: f.Data(), End: f.StreamEnded()})
	case *http2.RSTStreamFrame:
		// After an answer to half a request the proxy resets what is left of it:
		// that is how HTTP/2 says it, not how a filter behaves.
		if p.server || !p.ended[id] {
			say(Action{Kind: Reset})
		}
	case *http2.GoAwayFrame:
		if f.ErrCode != http2.ErrCodeNo {
			p.journal.add(event{actor: p.actor, Action: Action{Kind: Disconnect}})
		}
	}
}

func valueOf(fields []hostsim.Header, key string) string {
	for _, f := range fields {
		if f.Key == key {
			return f.Value
		}
	}
	return ""
}

// sendLimit bounds how long a peer waits for settings or for a window.
const sendLimit = 10 * time.Second

// await waits until ready says so; p.mu is held.
func (p *peer) await(what string, ready func() bool) error {
	late := false
	timer := time.AfterFunc(sendLimit, func() {
		p.mu.Lock()
		late = true
		p.moved.Broadcast()
		p.mu.Unlock()
	})
	defer timer.Stop()
	for !ready() {
		if late || p.closed {
			return fmt.Errorf("%s waits for %s in vain", p.actor, what)
		}
		p.moved.Wait()
	}
	return nil
}

// open starts a stream as a client and returns its id.
func (p *peer) open(name string, a Action) (uint32, error) {
	p.mu.Lock()
	if err := p.await("the settings of the proxy", func() bool { return p.ready }); err != nil {
		p.mu.Unlock()
		return 0, err
	}
	if p.lastID == 0 {
		p.lastID = 1
	} else {
		p.lastID += 2
	}
	id := p.lastID
	p.names[id], p.window[id] = name, p.first
	p.mu.Unlock()
	return id, p.send(id, a)
}

// maxFrame is the largest data frame: HTTP/2's default.
const maxFrame = 16 << 10

// send does a on a stream.
func (p *peer) send(id uint32, a Action) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch a.Kind {
	case Headers, Trailers:
		p.block.Reset()
		for _, f := range a.Headers {
			if err := p.encode.WriteField(hpack.HeaderField{Name: strings.ToLower(f.Key), Value: f.Value}); err != nil {
				return err
			}
		}
		return p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.block.Bytes(), EndStream: a.End, EndHeaders: true})
	case Data:
		for rest := a.Data; ; {
			n := min(len(rest), maxFrame)
			if err := p.await("room to send", func() bool {
				return p.window[0] >= int64(n) && p.window[id] >= int64(n)
			}); err != nil {
				return err
			}
			p.window[0] -= int64(n)
			p.window[id] -= int64(n)
			last := n == len(rest)
			if err := p.framer.WriteData(id, last && a.End, rest[:n]); err != nil {
				return err
			}
			if rest = rest[n:]; last {
				return nil
			}
		}
	case Reset:
		return p.framer.WriteRSTStream(id, http2.ErrCodeCancel)
	default:
		return p.conn.Close()
	}
}
