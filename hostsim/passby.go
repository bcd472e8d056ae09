package hostsim

// passBy takes a stream out of a module that has trapped: what the module held
// goes on as it stands, what is still to come passes untouched. Only where the
// module has kept bytes for itself (it answered stop-and-take) is nothing whole
// left to send, and the stream fails. See VMConfig.PassStreamsOnTrap.
func (s *Stream) passBy() {
	if s.finished || s.bypass {
		return
	}
	if s.req.taken || s.resp.taken {
		s.failStream()
		return
	}
	s.bypass = true
	s.passHeld(&s.req)
	s.passHeld(&s.resp)
}

// passHeld lets a held direction go, unless its callback is what trapped: then
// the piece in hand comes first, and its caller sends it.
func (s *Stream) passHeld(f *flow) {
	if s.finished || !f.started || f.state == flowing || f.inCallback || f.dir == request && s.replied {
		return
	}
	s.release(f)
}
