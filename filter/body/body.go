// Package body reads the JSON body of an LLM request: who is asked, and what
// of the prompt an engine's prefix cache will see.
//
// A body travels through it in two steps. Scan has shared/jsontext walk the raw
// bytes once and check that they are one JSON text, and notes where the values
// of the interesting top-level fields lie; nothing is copied. Render then walks only
// the fields that become prompt, in the order in which engines put them
// together (tools, system text, turns), and hands a Sink their canonical
// bytes with a mark at each turn's end. Equal canonical bytes mean an equal
// prompt; what does not reach the prompt (sampling fields, the order of
// top-level fields, spacing, escapes, cache_control) does not reach the bytes.
//
// # Canonical rendering
//
// Text is UTF-8 with all JSON escapes decoded. Bytes 0xF8 to 0xFF cannot occur
// in UTF-8, so they serve as structure. (Where a client sends such a byte it
// becomes U+FFFD, as does a lone surrogate escape.)
//
//	F8  turn    role [FA name] F9 content FF
//	        or  FC F9 json FF             tools, first of all
//	        or  FA field F9 value FF      another field that stands before the turns
//	F9  body    ends a label; what it labels follows
//	FA  part    stands before a part of a content list that is not the first
//	        or  FA type F9 ...            a part that is neither text nor media
//	FB  media   type F9 digest            16 bytes of HighwayHash-128 of the part
//	FC  call    name F9 arguments         a tool call
//	FD  string  text FD                   a string inside JSON (no quotes, no spacing)
//	FE  tokens  id id ...                 4 bytes each, little-endian
//	FF  end     of a turn, or of a prompt; Sink.TurnEnd follows
//
// Example: {"role":"user","content":"Hi"} is F8 75 73 65 72 F9 48 69 FF.
//
// Everything here is bounded whatever the input: one pass for Scan, a constant
// number of passes for Render, no recursion that the input drives, no
// allocation that grows with the input (deep nesting and many strings included).
package body

import "github.com/warmpath/warmpath/shared/jsontext"

// MaxDepth is how deeply arrays and objects may nest.
const MaxDepth = jsontext.MaxDepth
