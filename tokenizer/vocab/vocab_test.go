package vocab_test

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/minio/highwayhash"
	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/tokenizer/bpe"
	"github.com/warmpath/warmpath/tokenizer/pretoken"
	"github.com/warmpath/warmpath/tokenizer/vocab"
	"github.com/warmpath/warmpath/tokenizer/vocabtest"
)

const text = "The fox jumps over the lazy dog, 敏捷的狐狸跳过懒狗。 Übung, 12 foxes follow the dog"

// spec has every section: ids that are not indexes, whole pieces, added tokens of both kinds.
func spec() *vocab.Spec {
	s := vocabtest.Train(text, pretoken.Qwen2, 40)
	// The merges run backwards through the ids.
	slices.Reverse(s.Tokens[256:])
	for i := range s.Merges {
		for side, id := range s.Merges[i] {
			if id >= 256 {
				s.Merges[i][side] = uint32(256 + len(s.Tokens) - 1 - int(id))
			}
		}
	}
	s.Tokens = append(s.Tokens, []byte("jumps over"), nil, []byte("懒狗dog"))
	s.Whole, s.NFC = true, true
	n := uint32(len(s.Tokens))
	s.Added = []vocab.AddedSpec{
		{ID: n, Content: "<end>", Special: true},
		{ID: n + 1, Content: "<a>", LStrip: true, RStrip: true, SingleWord: true},
		{ID: n + 2, Content: "e\u0301", Normalized: true, Match: "é"},
	}
	s.Before, s.After = []uint32{n, 3}, []uint32{n}
	return s
}

func compile(t testing.TB, s *vocab.Spec) []byte {
	t.Helper()
	file, err := s.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestTheSameSpecGivesTheSameBytes(t *testing.T) {
	a, b := compile(t, spec()), compile(t, spec())
	if string(a) != string(b) {
		t.Fatal("two compilations differ")
	}
	v, err := vocab.Load(a)
	if err != nil {
		t.Fatal(err)
	}
	name, err := vocab.Hash(a)
	if err != nil || name != v.Hash() || len(name) != 32 {
		t.Fatalf("named %q and %q, %v", name, v.Hash(), err)
	}
	if size, err := vocab.Size(a[:64]); size != len(a) || v.Bytes() != len(a) || err != nil {
		t.Fatalf("%d bytes, said to be %d and %d, %v", len(a), size, v.Bytes(), err)
	}
}

// A change of the format that old files do not survive must change the version.
func TestTheFormatIsTheDrawnOne(t *testing.T) {
	file := compile(t, spec())
	le := binary.LittleEndian
	if string(file[:4]) != "WPV1" || le.Uint16(file[4:]) != 1 || le.Uint16(file[6:]) != 1|2|8 {
		t.Fatalf("header % x", file[:8])
	}
	sum := highwayhash.Sum128(file[24:], []byte("warmpath vocabulary, version 1.."))
	if string(sum[:]) != string(file[8:24]) {
		t.Fatal("the checksum is not that of everything behind it")
	}
	const indexes, slots = 256 + 40 + 2, 512
	if n := le.Uint32(file[32:]); n != indexes || file[29] != 9 {
		t.Fatalf("%d indexes, 2^%d slots", n, file[29])
	}
	ends := file[64:]
	slot := file[64+4*(indexes+1):]
	words := (indexes + 31) / 32
	wholes := 4 << file[30]
	base := len(file) - int(le.Uint32(file[36:]))
	if got, want := base, 64+4*(indexes+1)+4*slots+wholes+4*256+8*words+4*indexes+4*int(le.Uint32(file[40:]))+3*20+3*4+3*4; got != want {
		t.Fatalf("text begins at %d, by the drawing at %d", got, want)
	}
	// Every merged token is found by the drawn hash.
	found := 0
	for index := uint32(0); index < indexes; index++ {
		token := file[base+int(le.Uint32(ends[4*index:])) : base+int(le.Uint32(ends[4*index+4:]))]
		h := uint64(0)
		for _, b := range token {
			h = (h + uint64(b) + 1) * 0x9e3779b97f4a7c15
		}
		for at := h >> (64 - 9); ; at++ {
			s := le.Uint32(slot[4*(at%slots):])
			if s == 0xffffffff {
				break
			}
			if s == uint32(h>>(64-9-12))<<20|index {
				found++
				break
			}
		}
	}
	if found != 40 {
		t.Fatalf("%d tokens found in the slots, 40 are merged", found)
	}
}

func TestAnyLoadingGivesTheSameVocabulary(t *testing.T) {
	file := compile(t, spec())
	want, _ := bpe.New(load(t, file), bpe.Config{}).Encode(nil, []byte(text+"<end> jumps over"), bpe.Options{AddSpecial: true})
	for _, offset := range []int{0, 1, 2, 3} {
		// A slice that does not begin at a multiple of four is copied, and works as well.
		moved := append(make([]byte, offset, offset+len(file)), file...)[offset:]
		got, _ := bpe.New(load(t, moved), bpe.Config{}).Encode(nil, []byte(text+"<end> jumps over"), bpe.Options{AddSpecial: true})
		if !slices.Equal(got, want) {
			t.Fatalf("at offset %d: %v, want %v", offset, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		l, err := vocab.NewLoader(len(file))
		if err != nil {
			t.Fatal(err)
		}
		for l.Have() < l.Size() {
			n := min(rapid.SampledFrom([]int{0, 1, 7, 60, 1000, 5000}).Draw(t, "shard"), l.Size()-l.Have())
			shard := append([]byte{}, file[l.Have():l.Have()+n]...)
			if err := l.Write(shard); err != nil {
				t.Fatal(err)
			}
			clear(shard) // the loader keeps its own copy
		}
		v, err := l.Finish()
		if err != nil {
			t.Fatal(err)
		}
		got, _ := bpe.New(v, bpe.Config{}).Encode(nil, []byte(text+"<end> jumps over"), bpe.Options{AddSpecial: true})
		if !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

func load(t testing.TB, file []byte) *vocab.Vocab {
	t.Helper()
	v, err := vocab.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestEveryDamageIsRefused(t *testing.T) {
	file := compile(t, spec())
	for n := range file {
		if _, err := vocab.Load(file[:n]); err == nil {
			t.Fatalf("%d of %d bytes are loaded", n, len(file))
		}
	}
	if _, err := vocab.Load(append(slices.Clip(file), 0)); err == nil {
		t.Fatal("a byte too many is loaded")
	}
	for i := range file {
		bad := slices.Clone(file)
		bad[i] ^= 1 << (i % 8)
		_, err := vocab.Load(bad)
		var where *vocab.Error
		if !errors.As(err, &where) {
			t.Fatalf("a flipped bit at %d: %v", i, err)
		}
	}
	l, err := vocab.NewLoader(len(file))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Write(append(slices.Clip(file), 1)); err == nil {
		t.Fatal("a loader takes more than it asked for")
	}
	if err := l.Write(file[:len(file)-1]); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Finish(); err == nil || !strings.Contains(err.Error(), "cut short") {
		t.Fatalf("a file that is not complete: %v", err)
	}
	for _, size := range []int{-1, 0, 63, vocab.MaxFileBytes + 1} {
		if _, err := vocab.NewLoader(size); err == nil {
			t.Fatalf("a file of %d bytes", size)
		}
	}
}

func TestCompileSaysWhatItCannotDo(t *testing.T) {
	for want, change := range map[string]func(*vocab.Spec){
		"no token for byte 0x41":         func(s *vocab.Spec) { s.Tokens['A'] = nil },
		"are the same bytes":             func(s *vocab.Spec) { s.Tokens = append(s.Tokens, []byte("a")) },
		"names token 9999":               func(s *vocab.Spec) { s.Merges = append(s.Merges, [2]uint32{1, 9999}) },
		"makes bytes that are no token":  func(s *vocab.Spec) { s.Merges = append(s.Merges, [2]uint32{1, 2}) },
		"longer than 1024 bytes":         func(s *vocab.Spec) { s.Tokens = append(s.Tokens, make([]byte, 1025)) },
		`two added tokens match "<end>"`: func(s *vocab.Spec) { s.Added = append(s.Added, s.Added[0]) },
		"added token 3 is empty":         func(s *vocab.Spec) { s.Added = append(s.Added, vocab.AddedSpec{}) },
		"too many added or enclosing":    func(s *vocab.Spec) { s.Before = make([]uint32, 17) },
		"added token 3 has an impossible id": func(s *vocab.Spec) {
			s.Added = append(s.Added, vocab.AddedSpec{ID: 1 << 30, Content: "x"})
		},
		"unknown pre-tokenizer": func(s *vocab.Spec) { s.Kind = 200 },
	} {
		s := spec()
		change(s)
		if _, err := s.Compile(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestBytesThatNoTextHasNeedNoToken(t *testing.T) {
	s := vocabtest.Train(text, pretoken.Qwen2, 10)
	for _, b := range []int{0xc0, 0xc1, 0xf5, 0xff} {
		s.Tokens[b] = nil
	}
	ids, _ := bpe.New(load(t, compile(t, s)), bpe.Config{}).Encode(nil, []byte("\xff\xc0 fox"), bpe.Options{})
	if len(ids) < 4 {
		t.Fatalf("%v", ids)
	}
}

// FuzzLoad gives files with a right checksum and anything else in them: what is loaded must
// also be encoded with.
func FuzzLoad(f *testing.F) {
	valid, err := spec().Compile()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(valid)
	plain, err := vocabtest.Train(text, pretoken.O200K, 5).Compile()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(plain)
	sample := []byte(text + " <end> <a>e\u0301é jumps over" + strings.Repeat("dog", 40) + strings.Repeat("懒狗", 20))
	f.Fuzz(func(t *testing.T, file []byte) {
		if len(file) >= 64 {
			file = slices.Clone(file)
			sum := highwayhash.Sum128(file[24:], []byte("warmpath vocabulary, version 1.."))
			copy(file[8:], sum[:])
		}
		v, err := vocab.Load(file)
		if inShards(file) != (err == nil) {
			t.Fatalf("as a whole: %v, in shards the other way", err)
		}
		if err != nil {
			return
		}
		e := bpe.New(v, bpe.Config{CacheEntries: 16, MemoIDs: 64, MemoEntries: 4})
		ids, _ := e.Encode(nil, sample, bpe.Options{AddSpecial: true, Marks: []int{3, 30}, MarkIDs: make([]int, 2)})
		e.Decode(nil, ids, true)
	})
}

// inShards tells whether a loader takes a file shard by shard.
func inShards(file []byte) bool {
	l, err := vocab.NewLoader(len(file))
	if err != nil {
		return false
	}
	for at := 0; at < len(file); at += 100 {
		if l.Write(file[at:min(at+100, len(file))]) != nil {
			return false
		}
	}
	_, err = l.Finish()
	return err == nil
}
