package hf

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/warmpath/warmpath/tokenizer/pretoken"
	"github.com/warmpath/warmpath/tokenizer/vocab"
)

// Ranks says what a tiktoken rank file does not hold.
type Ranks struct {
	// Pattern is the regular expression that cuts text, as the encoding publishes it, or the
	// name of a kind: "cl100k-tail", "o200k", ...
	Pattern string
	// Special are the special tokens and their ids. They are recognised in the text, as with
	// allowed_special="all" and as engines do.
	Special map[string]uint32
}

// ReadRanks reads a rank file of tiktoken: a line for each token, its bytes in base64 and its
// rank, which is its id.
func ReadRanks(data []byte, r Ranks) (*vocab.Spec, error) {
	kind, err := kindOf(r.Pattern)
	if err != nil {
		return nil, err
	}
	s := &vocab.Spec{Kind: kind, ByRank: true, Whole: true}
	line := 0
	for row := range bytes.Lines(data) {
		line++
		if row = bytes.TrimSpace(row); len(row) == 0 {
			continue
		}
		encoded, number, ok := bytes.Cut(row, []byte(" "))
		if !ok {
			return nil, fmt.Errorf("read rank file: line %d is not base64, a space and a rank", line)
		}
		token, err := base64.StdEncoding.AppendDecode(nil, encoded)
		if err != nil {
			return nil, fmt.Errorf("read rank file: line %d: %w", line, err)
		}
		rank, err := strconv.ParseUint(string(number), 10, 32)
		if err != nil {
			return nil, fmt.Errorf("read rank file: line %d: %w", line, err)
		}
		if err := place(s, uint32(rank), token); err != nil {
			return nil, fmt.Errorf("read rank file: line %d: %w", line, err)
		}
	}
	for content, id := range r.Special {
		s.Added = append(s.Added, vocab.AddedSpec{ID: id, Content: content, Special: true})
	}
	slices.SortFunc(s.Added, func(a, b vocab.AddedSpec) int { return int(int64(a.ID) - int64(b.ID)) })
	return s, nil
}

func kindOf(pattern string) (pretoken.Kind, error) {
	if kind, ok := pretoken.KindOfTiktoken(pattern); ok {
		return kind, nil
	}
	for kind := pretoken.Kind(1); kind.Known(); kind++ {
		if kind.String() == pattern {
			return kind, nil
		}
	}
	return 0, unsupported("pattern", "%q", pattern)
}

func place(s *vocab.Spec, id uint32, token []byte) error {
	if id >= vocab.MaxIndexes {
		return fmt.Errorf("id %d is higher than %d", id, vocab.MaxIndexes-1)
	}
	if len(token) == 0 {
		return errors.New("a token without bytes")
	}
	for int(id) >= len(s.Tokens) {
		s.Tokens = append(s.Tokens, nil)
	}
	if s.Tokens[id] != nil {
		return fmt.Errorf("two tokens have id %d", id)
	}
	s.Tokens[id] = token
	return nil
}

// ReadTekken reads Mistral's tekken.json. Its special tokens are recognised in the text, as in
// the tokenizer.json that Mistral publishes beside it; mistral-common itself takes a special
// token's name in a user's message for plain text.
func ReadTekken(data []byte) (*vocab.Spec, error) {
	var file struct {
		Config struct {
			Pattern      string `json:"pattern"`
			Size         int    `json:"default_vocab_size"`
			SpecialCount int    `json:"default_num_special_tokens"`
		} `json:"config"`
		Vocab []struct {
			Rank  uint32 `json:"rank"`
			Bytes []byte `json:"token_bytes"`
		} `json:"vocab"`
		Special []struct {
			Rank    uint32 `json:"rank"`
			Content string `json:"token_str"`
		} `json:"special_tokens"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("read tekken.json: %w", err)
	}
	kind, err := kindOf(file.Config.Pattern)
	if err != nil {
		return nil, fmt.Errorf("read tekken.json: %w", err)
	}
	special := file.Config.SpecialCount
	if special < 0 || special > vocab.MaxAdded || file.Config.Size < special {
		return nil, fmt.Errorf("read tekken.json: config has %d special tokens of %d", special, file.Config.Size)
	}
	if len(file.Special) == 0 && special > 0 {
		return nil, unsupported("special_tokens", "a file that leaves them to mistral-common")
	}
	s := &vocab.Spec{Kind: kind, ByRank: true, Whole: true}
	for i, token := range file.Vocab {
		// Ranks beyond the size that the model was trained with are not used.
		if int(token.Rank) >= file.Config.Size-special {
			continue
		}
		if err := place(s, token.Rank+uint32(special), token.Bytes); err != nil {
			return nil, fmt.Errorf("read tekken.json: vocab[%d]: %w", i, err)
		}
	}
	begin := ""
	for _, token := range file.Special {
		s.Added = append(s.Added, vocab.AddedSpec{ID: token.Rank, Content: token.Content, Special: true})
		if token.Content == "<s>" {
			begin = token.Content
			s.Before = []uint32{token.Rank}
		}
	}
	if begin == "" {
		return nil, unsupported("special_tokens", "a file without <s>")
	}
	return s, nil
}
