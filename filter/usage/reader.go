package usage

// Kind is how a response is framed.
type Kind uint8

const (
	SSE  Kind = iota // text/event-stream
	JSON             // one JSON text
)

const (
	// tailBytes is the window in which Finish searches: room for a usage
	// object, what engines put behind it, and [DONE].
	tailBytes = 2048
	// earlyBytes is how much of a chunk is read until content was seen.
	earlyBytes = 16 << 10
	// laterBytes is how much of a stream's chunk is read from then on. An
	// ordinary chunk is 200 to 300 bytes and so read whole.
	laterBytes = 1024
	// lineBytes is how much of an early line is judged.
	lineBytes = 2048
	// slackBytes spares moving the window with every chunk.
	slackBytes = 1024
	// maxSilentEvents is after how many data events without known content the
	// next one counts as content, in case an engine speaks another dialect.
	maxSilentEvents = 16
)

// Reader reads one response. It is about 5 KB, does not allocate while it is
// fed, and needs Reset before each response, the first included.
type Reader struct {
	kind Kind

	// The contiguous end of what was seen: tail[:tailLen], of which the last
	// tailBytes count.
	tail    [tailBytes + slackBytes]byte
	tailLen int

	// Until content is seen: the line that is being received.
	seen     bool // content was seen
	lost     bool // the line's beginning was not given to us
	line     [lineBytes]byte
	lineLen  int
	silent   int // data events so far without content
	start    counts
	hasStart bool
}

// Reset prepares for another response.
func (r *Reader) Reset(kind Kind) {
	r.kind = kind
	r.tailLen, r.lineLen, r.silent = 0, 0, 0
	r.seen, r.lost, r.hasStart = false, false, false
	r.start = noCounts
}

// Want returns how many of the last bytes of a chunk of chunkLen bytes the
// Reader would like to see. Reading more does no harm, reading less may lose
// the usage.
func (r *Reader) Want(chunkLen int) int {
	switch {
	case r.kind == JSON:
		return min(chunkLen, tailBytes)
	case !r.seen:
		return min(chunkLen, earlyBytes)
	}
	return min(chunkLen, laterBytes)
}

// Feed takes a whole chunk. See FeedTail.
func (r *Reader) Feed(chunk []byte) (first bool) { return r.FeedTail(chunk, len(chunk)) }

// FeedTail takes the last bytes of a chunk of chunkLen bytes; the Reader keeps
// no reference. It reports true once, for the chunk that completes the first
// event with content: that is the time to first token. Events that carry only
// a role, an empty delta, a ping or the start of a message are no content.
// A JSON response has its content with its first byte.
func (r *Reader) FeedTail(tail []byte, chunkLen int) (first bool) {
	if chunkLen <= 0 {
		return false
	}
	if len(tail) < chunkLen {
		r.tailLen, r.lineLen, r.lost = 0, 0, true
	}
	if !r.seen {
		if r.kind == JSON {
			r.seen = true
		} else {
			tail = r.readLines(tail)
		}
		first = r.seen
	}
	r.keep(tail)
	return first
}

// Finish returns the response's usage; false means that none was reported.
func (r *Reader) Finish() (Usage, bool) {
	c, ok := last(r.tail[max(0, r.tailLen-tailBytes):r.tailLen], r.kind)
	if !ok && !r.hasStart {
		return Usage{}, false
	}
	total := r.start
	if ok {
		total.merge(c)
	} else {
		total.out = -1 // the start of a message knows nothing of its end
	}
	return total.usage(), true
}

// keep appends to the window.
func (r *Reader) keep(p []byte) {
	if len(p) >= tailBytes {
		r.tailLen = copy(r.tail[:], p[len(p)-tailBytes:])
		return
	}
	if r.tailLen+len(p) > len(r.tail) {
		kept := r.tail[r.tailLen-(tailBytes-len(p)) : r.tailLen]
		r.tailLen = copy(r.tail[:], kept)
	}
	r.tailLen += copy(r.tail[r.tailLen:], p)
}
