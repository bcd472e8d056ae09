package conformance

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync"

	"github.com/warmpath/warmpath/hostsim"
)

// peer1 is one HTTP/1.1 connection of an actor, piece by piece. It carries one
// exchange at a time.
type peer1 struct {
	actor   string
	journal *journal
	conn    net.Conn

	mu     sync.Mutex
	stream string
	length bool // what is sent has a Content-Length: no chunks
	hungUp bool // by this side
}

func cutField(line string) (key, value string, ok bool) {
	key, value, ok = strings.Cut(line, ":")
	return strings.ToLower(key), strings.TrimSpace(value), ok
}

// head reads a start line and its fields.
func head(r *bufio.Reader) (start string, fields []hostsim.Header, err error) {
	var lines []string
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return "", nil, err
		}
		if line = strings.TrimRight(line, "\r\n"); line == "" {
			break
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		return "", nil, io.ErrUnexpectedEOF
	}
	return lines[0], fieldsOf(lines[1:]), nil
}

// read takes one message after the other: begin makes pseudo headers of the
// start line.
func (p *peer1) read(begin func(start string, fields []hostsim.Header) []hostsim.Header) {
	r := bufio.NewReader(p.conn)
	for {
		start, fields, err := head(r)
		if err != nil {
			break
		}
		fields = begin(start, fields)
		if err := p.message(r, fields); err != nil {
			break
		}
	}
	p.mu.Lock()
	hungUp := p.hungUp
	p.mu.Unlock()
	if !hungUp {
		p.say(Action{Kind: Disconnect})
	}
}

func (p *peer1) hangUp() error {
	p.mu.Lock()
	p.hungUp = true
	p.mu.Unlock()
	return p.conn.Close()
}

func (p *peer1) say(a Action) {
	p.mu.Lock()
	stream := p.stream
	p.mu.Unlock()
	p.journal.add(event{actor: p.actor, stream: stream, Action: a})
}

// message reads the rest of a message behind its head.
func (p *peer1) message(r *bufio.Reader, fields []hostsim.Header) error {
	var body io.Reader
	var limit *io.LimitedReader
	chunked := strings.Contains(valueOf(fields, "transfer-encoding"), "chunked")
	if chunked {
		body = httputil.NewChunkedReader(r)
	} else {
		n, _ := strconv.ParseInt(valueOf(fields, "content-length"), 10, 64)
		limit = &io.LimitedReader{R: r, N: n}
		body = limit
		if n == 0 {
			p.say(Action{Headers: fields, End: true})
			return nil
		}
	}
	p.say(Action{Headers: fields})
	for b := make([]byte, maxFrame); ; {
		n, err := body.Read(b)
		if n > 0 {
			p.say(Action{Kind: Data, Data: b[:n]})
		}
		if err == io.EOF && limit != nil && limit.N > 0 {
			return io.ErrUnexpectedEOF
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	if chunked { // trailers, then an empty line
		var trailers []string
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return err
			}
			if line = strings.TrimRight(line, "\r\n"); line == "" {
				break
			}
			trailers = append(trailers, line)
		}
		if len(trailers) > 0 {
			p.say(Action{Kind: Trailers, Headers: fieldsOf(trailers), End: true})
			return nil
		}
	}
	p.say(Action{Kind: Data, End: true})
	return nil
}

// send does a: start is the first line of a message with these headers.
func (p *peer1) send(start string, a Action) error {
	var b strings.Builder
	switch a.Kind {
	case Headers:
		b.WriteString(start + "\r\n")
		for _, f := range a.Headers {
			if !strings.HasPrefix(f.Key, ":") {
				b.WriteString(f.Key + ": " + f.Value + "\r\n")
			}
		}
		p.length = valueOf(a.Headers, "content-length") != ""
		switch {
		case a.End && strings.HasPrefix(start, "HTTP/") && !p.length:
			b.WriteString("content-length: 0\r\n")
		case !a.End && !p.length:
			b.WriteString("transfer-encoding: chunked\r\n")
		}
		b.WriteString("\r\n")
	case Data:
		if p.length {
			b.Write(a.Data)
			break
		}
		if len(a.Data) > 0 {
			fmt.Fprintf(&b, "%x\r\n%s\r\n", len(a.Data), a.Data)
		}
		if a.End {
			b.WriteString("0\r\n\r\n")
		}
	case Trailers:
		b.WriteString("0\r\n")
		for _, f := range a.Headers {
			b.WriteString(f.Key + ": " + f.Value + "\r\n")
		}
		b.WriteString("\r\n")
	default:
		return p.hangUp()
	}
	_, err := io.WriteString(p.conn, b.String())
	return err
}

// take1 serves an upstream's connection.
func (s *server) take1(conn net.Conn, j *journal) {
	defer conn.Close()
	p := &peer1{actor: s.actor, journal: j, conn: conn}
	p.read(func(start string, fields []hostsim.Header) []hostsim.Header {
		method, path, _ := strings.Cut(start, " ")
		path, _, _ = strings.Cut(path, " ")
		p.mu.Lock()
		p.stream = valueOf(fields, streamHeader)
		p.mu.Unlock()
		s.opened(&exchange{stream: p.stream, send: func(a Action) error {
			return p.send("HTTP/1.1 "+valueOf(a.Headers, ":status")+" status", a)
		}})
		all := []hostsim.Header{{Key: ":method", Value: method}, {Key: ":path", Value: path}}
		for _, f := range fields {
			if f.Key == "host" {
				f.Key = ":authority"
			}
			all = append(all, f)
		}
		return all
	})
}

// client1 is a client with HTTP/1.1: a connection per stream.
type client1 struct {
	journal *journal
	first   net.Conn
	peers   map[string]*peer1
}

func dial1(conn net.Conn, j *journal) *client1 {
	return &client1{journal: j, first: conn, peers: map[string]*peer1{}}
}

func (c *client1) do(stream string, a Action) error {
	p := c.peers[stream]
	if p == nil {
		conn := c.first
		if conn == nil {
			return fmt.Errorf("one stream at a time with HTTP/1.1")
		}
		c.first = nil
		p = &peer1{actor: client, journal: c.journal, conn: conn, stream: stream}
		c.peers[stream] = p
		go p.read(func(start string, fields []hostsim.Header) []hostsim.Header {
			_, status, _ := strings.Cut(start, " ")
			status, _, _ = strings.Cut(status, " ")
			return append([]hostsim.Header{{Key: ":status", Value: status}}, fields...)
		})
	}
	start := valueOf(a.Headers, ":method") + " " + valueOf(a.Headers, ":path") + " HTTP/1.1\r\nhost: " + valueOf(a.Headers, ":authority")
	return p.send(start, a)
}

func (c *client1) close() {
	if c.first != nil {
		c.first.Close()
	}
	for _, p := range c.peers {
		_ = p.hangUp()
	}
}
