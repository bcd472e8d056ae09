package conformance

import (
	"fmt"
	"net"
	"sync"

	"github.com/warmpath/warmpath/hostsim"
)

// server is the upstream or the control server: it keeps requests open until
// the scenario answers them.
type server struct {
	actor    string
	http1    bool
	listener net.Listener

	mu      sync.Mutex
	journal *journal
	conns   map[net.Conn]bool
	open    []*exchange // unanswered, oldest first
}

// exchange is one request at a server.
type exchange struct {
	stream string
	send   func(Action) error
}

func serve(l net.Listener, actor string, http1 bool) *server {
	s := &server{actor: actor, http1: http1, listener: l, journal: &journal{}, conns: map[net.Conn]bool{}}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[conn] = true
			j := s.journal
			s.mu.Unlock()
			if http1 {
				go s.take1(conn, j)
			} else {
				go s.take2(conn)
			}
		}
	}()
	return s
}

func (s *server) port() int { return s.listener.Addr().(*net.TCPAddr).Port }

// attend begins a scenario: what comes goes to j, what is open is forgotten.
func (s *server) attend(j *journal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.journal, s.open = j, nil
	for conn := range s.conns {
		conn.Close()
	}
	s.conns = map[net.Conn]bool{}
}

func (s *server) close() {
	s.listener.Close()
	s.attend(&journal{})
}

func (s *server) opened(e *exchange) {
	s.mu.Lock()
	s.open = append(s.open, e)
	s.mu.Unlock()
}

// act is the oldest open exchange of that name's next move.
func (s *server) act(a Action) error {
	s.mu.Lock()
	var e *exchange
	for i, x := range s.open {
		if x.stream == a.Stream {
			e = x
			if a.End || a.Kind == Reset || a.Kind == Disconnect {
				s.open = append(s.open[:i:i], s.open[i+1:]...)
			}
			break
		}
	}
	s.mu.Unlock()
	if e == nil {
		return fmt.Errorf("the %s server has no open stream %q", s.actor, a.Stream)
	}
	return e.send(a)
}

func (s *server) take2(conn net.Conn) {
	defer conn.Close()
	s.mu.Lock()
	p := newPeer(conn, s.actor, true, s.journal)
	s.mu.Unlock()
	p.opened = func(stream string, on *peer, id uint32) {
		s.opened(&exchange{stream: stream, send: func(a Action) error { return on.send(id, a) }})
	}
	if p.hello() == nil {
		p.read()
	}
}

// dialed makes the client's side of a connection.
func dialed(conn net.Conn, http1 bool, j *journal) (clientSide, error) {
	if http1 {
		return dial1(conn, j), nil
	}
	p := newPeer(conn, client, false, j)
	if err := p.hello(); err != nil {
		return nil, err
	}
	go p.read()
	return &client2{peer: p, ids: map[string]uint32{}}, nil
}

// client2 is a client with HTTP/2.
type client2 struct {
	peer *peer
	ids  map[string]uint32
}

func (c *client2) do(stream string, a Action) error {
	if a.Kind == Headers {
		id, err := c.peer.open(stream, a)
		c.ids[stream] = id
		return err
	}
	id, ok := c.ids[stream]
	if !ok {
		return fmt.Errorf("the client has no stream %q", stream)
	}
	return c.peer.send(id, a)
}

func (c *client2) close() { c.peer.conn.Close() }

// fieldsOf is for HTTP/1.1: fields as lines.
func fieldsOf(lines []string) []hostsim.Header {
	fields := make([]hostsim.Header, 0, len(lines))
	for _, line := range lines {
		key, value, _ := cutField(line)
		fields = append(fields, hostsim.Header{Key: key, Value: value})
	}
	return fields
}
