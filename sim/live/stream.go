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
	cut := fault == ResetAfterHeaders || fault == Stall // after the first token
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
			// The pieces do not depend on how late the wake-up was: the first
			// token, then EventTokens each, then what is left.
			for from := c.seen[i].generated; from < now[i].generated; {
				to := now[i].generated
				if from == 0 {
					to = 1
				} else if per := c.requests[i].EventTokens; per > 0 {
					to = min(to, from+per)
				}
				end := written[i] + tokensEnd(c.answers[i][written[i]:], to-from)
				c.out = reply.Text(c.out, i, c.answers[i][written[i]:end])
				from, written[i] = to, end
				if cut {
					return c.cutOff(w, fault, rw, r)
				}
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
		if left > 0 && flush.Flush() != nil {
			return false
		}
	}
	return true
}

// cutOff writes what there is and lets the connection die as the fault says.
func (c *call) cutOff(w *Worker, fault Fault, rw http.ResponseWriter, r *http.Request) bool {
	_, _ = rw.Write(c.out)
	_ = http.NewResponseController(rw).Flush()
	if fault == Stall {
		w.untilLifted(r)
	}
	reset(rw)
	return false
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
