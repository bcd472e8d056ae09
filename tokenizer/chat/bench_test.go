package chat

import (
	"strings"
	"testing"
)

// benchBody is a conversation of about size bytes: a system text of a third,
// then turns of 600 bytes with a line break every 70.
func benchBody(size int) []byte {
	const line = `The tide is low at pier four and the green barge waits for her pilot.\n`
	text := func(n int) string { return strings.Repeat(line, n/len(line)+1) }
	messages := []string{`{"role":"system","content":"` + text(size/3) + `"}`}
	for n := size / 3; n < size; n += 600 {
		role := "user"
		if len(messages)%2 == 0 {
			role = "assistant"
		}
		messages = append(messages, `{"role":"`+role+`","content":"`+text(500)+`"}`)
	}
	return bodyOf(messages, "")
}

func BenchmarkRender(b *testing.B) {
	agent := bodyOf([]string{`{"role":"user","content":"x"}`}, `,"tools":[`+strings.Repeat(someTools[len(`,"tools":[`):len(someTools)-1]+",", 99)+someTools[len(`,"tools":[`):])
	for _, c := range []struct {
		name string
		body []byte
	}{
		{"1KB", benchBody(1 << 10)},
		{"16KB", benchBody(16 << 10)},
		{"100KB", benchBody(100 << 10)},
		{"400KB", benchBody(400 << 10)},
		{"100Tools", agent},
	} {
		for _, family := range []string{"qwen3", "llama3.2", "gpt-oss"} {
			b.Run(c.name+"/"+family, func(b *testing.B) {
				doc, r := scan(b, c.body), new(Renderer)
				tmpl := named(b, family, "vllm")
				b.SetBytes(int64(len(c.body)))
				b.ReportAllocs()
				for b.Loop() {
					if res := r.Render(tmpl, Request{Doc: doc, Endpoint: Chat}, 1<<20); res.Stopped != Complete {
						b.Fatal(res.Stopped)
					}
				}
			})
		}
	}
}
