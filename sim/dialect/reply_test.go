package dialect

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestEveryReplyIsJSON(t *testing.T) {
	u := Usage{PromptTokens: 100, CachedTokens: 64, OutputTokens: 7}
	for endpoint := Chat; endpoint <= Embeddings; endpoint++ {
		for _, length := range []bool{false, true} {
			r := Reply{
				Endpoint: endpoint, Model: "strange \"model\"\\\n", ID: "1-w", Worker: `w"1`,
				IncludeUsage: true, Length: length, Created: 1764000000,
			}
			texts := [][]byte{[]byte("One two."), []byte("Three.")}
			whole := r.Whole(nil, u, texts, [][]float32{{0.5, -0.25}, {1, 0}})
			if !json.Valid(whole) {
				t.Errorf("endpoint %d: %s", endpoint, whole)
			}
			if endpoint == Embeddings {
				continue
			}
			stream := r.Start(nil, u)
			stream = r.Text(stream, 0, texts[0])
			stream = r.Finish(stream, 0)
			stream = r.End(stream, u, texts[0])
			if !strings.HasSuffix(string(stream), "\n\n") {
				t.Errorf("endpoint %d: the last event is open: %q", endpoint, stream)
			}
			for _, event := range strings.Split(strings.TrimSuffix(string(stream), "\n\n"), "\n\n") {
				name, data := "", ""
				for _, line := range strings.Split(event, "\n") {
					if v, ok := strings.CutPrefix(line, "event: "); ok {
						name = v
					}
					if v, ok := strings.CutPrefix(line, "data: "); ok {
						data = v
					}
				}
				if data == "[DONE]" {
					continue
				}
				var body struct {
					Type   string
					Object string
				}
				if err := json.Unmarshal([]byte(data), &body); err != nil || body.Type != name {
					t.Errorf("endpoint %d: event %q has type %q, %v: %s", endpoint, name, body.Type, err, data)
				}
			}
		}
	}
}

func TestErrorsAreInTheEndpointsDialect(t *testing.T) {
	e := &Error{Status: 503, Type: "Service Unavailable", Message: "say \"busy\"\n"}
	var openAI struct {
		Error struct {
			Message, Type string
			Code          int
		}
	}
	if err := json.Unmarshal(AppendError(nil, Chat, e), &openAI); err != nil || openAI.Error.Code != 503 || openAI.Error.Message != e.Message {
		t.Errorf("%v %+v", err, openAI)
	}
	var anthropic struct {
		Type  string
		Error struct{ Type, Message string }
	}
	for status, want := range map[int]string{503: "overloaded_error", 429: "rate_limit_error", 400: "invalid_request_error"} {
		body := AppendError(nil, Messages, &Error{Status: status, Message: "x"})
		if err := json.Unmarshal(body, &anthropic); err != nil || anthropic.Type != "error" || anthropic.Error.Type != want {
			t.Errorf("%d: %v %+v", status, err, anthropic)
		}
	}
}
