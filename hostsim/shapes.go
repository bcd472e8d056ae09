package hostsim

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// callbackShape is how a callback's parameters and result read in a transcript.
type callbackShape struct {
	params string // words; "end" is a boolean, "context" is left out (the line has it)
	result func(uint32) string
}

var (
	nothing      func(uint32) string
	acceptResult = func(v uint32) string { return fmt.Sprint(v != 0) }
)

func headersResult(v uint32) string {
	names := [...]string{"Continue", "StopIteration", "ContinueAndEndStream", "StopAllIterationAndBuffer", "StopAllIterationAndWatermark"}
	return nameOr(names[:], v)
}

func bodyResult(v uint32) string {
	names := [...]string{"Continue", "StopIterationAndBuffer", "StopIterationAndWatermark", "StopIterationNoBuffer"}
	return nameOr(names[:], v)
}

func trailersResult(v uint32) string { return nameOr([]string{"Continue", "StopIteration"}, v) }

func nameOr(names []string, v uint32) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprint(v)
}

var callbackShapes = map[string]callbackShape{
	"proxy_on_context_create":     {"id parent", nothing},
	"proxy_on_vm_start":           {"context configuration", acceptResult},
	"proxy_on_configure":          {"context configuration", acceptResult},
	"proxy_on_request_headers":    {"context headers end", headersResult},
	"proxy_on_request_body":       {"context size end", bodyResult},
	"proxy_on_request_trailers":   {"context trailers", trailersResult},
	"proxy_on_response_headers":   {"context headers end", headersResult},
	"proxy_on_response_body":      {"context size end", bodyResult},
	"proxy_on_response_trailers":  {"context trailers", trailersResult},
	"proxy_on_done":               {"context", acceptResult},
	"proxy_on_log":                {"context", nothing},
	"proxy_on_delete":             {"context", nothing},
	"proxy_on_tick":               {"context", nothing},
	"proxy_on_queue_ready":        {"context queue", nothing},
	"proxy_on_http_call_response": {"context call headers body trailers", nothing},
	"_initialize":                 {"", nothing},
	"_start":                      {"", nothing},
}

func (s callbackShape) args(stack []uint64, n int) []string {
	var args []string
	words := strings.Fields(s.params)
	for i := range n {
		v := uint32(stack[i])
		switch {
		case i >= len(words):
			args = append(args, fmt.Sprint(v))
		case words[i] == "context":
		case words[i] == "end":
			args = append(args, fmt.Sprintf("end_of_stream %t", v != 0))
		default:
			args = append(args, fmt.Sprintf("%s %d", words[i], v))
		}
	}
	return args
}

// callShape is a host call's parameters in order, as words: the input kinds text
// and data and pairs take two parameters (address, size); kinds with > are
// results, whose parameters are places in the module's memory.
type callShape string

var callShapes = map[string]callShape{
	"proxy_log":                          "level text",
	"proxy_get_log_level":                ">level",
	"proxy_get_current_time_nanoseconds": ">time",
	"proxy_get_status":                   ">u32 >text",
	"proxy_set_tick_period_milliseconds": "ms",
	"proxy_set_effective_context":        "context",
	"proxy_done":                         "",
	"proxy_get_property":                 "path >value",
	"proxy_set_property":                 "path value",
	"proxy_call_foreign_function":        "text data >data",

	"proxy_get_shared_data":         "text >data >cas",
	"proxy_set_shared_data":         "text data cas",
	"proxy_register_shared_queue":   "text >queue",
	"proxy_resolve_shared_queue":    "text text >queue",
	"proxy_enqueue_shared_queue":    "queue data",
	"proxy_dequeue_shared_queue":    "queue >data",
	"proxy_define_metric":           "type text >u32",
	"proxy_increment_metric":        "metric i64",
	"proxy_record_metric":           "metric i64",
	"proxy_get_metric":              "metric >i64",
	"proxy_get_header_map_value":    "map text >text",
	"proxy_get_header_map_pairs":    "map >pairs",
	"proxy_get_header_map_size":     "map >u32",
	"proxy_add_header_map_value":    "map text text",
	"proxy_set_header_map_pairs":    "map pairs",
	"proxy_get_buffer_bytes":        "buffer u32 u32 >data",
	"proxy_get_buffer_status":       "buffer >u32 >u32",
	"proxy_set_buffer_bytes":        "buffer u32 u32 data",
	"proxy_continue_stream":         "stream",
	"proxy_close_stream":            "stream",
	"proxy_send_local_response":     "u32 text data pairs grpc",
	"proxy_http_call":               "text pairs data pairs ms >call",
	"proxy_grpc_call":               "text text text pairs data ms >call",
	"proxy_grpc_stream":             "text text text pairs >call",
	"proxy_grpc_send":               "call data u32",
	"proxy_grpc_close":              "call",
	"proxy_grpc_cancel":             "call",
	"proxy_remove_header_map_value": "map text",

	"proxy_replace_header_map_value": "map text text",
}

var (
	mapNames = []string{
		"request_headers", "request_trailers", "response_headers", "response_trailers",
		"grpc_initial_metadata", "grpc_trailing_metadata", "call_response_headers", "call_response_trailers",
	}
	bufferNames = []string{
		"request_body", "response_body", "downstream_data", "upstream_data", "call_response_body",
		"grpc_receive", "vm_configuration", "plugin_configuration", "call_data",
	}
	streamNames = []string{"request", "response", "downstream", "upstream"}
)

// width is how many parameters a word takes.
func shapeWidth(word string) int {
	switch strings.TrimPrefix(word, ">") {
	case "text", "data", "pairs", "path", "value":
		return 2
	}
	return 1
}

// inputs reads what a call was given.
func (s callShape) inputs(in *instance, a []uint64) []string {
	var out []string
	for _, word := range strings.Fields(string(s)) {
		v := uint32(a[0])
		switch word {
		case "level":
			out = append(out, LogLevel(v).String())
		case "map":
			out = append(out, nameOr(mapNames, v))
		case "buffer":
			out = append(out, nameOr(bufferNames, v))
		case "stream":
			out = append(out, nameOr(streamNames, v))
		case "type":
			out = append(out, nameOr([]string{"counter", "gauge", "histogram"}, v))
		case "metric":
			out = append(out, in.metricName(a[0]))
		case "ms":
			out = append(out, (time.Duration(int32(v)) * time.Millisecond).String())
		case "cas", "queue", "context", "call":
			out = append(out, fmt.Sprintf("%s %d", word, v))
		case "grpc":
			if int32(v) >= 0 {
				out = append(out, fmt.Sprintf("grpc_status %d", v))
			}
		case "i64":
			out = append(out, fmt.Sprint(int64(a[0])))
		case "u32":
			out = append(out, fmt.Sprint(v))
		case "text", "data", "pairs", "path", "value":
			out = append(out, in.show(word, v, uint32(a[1])))
		}
		a = a[shapeWidth(word):]
	}
	return out
}

// outputs reads what a call gave back.
func (s callShape) outputs(in *instance, a []uint64) []string {
	var out []string
	for _, word := range strings.Fields(string(s)) {
		if kind, isOut := strings.CutPrefix(word, ">"); isOut {
			out = append(out, in.showOut(kind, a))
		}
		a = a[shapeWidth(word):]
	}
	return out
}

func (in *instance) showOut(kind string, a []uint64) string {
	place := uint32(a[0])
	switch kind {
	case "text", "data", "pairs", "value":
		ptr, _ := in.mem.ReadUint32Le(place)
		size, _ := in.mem.ReadUint32Le(uint32(a[1]))
		return in.show(kind, ptr, size)
	case "time", "i64":
		v, _ := in.mem.ReadUint64Le(place)
		if kind == "time" {
			return time.Unix(0, int64(v)).UTC().Format(time.RFC3339Nano)
		}
		return fmt.Sprint(int64(v))
	}
	v, _ := in.mem.ReadUint32Le(place)
	switch kind {
	case "level":
		return LogLevel(v).String()
	case "cas", "queue", "call":
		return fmt.Sprintf("%s %d", kind, v)
	}
	return fmt.Sprint(v)
}

// show renders size bytes of the module's memory.
func (in *instance) show(kind string, ptr, size uint32) string {
	b, ok := in.mem.Read(ptr, size)
	if !ok && size > 0 {
		return fmt.Sprintf("<%d bytes at 0x%x: outside of memory>", size, ptr)
	}
	switch kind {
	case "path":
		return strings.Join(splitPath(b), ".")
	case "pairs":
		return showPairs(b)
	case "value": // numbers come as 8 bytes
		if len(b) == 8 && !printable(b) {
			return fmt.Sprint(int64(binary.LittleEndian.Uint64(b)))
		}
	}
	return showBytes(b)
}

func showPairs(b []byte) string {
	fields, err := parsePairs(b)
	if err != nil {
		return "<" + err.Error() + ">"
	}
	var out strings.Builder
	out.WriteByte('{')
	for i, f := range fields {
		if i > 0 {
			out.WriteString(", ")
		}
		out.WriteString(f.Key + ": ")
		if printable([]byte(f.Value)) && len(f.Value) <= shownBytes {
			out.WriteString(f.Value)
		} else {
			out.WriteString(showBytes([]byte(f.Value)))
		}
	}
	out.WriteByte('}')
	return out.String()
}

// shownBytes is how much of a value a transcript shows.
const shownBytes = 96

// showBytes quotes text, gives other bytes in hex, and shortens both.
func showBytes(b []byte) string {
	rest := ""
	shown := b
	if len(b) > shownBytes {
		shown = b[:shownBytes]
		for n := 0; n < utf8.UTFMax-1 && !utf8.Valid(shown) && len(shown) > 0; n++ {
			shown = shown[:len(shown)-1] // not in the middle of a character
		}
		rest = fmt.Sprintf("... (%d bytes)", len(b))
	}
	if !utf8.Valid(shown) || strings.Count(string(shown), "\x00")*4 > len(shown) {
		hex := b[:min(len(b), 16)]
		if len(hex) < len(b) {
			return fmt.Sprintf("<% x ... (%d bytes)>", hex, len(b))
		}
		return fmt.Sprintf("<% x>", hex)
	}
	return fmt.Sprintf("%q%s", shown, rest)
}

func printable(b []byte) bool {
	if !utf8.Valid(b) {
		return false
	}
	for _, c := range b {
		if c < ' ' && c != '\t' && c != '\n' && c != '\r' {
			return false
		}
	}
	return true
}

// metricName is the name behind a metric's id.
func (in *instance) metricName(id uint64) string {
	if m, st := in.metric(id); st == statusOK {
		return m.name
	}
	return fmt.Sprintf("metric %d", uint32(id))
}
