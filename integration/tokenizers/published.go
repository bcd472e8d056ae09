package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// published reads what the generator needs of a vocabulary's file: its added
// tokens and what its ordinary tokens stand for. It shares no code with
// tokenizer/hf, whose reading is under test.
func published(v vocabulary, file string) (added, pieces []string, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	if v.Ranks != "" {
		for line := range strings.Lines(string(data)) {
			word, _, _ := strings.Cut(line, " ")
			piece, err := base64.StdEncoding.DecodeString(word)
			if err != nil {
				return nil, nil, fmt.Errorf("read %s: %w", file, err)
			}
			pieces = append(pieces, string(piece))
		}
		return []string{"<|endoftext|>"}, pieces, nil // all of them have it
	}
	var tokenizer struct {
		Added []struct{ Content string } `json:"added_tokens"`
		Model struct{ Vocab map[string]int }
	}
	if err := json.Unmarshal(data, &tokenizer); err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", file, err)
	}
	for _, a := range tokenizer.Added {
		added = append(added, a.Content)
	}
	// Vocabularies fill up with hundreds of reserved names: a few of them do.
	if len(added) > 60 {
		added = append(added[:40:40], added[len(added)-20:]...)
	}
	byteOf := byteLevel()
	for token := range tokenizer.Model.Vocab {
		var piece []byte
		for _, r := range token {
			if b, ok := byteOf[r]; ok {
				piece = append(piece, b)
			} else {
				piece = append(piece, string(r)...)
			}
		}
		pieces = append(pieces, string(piece))
	}
	slices.Sort(pieces)
	return added, pieces, nil
}

// byteLevel is GPT-2's table of printable stand-ins for bytes.
func byteLevel() map[rune]byte {
	table, next := make(map[rune]byte, 256), rune(256)
	for b := range 256 {
		if b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE {
			table[rune(b)] = byte(b)
		} else {
			table[next] = byte(b)
			next++
		}
	}
	return table
}
