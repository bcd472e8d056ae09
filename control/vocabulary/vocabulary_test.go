package vocabulary

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/wire"
	"github.com/warmpath/warmpath/tokenizer/pretoken"
	"github.com/warmpath/warmpath/tokenizer/vocab"
)

// compile makes a .wpv file of all bytes and so many tokens of two bytes.
func compile(t *testing.T, more int) []byte {
	t.Helper()
	spec := vocab.Spec{ByRank: true, Kind: pretoken.GPT2}
	for b := range 256 {
		spec.Tokens = append(spec.Tokens, []byte{byte(b)})
	}
	for i := range more {
		spec.Tokens = append(spec.Tokens, []byte{byte(i >> 8), byte(i)})
	}
	file, err := spec.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestThePiecesTogetherAreTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.wpv")
	file := compile(t, 60_000)
	write(t, path, file)
	var s Store
	v, err := s.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	var whole []byte
	for n := 0; ; n++ {
		piece := s.Shard(v.Hash, n)
		if piece == nil {
			break
		}
		if len(piece) > wire.ShardBytes {
			t.Errorf("piece %d has %d bytes", n, len(piece))
		}
		whole = append(whole, piece...)
	}
	if !bytes.Equal(whole, file) || v.Bytes != len(file) || v.Tokens.Hash() != v.Hash.String() {
		t.Errorf("%d bytes in pieces, %d in the file, %d said", len(whole), len(file), v.Bytes)
	}
	if s.Shard(v.Hash, -1) != nil || s.Shard(policy.Hash{1}, 0) != nil {
		t.Error("a piece that isn't there")
	}
	s.Keep(nil)
	if s.Shard(v.Hash, 0) != nil {
		t.Error("a vocabulary that nobody uses is kept")
	}
	s.Keep([]*Vocabulary{v})
	if s.Shard(v.Hash, 0) == nil {
		t.Error("one that is used is not handed out")
	}
}

func TestAFileIsReadOnceUntilItChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.wpv")
	write(t, path, compile(t, 10))
	var s Store
	first, err := s.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := s.Load(path); err != nil || again != first {
		t.Errorf("%p and %p, %v", first, again, err)
	}
	if _, changed, err := first.Changed(); changed || err != nil {
		t.Error("changed before it did", err)
	}
	write(t, path, compile(t, 20))
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, changed, err := first.Changed(); !changed || err != nil {
		t.Error("a change is not seen", err)
	}
	if next, err := s.Load(path); err != nil || next.Hash == first.Hash {
		t.Errorf("%+v, %v", next, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	var gone *Problem
	if _, changed, err := first.Changed(); changed || !errors.As(err, &gone) || gone.Remedy == "" {
		t.Errorf("a file that has gone: changed %v, %v; want a problem and what was read still good", changed, err)
	}
}

func TestATokenizerJSONIsCompiled(t *testing.T) {
	var s Store
	v, err := s.Load(filepath.Join("..", "parity", "testdata", "qwen2.5-part.json"))
	if err != nil || v.Tokens.IDs < 151_000 {
		t.Errorf("%+v %v", v, err)
	}
}

func TestABadFileIsRefusedWithWhatToDo(t *testing.T) {
	dir := t.TempDir()
	damaged := compile(t, 10)
	damaged[len(damaged)-1] ^= 1
	large := filepath.Join(dir, "large.wpv")
	for name, content := range map[string][]byte{"damaged.wpv": damaged, "text.wpv": []byte("hello"), "large.wpv": nil, "other.json": []byte(`{"version":"1.0","model":{"type":"Unigram"}}`)} {
		write(t, filepath.Join(dir, name), content)
	}
	if err := os.Truncate(large, maxSource+1); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"damaged.wpv": "checksum", "text.wpv": "neither", "large.wpv": "the limit is", "other.json": "Unigram", "none.wpv": "no such file", ".": "is a folder"} {
		var s Store
		_, err := s.Load(filepath.Join(dir, name))
		var p *Problem
		if !errors.As(err, &p) || p.Remedy == "" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q and a remedy", name, err, want)
		}
	}
}
