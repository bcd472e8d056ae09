package share

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
)

// A message between replicas, little endian:
//
//	offset size
//	0      4    magic "WPS1"
//	4      1    kind: 1 batch of a gateway, 2 heartbeat, 3 position
//	5      3    0
//	8      8    nonce of the replica that sends it
//	16     8    its number, from 1; of a position: the last number given
//	24     n    payload: the frame of the batch; the JSON of the heartbeat; or
//	0      8    digest of the published table: exclusive or over its ranges
//	8      4    entries in it
//	12     4    0
const (
	headerBytes   = 24
	positionBytes = 16
	// MaxPayload bounds a payload; the bus takes 1 MB.
	MaxPayload = 900 << 10
)

// Kind is what a message carries.
type Kind uint8

// The kinds.
const (
	Batch     Kind = 1
	Heartbeat Kind = 2

	position Kind = 3
)

type header struct {
	kind     Kind
	origin   uint64
	sequence uint64
}

func appendHeader(b []byte, h *header) []byte {
	b = append(b, 'W', 'P', 'S', '1', byte(h.kind), 0, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, h.origin)
	return binary.LittleEndian.AppendUint64(b, h.sequence)
}

func appendPosition(b []byte, origin, last uint64, entries int, digest uint64) []byte {
	b = appendHeader(b, &header{position, origin, last})
	b = binary.LittleEndian.AppendUint64(b, digest)
	b = binary.LittleEndian.AppendUint32(b, uint32(entries))
	return append(b, 0, 0, 0, 0)
}

// decodePosition reads the payload of a position that decode has checked.
func decodePosition(b []byte) (entries int, digest uint64) {
	return int(binary.LittleEndian.Uint32(b[8:])), binary.LittleEndian.Uint64(b)
}

func decode(b []byte) (h header, payload []byte, err error) {
	if len(b) < headerBytes || string(b[:4]) != "WPS1" {
		return header{}, nil, errors.New("not a message of this version")
	}
	h = header{Kind(b[4]), binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])}
	payload = b[headerBytes:]
	switch {
	case h.kind < Batch || h.kind > position:
		return header{}, nil, fmt.Errorf("unknown kind %d", h.kind)
	case h.kind == position && len(payload) != positionBytes:
		return header{}, nil, fmt.Errorf("a position of %d bytes", len(payload))
	case h.sequence == 0 && h.kind != position:
		return header{}, nil, errors.New("number 0")
	}
	return h, payload, nil
}

const (
	keptMessages = 8192
	keptBytes    = 32 << 20
	againSubject = "share.again"
	againBytes   = 512 << 10
)

// sentLog keeps the last messages, for those who missed one.
type sentLog struct {
	mu       sync.Mutex
	messages [][]byte // the oldest first, one number after the other
	bytes    int
	given    uint64 // the last number
}

// add numbers a message, keeps it and sends it. Numbers are sent in order.
func (l *sentLog) add(kind Kind, origin uint64, payload []byte, send func([]byte) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.given++
	message := append(appendHeader(make([]byte, 0, headerBytes+len(payload)), &header{kind, origin, l.given}), payload...)
	l.messages = append(l.messages, message)
	l.bytes += len(message)
	for len(l.messages) > keptMessages || l.bytes > keptBytes {
		l.bytes -= len(l.messages[0])
		l.messages[0] = nil
		l.messages = l.messages[1:]
	}
	return send(message)
}

func (l *sentLog) last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.given
}

// from returns messages from a number on, or from the first that is left, as
// length u32 and message, up to a size.
func (l *sentLog) from(number uint64) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []byte
	first := l.given - uint64(len(l.messages)) + 1
	for i := max(number, first); i <= l.given; i++ {
		message := l.messages[i-first]
		if len(out) > 0 && len(out)+4+len(message) > againBytes {
			break
		}
		out = binary.LittleEndian.AppendUint32(out, uint32(len(message)))
		out = append(out, message...)
	}
	return out
}

// serveAgain answers whoever missed messages: the request is a number.
func (s *Share) serveAgain(req []byte) []byte {
	if len(req) != 8 {
		return nil
	}
	return s.log.from(binary.LittleEndian.Uint64(req))
}

// askAgain fetches the messages of a peer from its next number up to before.
func (s *Share) askAgain(ctx context.Context, origin uint64, p *peer, before uint64) {
	for p.next < before {
		was := p.next
		ask, cancel := context.WithTimeout(ctx, askTime)
		answer, err := s.cfg.Bus.Request(ask, fmt.Sprintf("%s.%016x", againSubject, origin), binary.LittleEndian.AppendUint64(nil, p.next))
		cancel()
		for err == nil && len(answer) > 4 && p.next < before {
			n := int(binary.LittleEndian.Uint32(answer))
			if n > len(answer)-4 {
				break
			}
			h, payload, bad := decode(answer[4 : 4+n])
			answer = answer[4+n:]
			if bad != nil || h.origin != origin || h.kind == position || h.sequence < p.next {
				break
			}
			s.lose(origin, p, min(h.sequence, before))
			if h.sequence < before {
				s.counter.again.Add(1)
				s.apply(p, &h, payload)
			}
		}
		if p.next == was {
			s.lose(origin, p, before)
		}
	}
}

// lose gives up what comes before a number.
func (s *Share) lose(origin uint64, p *peer, before uint64) {
	if before <= p.next {
		return
	}
	s.cfg.Log.Warn("messages of another replica are lost, its index will be merged", "replica", fmt.Sprintf("%016x", origin), "messages", before-p.next)
	s.counter.lost.Add(before - p.next)
	s.mu.Lock()
	defer s.mu.Unlock()
	p.next, p.heal = before, true
}
