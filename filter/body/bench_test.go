package body

// These run natively with go test -bench, and in WebAssembly, as the module
// does, with
//
//	GOOS=wasip1 GOARCH=wasm go test -c -o body.wasm ./filter/body
//	go run github.com/tetratelabs/wazero/cmd/wazero run body.wasm -test.run=- -test.bench=.
//
// On a busy machine take the minimum of many: -test.benchtime=1x -test.count=300.

import (
	"strconv"
	"strings"
	"testing"
)

type nullSink struct{ bytes, calls, turns int }

func (s *nullSink) Text(p []byte) { s.bytes += len(p); s.calls++ }
func (s *nullSink) TurnEnd()      { s.turns++ }

// chatBody is a conversation of about size bytes: a system prompt of a third,
// then turns of 600 bytes with a line break every 70.
func chatBody(size int) []byte {
	b := append([]byte(nil), `{"model":"model-a","stream":true,"stream_options":{"include_usage":true},"temperature":0.7,"messages":[{"role":"system","content":"`...)
	b = appendProse(b, size/3)
	b = append(b, `"}`...)
	for turn := 0; len(b) < size-100; turn++ {
		role := "user"
		if turn%2 == 1 {
			role = "assistant"
		}
		b = append(b, `, {"role": "`...)
		b = append(b, role...)
		b = append(b, `", "content": "`...)
		b = appendProse(b, min(600, size-len(b)))
		b = append(b, `"}`...)
	}
	return append(b, `],"max_tokens":256}`...)
}

var prose = []string{
	"The tide is low at pier four and the green barge waits for her pilot.",
	"func load(ctx context.Context) (int, error) { return f(ctx, 17), nil }",
	"Café au lait, crème brûlée: one of each for the crew, says the clerk.",
	"She quoted \\\"the harbour rules\\\" by heart, section two to section nine.",
}

func appendProse(b []byte, n int) []byte {
	for end, line := len(b)+n, 0; len(b) < end; line++ {
		b = append(b, prose[line%len(prose)]...)
		b = append(b, `\n`...)
	}
	return b
}

var benchSizes = []struct {
	name string
	size int
}{{"1KB", 1 << 10}, {"16KB", 16 << 10}, {"100KB", 100 << 10}, {"400KB", 400 << 10}, {"2MB", 2 << 20}}

func BenchmarkScan(b *testing.B) {
	for _, s := range benchSizes {
		b.Run(s.name, func(b *testing.B) {
			body, req := chatBody(s.size), new(Request)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if reason := Scan(body, ChatCompletions, req); reason != OK {
					b.Fatal(reason)
				}
			}
		})
	}
}

func BenchmarkScanAndRender(b *testing.B) {
	for _, s := range benchSizes {
		b.Run(s.name, func(b *testing.B) {
			scanAndRender(b, chatBody(s.size))
		})
	}
}

// BenchmarkOddText reads 400 KB of text that is not ASCII, as UTF-8 and as
// Python's json.dumps escapes it by default, and a picture.
func BenchmarkOddText(b *testing.B) {
	for _, text := range []struct{ name, piece string }{
		{"UTF8", "港の緑のはしけは四番桟橋にいます。"},
		{"Escaped", `\u6e2f\u306e\u7dd1\u306e\u306f\u3057\u3051\u306f\ud83d\udea2`},
		{"Quotes", `\"a\": \"b\",\n`},
	} {
		b.Run(text.name, func(b *testing.B) {
			body := []byte(`{"messages":[{"role":"user","content":"` + strings.Repeat(text.piece, 400<<10/len(text.piece)) + `"}]}`)
			scanAndRender(b, body)
		})
	}
	b.Run("Image", func(b *testing.B) {
		scanAndRender(b, []byte(`{"messages":[{"role":"user","content":[{"type":"text","text":"Hi"},{"type":"image_url","image_url":{"url":"data:image/png;base64,`+
			strings.Repeat("iVBORw0KGgoAAAANSUhEUgAA", 400<<10/24)+`"}}]}]}`))
	})
}

func scanAndRender(b *testing.B, body []byte) {
	req, sink := new(Request), new(nullSink)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		*sink = nullSink{}
		if reason := Scan(body, ChatCompletions, req); reason != OK {
			b.Fatal(reason)
		}
		if out := Render(req, sink, 0); out.Reason != OK {
			b.Fatal(out.Reason)
		}
	}
	b.ReportMetric(float64(sink.calls), "sinkcalls/op")
}

func BenchmarkTokenIDs(b *testing.B) {
	body := append([]byte(nil), `{"prompt":[`...)
	for i := range 100_000 {
		body = append(strconv.AppendInt(body, int64(i), 10), ',')
	}
	body = append(body, `7]}`...)
	req, sink := new(Request), new(nullSink)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if reason := Scan(body, Completions, req); reason != OK {
			b.Fatal(reason)
		}
		if out := Render(req, sink, 0); out.PromptTokens != 100_001 {
			b.Fatal(out)
		}
	}
}
