package conformance

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/warmpath/warmpath/hostsim"
)

// Setup is the proxy of a scenario: one listener with a chain of plugins.
type Setup struct {
	HTTP1            bool          // both sides speak HTTP/1.1; otherwise HTTP/2
	BufferLimitBytes int           // of the listener, for HTTP/1.1; 0: 1 MiB
	RouteLimitBytes  int           // the route's request_body_buffer_limit; 0: none
	WindowBytes      int           // of HTTP/2 streams, which bounds their buffers; 0: Envoy's default
	IdleTimeout      time.Duration // stream_idle_timeout; 0: none
	ShowMain         bool          // the main thread's VMs are in the transcript too
	Plugins          []*PluginSetup

	counted map[string][]string // see number
}

// PluginSetup is one plugin of the chain.
type PluginSetup struct {
	Name, RootID, Module  string
	VMID, VMConfiguration string
	Policy                hostsim.FailurePolicy
	Backoff               time.Duration
	AllowStop             bool
	Script                string // the plugin's configuration
}

// vmKey says which plugins share a VM, as Envoy does: same vm_id, same
// vm_config.configuration, same code.
func (p *PluginSetup) vmKey() string {
	return p.VMID + "\x00" + p.VMConfiguration + "\x00" + p.Module
}

// handlers are the callbacks that a script may have a line for; those that tell
// the end of a stream also take ".end".
var handlers = []string{
	"configure", "context_create", "tick", "queue_ready", "call_response",
	"request_headers", "request_body", "request_trailers",
	"response_headers", "response_body", "response_trailers", "log", "done", "delete",
}

// parseListener reads the input of "> listener".
func parseListener(s *Setup, input []string) error {
	for _, line := range input {
		key, value, _ := strings.Cut(line, ": ")
		var err error
		switch key {
		case "protocol":
			if s.HTTP1 = value == "HTTP/1.1"; !s.HTTP1 && value != "HTTP/2" {
				err = fmt.Errorf("%q is not HTTP/1.1 or HTTP/2", value)
			}
		case "buffer_limit_bytes":
			s.BufferLimitBytes, err = strconv.Atoi(value)
		case "request_body_buffer_limit":
			s.RouteLimitBytes, err = strconv.Atoi(value)
		case "initial_stream_window_size":
			s.WindowBytes, err = strconv.Atoi(value)
		case "stream_idle_timeout":
			s.IdleTimeout, err = time.ParseDuration(value)
		case "show_main":
			s.ShowMain, err = strconv.ParseBool(value)
		default:
			err = fmt.Errorf("no such setting")
		}
		if err != nil {
			return fmt.Errorf("listener: %s: %w", key, err)
		}
	}
	return nil
}

// parsePlugin reads the input of "> plugin NAME": settings of Envoy's
// PluginConfig, then the lines of the script. The default vm_id is the
// scenario's name.
func parsePlugin(name, scenario string, input []string) (*PluginSetup, error) {
	p := &PluginSetup{Name: name, Module: "guest", VMID: scenario, Backoff: time.Second}
	for _, line := range input {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		var err error
		switch key {
		case "module":
			p.Module = value
		case "root_id":
			p.RootID = value
		case "vm_id":
			p.VMID = value
		case "vm_configuration":
			p.VMConfiguration = value
		case "allow_on_headers_stop_iteration":
			p.AllowStop, err = strconv.ParseBool(value)
		case "reload_backoff":
			p.Backoff, err = time.ParseDuration(value)
		case "failure_policy":
			all := []hostsim.FailurePolicy{hostsim.FailReload, hostsim.FailOpen, hostsim.FailClosed}
			at := slices.IndexFunc(all, func(f hostsim.FailurePolicy) bool { return f.String() == value })
			if at < 0 {
				err = fmt.Errorf("%q is none of %v", value, all)
				break
			}
			p.Policy = all[at]
		default:
			if !slices.Contains(handlers, strings.TrimSuffix(key, ".end")) {
				err = fmt.Errorf("no such setting or callback")
			}
			p.Script += line + "\n"
		}
		if err != nil {
			return nil, fmt.Errorf("plugin %s: %s: %w", name, key, err)
		}
	}
	return p, nil
}

// Action is something that the client, the upstream or the control server does
// with one of its streams.
type Action struct {
	Stream  string // name of the client's stream; "" for the only one
	Kind    ActionKind
	Headers []hostsim.Header // headers, trailers
	Data    []byte
	End     bool
}

// ActionKind is what is done.
type ActionKind uint8

// The kinds.
const (
	Headers ActionKind = iota
	Data
	Trailers
	Reset      // of the stream: RST_STREAM, or the connection with HTTP/1.1
	Disconnect // of the connection
)

// Actors, the first word of a command.
const (
	client   = "client"
	upstream = "upstream"
	control  = "control"
)

// parseAction reads a command such as
//
//	client a headers end        (input lines: header fields)
//	client a data "abc" end     (or a number of bytes)
//	upstream response 503       (input lines: header fields)
//	control reply 200 "body"
//	client reset
func parseAction(words, input []string) (actor string, a Action, err error) {
	actor, words = words[0], words[1:]
	if n := len(words); n > 0 && words[n-1] == "end" {
		a.End, words = true, words[:n-1]
	}
	verbs := []string{"headers", "response", "data", "trailers", "reset", "disconnect"}
	if len(words) > 1 && !slices.Contains(verbs, words[0]) {
		a.Stream, words = words[0], words[1:]
	}
	if len(words) == 0 {
		return "", a, fmt.Errorf("%s does what? One of %v", actor, verbs)
	}
	verb, rest := words[0], words[1:]
	fields, err := parseFields(input)
	if err != nil {
		return "", a, err
	}
	switch verb {
	case "headers":
		if actor != client {
			return "", a, fmt.Errorf("an answer begins with response, not with headers")
		}
		a.Headers = requestHeaders(fields, a.Stream, a.End)
	case "response":
		if actor == client {
			return "", a, fmt.Errorf("a client has no response to give")
		}
		status := "200"
		if len(rest) > 0 {
			status, rest = rest[0], rest[1:]
		}
		a.Headers = append([]hostsim.Header{{Key: ":status", Value: status}}, fields...)
	case "data":
		a.Kind = Data
		if len(rest) == 0 {
			return "", a, fmt.Errorf("data: which? A quoted string or a number of bytes")
		}
		if a.Data, err = parseData(rest[0]); err != nil {
			return "", a, err
		}
		rest = rest[1:]
	case "trailers":
		a.Kind, a.Headers, a.End = Trailers, fields, true
	case "reset":
		a.Kind = Reset
	case "disconnect":
		a.Kind = Disconnect
	default:
		return "", a, fmt.Errorf("%s: no such verb; one of %v", verb, verbs)
	}
	if len(rest) > 0 {
		return "", a, fmt.Errorf("%s: words left over: %v", verb, rest)
	}
	return actor, a, nil
}

// maxData bounds what one data command may send.
const maxData = 8 << 20

func parseData(word string) ([]byte, error) {
	if strings.HasPrefix(word, `"`) {
		s, err := strconv.Unquote(word)
		if err != nil {
			return nil, fmt.Errorf("data: %s is not a quoted string: %w", word, err)
		}
		return []byte(s), nil
	}
	n, err := strconv.Atoi(word)
	if err != nil || n < 0 || n > maxData {
		return nil, fmt.Errorf("data: %q is neither a quoted string nor a number of bytes up to %d", word, maxData)
	}
	return []byte(strings.Repeat("x", n)), nil
}

func parseFields(lines []string) ([]hostsim.Header, error) {
	var fields []hostsim.Header
	for _, line := range lines {
		if line == "" {
			return nil, fmt.Errorf("an empty header line")
		}
		at := strings.Index(line[1:], ": ") + 1
		if at == 0 {
			return nil, fmt.Errorf("header line %q: write key: value", line)
		}
		fields = append(fields, hostsim.Header{Key: line[:at], Value: line[at+2:]})
	}
	return fields, nil
}

// requestHeaders completes the fields of a request: the pseudo headers that are
// not given, and the name by which the upstream knows the stream.
func requestHeaders(fields []hostsim.Header, stream string, end bool) []hostsim.Header {
	method := "POST"
	if end {
		method = "GET"
	}
	var all, rest []hostsim.Header
	for _, d := range []hostsim.Header{{Key: ":method", Value: method}, {Key: ":path", Value: "/"}, {Key: ":scheme", Value: "http"}, {Key: ":authority", Value: "host"}} {
		if at := slices.IndexFunc(fields, func(f hostsim.Header) bool { return f.Key == d.Key }); at >= 0 {
			d = fields[at]
		}
		all = append(all, d)
	}
	for _, f := range fields {
		if !strings.HasPrefix(f.Key, ":") {
			rest = append(rest, f)
		}
	}
	if stream != "" {
		rest = append(rest, hostsim.Header{Key: streamHeader, Value: stream})
	}
	return append(all, rest...)
}

// streamHeader tells the upstream which stream of the client a request is.
const streamHeader = "x-stream"

// splitWords cuts a command at blanks, quoted strings kept whole.
func splitWords(command string) ([]string, error) {
	var words []string
	for rest := strings.TrimLeft(command, " "); rest != ""; rest = strings.TrimLeft(rest, " ") {
		if rest[0] == '"' {
			quoted, err := strconv.QuotedPrefix(rest)
			if err != nil {
				return nil, fmt.Errorf("%q: a quoted string without an end", rest)
			}
			words, rest = append(words, quoted), rest[len(quoted):]
			continue
		}
		word, tail, _ := strings.Cut(rest, " ")
		words, rest = append(words, word), tail
	}
	if len(words) == 0 {
		return nil, fmt.Errorf("an empty command")
	}
	return words, nil
}
