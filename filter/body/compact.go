package body

import (
	"github.com/minio/highwayhash"

	"github.com/warmpath/warmpath/shared/jsontext"
)

// compact renders any JSON value as text: without spacing, strings decoded
// between string markers, order and numbers as they are. Colons are left out,
// since after a name a value must follow. Objects at level cacheLevel (the
// value itself is level 1; 0: none) lose their cache_control, which steers
// the serving side and is no prompt.
func (r *renderer) compact(at, cacheLevel int) int {
	b := r.req.body
	if b[at] != '{' && b[at] != '[' {
		return r.scalar(at)
	}
	depth := 0
	comma := false // one was read; it is written only if something follows
	open := true   // nothing was written since a bracket opened
	for i := at; ; {
		switch c := b[i]; c {
		case '{', '[':
			if comma {
				r.put(',')
			}
			r.put(c)
			comma, open = false, true
			depth++
			i++
		case '}', ']':
			r.put(c)
			comma, open = false, false
			i++
			if depth--; depth == 0 {
				return i
			}
		case ',':
			comma = !open
			i++
		case ':', ' ', '\t', '\r', '\n':
			i++
		default:
			if c == '"' && depth == cacheLevel && string(r.Word(i)) == "cache_control" {
				end, _ := r.StringEnd(i + 1)
				if v := jsontext.SkipSpace(b, end+1); b[v] == ':' {
					i = r.Skip(jsontext.SkipSpace(b, v+1))
					continue
				}
			}
			if comma {
				r.put(',')
			}
			comma, open = false, false
			i = r.scalar(i)
		}
	}
}

// scalar renders a string, number or literal inside JSON.
func (r *renderer) scalar(at int) int {
	if r.req.body[at] == '"' {
		r.put(markString)
		next := r.str(at)
		r.put(markString)
		return next
	}
	next := r.Skip(at)
	r.text(r.req.body[at:next])
	return next
}

// digestKey is fixed: equal parts must give equal digests in every gateway.
var digestKey = []byte("warmpath media digest, version 1")

// media renders a part by its type and a digest of the whole part, so that
// another picture is another prompt from here on and not before.
func (r *renderer) media(at, kind int) {
	if r.out.Media == 0 && !r.muted {
		r.out.MediaAt = r.out.Bytes
	}
	r.out.Media++
	r.put(markMedia)
	r.label(kind)
	r.put(markBody)
	if r.muted {
		return
	}
	if r.digest == nil {
		h, err := highwayhash.New128(digestKey)
		if err != nil {
			panic(err) // the key's length is wrong, and it is constant
		}
		r.digest = h
	}
	r.digest.Reset()
	r.toDigest = true
	r.compact(at, 1)
	r.toDigest = false
	r.write(r.digest.Sum(r.sum[:0]))
}
