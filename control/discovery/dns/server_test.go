package dns

import (
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"
)

// server is a name server on loopback whose zone and manners tests change.
type server struct {
	addr string

	mu      sync.Mutex
	zone    map[string][]string // "name. TYPE" -> records in presentation format
	rcode   int                 // answered to everything when not 0
	silent  bool
	cut     bool // answers over UDP are truncated
	queries map[string]int
}

func startServer(t *testing.T, zone map[string][]string) *server {
	t.Helper()
	s := &server{zone: zone, queries: map[string]int{}}
	packets, stream := listen(t)
	s.addr = packets.LocalAddr().String()
	for _, d := range []*dns.Server{{PacketConn: packets, Handler: s}, {Listener: stream, Handler: s}} {
		started, ended := make(chan struct{}), make(chan struct{})
		d.NotifyStartedFunc = func() { close(started) }
		go func() {
			defer close(ended)
			_ = d.ActivateAndServe()
		}()
		<-started
		t.Cleanup(func() {
			_ = d.Shutdown()
			<-ended
		})
	}
	return s
}

// listen takes a port that is free for both protocols.
func listen(t *testing.T) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 100 {
		packets, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		stream, err := net.Listen("tcp", packets.LocalAddr().String())
		if err == nil {
			return packets, stream
		}
		_ = packets.Close() // somebody has it for TCP
	}
	t.Fatal("no port is free for both UDP and TCP")
	return nil, nil
}

func (s *server) set(change func(*server)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *server) ServeDNS(w dns.ResponseWriter, query *dns.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.silent {
		return
	}
	reply := new(dns.Msg).SetReply(query)
	q := query.Question[0]
	s.queries[q.Name+" "+dns.TypeToString[q.Qtype]]++
	known := false
	for key, records := range s.zone {
		name, qtype, _ := strings.Cut(key, " ")
		if name != q.Name {
			continue
		}
		known = true
		if qtype == dns.TypeToString[q.Qtype] {
			reply.Answer = append(reply.Answer, parse(records)...)
		}
	}
	if reply.Rcode = s.rcode; s.rcode == 0 && !known {
		reply.Rcode = dns.RcodeNameError
	}
	if len(reply.Answer) == 0 {
		reply.Ns = parse([]string{"test. 600 IN SOA ns.test. admin.test. 1 2 3 4 7"})
	}
	if _, udp := w.RemoteAddr().(*net.UDPAddr); udp && s.cut {
		reply.Truncated, reply.Answer = true, nil
	}
	_ = w.WriteMsg(reply)
}

func parse(records []string) []dns.RR {
	var out []dns.RR
	for _, text := range records {
		rr, err := dns.NewRR(text)
		if err != nil {
			panic(err)
		}
		out = append(out, rr)
	}
	return out
}
