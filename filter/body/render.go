package body

import (
	"hash"
	"unicode/utf8"

	"github.com/minio/highwayhash"

	"github.com/warmpath/warmpath/shared/jsontext"
)

// The markers of the canonical rendering; the package comment draws it.
const (
	markTurn   = 0xF8
	markBody   = 0xF9
	markPart   = 0xFA
	markMedia  = 0xFB
	markCall   = 0xFC
	markString = 0xFD
	markTokens = 0xFE
	markEnd    = 0xFF
)

// firstMarker is the least byte that cannot occur in text.
const firstMarker = markTurn

// Sink takes the canonical rendering of one prompt.
type Sink interface {
	// Text takes the next bytes; p holds only during the call. Small pieces
	// are gathered, so calls are few.
	Text(p []byte)
	// TurnEnd says that a turn is complete with the bytes so far. A later
	// turn of the same conversation repeats all of them.
	TurnEnd()
}

// Rendering sums up what Render did.
type Rendering struct {
	// Reason is OK, Empty or BadPromptType (NoPromptField if Scan had found
	// none). Unless OK, what the sink got is no prompt and must not become a
	// key.
	Reason Reason

	Bytes     int // canonical bytes given to the sink
	LoadBytes int // canonical bytes of all that the engine reads: every prompt of a list, and what lies beyond the cap

	TokenForm    bool // the prompt came as token ids: after one marker byte, 4 bytes each
	PromptTokens int  // their exact number over all lists; 0 for text

	Turns   int // messages, or items
	Prompts int // 1, or the length of a list of prompts; the key is the first one's

	Media   int // parts that are pictures, sound or files
	MediaAt int // where in the canonical bytes the first of them begins; -1 without

	Truncated bool // the cap was reached; the sink holds a true prefix
}

// Render gives sink the canonical rendering of the prompt that Scan found.
// After maxBytes (if positive) the sink gets no more, and the rest is only
// counted. The body that was scanned must be unchanged.
//
// The number of passes over the body is constant and nothing is allocated,
// except once per Request for the digest of media parts.
func Render(req *Request, sink Sink, maxBytes int) Rendering {
	return run(req, sink, maxBytes, false)
}

// Begin is Render without the count of what lies beyond maxBytes: of turns it
// looks at no more than the sink gets. Truncated then tells that Reason,
// LoadBytes, Turns and Media are those of the turns before the cap.
func Begin(req *Request, sink Sink, maxBytes int) Rendering {
	return run(req, sink, maxBytes, true)
}

func run(req *Request, sink Sink, maxBytes int, begin bool) Rendering {
	r := &req.render
	r.reset(req, sink, maxBytes)
	r.begin = begin
	r.prompt()
	r.flush()
	r.sink = nil
	if r.out.Reason == OK && !r.hasText {
		r.out.Reason = Empty
	}
	return r.out
}

// directBytes is from where on a piece goes to the sink without being copied.
const directBytes = 512

// renderer writes the canonical rendering. Its methods take the index of a
// value's first byte and, where it matters, return the index after it.
type renderer struct {
	jsontext.Walker
	req      *Request
	out      Rendering
	sink     Sink
	maxBytes int
	begin    bool // turns beyond the cap are not looked at
	stray    bool // bytes 0xF8..0xFF occur in some string
	hasText  bool // the key's prompt holds text, not only structure
	muted    bool // only count: beyond the cap, or another prompt of a list
	digest   hash.Hash
	toDigest bool // bytes go to digest instead of sink
	sum      [highwayhash.Size128]byte
	small    [1]byte   // a marker, or a character of JSON's structure
	batch    [256]byte // token ids, a word of ours
	gathered int
	gather   [4096]byte
}

func (r *renderer) reset(req *Request, sink Sink, maxBytes int) {
	r.req, r.stray = req, req.doc.Stray()
	r.Walker.Reset(&req.doc)
	r.out = Rendering{MediaAt: -1, Prompts: 1}
	r.sink, r.maxBytes = sink, maxBytes
	r.hasText, r.muted, r.toDigest = false, false, false
	r.gathered = 0
}

// write passes p on as it is.
func (r *renderer) write(p []byte) {
	if r.toDigest {
		r.digest.Write(p) // a hash never fails
		return
	}
	p = p[:r.admit(len(p))]
	if len(p) < directBytes {
		if r.gathered+len(p) > len(r.gather) {
			r.flush()
		}
		r.gathered += copy(r.gather[r.gathered:], p)
		return
	}
	r.flush()
	r.sink.Text(p)
}

// admit counts n more bytes and returns how many of them the sink may have.
func (r *renderer) admit(n int) int {
	r.out.LoadBytes += n
	if r.muted {
		return 0
	}
	if r.maxBytes > 0 && r.out.Bytes+n > r.maxBytes {
		n = r.maxBytes - r.out.Bytes
		r.out.Truncated, r.muted = true, true
	}
	r.out.Bytes += n
	return n
}

func (r *renderer) flush() {
	if r.gathered > 0 {
		r.sink.Text(r.gather[:r.gathered])
		r.gathered = 0
	}
}

// put writes a marker, or a character of JSON's structure.
func (r *renderer) put(c byte) {
	r.small[0] = c
	r.write(r.small[:1])
}

// turn opens a turn; the role's label follows.
func (r *renderer) turn() {
	r.out.Turns++
	r.put(markTurn)
}

// end closes a turn.
func (r *renderer) end() {
	r.put(markEnd)
	if !r.muted {
		r.flush()
		r.sink.TurnEnd()
	}
}

// text writes bytes that are prompt text and hold no escapes.
func (r *renderer) text(p []byte) {
	if len(p) == 0 {
		return
	}
	if !r.muted && !r.toDigest {
		r.hasText = true
	}
	r.plain(p)
}

// plain writes bytes of a string that hold no escapes. What would read as a
// marker is replaced.
func (r *renderer) plain(p []byte) {
	if !r.stray {
		r.write(p)
		return
	}
	from := 0
	for i, c := range p {
		if c >= firstMarker {
			r.write(p[from:i])
			r.write(replacement)
			from = i + 1
		}
	}
	r.write(p[from:])
}

var replacement = []byte(string(utf8.RuneError))

// label writes a role, a name or a type: it is prompt but no text.
func (r *renderer) label(at int) int {
	if r.req.body[at] != '"' {
		return r.Skip(at)
	}
	had := r.hasText
	at = r.str(at)
	r.hasText = had
	return at
}

// str writes the string at i, decoded, as text.
func (r *renderer) str(i int) int {
	b := r.req.body
	i++
	end, esc := r.StringEnd(i)
	if !esc || r.muted && !r.toDigest {
		r.text(b[i:end]) // when only counting, escapes count as they are
		return end + 1
	}
	for i < end {
		if r.muted && !r.toDigest { // since a piece ago: the rest counts as it is
			r.text(b[i:end])
			break
		}
		if r.stray || r.toDigest {
			taken, filled := jsontext.Decode(r.batch[:], b[i:end])
			r.text(r.batch[:filled])
			i += taken
			continue
		}
		// Decoded text goes straight to where small pieces are gathered.
		if r.gathered > len(r.gather)-4*jsontext.DecodeRoom {
			r.flush()
		}
		taken, filled := jsontext.Decode(r.gather[r.gathered:], b[i:end])
		r.hasText = r.hasText || !r.muted
		r.gathered += r.admit(filled)
		i += taken
	}
	return end + 1
}
