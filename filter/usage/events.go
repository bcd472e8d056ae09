package usage

import "bytes"

var (
	dataField    = []byte("data:")
	doneMark     = []byte("[DONE]")
	messageStart = []byte(`"message_start"`)
	pingType     = []byte(`"ping"`)
)

// readLines takes part of a stream until content is seen. It returns what
// belongs in the window: all of p, or what follows the start of a message,
// since that one's usage has been taken and must not pass for the final one.
func (r *Reader) readLines(p []byte) []byte {
	from := 0
	for i, c := range p {
		if c != '\n' && c != '\r' {
			if !r.lost && r.lineLen < len(r.line) {
				r.line[r.lineLen] = c
				r.lineLen++
			}
			continue
		}
		if !r.lost && !r.seen {
			started := r.hasStart
			r.readLine(r.line[:r.lineLen])
			if r.hasStart && !started {
				from, r.tailLen = i, 0
			}
		}
		r.lineLen, r.lost = 0, false
		if r.seen {
			break
		}
	}
	return p[from:]
}

// readLine judges one line of a stream.
func (r *Reader) readLine(line []byte) {
	if !bytes.HasPrefix(line, dataField) {
		return // an event's name, a comment, the end of an event
	}
	data := bytes.TrimLeft(line[len(dataField):], " ")
	switch {
	case len(data) == 0 || bytes.HasPrefix(data, doneMark):
	case !r.hasStart && isMessageStart(data):
		r.start, r.hasStart = last(data, SSE)
	case hasContent(data) || r.silent >= maxSilentEvents:
		r.seen = true
	case !bytes.Contains(data, pingType):
		r.silent++
	}
}

// hasContent tells whether an event's JSON carries something generated: a
// field of that kind with a string that is not empty, or a tool call. It looks
// at names only, wherever they stand; an event that carries a whole response
// (response.created and the like) is no delta.
func hasContent(data []byte) bool {
	for i := 0; i < len(data); {
		if data[i] != '"' {
			i++
			continue
		}
		end := stringEnd(data, i+1)
		name := data[i+1 : min(end, len(data))]
		i = skipGap(data, end+1, JSON)
		if i >= len(data) || data[i] != ':' {
			continue // a value, not a name
		}
		if i = skipGap(data, i+1, JSON); i+1 >= len(data) {
			return false
		}
		switch string(name) {
		case "content", "text", "delta", "reasoning_content", "reasoning", "thinking",
			"partial_json", "arguments", "refusal", "transcript":
			if data[i] == '"' && data[i+1] != '"' {
				return true
			}
		case "tool_calls":
			if data[i] == '[' && data[skipGapOr(data, i+1)] != ']' {
				return true
			}
		case "function_call":
			if data[i] == '{' {
				return true
			}
		case "response":
			if data[i] == '{' {
				return false
			}
		}
	}
	return false
}

// skipGapOr is skipGap that stays within data.
func skipGapOr(data []byte, i int) int { return min(skipGap(data, i, JSON), len(data)-1) }

// stringEnd returns the index of the quote that closes the string at i, or
// len(data).
func stringEnd(data []byte, i int) int {
	for i < len(data) && data[i] != '"' {
		if data[i] == '\\' {
			i++
		}
		i++
	}
	return min(i, len(data))
}

// isMessageStart tells whether an event's type is message_start. The same
// word as a value of another name does not count.
func isMessageStart(data []byte) bool {
	i := bytes.Index(data, messageStart)
	if i < 0 {
		return false
	}
	before := bytes.TrimRight(data[:i], " ")
	before, ok := bytes.CutSuffix(before, []byte(":"))
	return ok && bytes.HasSuffix(bytes.TrimRight(before, " "), []byte(`"type"`))
}
