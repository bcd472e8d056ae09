package bench

import (
	"io"
	"net/http"
	"strconv"
	"time"
)

// Reply is what a worker answers to a request that orders no stream.
const Reply = `{"id":"r","object":"chat.completion","model":"default","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":100,"completion_tokens":1,"total_tokens":101,"prompt_tokens_details":{"cached_tokens":64}}}`

// Headers by which a stream is ordered: how many chunks, and how far apart.
const (
	ChunksHeader = "x-bench-chunks"
	EveryHeader  = "x-bench-every-us"
)

// event is one chunk of a stream, about 200 bytes as engines send them.
var event = []byte(`data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1790000000,"model":"default","choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}]}` + "\n\n")

const lastEvents = `data: {"id":"chatcmpl-0123456789abcdef","choices":[],"usage":{"prompt_tokens":100,"completion_tokens":1000,"prompt_tokens_details":{"cached_tokens":64}}}` + "\n\ndata: [DONE]\n\n"

// Answer is a worker: it reads the body and sends a fixed reply, or a stream.
func Answer(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	chunks, _ := strconv.Atoi(r.Header.Get(ChunksHeader))
	if chunks == 0 {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, Reply)
		return
	}
	every, _ := strconv.Atoi(r.Header.Get(EveryHeader))
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	tick := time.NewTicker(time.Duration(every) * time.Microsecond)
	defer tick.Stop()
	for range chunks {
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
		w.Write(event)
		flush.Flush()
	}
	io.WriteString(w, lastEvents)
}
