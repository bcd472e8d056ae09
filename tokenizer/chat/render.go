package chat

import (
	"unicode/utf8"

	"github.com/warmpath/warmpath/shared/jsontext"
)

// What one request may hold. Conversations of real clients stay far below.
const (
	maxMessages = 4096
	maxCalls    = 4096
	maxDepth    = 128 // of JSON inside the prompt
)

// Renderer holds the memory of rendering and is to be used again; nothing is
// allocated once it has grown to the size of the requests. It is not
// concurrent.
type Renderer struct {
	w    jsontext.Walker
	body []byte
	tmpl Template
	day  int

	out     []byte // the prompt
	ends    []int
	max     int // of len(out); more may be written, it is cut off
	arena   []byte
	stopped Reason

	breaks     []int
	takeBreaks bool
	splits     []int // offsets of parts' borders in contents

	nameFirst bool // calls are made by the engine, with the name before the arguments

	opts  options
	top   [numFields]int // index of each top-level field's value, 0: absent or null
	msgs  []message
	calls []call
	tools []tool

	keys     []keySpan // of objects being dumped
	open     [maxDepth]container
	replaced int // duplicate names so far
	work     int // see spend
}

// keep is the most memory that stays with a Renderer after a large request.
const keep = 1 << 20

// Render renders req's prompt as t says, up to maxBytes (<= 0: 64 MiB). The
// work is linear in the size of the body and in maxBytes.
func (r *Renderer) Render(t Template, req Request, maxBytes int) Result {
	r.reset(t, req, maxBytes)
	res := Result{}
	switch {
	case t.family == familyNone:
		r.stop(NoTemplate)
	case req.Endpoint == Completions:
		res.AddSpecial = r.flag(r.top[fieldAddSpecial], true)
		r.plainPrompt(fieldPrompt)
	case req.Endpoint == Embeddings && r.top[fieldMessages] == 0:
		res.AddSpecial = r.flag(r.top[fieldAddSpecial], true)
		r.plainPrompt(fieldInput)
	default:
		r.conversation(req)
		res.AddSpecial = r.opts.addSpecial
	}
	if len(r.out) > r.max {
		r.stop(TooLong)
	}
	r.cut()
	res.Text, res.Ends, res.Breaks, res.Stopped = r.out, r.ends, r.breaks, r.stopped
	return res
}

func (r *Renderer) reset(t Template, req Request, maxBytes int) {
	if maxBytes <= 0 {
		maxBytes = 64 << 20
	}
	r.tmpl, r.day, r.max = t, req.Day, maxBytes
	r.body = req.Doc.Text()
	r.w.Reset(req.Doc)
	r.stopped = Complete
	r.opts, r.replaced, r.work, r.nameFirst = options{}, 0, 0, false
	r.top = [numFields]int{}
	r.breaks, r.splits, r.takeBreaks = r.breaks[:0], r.splits[:0], req.TakeBreaks
	r.ends, r.msgs, r.calls, r.tools, r.keys = r.ends[:0], r.msgs[:0], r.calls[:0], r.tools[:0], r.keys[:0]
	if cap(r.out) > keep {
		r.out = nil
	}
	if cap(r.arena) > keep {
		r.arena = nil
	}
	r.out, r.arena = r.out[:0], r.arena[:0]
	r.readFields(req)
}

// cut leaves of the text what is certain.
func (r *Renderer) cut() {
	n := len(r.out)
	switch r.stopped {
	case Complete:
	case TooLong:
		n = min(n, r.max)
		for n > 0 && n < len(r.out) && !utf8.RuneStart(r.out[n]) {
			n--
		}
	default:
		n = 0
		if len(r.ends) > 0 {
			n = r.ends[len(r.ends)-1]
		}
	}
	r.out = r.out[:n]
	r.ends = upTo(r.ends, n)
	r.breaks = upTo(r.breaks, n)
}

// maxWork bounds what isn't linear in the body's size: names that are compared
// with each other. It is a few milliseconds in the module.
const maxWork = 1 << 20

// spend counts n comparisons and stops when there are too many.
func (r *Renderer) spend(n int) {
	if r.work += n; r.work > maxWork {
		r.stop(TooMany)
	}
}

// upTo drops what lies beyond n from an ascending list.
func upTo(list []int, n int) []int {
	for len(list) > 0 && list[len(list)-1] > n {
		list = list[:len(list)-1]
	}
	return list
}

// breakAt notes that the engine tokenises what stands before and after offset
// at apart. Who can't do the same gets the text up to there at most.
func (r *Renderer) breakAt(at int) {
	if !r.takeBreaks {
		r.stop(Apart)
		return
	}
	r.breaks = append(r.breaks, at)
}

// stop ends the rendering; the first reason counts.
//
//go:noinline
func (r *Renderer) stop(why Reason) {
	if r.stopped == Complete {
		r.stopped = why
	}
}

// going tells whether there is reason to render on.
//
//go:noinline
func (r *Renderer) going() bool {
	return r.stopped == Complete && len(r.out) <= r.max
}

// lit writes a constant of a template.
//
// It and other small functions that are called in a hundred places are kept from
// being inlined: there they would be a third of this package's code in the
// module, and proxies compile all of it at each start.
//
//go:noinline
func (r *Renderer) lit(s string) { r.out = append(r.out, s...) }

// put writes text.
//
//go:noinline
func (r *Renderer) put(s []byte) { r.out = append(r.out, s...) }

// end notes that a turn ends here.
//
//go:noinline
func (r *Renderer) end() {
	if n := len(r.ends); n == 0 || r.ends[n-1] < len(r.out) {
		r.ends = append(r.ends, len(r.out))
	}
}

// str returns the decoded text of the string at i: a piece of the body where
// nothing has to be decoded, otherwise of the arena.
func (r *Renderer) str(i int) []byte {
	end, esc := r.w.StringEnd(i + 1)
	if raw := r.body[i+1 : end]; !esc {
		if !jsontext.IsText(raw) {
			r.stop(BadText)
			return nil
		}
		return raw
	}
	from := len(r.arena)
	r.gather(i)
	return r.since(from)
}

// since returns what the arena got since it had from bytes. Where it is grown
// later, what was given out before stays where it is.
//
//go:noinline
func (r *Renderer) since(from int) []byte {
	return r.arena[from:len(r.arena):len(r.arena)]
}

// gather appends the decoded text of the string at i to the arena.
func (r *Renderer) gather(i int) {
	end, _ := r.w.StringEnd(i + 1)
	var ok bool
	if r.arena, ok = jsontext.AppendText(r.arena, r.body[i+1:end]); !ok {
		r.stop(BadText)
	}
}

// kind returns the first byte of the value at i, which tells its type: one of
// " { [ t f n - 0..9. An absent value (i = 0) is like null.
//
//go:noinline
func (r *Renderer) kind(i int) byte {
	if i == 0 {
		return 'n'
	}
	return r.body[i]
}

// elements tells how many elements the array at i has, up to limit.
func (r *Renderer) elements(i, limit int) int {
	n := 0
	for at := i + 1; n < limit; n++ {
		e, ok := r.w.Element(at)
		if !ok {
			break
		}
		at = r.w.Skip(e)
	}
	return n
}

// enter tells whether the turn m can be rendered, and stops if not.
//
//go:noinline
func (r *Renderer) enter(m *message) bool {
	r.stop(m.stopped)
	return m.stopped == Complete
}

// resumes tells whether turn i is the one that the model shall go on with.
//
//go:noinline
func (r *Renderer) resumes(i int) bool {
	return r.opts.resume && i == len(r.msgs)-1
}

// content writes the text of turn i, and tells whether anything follows it: not
// if the model shall go on there.
func (r *Renderer) content(m *message, i int) bool {
	if !r.enter(m) {
		return false
	}
	r.put(m.content)
	return !r.resumes(i)
}

// trimmed is content with the white space around the text cut off, as Jinja's
// trim does; suffix is what follows it in the template. Where the model goes
// on, transformers (continue_final_message) marks the place by a word and a
// space at the content's end, and if the template has trimmed that space, it
// cuts all white space before the mark off.
func (r *Renderer) trimmed(m *message, i int, suffix string) bool {
	if !r.enter(m) {
		return false
	}
	if !r.resumes(i) {
		r.put(trimSpace(m.content))
		return true
	}
	r.put(trimSpaceLeft(m.content))
	if suffix == "" || suffix[0] != ' ' {
		r.out = r.out[:len(trimSpaceRight(r.out))]
	}
	return false
}

// generate writes the generation prompt: s, which follow-up turns begin with, and
// what they may not repeat.
func (r *Renderer) generate(s, more string) {
	if r.opts.resume {
		r.stop(Refused) // the turn to go on with isn't in the prompt
		return
	}
	if r.opts.generate {
		r.lit(s)
		r.end()
		r.lit(more)
	}
	if len(r.opts.prefill) > 0 {
		r.breakAt(len(r.out))
		r.put(r.opts.prefill)
	}
}
