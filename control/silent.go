package control

import (
	"net"
	"net/http"
	"sync"
)

// silent keeps the connections that haven't asked anything yet. A proxy's pool
// opens some in reserve, and http.Server.Shutdown would wait five seconds for
// each to speak.
type silent struct {
	mu    sync.Mutex
	conns map[net.Conn]struct{}
	over  bool
}

// track is a ConnState hook.
func (s *silent) track(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state != http.StateNew {
		delete(s.conns, c)
		return
	}
	if s.over {
		_ = c.Close()
		return
	}
	if s.conns == nil {
		s.conns = map[net.Conn]struct{}{}
	}
	s.conns[c] = struct{}{}
}

// close ends them, and those that come later.
func (s *silent) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for c := range s.conns {
		_ = c.Close()
	}
}
