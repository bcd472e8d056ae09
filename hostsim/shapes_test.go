package hostsim

import (
	"slices"
	"strings"
	"testing"
)

func TestEveryHostCallReadsInATranscript(t *testing.T) {
	known := map[string]bool{}
	for _, hc := range hostCalls() {
		known[hc.name] = true
		shape, ok := callShapes[hc.name]
		if !ok {
			t.Errorf("%s has no shape", hc.name)
		}
		width := 0
		for _, word := range strings.Fields(string(shape)) {
			width += shapeWidth(word)
		}
		if width != len(hc.params) {
			t.Errorf("%s has %d parameters, its shape %q takes %d", hc.name, len(hc.params), shape, width)
		}
	}
	for name := range callShapes {
		if !known[name] {
			t.Errorf("%s has a shape, but is no host call", name)
		}
	}
	for i := range exportNames {
		if _, ok := callbackShapes[exportNames[i].name]; !ok {
			t.Errorf("%s has no shape", exportNames[i].name)
		}
	}
}

// One request as its transcript shows it.
func TestATraceTellsEveryCall(t *testing.T) {
	s := script(t, strings.Join([]string{
		"request_headers: get request :path; set request x-a b; prop64 request/size; pairs request; pause",
		"request_body.end: body request; setprop k v; resume; call nowhere / 5",
		"log: counter c; inc c 2",
	}, "\n"))
	s.request()
	s.plugin.vm.openStreams()[0].Close()
	want := strings.TrimSpace(`
#2 proxy_on_context_create(id 2, parent 1)
#2 proxy_on_request_headers(headers 3, end_of_stream false)
#2   proxy_get_header_map_value(request_headers, ":path") = Ok "/"
#2   proxy_replace_header_map_value(request_headers, "x-a", "b") = Ok
#2   proxy_get_property(request.size) = Ok 0
#2   proxy_get_header_map_pairs(request_headers) = Ok {:method: POST, :path: /, :authority: x, x-a: b}
#2 proxy_on_request_headers = StopIteration
#2 proxy_on_request_body(size 3, end_of_stream true)
#2   proxy_get_buffer_bytes(request_body, 0, 4294967295) = Ok "abc"
#2   proxy_set_property(k, "v") = Ok
#2   proxy_continue_stream(request) = Ok
#2   proxy_http_call("nowhere", {:method: GET, :path: /, :authority: nowhere}, "", {}, 5ms) = BadArgument
#2 proxy_on_request_body = Continue
#2 proxy_on_log()
#2   proxy_define_metric(counter, "c") = Ok 4
#2   proxy_increment_metric(c, 2) = Ok
#2 proxy_on_done()
#2 proxy_on_done = true
#2 proxy_on_delete()`)
	if got := strings.Join(s.events, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestLongAndBinaryValuesAreShortened(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{strings.Repeat("a", 200), `"` + strings.Repeat("a", 96) + `"... (200 bytes)`},
		{strings.Repeat("a", 95) + "äb", `"` + strings.Repeat("a", 95) + `"... (98 bytes)`},
		{"\xff\x00\x01", "<ff 00 01>"},
		{strings.Repeat("\x00", 40), "<" + strings.TrimSpace(strings.Repeat("00 ", 16)) + " ... (40 bytes)>"},
		{"", `""`},
	} {
		if got := showBytes([]byte(c.in)); got != c.want {
			t.Errorf("%.20q: %s, want %s", c.in, got, c.want)
		}
	}
	if !slices.Contains(callbackShapes["proxy_on_request_body"].args([]uint64{1, 2, 1}, 3), "end_of_stream true") {
		t.Error("the end of the stream is not shown")
	}
}
