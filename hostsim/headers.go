package hostsim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// Header is one field: Key in lower case, pseudo headers (":path") among them.
type Header struct{ Key, Value string }

// HeaderMap is an ordered list of fields, as Envoy keeps them: keys in lower
// case, repeated keys kept apart, pseudo headers before the rest.
type HeaderMap struct{ fields []Header }

// NewHeaderMap makes a map of key, value, key, value...; it panics on an odd
// number of arguments.
func NewHeaderMap(keysAndValues ...string) *HeaderMap {
	if len(keysAndValues)%2 != 0 {
		panic("hostsim.NewHeaderMap: a key without a value")
	}
	m := &HeaderMap{fields: make([]Header, 0, len(keysAndValues)/2)}
	for i := 0; i < len(keysAndValues); i += 2 {
		m.Add(keysAndValues[i], keysAndValues[i+1])
	}
	return m
}

// Len returns the number of fields, repeated keys counted each.
func (m *HeaderMap) Len() int {
	if m == nil {
		return 0
	}
	return len(m.fields)
}

// Fields returns the fields in order. The slice is the map's own: valid until
// the next edit.
func (m *HeaderMap) Fields() []Header {
	if m == nil {
		return nil
	}
	return m.fields
}

// Get returns the first value of key.
func (m *HeaderMap) Get(key string) (string, bool) {
	if m == nil {
		return "", false
	}
	for i := range m.fields {
		if strings.EqualFold(m.fields[i].Key, key) {
			return m.fields[i].Value, true
		}
	}
	return "", false
}

// Value returns the first value of key, or "".
func (m *HeaderMap) Value(key string) string {
	v, _ := m.Get(key)
	return v
}

// Add appends a field; a pseudo header goes behind the last pseudo header.
func (m *HeaderMap) Add(key, value string) {
	f := Header{strings.ToLower(key), value}
	if !strings.HasPrefix(key, ":") {
		m.fields = append(m.fields, f)
		return
	}
	at := 0
	for at < len(m.fields) && strings.HasPrefix(m.fields[at].Key, ":") {
		at++
	}
	m.fields = append(m.fields, Header{})
	copy(m.fields[at+1:], m.fields[at:])
	m.fields[at] = f
}

// Set removes every field of that key, then adds one (Envoy's setCopy).
func (m *HeaderMap) Set(key, value string) {
	m.Remove(key)
	m.Add(key, value)
}

// Remove deletes every field of that key and says how many there were.
func (m *HeaderMap) Remove(key string) int {
	kept := m.fields[:0]
	for _, f := range m.fields {
		if !strings.EqualFold(f.Key, key) {
			kept = append(kept, f)
		}
	}
	removed := len(m.fields) - len(kept)
	clear(m.fields[len(kept):])
	m.fields = kept
	return removed
}

// Clone returns an independent copy; of nil, nil.
func (m *HeaderMap) Clone() *HeaderMap {
	if m == nil {
		return nil
	}
	return &HeaderMap{fields: append([]Header(nil), m.fields...)}
}

// ByteSize is the sum of key and value lengths, as Envoy counts header bytes.
func (m *HeaderMap) ByteSize() int {
	n := 0
	for _, f := range m.Fields() {
		n += len(f.Key) + len(f.Value)
	}
	return n
}

// Pairs, the wire form of a header map in proxy-wasm (all integers uint32
// little-endian):
//
//	offset     size  meaning
//	0          4     n, number of pairs
//	4          8*n   per pair: key length, value length
//	4+8n       ...   per pair: key, 0, value, 0
//
// {"a": "bc"} is 01000000 01000000 02000000 61 00 62 63 00.

func pairsSize(fields []Header) int {
	n := 4
	for i := range fields {
		n += 8 + len(fields[i].Key) + 1 + len(fields[i].Value) + 1
	}
	return n
}

// putPairs writes the wire form into dst, which has pairsSize bytes.
func putPairs(dst []byte, fields []Header) {
	binary.LittleEndian.PutUint32(dst, uint32(len(fields)))
	sizes, at := 4, 4+8*len(fields)
	for i := range fields {
		f := &fields[i]
		binary.LittleEndian.PutUint32(dst[sizes:], uint32(len(f.Key)))
		binary.LittleEndian.PutUint32(dst[sizes+4:], uint32(len(f.Value)))
		sizes += 8
		at += copy(dst[at:], f.Key)
		dst[at] = 0
		at++
		at += copy(dst[at:], f.Value)
		dst[at] = 0
		at++
	}
}

var errPairs = errors.New("malformed pairs")

// parsePairs reads the wire form. An empty input is an empty map. Keys are
// lowered.
func parsePairs(b []byte) ([]Header, error) {
	if len(b) == 0 {
		return nil, nil
	}
	if len(b) < 4 {
		return nil, fmt.Errorf("%w: %d bytes hold no count", errPairs, len(b))
	}
	n := uint64(binary.LittleEndian.Uint32(b))
	if 4+8*n > uint64(len(b)) {
		return nil, fmt.Errorf("%w: %d pairs do not fit in %d bytes", errPairs, n, len(b))
	}
	fields := make([]Header, 0, n)
	at := 4 + 8*n
	for i := uint64(0); i < n; i++ {
		kl := uint64(binary.LittleEndian.Uint32(b[4+8*i:]))
		vl := uint64(binary.LittleEndian.Uint32(b[8+8*i:]))
		if at+kl+1+vl+1 > uint64(len(b)) {
			return nil, fmt.Errorf("%w: pair %d ends at %d of %d bytes", errPairs, i, at+kl+vl+2, len(b))
		}
		key := strings.ToLower(string(b[at : at+kl]))
		at += kl + 1
		fields = append(fields, Header{key, string(b[at : at+vl])})
		at += vl + 1
	}
	return fields, nil
}
