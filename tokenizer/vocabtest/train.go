// Package vocabtest makes small vocabularies for tests: Train learns merges from a text as BPE
// trainers do, Compile makes one ready for use, JSON writes it as a tokenizer.json. So tests need no published
// vocabulary, whose licences differ, and no network.
package vocabtest

import (
	"encoding/json"
	"sort"

	"github.com/warmpath/warmpath/tokenizer/pretoken"
	"github.com/warmpath/warmpath/tokenizer/vocab"
)

// Train returns a vocabulary of the 256 bytes, in order, and up to merges further tokens: the
// most frequent pair within the pieces of text, again and again, ties by lowest ids.
func Train(text string, kind pretoken.Kind, merges int) *vocab.Spec {
	s := &vocab.Spec{Kind: kind}
	for b := range 256 {
		s.Tokens = append(s.Tokens, []byte{byte(b)})
	}
	counts := map[string]int{}
	for at := 0; at < len(text); {
		end := pretoken.Next(kind, []byte(text), at)
		counts[text[at:end]]++
		at = end
	}
	pieces := make([]string, 0, len(counts))
	for piece := range counts {
		pieces = append(pieces, piece)
	}
	sort.Strings(pieces)
	words := make([][]uint32, len(pieces))
	for i, piece := range pieces {
		for _, b := range []byte(piece) {
			words[i] = append(words[i], uint32(b))
		}
	}
	known := map[string]bool{}
	for range merges {
		pairs := map[[2]uint32]int{}
		for i, word := range words {
			for j := 0; j+1 < len(word); j++ {
				pairs[[2]uint32{word[j], word[j+1]}] += counts[pieces[i]]
			}
		}
		best, most := [2]uint32{}, 0
		for pair, n := range pairs {
			if joined := string(s.Tokens[pair[0]]) + string(s.Tokens[pair[1]]); known[joined] {
				continue // made before, from other parts
			}
			if n > most || n == most && (pair[0] < best[0] || pair[0] == best[0] && pair[1] < best[1]) {
				best, most = pair, n
			}
		}
		if most == 0 {
			break
		}
		token := append(append([]byte{}, s.Tokens[best[0]]...), s.Tokens[best[1]]...)
		known[string(token)] = true
		id := uint32(len(s.Tokens))
		s.Tokens, s.Merges = append(s.Tokens, token), append(s.Merges, best)
		for i, word := range words {
			out := word[:0]
			for j := 0; j < len(word); j++ {
				if j+1 < len(word) && word[j] == best[0] && word[j+1] == best[1] {
					out = append(out, id)
					j++
				} else {
					out = append(out, word[j])
				}
			}
			words[i] = out
		}
	}
	return s
}

// Compile compiles and loads a vocabulary. t is a testing.TB or a rapid.T.
func Compile(t interface {
	Helper()
	Fatal(args ...any)
}, s *vocab.Spec,
) *vocab.Vocab {
	t.Helper()
	file, err := s.Compile()
	if err != nil {
		t.Fatal(err)
	}
	v, err := vocab.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Written returns a token as byte-level vocabularies write it: one printable character a byte.
func Written(token []byte) string {
	out := make([]rune, 0, len(token))
	for _, b := range token {
		out = append(out, alphabet[b])
	}
	return string(out)
}

var alphabet = func() (a [256]rune) {
	next := rune(0x100)
	for b := range rune(256) {
		if b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae {
			a[b] = b
		} else {
			a[b] = next
			next++
		}
	}
	return a
}()

// JSON writes s as a tokenizer.json with this pre_tokenizer block. Added tokens without an id
// in Tokens must count on from len(Tokens), as tokenizers numbers them.
func JSON(s *vocab.Spec, preTokenizer string) []byte {
	ids := map[string]uint32{}
	for id, token := range s.Tokens {
		if len(token) > 0 {
			ids[Written(token)] = uint32(id)
		}
	}
	merges := [][2]string{}
	for _, pair := range s.Merges {
		merges = append(merges, [2]string{Written(s.Tokens[pair[0]]), Written(s.Tokens[pair[1]])})
	}
	added := []map[string]any{}
	for _, a := range s.Added {
		added = append(added, map[string]any{
			"id": a.ID, "content": a.Content, "normalized": a.Normalized, "special": a.Special,
			"lstrip": a.LStrip, "rstrip": a.RStrip, "single_word": a.SingleWord,
		})
	}
	file := map[string]any{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added,
		"normalizer": nil, "pre_tokenizer": json.RawMessage(preTokenizer),
		"post_processor": nil, "decoder": map[string]any{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
		"model": map[string]any{
			"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil,
			"end_of_word_suffix": nil, "fuse_unk": false, "byte_fallback": false,
			"ignore_merges": s.Whole, "vocab": ids, "merges": merges,
		},
	}
	if s.NFC {
		file["normalizer"] = map[string]any{"type": "NFC"}
	}
	if len(s.Before)+len(s.After) > 0 {
		single, special := []any{}, map[string]any{}
		name := func(id uint32) string {
			for _, a := range s.Added {
				if a.ID == id {
					return a.Content
				}
			}
			return Written(s.Tokens[id])
		}
		add := func(id uint32) {
			n := name(id)
			special[n] = map[string]any{"id": n, "ids": []uint32{id}, "tokens": []string{n}}
			single = append(single, map[string]any{"SpecialToken": map[string]any{"id": n, "type_id": 0}})
		}
		for _, id := range s.Before {
			add(id)
		}
		single = append(single, map[string]any{"Sequence": map[string]any{"id": "A", "type_id": 0}})
		for _, id := range s.After {
			add(id)
		}
		file["post_processor"] = map[string]any{"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": special}
	}
	out, err := json.Marshal(file)
	if err != nil {
		panic(err) // maps of strings and numbers
	}
	return out
}
