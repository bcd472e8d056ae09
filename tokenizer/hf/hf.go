// Package hf reads the files that tokenizers are published in and makes a vocab.Spec of them.
//
// A tokenizer.json travels through it like this: Read takes it apart block by block
// (normalizer, pre_tokenizer, model, post_processor, added_tokens); each block is either one
// that this module does exactly, or the whole file is refused with the JSON path of the block
// and what to do. Nothing is approximated: a router that guesses tokens finds nobody's cache.
// ReadRanks does the same for tiktoken's rank files and ReadTekken for Mistral's tekken.json.
//
// Only native programs use this package; the module in the proxy gets compiled vocabularies.
package hf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/warmpath/warmpath/tokenizer/pretoken"
	"github.com/warmpath/warmpath/tokenizer/ucd"
	"github.com/warmpath/warmpath/tokenizer/vocab"
)

// Unsupported is a block that this module cannot do exactly.
type Unsupported struct {
	// Path is where the block stands in the file: "pre_tokenizer.pretokenizers[1].type".
	Path string
	// What is found there.
	What string
}

func (e *Unsupported) Error() string {
	return e.Path + ": " + e.What + " is not supported; leave `tokenizer` out of this pool's policy, so that it is routed by text"
}

func unsupported(path, format string, args ...any) error {
	return &Unsupported{Path: path, What: fmt.Sprintf(format, args...)}
}

// file is a tokenizer.json. HF ignores top-level keys that it does not know, and so do we;
// inside the blocks every key must be known.
type file struct {
	Version       string          `json:"version"`
	AddedTokens   []addedToken    `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         json.RawMessage `json:"model"`
	// truncation and padding are not read: engines tokenise whole prompts and transformers
	// resets both at every call.
}

type addedToken struct {
	ID         uint32 `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// Read reads a tokenizer.json. It returns *Unsupported for a block that cannot be done exactly.
func Read(data []byte) (*vocab.Spec, error) {
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("read tokenizer.json: %w", err)
	}
	if f.Version != "1.0" {
		return nil, unsupported("version", "%q", f.Version)
	}
	s := &vocab.Spec{}
	ids, err := readModel(s, f.Model)
	if err != nil {
		return nil, err
	}
	if s.NFC, err = readNormalizer(f.Normalizer, "normalizer"); err != nil {
		return nil, err
	}
	if err := readPreTokenizer(s, f.PreTokenizer); err != nil {
		return nil, err
	}
	if err := readDecoder(f.Decoder, "decoder"); err != nil {
		return nil, err
	}
	if err := readAdded(s, f.AddedTokens, ids); err != nil {
		return nil, err
	}
	if err := readPostProcessor(s, f.PostProcessor, "post_processor", new(int)); err != nil {
		return nil, err
	}
	return s, nil
}

// strict decodes a block whose keys must all be known.
func strict(block json.RawMessage, path string, into any) error {
	d := json.NewDecoder(bytes.NewReader(block))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("read %s: %w; this warmpath may be older than the file", path, err)
	}
	return nil
}

func isNull(block json.RawMessage) bool {
	return len(block) == 0 || string(block) == "null"
}

// typeOf returns the "type" of a block.
func typeOf(block json.RawMessage, path string) (string, error) {
	var t struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(block, &t); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return t.Type, nil
}

// model is the block of a BPE model.
type model struct {
	Type         string            `json:"type"`
	Dropout      *float64          `json:"dropout"`
	UnkToken     *string           `json:"unk_token"`
	Prefix       *string           `json:"continuing_subword_prefix"`
	Suffix       *string           `json:"end_of_word_suffix"`
	FuseUnk      bool              `json:"fuse_unk"`
	ByteFallback bool              `json:"byte_fallback"`
	IgnoreMerges bool              `json:"ignore_merges"`
	Vocab        map[string]uint32 `json:"vocab"`
	Merges       []pair            `json:"merges"`
}

// pair is a merge: "a b", or ["a", "b"] since tokenizers 0.20.
type pair [2]string

func (p *pair) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '[' {
		var parts []string
		if err := json.Unmarshal(b, &parts); err != nil {
			return err
		}
		if len(parts) != 2 {
			return fmt.Errorf("a merge of %d parts", len(parts))
		}
		p[0], p[1] = parts[0], parts[1]
		return nil
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	left, right, ok := strings.Cut(s, " ")
	if !ok || strings.Contains(right, " ") {
		return fmt.Errorf("merge %q is not two tokens with a space between them", s)
	}
	p[0], p[1] = left, right
	return nil
}

// readModel returns the ids of the model's tokens by their written form.
func readModel(s *vocab.Spec, block json.RawMessage) (map[string]uint32, error) {
	if isNull(block) {
		return nil, errors.New("read tokenizer.json: no model")
	}
	kind, err := typeOf(block, "model")
	if err != nil {
		return nil, err
	}
	if kind != "BPE" && kind != "" {
		return nil, unsupported("model.type", "%q", kind)
	}
	var m model
	if err := strict(block, "model", &m); err != nil {
		return nil, err
	}
	switch {
	case m.Dropout != nil && *m.Dropout != 0:
		return nil, unsupported("model.dropout", "%v: its tokens are random", *m.Dropout)
	case m.Prefix != nil && *m.Prefix != "":
		return nil, unsupported("model.continuing_subword_prefix", "%q", *m.Prefix)
	case m.Suffix != nil && *m.Suffix != "":
		return nil, unsupported("model.end_of_word_suffix", "%q", *m.Suffix)
	case len(m.Vocab) == 0:
		return nil, errors.New("read tokenizer.json: model.vocab is empty")
	}
	// unk_token, fuse_unk and byte_fallback say what happens to a character without a token.
	// Compile refuses vocabularies where a byte has none, so there is no such character.
	highest := uint32(0)
	for _, id := range m.Vocab {
		highest = max(highest, id)
	}
	if highest >= vocab.MaxIndexes {
		return nil, fmt.Errorf("read model.vocab: id %d is higher than %d", highest, vocab.MaxIndexes-1)
	}
	s.Tokens = make([][]byte, highest+1)
	s.Whole = m.IgnoreMerges
	for written, id := range m.Vocab {
		token, ok := bytesOf(written)
		if !ok {
			continue // a control token that no text can become; it is in added_tokens too
		}
		if s.Tokens[id] != nil {
			return nil, fmt.Errorf("read model.vocab: two tokens have id %d, one is %q", id, written)
		}
		s.Tokens[id] = token
	}
	s.Merges = make([][2]uint32, len(m.Merges))
	for i, merge := range m.Merges {
		for side, written := range merge {
			id, ok := m.Vocab[written]
			if !ok {
				return nil, fmt.Errorf("read model.merges[%d]: %q is not in model.vocab", i, written)
			}
			s.Merges[i][side] = id
		}
	}
	return m.Vocab, nil
}

// byteOf maps the characters that byte-level vocabularies are written in to bytes: printable
// Latin-1 characters are themselves, the other bytes are U+0100 and on in ascending order
// (GPT-2's bytes_to_unicode).
var byteOf = func() map[rune]byte {
	m := make(map[rune]byte, 256)
	next := rune(0x100)
	for b := range rune(256) {
		if b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae {
			m[b] = byte(b)
			continue
		}
		m[next] = byte(b)
		next++
	}
	return m
}()

func bytesOf(written string) ([]byte, bool) {
	token := make([]byte, 0, len(written))
	for _, r := range written {
		b, ok := byteOf[r]
		if !ok {
			return nil, false
		}
		token = append(token, b)
	}
	return token, len(token) > 0
}

func readNormalizer(block json.RawMessage, path string) (nfc bool, err error) {
	if isNull(block) {
		return false, nil
	}
	kind, err := typeOf(block, path)
	if err != nil {
		return false, err
	}
	switch kind {
	case "NFC":
		return true, strict(block, path, &struct{ Type string }{})
	case "Sequence":
		var sequence struct {
			Type        string
			Normalizers []json.RawMessage `json:"normalizers"`
		}
		if err := strict(block, path, &sequence); err != nil {
			return false, err
		}
		for i, inner := range sequence.Normalizers {
			one, err := readNormalizer(inner, path+".normalizers["+strconv.Itoa(i)+"]")
			if err != nil {
				return false, err
			}
			nfc = nfc || one
		}
		return nfc, nil
	}
	return false, unsupported(path+".type", "%q", kind)
}

func readDecoder(block json.RawMessage, path string) error {
	if isNull(block) {
		return nil // ids do not depend on it
	}
	kind, err := typeOf(block, path)
	if err != nil {
		return err
	}
	switch kind {
	case "ByteLevel":
		return nil
	case "Sequence":
		var sequence struct {
			Decoders []json.RawMessage `json:"decoders"`
		}
		if err := json.Unmarshal(block, &sequence); err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		for i, inner := range sequence.Decoders {
			if err := readDecoder(inner, path+".decoders["+strconv.Itoa(i)+"]"); err != nil {
				return err
			}
		}
		return nil
	}
	return unsupported(path+".type", "%q", kind)
}

// readAdded numbers the added tokens as HF does: by the model's vocabulary, else counting on
// from its size. A file that says otherwise would get other ids there than here.
func readAdded(s *vocab.Spec, tokens []addedToken, ids map[string]uint32) error {
	next := uint32(len(ids))
	at := map[string]int{}
	for i, t := range tokens {
		path := "added_tokens[" + strconv.Itoa(i) + "]"
		if t.Content == "" {
			continue // HF drops it too
		}
		id, known := ids[t.Content]
		have, again := at[t.Content]
		switch {
		case known:
		case again:
			id = s.Added[have].ID
		default:
			id = next
			next++
		}
		if id != t.ID {
			return unsupported(path+".id", "%d for %q, where tokenizers numbers it %d,", t.ID, t.Content, id)
		}
		if strings.ContainsRune(t.Content, '\uFFFD') {
			return unsupported(path+".content", "%q, with a replacement character,", t.Content)
		}
		a := vocab.AddedSpec{
			ID: id, Content: t.Content, Match: t.Content, Normalized: t.Normalized,
			Special: t.Special, LStrip: t.LStrip, RStrip: t.RStrip, SingleWord: t.SingleWord,
		}
		if a.Normalized && s.NFC {
			a.Match = string(ucd.NFC(nil, []byte(t.Content)))
		}
		if again {
			s.Added[have] = a
			continue
		}
		at[t.Content] = len(s.Added)
		s.Added = append(s.Added, a)
	}
	return nil
}

// readPostProcessor reads what encloses a text that is encoded with special tokens.
func readPostProcessor(s *vocab.Spec, block json.RawMessage, path string, templates *int) error {
	if isNull(block) {
		return nil
	}
	kind, err := typeOf(block, path)
	if err != nil {
		return err
	}
	switch kind {
	case "ByteLevel": // changes offsets only
		return nil
	case "Sequence":
		var sequence struct {
			Type       string
			Processors []json.RawMessage `json:"processors"`
		}
		if err := strict(block, path, &sequence); err != nil {
			return err
		}
		for i, inner := range sequence.Processors {
			if err := readPostProcessor(s, inner, path+".processors["+strconv.Itoa(i)+"]", templates); err != nil {
				return err
			}
		}
		return nil
	case "TemplateProcessing":
		if *templates++; *templates > 1 {
			return unsupported(path, "a second TemplateProcessing")
		}
		return readTemplate(s, block, path)
	}
	return unsupported(path+".type", "%q", kind)
}

func readTemplate(s *vocab.Spec, block json.RawMessage, path string) error {
	type reference struct {
		ID     string `json:"id"`
		TypeID int    `json:"type_id"`
	}
	var template struct {
		Type   string
		Single []struct {
			SpecialToken *reference
			Sequence     *reference
		} `json:"single"`
		Pair          json.RawMessage `json:"pair"` // prompts are never pairs
		SpecialTokens map[string]struct {
			ID     string   `json:"id"`
			IDs    []uint32 `json:"ids"`
			Tokens []string `json:"tokens"`
		} `json:"special_tokens"`
	}
	if err := strict(block, path, &template); err != nil {
		return err
	}
	seen := false
	for i, piece := range template.Single {
		path := path + ".single[" + strconv.Itoa(i) + "]"
		switch {
		case piece.Sequence != nil && !seen && piece.Sequence.ID == "A":
			seen = true
		case piece.SpecialToken != nil:
			token, ok := template.SpecialTokens[piece.SpecialToken.ID]
			if !ok {
				return fmt.Errorf("read %s: %q is not in special_tokens", path, piece.SpecialToken.ID)
			}
			if seen {
				s.After = append(s.After, token.IDs...)
			} else {
				s.Before = append(s.Before, token.IDs...)
			}
		default:
			return unsupported(path, "a template that does not hold the text once")
		}
	}
	if !seen {
		return unsupported(path+".single", "a template without the text")
	}
	return nil
}

// step is one pre-tokenizer of a sequence.
type step struct {
	Type           string            `json:"type"`
	Pattern        map[string]string `json:"pattern"`
	Behavior       string            `json:"behavior"`
	Invert         bool              `json:"invert"`
	AddPrefixSpace *bool             `json:"add_prefix_space"`
	TrimOffsets    bool              `json:"trim_offsets"` // changes offsets only
	UseRegex       *bool             `json:"use_regex"`
	Individual     bool              `json:"individual_digits"`
}

func readPreTokenizer(s *vocab.Spec, block json.RawMessage) error {
	steps, paths, err := flatten(block, "pre_tokenizer")
	if err != nil {
		return err
	}
	if len(steps) == 0 {
		return unsupported("pre_tokenizer", "none: text that is not byte-level")
	}
	var patterns []string
	removed := ""
	for i, st := range steps {
		path := paths[i]
		switch st.Type {
		case "Split":
			pattern, ok := st.Pattern["Regex"]
			if !ok {
				return unsupported(path+".pattern", "a pattern that is no Regex")
			}
			switch {
			case st.Behavior == "Isolated":
			case st.Behavior == "Removed" && st.Invert:
				removed = path
			default:
				return unsupported(path+".behavior", "%q with invert %v", st.Behavior, st.Invert)
			}
			patterns = append(patterns, pattern)
		case "Digits":
			// Runs of numbers, or numbers, stand alone: the same as a Split by this pattern.
			if st.Individual {
				patterns = append(patterns, pretoken.PatternDigit)
			} else {
				patterns = append(patterns, `\p{N}+`)
			}
		case "ByteLevel":
			if i != len(steps)-1 {
				return unsupported(paths[i+1]+".type", "%q after ByteLevel", steps[i+1].Type)
			}
			if st.AddPrefixSpace == nil || *st.AddPrefixSpace {
				if i > 0 {
					return unsupported(path+".add_prefix_space", "true after another pre-tokenizer")
				}
				s.PrefixSpace = true
			}
			if st.UseRegex == nil || *st.UseRegex {
				patterns = append(patterns, pretoken.PatternByteLevel)
			}
		default:
			return unsupported(path+".type", "%q", st.Type)
		}
	}
	if last := steps[len(steps)-1]; last.Type != "ByteLevel" {
		return unsupported(paths[len(paths)-1]+".type", "%q at the end, where ByteLevel is expected,", last.Type)
	}
	kind, ok := pretoken.KindOf(patterns...)
	if !ok {
		return unsupported("pre_tokenizer", "the pattern %q", patterns)
	}
	// Known single patterns match all of a text, so nothing is removed between the matches.
	if removed != "" && len(patterns) > 1 {
		return unsupported(removed+".behavior", "\"Removed\" with invert true beside other patterns")
	}
	s.Kind = kind
	return nil
}

// flatten returns the steps of nested sequences and the path of each.
func flatten(block json.RawMessage, path string) ([]step, []string, error) {
	if isNull(block) {
		return nil, nil, nil
	}
	kind, err := typeOf(block, path)
	if err != nil {
		return nil, nil, err
	}
	if kind != "Sequence" {
		var st step
		switch kind {
		case "Split", "Digits", "ByteLevel":
			if err := strict(block, path, &st); err != nil {
				return nil, nil, err
			}
		default:
			return nil, nil, unsupported(path+".type", "%q", kind)
		}
		return []step{st}, []string{path}, nil
	}
	var sequence struct {
		Type          string
		PreTokenizers []json.RawMessage `json:"pretokenizers"`
	}
	if err := strict(block, path, &sequence); err != nil {
		return nil, nil, err
	}
	var steps []step
	var paths []string
	for i, inner := range sequence.PreTokenizers {
		more, at, err := flatten(inner, path+".pretokenizers["+strconv.Itoa(i)+"]")
		if err != nil {
			return nil, nil, err
		}
		steps, paths = append(steps, more...), append(paths, at...)
	}
	return steps, paths, nil
}
