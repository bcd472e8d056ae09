package loadgen

import (
	"bufio"
	"net"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/warmpath/warmpath/sim/pace"
)

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

const exampleStream = ": keep-alive\n\n" +
	`data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}` + "\r\n\r\n" +
	`data: {"choices":[{"index":0,"delta":{"content":"Your \"order\""}}]}` + "\n\n" +
	`data:{"choices":[{"index":0,"delta":{"content":" is here."},"finish_reason":"stop"}],"usage":null}` + "\n\n" +
	`data: {"choices":[],"usage":{"prompt_tokens":321,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":304}}}` + "\n\n" +
	"data: [DONE]\n\n"

func TestStreamReadsTheSameInAnyPieces(t *testing.T) {
	long := strings.Replace(exampleStream, " is here.", strings.Repeat(" is here", 9000)+".", 1)
	for name, text := range map[string]string{"short": exampleStream, "long": long} {
		for _, whole := range []bool{true, false} {
			s := &stream{reader: bufio.NewReaderSize(strings.NewReader(text), 64)}
			if !whole {
				s.reader = bufio.NewReaderSize(iotest.OneByteReader(strings.NewReader(text)), 64)
			}
			var o Outcome
			finished, err := s.read(pace.NewClock(1), 0, &o)
			if err != nil || !finished {
				t.Fatalf("%s: finished %v, %v", name, finished, err)
			}
			if o.PromptTokens != 321 || o.OutputTokens != 7 || o.CachedTokens != 304 || o.TTFT <= 0 {
				t.Errorf("%s: %+v", name, o)
			}
			if got := string(s.answer); !strings.HasPrefix(got, `Your \"order\" is here`) || !strings.HasSuffix(got, ".") {
				t.Errorf("%s: answer %.60q", name, got)
			}
		}
	}
}

func TestStreamCutShortIsNotFinished(t *testing.T) {
	for at := range len(exampleStream) - len("[DONE]\n\n") {
		s := &stream{reader: bufio.NewReaderSize(strings.NewReader(exampleStream[:at]), 64)}
		var o Outcome
		if finished, err := s.read(pace.NewClock(1), 0, &o); finished && err == nil {
			t.Fatalf("cut at %d: taken for whole", at)
		}
	}
}
