package policy

import (
	"strconv"

	"github.com/tidwall/gjson"
)

const (
	// MaxVocabularyBytes bounds the vocabularies that one policy may name, together: each VM of a
	// gateway keeps a copy, and has 40 MiB in all.
	MaxVocabularyBytes = 12 << 20
	// MaxVocabularies is how many of them a row can speak of.
	MaxVocabularies = 32
	// MaxTemplateBytes bounds a template that is spelled out.
	MaxTemplateBytes = 8 << 10

	maxEngine = 40
)

// Hash names a vocabulary by its content: HighwayHash-128 of the file.
type Hash [16]byte

// String returns the 32 hex digits used in JSON and URLs.
func (h Hash) String() string {
	const digits = "0123456789abcdef"
	var b [32]byte
	for i, c := range h {
		b[2*i], b[2*i+1] = digits[c>>4], digits[c&15]
	}
	return string(b[:])
}

// ParseHash reads 32 lower-case hex digits.
func ParseHash(s string) (h Hash, ok bool) {
	if len(s) != 2*len(h) {
		return Hash{}, false
	}
	for i := range len(s) {
		var v byte
		switch c := s[i]; {
		case c >= '0' && c <= '9':
			v = c - '0'
		case c >= 'a' && c <= 'f':
			v = c - 'a' + 10
		default:
			return Hash{}, false
		}
		h[i/2] = h[i/2]<<4 | v
	}
	return h, true
}

// Vocabulary is a compiled vocabulary that the policy names.
type Vocabulary struct {
	Hash  Hash
	Bytes int
}

// Exact says how prompts of a pool become the tokens that its engines see.
type Exact struct {
	// Vocabulary is the pool's, as in Set.Vocabularies.
	Vocabulary Vocabulary
	// Template is the name of a chat template, or the JSON object that spells one out. Names and
	// keys are checked by package chat: a name that this module does not know yet leaves the pool
	// in approximate mode and is no fault of the policy.
	Template string
	// Engine renders the template: vllm or sglang.
	Engine string
	// Active: fingerprints are over tokens from now on. Before that the vocabulary is only loaded.
	Active bool
}

// ParseExact reads the EXACT section and completes the set that Parse made of the POLICY section
// beside it. An empty text names nothing. Pools that the set lacks are skipped, all else that is
// not understood is refused with an *Error and leaves the set as it was.
//
// It is a section of its own because Parse refuses keys that it does not know: modules from before
// it skip the section, and go on in approximate mode.
func ParseExact(text []byte, set *Set) error {
	if len(text) == 0 {
		return nil
	}
	if len(text) > MaxBytes {
		return &Error{"exact", "longer than 256 KiB", "name the templates instead of spelling them out"}
	}
	if err := checkDepth(text); err != nil {
		return err
	}
	if !gjson.ValidBytes(text) {
		return &Error{"exact", "not valid JSON", "check commas, quotes and braces"}
	}
	root := gjson.ParseBytes(text)
	if !root.IsArray() {
		return &Error{"exact", "not an array", "write [{...}]"}
	}
	p := exactParser{}
	n := 0
	root.ForEach(func(_, v gjson.Result) bool {
		at := "exact[" + strconv.Itoa(n) + "]"
		n++
		p.entry(at, v)
		return p.err == nil
	})
	if p.err != nil {
		return p.err
	}
	for i := range set.Pools {
		set.Pools[i].Exact = nil
	}
	for i := range p.entries {
		e := &p.entries[i]
		// A pool may have two: what is in force, and what takes its place once it is loaded.
		if pool := set.ByName(e.pool); pool != nil && (pool.Exact == nil || e.exact.Active) {
			pool.Exact = &e.exact
		}
	}
	set.Vocabularies = p.vocabularies
	return nil
}

type exactParser struct {
	parser
	entries      []exactEntry
	vocabularies []Vocabulary
	total        int
}

type exactEntry struct {
	pool  string
	exact Exact
}

func (p *exactParser) entry(at string, v gjson.Result) {
	var e exactEntry
	p.object(at, v, []field{
		{"pool", func(at string, v gjson.Result) { e.pool = p.text(at, v) }},
		{"vocab", func(at string, v gjson.Result) {
			h, ok := ParseHash(p.text(at, v))
			if !ok {
				p.fail(at, "not the hash of a vocabulary: "+shorten(v.Raw), "write its 32 hex digits")
			}
			e.exact.Vocabulary.Hash = h
		}},
		{"bytes", func(at string, v gjson.Result) { e.exact.Vocabulary.Bytes = p.integer(at, v, 1, MaxVocabularyBytes) }},
		{"template", func(at string, v gjson.Result) {
			switch {
			case v.IsObject():
				e.exact.Template = v.Raw
			default:
				e.exact.Template = p.text(at, v)
			}
			if n := len(e.exact.Template); n == 0 || n > MaxTemplateBytes {
				p.fail(at, "empty, or longer than 8 KiB", "name a template or spell one out")
			}
		}},
		{"engine", func(at string, v gjson.Result) {
			e.exact.Engine = p.text(at, v)
			if len(e.exact.Engine) > maxEngine {
				p.fail(at, "not an engine: "+shorten(v.Raw), "use vllm or sglang")
			}
		}},
		{"active", func(at string, v gjson.Result) { e.exact.Active = p.bool(at, v) }},
	})
	for _, missing := range [...]struct {
		key string
		is  bool
	}{
		{"pool", e.pool == ""},
		{"vocab", e.exact.Vocabulary.Hash == Hash{}},
		{"bytes", e.exact.Vocabulary.Bytes == 0},
		{"template", e.exact.Template == ""},
		{"engine", e.exact.Engine == ""},
	} {
		if missing.is {
			p.fail(at+"."+missing.key, "missing", "an entry has pool, vocab, bytes, template, engine and active")
		}
	}
	if p.err != nil {
		return
	}
	p.entries = append(p.entries, e)
	for _, known := range p.vocabularies {
		if known.Hash == e.exact.Vocabulary.Hash {
			if known.Bytes != e.exact.Vocabulary.Bytes {
				p.fail(at+".bytes", "another size for the same vocabulary", "a hash has one size")
			}
			return
		}
	}
	p.total += e.exact.Vocabulary.Bytes
	switch {
	case len(p.vocabularies) == MaxVocabularies:
		p.fail(at, "more than 32 vocabularies", "let pools share them")
	case p.total > MaxVocabularyBytes:
		p.fail(at+".bytes", "the vocabularies are larger than 12 MiB together", "let pools share them, or use several deployments")
	}
	p.vocabularies = append(p.vocabularies, e.exact.Vocabulary)
}
