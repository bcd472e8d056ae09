package live

import (
	"bytes"
	"net/http"

	"github.com/warmpath/warmpath/sim/dialect"
)

// wait blocks until the engine moved the request; false if the client left.
func (c *call) wait(r *http.Request) bool {
	select {
	case <-c.wake:
		return true
	case <-r.Context().Done():
		return false
	}
}

func (c *call) usage(flows []flow) dialect.Usage {
	var u dialect.Usage
	for i := range flows {
		u.PromptTokens += c.requests[i].PromptTokens
		u.CachedTokens += flows[i].cached
		u.OutputTokens += flows[i].generated
	}
	return u
}

// stream writes server-sent events as tokens come. False if the client left
// before the end.
func (c *call) stream(w *Worker, d *driver, fault Fault, reply *dialect.Reply, rw http.ResponseWriter, r *http.Request) bool {
	h := rw.Header()
	h["Content-Type"] = contentSSE
	h["Cache-Control"] = []string{"no-store"}
	now := make([]flow, len(c.flows))
	written := make([]int, len(c.flows)) // bytes of each answer
	flush := http.NewResponseController(rw)
	started, left := false, len(c.flows)
	for left > 0 {
		if !c.wait(r) {
			return false
		}
		d.read(now, c.flows)
		c.out = c.out[:0]
		for i := range now {
			if now[i].generated == c.seen[i].generated {
				continue
			}
			if !started {
				started = true
				c.out = reply.Start(c.out, c.usage(now))
			}
			end := len(c.answers[i])
			if !now[i].done {
				end = written[i] + tokensEnd(c.answers[i][written[i]:], now[i].generated-c.seen[i].generated)
			}
			if piece := c.answers[i][written[i]:end]; len(piece) > 0 {
				if c.seen[i].generated == 0 && now[i].done && now[i].generated > 1 {
					// First and last token came in one wake-up: two events all the same.
					first := tokensEnd(piece, 1)
					c.out = reply.Text(c.out, i, piece[:first])
					piece = piece[first:]
				}
				c.out = reply.Text(c.out, i, piece)
				written[i] = end
			}
			if now[i].done {
				c.out = reply.Finish(c.out, i)
				left--
			}
		}
		copy(c.seen, now)
		if left == 0 {
			c.out = reply.End(c.out, c.usage(now), c.answers[0])
		}
		if len(c.out) == 0 {
			continue
		}
		if _, err := rw.Write(c.out); err != nil {
			return left == 0
		}
		if left > 0 {
			if flush.Flush() != nil {
				return false
			}
			switch fault {
			case ResetAfterHeaders:
				reset(rw)
				return false
			case Stall:
				w.untilLifted(r)
				reset(rw)
				return false
			}
		}
	}
	return true
}

// tokensEnd finds where the first n tokens of an answer end. An answer's
// tokens are words, each with the space before it, and full stops.
func tokensEnd(answer []byte, n int) int {
	at := 0
	for ; n > 0 && at < len(answer); n-- {
		if answer[at] == '.' {
			at++
			continue
		}
		next := bytes.IndexAny(answer[at+1:], " .")
		if next < 0 {
			return len(answer)
		}
		at += 1 + next
	}
	return at
}

// whole writes one JSON body when all choices are done.
func (c *call) whole(d *driver, reply *dialect.Reply, rw http.ResponseWriter, r *http.Request) bool {
	now := make([]flow, len(c.flows))
	for {
		if !c.wait(r) {
			return false
		}
		d.read(now, c.flows)
		done := true
		for i := range now {
			done = done && now[i].done
		}
		if done {
			break
		}
	}
	var vectors [][]float32
	if reply.Endpoint == dialect.Embeddings {
		for i := range c.requests {
			vectors = append(vectors, embedding(c.requests[i]))
		}
	}
	c.out = reply.Whole(c.out[:0], c.usage(now), c.answers, vectors)
	writeJSON(rw, http.StatusOK, c.out)
	return true
}
