package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/warmpath/warmpath/control/vocabulary"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/tokenizer/chat"
)

// parityRule says what a pool's workers must have shown before its fingerprints are
// over tokens.
type parityRule string

const (
	// parityAllow: none has shown other tokens than ours. The default.
	parityAllow parityRule = "allow_unverified"
	// parityRequire: all have shown that they are the same.
	parityRequire parityRule = "require"
	// parityOff: nobody is asked.
	parityOff parityRule = "off"
)

const (
	defaultGrace = 30 * time.Second
	maxGrace     = time.Hour
	// maxTemplates keeps the EXACT section, which may name each pool twice, a
	// small part of a frame.
	maxTemplates = 16 << 10
)

// tokenizer is the key tokenizer of a pool, read and its vocabulary loaded. It
// is never changed.
type tokenizer struct {
	written    map[string]any // as the author wrote it
	vocabulary *vocabulary.Vocabulary
	template   string // name, or JSON if declared
	declared   bool
	engine     string
	parity     parityRule
	grace      time.Duration
	chat       chat.Template
}

// same tells whether fingerprints under both are the same.
func (t *tokenizer) same(o *tokenizer) bool {
	return t != nil && o != nil && t.vocabulary.Hash == o.vocabulary.Hash && t.template == o.template && t.engine == o.engine
}

// takeTokenizers cuts the keys tokenizer out of a policy: the gateways' readers
// don't know them. They come back by position in the list of pools.
func takeTokenizers(doc any) map[int]any {
	out := map[int]any{}
	root, _ := doc.(map[string]any)
	pools, _ := root["pools"].([]any)
	for i, p := range pools {
		if pool, ok := p.(map[string]any); ok {
			if t, ok := pool["tokenizer"]; ok {
				out[i] = t
				delete(pool, "tokenizer")
			}
		}
	}
	return out
}

// loadTokenizers reads the tokenizers of a policy from dir, by pool.
func loadTokenizers(source, dir string, found map[int]any, set *policy.Set, store *vocabulary.Store) (map[string]*tokenizer, error) {
	out := map[string]*tokenizer{}
	for _, i := range slices.Sorted(maps.Keys(found)) {
		place := fmt.Sprintf("pools[%d].tokenizer", i)
		t, err := readTokenizer(place, dir, found[i], store)
		if err != nil {
			return nil, refusedPolicy(source, err)
		}
		out[set.Pools[i].Name] = t
		if err := room(place, out); err != nil {
			return nil, refusedPolicy(source, err)
		}
	}
	return out, nil
}

// room finds what a gateway has no room for: vocabularies in its VMs, templates
// in a frame.
func room(place string, tokenizers map[string]*tokenizer) error {
	sizes := map[policy.Hash]int{}
	total, templates := 0, 0
	for _, t := range tokenizers {
		templates += len(t.template)
		total += t.vocabulary.Bytes - sizes[t.vocabulary.Hash]
		sizes[t.vocabulary.Hash] = t.vocabulary.Bytes
	}
	if templates > maxTemplates {
		return &policy.Error{Place: place, Fault: fmt.Sprintf("the policy's templates have %d bytes together, the limit is %d", templates, maxTemplates), Remedy: "name templates instead of spelling them out"}
	}
	if total <= policy.MaxVocabularyBytes {
		return nil
	}
	return &policy.Error{
		Place: place, Fault: fmt.Sprintf("the policy's vocabularies have %d bytes together, a gateway's VMs have room for %d", total, policy.MaxVocabularyBytes),
		Remedy: "let pools share vocabularies, leave tokenizer out for some, or use several deployments",
	}
}

// readTokenizer reads one key tokenizer. The error is a *policy.Error.
func readTokenizer(place, dir string, v any, store *vocabulary.Store) (*tokenizer, error) {
	bad := func(key, fault, remedy string) error {
		if key != "" {
			key = "." + key
		}
		return &policy.Error{Place: place + key, Fault: fault, Remedy: remedy}
	}
	written, ok := v.(map[string]any)
	if !ok {
		return nil, bad("", "not an object", "write {file: ..., template: ..., engine: ...}")
	}
	keys := []string{"file", "template", "engine", "parity", "exact_grace_ms"}
	for _, key := range slices.Sorted(maps.Keys(written)) {
		if !slices.Contains(keys, key) {
			return nil, bad(key, "unknown key", "remove it or use one of "+strings.Join(keys, ", "))
		}
	}
	t := &tokenizer{written: written, parity: parityAllow, grace: defaultGrace}
	text := func(key string, into *string) error {
		s, ok := written[key].(string)
		if !ok || s == "" {
			return bad(key, "missing, or not a string", "write it as text")
		}
		*into = s
		return nil
	}
	if err := text("engine", &t.engine); err != nil {
		return nil, err
	}
	if err := t.readTemplate(bad); err != nil {
		return nil, err
	}
	if p, ok := written["parity"]; ok {
		t.parity = parityRule(fmt.Sprint(p))
		if !slices.Contains([]parityRule{parityAllow, parityRequire, parityOff}, t.parity) {
			return nil, bad("parity", fmt.Sprintf("unknown: %v", p), "use allow_unverified, require or off")
		}
	}
	if g, ok := written["exact_grace_ms"]; ok {
		ms, isNumber := number(g)
		if !isNumber || ms < 0 || ms > float64(maxGrace.Milliseconds()) {
			return nil, bad("exact_grace_ms", fmt.Sprintf("out of range: %v", g), "give milliseconds from 0 to 3600000")
		}
		t.grace = time.Duration(ms) * time.Millisecond
	}
	var path string
	if err := text("file", &path); err != nil {
		return nil, err
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	var err error
	if t.vocabulary, err = store.Load(path); err != nil {
		var p *vocabulary.Problem
		if errors.As(err, &p) {
			return nil, bad("file", err.Error(), p.Remedy)
		}
		return nil, bad("file", err.Error(), "")
	}
	return t, nil
}

func number(v any) (float64, bool) {
	switch n := v.(type) {
	case float64:
		return n, true
	case int:
		return float64(n), true
	default:
		return 0, false
	}
}

// readTemplate reads the template, by name or spelled out, for the engine.
func (t *tokenizer) readTemplate(bad func(key, fault, remedy string) error) error {
	if t.engine != "vllm" && t.engine != "sglang" {
		return bad("engine", fmt.Sprintf("unknown: %q", t.engine), "use vllm or sglang")
	}
	switch v := t.written["template"].(type) {
	case string:
		t.template = v
	case map[string]any:
		text, err := json.Marshal(v)
		if err != nil {
			return bad("template", err.Error(), "write it as YAML or JSON")
		}
		t.template, t.declared = string(text), true
	default:
		return bad("template", "missing, or neither a name nor an object", "name one of "+strings.Join(chat.Families(), ", ")+", or spell it out")
	}
	if len(t.template) > policy.MaxTemplateBytes {
		return bad("template", fmt.Sprintf("%d bytes, the limit is %d", len(t.template), policy.MaxTemplateBytes), "shorten it")
	}
	if t.declared {
		declared, err := chat.ParseDeclarative([]byte(t.template))
		var place *chat.PlaceError
		if errors.As(err, &place) {
			return bad(strings.TrimSuffix("template."+place.Place, "."), place.Fault, place.Remedy)
		}
		if err != nil {
			return bad("template", err.Error(), "")
		}
		t.chat, _ = chat.WithDeclarative(declared, t.engine) // the engine is a known one
		return nil
	}
	var ok bool
	if t.chat, ok = chat.ByName(t.template, t.engine); !ok {
		return bad("template", fmt.Sprintf("unknown for engine %s: %s", t.engine, t.template), "name one of "+strings.Join(chat.Families(), ", ")+", or spell it out")
	}
	return nil
}

// readVocabulariesAgain takes over files that have changed since they were read.
// One that is no good, or gone, is told once, and what it was before stays;
// refused holds those that were no good.
func (s *Service) readVocabulariesAgain(refused map[string]vocabulary.Stamp) {
	read := map[string]*vocabulary.Vocabulary{}
	problems := map[string]string{}
	before := s.vocabularyProblems()
	files := map[string]*vocabulary.Vocabulary{}
	for _, t := range s.policy.Load().tokenizers {
		files[t.vocabulary.Path] = t.vocabulary
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		stamp, changed, err := files[path].Changed()
		switch {
		case err != nil:
			if problems[path] = err.Error(); before[path] == "" {
				s.log.Error("vocabulary file is gone, what was read from it stays in use", "file", path, "err", err,
					"remedy", "put it back before the control service restarts: a policy without it is refused")
			}
		case !changed:
			if before[path] != "" {
				s.log.Info("vocabulary file is good again", "file", path)
			}
		case refused[path] == stamp:
			problems[path] = before[path]
		default:
			v, err := s.vocabularies.Load(path)
			if err != nil {
				refused[path], problems[path] = stamp, err.Error()
				s.log.Error("changed vocabulary refused, the one before stays", "file", path, "err", err)
				continue
			}
			read[path] = v
		}
	}
	s.policyMu.Lock()
	s.badFiles = problems
	s.policyMu.Unlock()
	if len(read) == 0 {
		return
	}
	err := s.editPolicy(func(d *document) (*document, error) {
		next, err := d.edit(func(*document) error { return nil })
		if err != nil {
			return nil, err
		}
		next.tokenizers = maps.Clone(d.tokenizers)
		for name, t := range d.tokenizers {
			if v := read[t.vocabulary.Path]; v != nil {
				copied := *t
				copied.vocabulary = v
				next.tokenizers[name] = &copied
			}
		}
		return next, room("tokenizer", next.tokenizers)
	})
	if err != nil {
		s.log.Error("changed vocabulary not taken over", "err", err)
	}
}

// vocabularyProblems is what is wrong with the files of vocabularies in use, by
// path.
func (s *Service) vocabularyProblems() map[string]string {
	s.policyMu.Lock()
	defer s.policyMu.Unlock()
	return s.badFiles
}
