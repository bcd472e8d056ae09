package hostsim

import (
	"bytes"
	"encoding/binary"
	"net"
	"strconv"
	"strings"
	"time"
)

// Properties, Envoy's attributes as proxy_get_property gives them: strings and
// bytes as they are; integers, ports and codes as int64, 8 bytes little-endian;
// times and durations as int64 nanoseconds; booleans as one byte; maps as pairs.

// splitPath cuts a property path at its zero bytes; a trailing one (C style) is
// dropped.
func splitPath(path []byte) []string {
	path = bytes.TrimSuffix(path, []byte{0})
	return strings.Split(string(path), "\x00")
}

// joinPath is the filter state key of a written property: the SDKs send a path,
// Envoy takes it as one key. Segments are kept apart by dots.
func joinPath(path string) string {
	return strings.ReplaceAll(strings.TrimSuffix(path, "\x00"), "\x00", ".")
}

func intProperty(v int64) ([]byte, bool) {
	return binary.LittleEndian.AppendUint64(nil, uint64(v)), true
}

func textProperty(s string) ([]byte, bool) { return []byte(s), s != "" }

func durationProperty(d time.Duration) ([]byte, bool) { return intProperty(int64(d)) }

// headersProperty answers request.headers and the like: the whole map, or one
// value.
func headersProperty(m *HeaderMap, rest []string) ([]byte, bool) {
	if m == nil {
		return nil, false
	}
	if len(rest) == 0 {
		b := make([]byte, pairsSize(m.fields))
		putPairs(b, m.fields)
		return b, true
	}
	v, ok := m.Get(strings.Join(rest, "."))
	return []byte(v), ok
}

func headerProperty(m *HeaderMap, key string) ([]byte, bool) {
	v, ok := m.Get(key)
	return []byte(v), ok
}

func portProperty(address string) ([]byte, bool) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, false
	}
	return intProperty(int64(n))
}

func (in *instance) property(c callContext, path []string) ([]byte, bool) {
	if c.root == nil {
		return nil, false
	}
	rest := path[1:]
	first := func() string {
		if len(rest) == 1 {
			return rest[0]
		}
		return ""
	}
	switch path[0] {
	case "plugin_name":
		return []byte(c.root.cfg.Name), true
	case "plugin_root_id":
		return []byte(c.root.cfg.RootID), true
	case "plugin_vm_id":
		return []byte(in.vm.cfg.VMID), true
	}
	if path[0] == "xds" && len(path) == 3 && path[1] == "node" {
		switch path[2] {
		case "id":
			return textProperty(in.host.opts.Node.ID)
		case "cluster":
			return textProperty(in.host.opts.Node.Cluster)
		}
		return nil, false
	}
	s := c.stream
	if s == nil {
		return nil, false
	}
	info := &s.Info
	switch path[0] {
	case "request":
		return s.requestProperty(rest)
	case "response":
		return s.responseProperty(rest)
	case "filter_state":
		key := strings.Join(rest, ".")
		v, ok := s.filterState[strings.TrimPrefix(key, "wasm.")]
		return v, ok && strings.HasPrefix(key, "wasm.")
	case "source", "destination":
		address := info.SourceAddress
		if path[0] == "destination" {
			address = info.DestinationAddress
		}
		switch first() {
		case "address":
			return textProperty(address)
		case "port":
			return portProperty(address)
		}
	case "connection":
		if first() == "id" {
			return intProperty(int64(info.ConnectionID))
		}
	case "connection_id":
		return intProperty(int64(info.ConnectionID))
	case "upstream":
		switch first() {
		case "address":
			return textProperty(info.UpstreamAddress)
		case "port":
			return portProperty(info.UpstreamAddress)
		case "local_address":
			return textProperty(info.UpstreamLocalAddress)
		case "transport_failure_reason":
			return textProperty(info.UpstreamTransportFailureReason)
		case "request_attempt_count":
			v, _ := intProperty(int64(info.UpstreamRequestAttemptCount))
			return v, info.UpstreamRequestAttemptCount > 0
		}
	case "xds": // resolved before the filter runs; "" is an answer
		switch first() {
		case "route_name":
			return []byte(info.RouteName), true
		case "cluster_name":
			return []byte(info.ClusterName), true
		}
	default:
		// What the module itself wrote is found under the key it used.
		v, ok := s.filterState[strings.Join(path, ".")]
		return v, ok
	}
	return nil, false
}

func (s *Stream) requestProperty(path []string) ([]byte, bool) {
	if len(path) == 0 {
		return nil, false
	}
	h := s.req.headers
	switch path[0] {
	case "headers":
		return headersProperty(h, path[1:])
	case "path":
		return headerProperty(h, ":path")
	case "url_path":
		p, ok := h.Get(":path")
		p, _, _ = strings.Cut(p, "?")
		return []byte(p), ok
	case "query":
		p, ok := h.Get(":path")
		_, q, _ := strings.Cut(p, "?")
		return []byte(q), ok
	case "host":
		return headerProperty(h, ":authority")
	case "scheme":
		return headerProperty(h, ":scheme")
	case "method":
		return headerProperty(h, ":method")
	case "referer":
		return headerProperty(h, "referer")
	case "useragent":
		return headerProperty(h, "user-agent")
	case "id":
		if s.Info.RequestID == "" {
			return headerProperty(h, "x-request-id")
		}
		return textProperty(s.Info.RequestID)
	case "protocol":
		return textProperty(s.Info.Protocol)
	case "time":
		return intProperty(s.Info.StartTime.UnixNano())
	case "duration": // known once the request is complete, as in Envoy
		if s.endTime.IsZero() {
			return nil, false
		}
		return durationProperty(s.endTime.Sub(s.Info.StartTime))
	case "size":
		if v, ok := h.Get("content-length"); ok {
			if n, err := strconv.ParseInt(v, 10, 64); err == nil {
				return intProperty(n)
			}
		}
		return intProperty(int64(s.req.bodyBytes))
	case "total_size":
		return intProperty(int64(s.req.headerBytes + s.req.bodyBytes + s.req.trailers.ByteSize()))
	}
	return nil, false
}

func (s *Stream) responseProperty(path []string) ([]byte, bool) {
	if len(path) == 0 {
		return nil, false
	}
	h := s.resp.headers
	switch path[0] {
	case "headers":
		return headersProperty(h, path[1:])
	case "trailers":
		return headersProperty(s.resp.trailers, path[1:])
	case "code":
		n, err := strconv.ParseInt(h.Value(":status"), 10, 64)
		if err != nil {
			return nil, false
		}
		return intProperty(n)
	case "code_details":
		return textProperty(s.Info.ResponseCodeDetails)
	case "flags":
		return intProperty(int64(s.Info.ResponseFlags))
	case "size":
		return intProperty(int64(s.resp.bodyBytes))
	case "total_size":
		return intProperty(int64(s.resp.headerBytes + s.resp.bodyBytes + s.resp.trailers.ByteSize()))
	case "backend_latency":
		if s.Info.BackendLatency == 0 {
			return nil, false
		}
		return durationProperty(s.Info.BackendLatency)
	case "grpc_status":
		v, ok := s.resp.trailers.Get("grpc-status")
		if !ok {
			v = h.Value("grpc-status")
		}
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return nil, false
		}
		return intProperty(n)
	}
	return nil, false
}
