package usage

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func file(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// result is all that a Reader told about one response.
type result struct {
	Usage
	ok    bool
	first int // how many bytes had been fed when content was first reported; -1 never
}

// read feeds a response in the given pieces.
func read(t testing.TB, r *Reader, kind Kind, pieces ...[]byte) result {
	t.Helper()
	r.Reset(kind)
	res := result{first: -1}
	fed := 0
	for _, p := range pieces {
		n := r.Want(len(p))
		first := r.FeedTail(p[len(p)-n:], len(p))
		fed += len(p)
		if first {
			if res.first >= 0 {
				t.Fatal("first content was reported twice")
			}
			res.first = fed
		}
	}
	res.Usage, res.ok = r.Finish()
	return res
}

var responses = []struct {
	name  string
	kind  Kind
	want  Usage
	first string // the first generated content; the event ends two lines on
}{
	{"vllm_chat_stream.sse", SSE, Usage{147, 128, 8, true, true}, `"content":"\n"`},
	{"vllm_chat_stream_continuous.sse", SSE, Usage{147, 128, 8, true, true}, `"content":"\n"`},
	{"vllm_completions_stream.sse", SSE, Usage{3, 0, 4, true, true}, `"text":"*h"`},
	{"vllm_chat.json", JSON, Usage{148, 128, 8, true, true}, ""},
	{"vllm_completions.json", JSON, Usage{100, 0, 4, true, true}, ""},
	{"anthropic_messages.sse", SSE, Usage{25 + 100 + 4096, 4096, 36, true, true}, `"text":"The"`},
	{"responses.sse", SSE, Usage{328, 320, 52, true, true}, `"delta":"Pier"`},
}

func TestUsageIsFound(t *testing.T) {
	for _, tc := range responses {
		got := read(t, new(Reader), tc.kind, file(t, tc.name))
		if !got.ok || got.Usage != tc.want {
			t.Errorf("%s: %+v, %v; want %+v", tc.name, got.Usage, got.ok, tc.want)
		}
	}
}

func TestUsageIsTheSameWhereverTheStreamIsCut(t *testing.T) {
	r := new(Reader)
	for _, tc := range responses {
		b := file(t, tc.name)
		end := 1
		if tc.kind == SSE {
			at := bytes.Index(b, []byte(tc.first))
			end = at + bytes.IndexAny(b[at:], "\r\n") + 1
		}
		for cut := 1; cut < len(b); cut++ {
			got := read(t, r, tc.kind, b[:cut], b[cut:])
			if !got.ok || got.Usage != tc.want {
				t.Fatalf("%s cut at %d: %+v, %v", tc.name, cut, got.Usage, got.ok)
			}
			want := cut
			if cut < end {
				want = len(b)
			}
			if got.first != want {
				t.Fatalf("%s cut at %d: first content after %d bytes, want %d (its event ends at %d)", tc.name, cut, got.first, want, end)
			}
		}
		for _, size := range []int{1, 2, 3, 7, 64, 255, 1023, 4096} {
			var pieces [][]byte
			for rest := b; len(rest) > 0; rest = rest[min(size, len(rest)):] {
				pieces = append(pieces, rest[:min(size, len(rest))])
			}
			got := read(t, r, tc.kind, pieces...)
			want := min((end+size-1)/size*size, len(b))
			if !got.ok || got.Usage != tc.want || got.first != want {
				t.Errorf("%s in pieces of %d: %+v, %v, first after %d, want %d", tc.name, size, got.Usage, got.ok, got.first, want)
			}
		}
	}
}

func TestOneEventPerChunkAsEnginesSend(t *testing.T) {
	for _, tc := range responses {
		if tc.kind != SSE {
			continue
		}
		got := read(t, new(Reader), SSE, bytes.SplitAfter(file(t, tc.name), []byte("\n\n"))...)
		if !got.ok || got.Usage != tc.want {
			t.Errorf("%s: %+v, %v", tc.name, got.Usage, got.ok)
		}
	}
}

func TestLongStreamNeedsOnlyItsEnds(t *testing.T) {
	r := new(Reader)
	for _, tc := range responses {
		b := file(t, tc.name)
		if tc.kind != SSE {
			continue
		}
		// Coalesced chunks of 64 KiB, of which only the ends are read, stand
		// between the first content and the event with the usage.
		filler := []byte("data: {\"x\":\"" + strings.Repeat("y", 64<<10) + "\"}\n\n")
		head := bytes.Index(b, []byte(tc.first))
		head += bytes.IndexByte(b[head:], '\n') + 1
		cut := bytes.LastIndex(b, usageKey)
		cut = max(head, bytes.LastIndexByte(b[:cut], '\n')+1)
		got := read(t, r, SSE, b[:head], filler, filler, b[cut:])
		if !got.ok || got.Usage != tc.want || got.first != head {
			t.Errorf("%s: %+v, %v, first after %d of %d", tc.name, got.Usage, got.ok, got.first, head)
		}
	}
}

func TestNoUsageIsSaid(t *testing.T) {
	for name, b := range map[string]string{
		"nothing":          "",
		"null":             "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":null}\n\ndata: [DONE]\n\n",
		"text only":        `data: {"choices":[{"delta":{"content":"\"usage\":{\"prompt_tokens\":5}"}}]}` + "\n\n",
		"word as value":    `{"choices":[{"message":{"content":"usage"}}]}`,
		"no counts":        `{"usage":{"seconds":3}}`,
		"negative":         `{"usage":{"prompt_tokens":-4}}`,
		"absurd":           `{"usage":{"prompt_tokens":1e300}}`,
		"strings":          `{"usage":{"prompt_tokens":"12"}}`,
		"cut off":          `{"usage":{"prompt_tokens":12`,
		"too large":        `{"usage":{"x":"` + strings.Repeat("y", 2*maxObjectBytes) + `","prompt_tokens":1}}`,
		"an error":         string(file(t, "vllm_error.json")),
		"deep":             `{"usage":` + strings.Repeat(`{"usage":`, 500),
		"compressed bytes": "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xff\xfe",
	} {
		for _, kind := range []Kind{SSE, JSON} {
			if got := read(t, new(Reader), kind, []byte(b)); got.ok {
				t.Errorf("%s: reported %+v", name, got.Usage)
			}
		}
	}
}

func TestOddButLegalFraming(t *testing.T) {
	want := Usage{12, 4, 3, true, true}
	for name, s := range map[string]string{
		"carriage returns":   "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\r\rdata: {\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\r\r",
		"no space":           "data:{\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata:{\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\ndata:[DONE]\n\n",
		"data over lines":    "data: {\"choices\":[{\"delta\":\ndata: {\"content\":\"a\"}}]}\n\nevent: x\ndata: {\"usage\"\ndata: :\n: a comment\ndata: {\"prompt_tokens\":\ndata:12,\r\ndata: \"completion_tokens\": 3,\ndata: \"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n",
		"last usage is null": "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\ndata: {\"usage\":null}\n\n",
		"spaces":             "data: {\"choices\" : [ { \"delta\" : { \"content\" : \"a\" } } ] }\n\n: ping\n\ndata: { \"usage\" : { \"prompt_tokens\" : 12 , \"completion_tokens\" : 3, \"prompt_tokens_details\" : { \"cached_tokens\" : 4 } } }\n\n",
		"no end of line":     "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":4}}}",
	} {
		r := new(Reader)
		for cut := 0; cut <= len(s); cut++ {
			got := read(t, r, SSE, []byte(s[:cut]), []byte(s[cut:]))
			if !got.ok || got.Usage != want || got.first < 0 {
				t.Fatalf("%s cut at %d: %+v, %v, first after %d", name, cut, got.Usage, got.ok, got.first)
			}
		}
	}
	pretty := "{\n  \"usage\"\n:\n{\n \"prompt_tokens\": 12,\r\n \"completion_tokens\": 3,\n\t\"prompt_tokens_details\": {\n\"cached_tokens\": 4 } } }\n"
	if got := read(t, new(Reader), JSON, []byte(pretty)); got.Usage != want {
		t.Errorf("pretty JSON: %+v, %v", got.Usage, got.ok)
	}
}

func TestQuotesInsideTheUsageObject(t *testing.T) {
	got := read(t, new(Reader), JSON, []byte(`{"usage":{"note":"a \"}] \\","prompt_tokens":5}}`))
	if !got.ok || got.PromptTokens != 5 {
		t.Errorf("%+v, %v", got.Usage, got.ok)
	}
}

func TestWindowHoldsTheLastBytesWhateverThePieces(t *testing.T) {
	const object = `"usage":{"prompt_tokens":12,"completion_tokens":3}`
	r := new(Reader)
	for _, size := range []int{1, 5, 100, 900} {
		for pad := tailBytes - 60; pad <= 2*tailBytes+60; pad += 7 {
			b := []byte(strings.Repeat("x", pad) + object)
			var pieces [][]byte
			for rest := b; len(rest) > 0; rest = rest[min(size, len(rest)):] {
				pieces = append(pieces, rest[:min(size, len(rest))])
			}
			if got := read(t, r, JSON, pieces...); !got.ok || got.PromptTokens != 12 {
				t.Fatalf("%d bytes before, in pieces of %d: %+v, %v", pad, size, got.Usage, got.ok)
			}
			for _, after := range []int{tailBytes - len(object), tailBytes - len(object) + 1} {
				pieces := append(pieces[:len(pieces):len(pieces)], bytes.Repeat([]byte(" "), after/2), bytes.Repeat([]byte(" "), after-after/2))
				if got := read(t, r, JSON, pieces...); got.ok != (after+len(object) <= tailBytes) {
					t.Fatalf("%d bytes before, %d after, in pieces of %d: %+v, %v", pad, after, size, got.Usage, got.ok)
				}
			}
		}
	}
}

func TestNothingIsJoinedOverAGap(t *testing.T) {
	r := new(Reader)
	r.Reset(JSON)
	r.Feed([]byte(`{"usage":{"prompt_tokens":1`))
	r.FeedTail([]byte(`2}}`), 1000)
	if u, ok := r.Finish(); ok {
		t.Errorf("reported %+v", u)
	}
	r.Reset(SSE)
	r.Feed([]byte("data: {\"x\":\""))
	if r.FeedTail([]byte("data: {\"content\":\"x\"}\n"), 1000) {
		t.Error("the rest of a line was taken for a line")
	}
	if !r.Feed([]byte("data: {\"content\":\"x\"}\n")) {
		t.Error("the line after a lost one was not read")
	}
}

func TestPingsAreNoContentHoweverMany(t *testing.T) {
	r := new(Reader)
	r.Reset(SSE)
	for range 10 * maxSilentEvents {
		if r.Feed([]byte("event: ping\ndata: {\"type\": \"ping\"}\n\n: keep-alive\n\n")) {
			t.Fatal("a ping was taken for content")
		}
	}
}

func TestWhatIsNoContent(t *testing.T) {
	for _, s := range []string{
		`{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`,
		`{"choices":[{"delta":{"role":"assistant","content":null,"tool_calls":[]}}]}`,
		`{"choices":[{"delta":{},"finish_reason":"stop"}]}`,
		`{"choices":[],"usage":{"prompt_tokens":1}}`,
		`{"type":"content_block_start","content_block":{"type":"text","text":""}}`,
		`{"type": "ping"}`,
		`{"error":{"message":"content: x","code":500}}`,
		`[DONE]`,
		` `,
		`{"content":`,
		`{"tool_calls":[`,
	} {
		if got := read(t, new(Reader), SSE, []byte("data: "+s+"\n\n")); got.first >= 0 {
			t.Errorf("taken for content: %s", s)
		}
	}
	for _, s := range []string{
		`{"choices":[{"delta":{"content":" "}}]}`,
		`{"choices":[{"delta":{"content":"message_start"}}]}`,
		`{"choices":[{"delta":{"reasoning_content":"Hm"}}]}`,
		`{"choices":[{"delta":{"content":null,"tool_calls":[{"index":0,"function":{"name":"f","arguments":""}}]}}]}`,
		`{"choices":[{"text":"\\\""}]}`,
		`{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{"}}`,
		`{"type":"response.function_call_arguments.delta","delta":"{"}`,
	} {
		if got := read(t, new(Reader), SSE, []byte("data: "+s+"\n\n")); got.first < 0 {
			t.Errorf("not taken for content: %s", s)
		}
	}
}

func TestUnknownDialectStillHasAFirstToken(t *testing.T) {
	event := []byte("data: {\"token\":\"a\"}\n\n")
	r := new(Reader)
	r.Reset(SSE)
	for n := 1; ; n++ {
		if r.Feed(event) {
			if n != maxSilentEvents+1 {
				t.Errorf("after %d events", n)
			}
			return
		}
		if n > 2*maxSilentEvents {
			t.Fatal("never")
		}
	}
}

func TestBrokenAnthropicStreamKnowsItsPrompt(t *testing.T) {
	b := file(t, "anthropic_messages.sse")
	for _, upTo := range []string{"event: content_block_start", "event: content_block_stop"} {
		got := read(t, new(Reader), SSE, b[:bytes.Index(b, []byte(upTo))])
		want := Usage{PromptTokens: 25 + 100 + 4096, CachedTokens: 4096, CachedKnown: true}
		if !got.ok || got.Usage != want {
			t.Errorf("up to %s: %+v, %v; want %+v", upTo, got.Usage, got.ok, want)
		}
	}
}

func TestCachedTokensMayBeUnknown(t *testing.T) {
	got := read(t, new(Reader), JSON, []byte(`{"usage":{"prompt_tokens":5,"total_tokens":5,"prompt_tokens_details":null}}`))
	if want := (Usage{PromptTokens: 5}); !got.ok || got.Usage != want {
		t.Errorf("%+v, %v; want %+v", got.Usage, got.ok, want)
	}
}

func TestFeedingDoesNotAllocate(t *testing.T) {
	r := new(Reader)
	chunks := bytes.SplitAfter(file(t, "vllm_chat_stream.sse"), []byte("\n\n"))
	if n := testing.AllocsPerRun(100, func() {
		r.Reset(SSE)
		for _, c := range chunks {
			r.Feed(c)
		}
	}); n != 0 {
		t.Errorf("%v allocations per stream", n)
	}
}

func FuzzUsage(f *testing.F) {
	for _, tc := range responses {
		b := file(f, tc.name)
		f.Add(b[max(0, len(b)-900):], uint16(100), uint16(200), tc.kind == JSON)
	}
	f.Add([]byte("data: {\"usage\"\ndata: :{\"prompt_tokens\":1}}"), uint16(8), uint16(1), false)
	f.Fuzz(func(t *testing.T, b []byte, cut1, cut2 uint16, json bool) {
		kind := SSE
		if json {
			kind = JSON
		}
		i := int(cut1) % (len(b) + 1)
		j := i + int(cut2)%(len(b)-i+1)
		r := new(Reader)
		feed := func(pieces ...[]byte) result {
			r.Reset(kind)
			res := result{first: -1}
			for _, p := range pieces {
				if r.Feed(p) {
					res.first = 1
				}
			}
			res.Usage, res.ok = r.Finish()
			return res
		}
		whole, pieces := feed(b), feed(b[:i], b[i:j], b[j:])
		if whole != pieces {
			t.Fatalf("whole %+v, cut at %d and %d %+v", whole, i, j, pieces)
		}
		read(t, r, kind, b[:i], b[i:j], b[j:]) // as the filter does, with gaps
		if whole.CachedTokens < 0 || whole.PromptTokens < 0 || whole.CompletionTokens < 0 {
			t.Fatalf("negative: %+v", whole)
		}
	})
}

func BenchmarkChunk(b *testing.B) {
	chunk := []byte(`data: {"id":"chatcmpl-b4f7b8d998a2e14d","object":"chat.completion.chunk","created":1795968139,"model":"tiny","choices":[{"index":0,"delta":{"content":"\n"},"logprobs":null,"finish_reason":null,"token_ids":null}]}` + "\n\n")
	r := new(Reader)
	r.Reset(SSE)
	b.ReportAllocs()
	for b.Loop() {
		r.FeedTail(chunk, len(chunk))
	}
}

func BenchmarkWholeStream(b *testing.B) {
	chunks := bytes.SplitAfter(file(b, "vllm_chat_stream.sse"), []byte("\n\n"))
	r := new(Reader)
	b.ReportAllocs()
	for b.Loop() {
		r.Reset(SSE)
		for _, c := range chunks {
			r.Feed(c)
		}
		if _, ok := r.Finish(); !ok {
			b.Fatal("no usage")
		}
	}
}
