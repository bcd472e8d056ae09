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

// headersProperty answers request.headers and the like: the whole map (empty when
// it is not there), or one value.
func headersProperty(m *HeaderMap, rest []string) ([]byte, bool) {
	if len(rest) == 0 {
		fields := m.Fields()
		b := make([]byte, pairsSize(fields))
		putPairs(b, fields)
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

// property finds a value, or says why there is none.
func (in *instance) getProperty(c callContext, path []string) ([]byte, status) {
	value, ok := in.property(c, path)
	switch {
	case ok:
		return value, statusOK
	case c.stream != nil && len(path) == 1 && isPropertyMap(path[0]):
		return nil, statusSerialization // it is there, but not as bytes
	}
	return nil, statusNotFound
}

// isPropertyMap says whether a name stands for a group of properties.
func isPropertyMap(name string) bool {
	switch name {
	case "request", "response", "connection", "upstream", "source", "destination":
		return true
	}
	return false
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
		return s.requestProperty(c, rest)
	case "response":
		return s.responseProperty(c, rest)
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
		if len(rest) == 0 {
			return intProperty(int64(info.ConnectionID))
		}
	case "upstream":
		switch first() {
		case "address":
			return textProperty(info.UpstreamAddress)
		case "port":
			return portProperty(info.UpstreamAddress)
		case "local_address":
			return textProperty(info.UpstreamLocalAddress)
		case "transport_failure_reason":
			return []byte(info.UpstreamTransportFailureReason), info.UpstreamAddress != ""
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

// requestProperty answers below "request". What comes from the headers is there
// while the module may see them, no longer: not in the response's callbacks.
func (s *Stream) requestProperty(c callContext, path []string) ([]byte, bool) {
	if len(path) == 0 {
		return nil, false
	}
	h, _ := c.headerMap(mapRequestHeaders)
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
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil {
				return nil, false
			}
			return intProperty(n)
		}
		return intProperty(int64(s.req.bodyBytes))
	case "headers_bytes":
		return intProperty(int64(h.ByteSize()))
	case "total_size":
		return intProperty(int64(h.ByteSize() + s.req.bodyBytes))
	}
	return nil, false
}

func (s *Stream) responseProperty(c callContext, path []string) ([]byte, bool) {
	if len(path) == 0 {
		return nil, false
	}
	h, _ := c.headerMap(mapResponseHeaders)
	trailers, _ := c.headerMap(mapResponseTrailers)
	switch path[0] {
	case "headers":
		return headersProperty(h, path[1:])
	case "trailers":
		return headersProperty(trailers, path[1:])
	case "code": // the proxy remembers it
		n, err := strconv.ParseInt(s.code, 10, 64)
		if err != nil {
			return nil, false
		}
		return intProperty(n)
	case "code_details":
		return textProperty(s.Info.ResponseCodeDetails)
	case "flags":
		return intProperty(int64(s.Info.ResponseFlags))
	case "size": // what has gone to the client, not what has arrived
		return intProperty(int64(s.resp.bodyBytes))
	case "headers_bytes":
		return intProperty(int64(h.ByteSize()))
	case "total_size":
		return intProperty(int64(h.ByteSize() + s.resp.bodyBytes + trailers.ByteSize()))
	case "backend_latency":
		if s.Info.BackendLatency == 0 {
			return nil, false
		}
		return durationProperty(s.Info.BackendLatency)
	case "grpc_status":
		v, ok := trailers.Get("grpc-status")
		if !ok {
			v, ok = h.Get("grpc-status")
		}
		if !ok {
			return grpcFromHTTP(s.code)
		}
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return nil, false
		}
		return intProperty(n)
	}
	return nil, false
}

// grpcFromHTTP is the gRPC status that a plain HTTP answer stands for (gRPC's
// http-grpc-status-mapping).
func grpcFromHTTP(code string) ([]byte, bool) {
	switch code {
	case "":
		return nil, false
	case "400":
		return intProperty(13) // Internal
	case "401":
		return intProperty(16) // Unauthenticated
	case "403":
		return intProperty(7) // PermissionDenied
	case "404":
		return intProperty(12) // Unimplemented
	case "429", "502", "503", "504":
		return intProperty(14) // Unavailable
	}
	return intProperty(2) // Unknown
}
