// Package vocabulary holds the compiled vocabularies that gateways fetch.
//
// The policy names a file: a .wpv file, or the tokenizer.json or rank file that
// it is compiled from. [Store.Load] reads and checks it and knows it from then
// on by its hash, under which [Store.Shard] hands it out piece by piece. [Store.Keep]
// forgets those that nobody uses any more.
package vocabulary

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/wire"
	"github.com/warmpath/warmpath/tokenizer/vocab"
)

// maxSource bounds what is read: tokenizer.json files have up to 35 MB.
const maxSource = 128 << 20

// Vocabulary is one that was found good. It is never changed.
type Vocabulary struct {
	policy.Vocabulary
	// Path is where it was read from.
	Path string
	// Tokens is the vocabulary for use in this process.
	Tokens *vocab.Vocab

	file  []byte
	stamp Stamp
}

// Stamp tells whether a file is still the one that was read.
type Stamp struct {
	size    int64
	changed time.Time
}

// Problem says what is wrong with a vocabulary file and what to do.
type Problem struct{ Path, What, Remedy string }

func (p *Problem) Error() string { return p.Path + ": " + p.What }

// Store is safe for concurrent use. The zero value is empty.
type Store struct {
	mu     sync.Mutex
	byHash map[policy.Hash]*Vocabulary
}

// Load reads a vocabulary, unless it is known already and the file is as it
// was. The error is a *Problem.
func (s *Store) Load(path string) (*Vocabulary, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	now := Stamp{info.Size(), info.ModTime()}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.byHash {
		if v.Path == path && v.stamp == now {
			return v, nil
		}
	}
	switch {
	case info.IsDir():
		return nil, &Problem{path, "is a folder", "name the tokenizer.json or .wpv file in it"}
	case info.Size() > maxSource:
		return nil, &Problem{path, fmt.Sprintf("%d bytes, the limit is %d", info.Size(), maxSource), "check the path: vocabularies are smaller"}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	file, tokens, err := compiled(data)
	if err != nil {
		return nil, &Problem{path, err.Error(), "give a .wpv file, or a tokenizer.json of a byte-level BPE tokenizer; warmpath tokenizer compile tells more"}
	}
	if len(file) > policy.MaxVocabularyBytes {
		return nil, &Problem{path, fmt.Sprintf("%d bytes compiled, a gateway's VMs have room for %d", len(file), policy.MaxVocabularyBytes), "leave tokenizer out: the pool then runs in approximate mode"}
	}
	hash, ok := policy.ParseHash(tokens.Hash())
	if !ok {
		return nil, &Problem{path, "its hash can't be read: " + tokens.Hash(), "compile it with this version of warmpath"}
	}
	v := s.byHash[hash]
	if v == nil {
		v = &Vocabulary{Vocabulary: policy.Vocabulary{Hash: hash, Bytes: len(file)}, Tokens: tokens, file: file}
	} else {
		copied := *v
		v = &copied
	}
	v.Path, v.stamp = path, now
	if s.byHash == nil {
		s.byHash = map[policy.Hash]*Vocabulary{}
	}
	s.byHash[hash] = v
	return v, nil
}

func unreadable(path string, err error) error {
	remedy := "make it readable for the control service"
	if errors.Is(err, fs.ErrNotExist) {
		remedy = "check the path; a relative one begins at the folder of the policy file"
	}
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return &Problem{path, err.Error(), remedy}
}

// Changed reports whether the file is not as it was when v was read, and what it
// is now. A file that has gone is a *Problem and no change: what was read stays
// good.
func (v *Vocabulary) Changed() (now Stamp, changed bool, err error) {
	info, err := os.Stat(v.Path)
	if err != nil {
		return Stamp{}, false, unreadable(v.Path, err)
	}
	now = Stamp{info.Size(), info.ModTime()}
	return now, v.stamp != now, nil
}

// Shard is piece n of a vocabulary, nil for one that isn't there.
func (s *Store) Shard(hash policy.Hash, n int) []byte {
	s.mu.Lock()
	v := s.byHash[hash]
	s.mu.Unlock()
	if v == nil || n < 0 || n >= wire.Shards(len(v.file)) {
		return nil
	}
	return v.file[n*wire.ShardBytes:][:wire.ShardSize(len(v.file), n)]
}

// Keep forgets all but the given ones.
func (s *Store) Keep(list []*Vocabulary) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byHash = make(map[policy.Hash]*Vocabulary, len(list))
	for _, v := range list {
		s.byHash[v.Hash] = v
	}
}
