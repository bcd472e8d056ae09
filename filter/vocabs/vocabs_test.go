//go:build !wasm

package vocabs

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/route"
	"github.com/warmpath/warmpath/shared/wire"
	"github.com/warmpath/warmpath/tokenizer/pretoken"
	"github.com/warmpath/warmpath/tokenizer/vocab"
)

const start = int64(1_700_000_000) * int64(time.Second)

// file compiles a vocabulary of more than one piece: all bytes, all pairs of
// them, and so many tokens more.
func file(t testing.TB, more int) ([]byte, policy.Vocabulary) {
	t.Helper()
	spec := vocab.Spec{ByRank: true, Kind: pretoken.GPT2}
	for b := range 256 {
		spec.Tokens = append(spec.Tokens, []byte{byte(b)})
	}
	for i := range more {
		spec.Tokens = append(spec.Tokens, []byte{byte(i >> 8), byte(i)})
	}
	b, err := spec.Compile()
	if err != nil {
		t.Fatal(err)
	}
	name, err := vocab.Hash(b)
	if err != nil {
		t.Fatal(err)
	}
	hash, _ := policy.ParseHash(name)
	return b, policy.Vocabulary{Hash: hash, Bytes: len(b)}
}

// vm is a set on a fake host.
func vm(t testing.TB) (*abi.Fake, *Set, wire.Keys) {
	host := abi.NewFake()
	host.Clock = start
	t.Cleanup(abi.UseFake(host))
	m := &metrics.Set{}
	m.Define()
	keys := wire.NewKeys("default")
	return host, New(keys, m, route.NewRand(1)), keys
}

func store(host *abi.Fake, keys wire.Keys, v policy.Vocabulary, file []byte) {
	for n := range wire.Shards(v.Bytes) {
		piece := file[n*wire.ShardBytes:][:wire.ShardSize(v.Bytes, n)]
		host.Shared[keys.Shard(v.Hash, n)] = abi.FakeShared{Value: piece, CAS: 1}
	}
}

func TestAVocabularyIsCopiedPieceByPieceAndThenUsed(t *testing.T) {
	host, s, keys := vm(t)
	b, v := file(t, 60_000)
	if n := wire.Shards(v.Bytes); n < 3 {
		t.Fatalf("%d pieces: too small to show anything", n)
	}
	s.Want([]policy.Vocabulary{{Hash: policy.Hash{1}, Bytes: 100}, v})
	s.Tick(start)
	store(host, keys, v, b)
	last := keys.Shard(v.Hash, wire.Shards(v.Bytes)-1)
	kept := host.Shared[last]
	delete(host.Shared, last)
	for range 20 {
		s.Tick(start)
	}
	if s.Get(v.Hash) != nil || s.Ready() != 0 {
		t.Fatal("loaded without its last piece")
	}
	host.Shared[last] = kept
	steps := 0
	for s.Get(v.Hash) == nil {
		if steps++; steps > 3 {
			t.Fatal("not loaded")
		}
		s.Tick(start)
	}
	loaded := s.Get(v.Hash)
	if loaded.Vocabulary.Hash() != v.Hash.String() || loaded.Encoder == nil || s.Ready() != 2 {
		t.Errorf("%+v ready %b", loaded, s.Ready())
	}
	kept.Value[0] ^= 1 // what is loaded is the VM's own
	if got := string(loaded.Encoder.Decode(nil, []uint32{'h', 'i'}, false)); got != "hi" {
		t.Errorf("%q", got)
	}
	s.Want([]policy.Vocabulary{v})
	if s.Get(v.Hash) != loaded || s.Ready() != 1 {
		t.Error("a policy that names it still has unloaded it")
	}
	s.Want(nil)
	if s.Get(v.Hash) != nil || s.Ready() != 0 {
		t.Error("a policy that names it no longer has left it loaded")
	}
}

func TestADamagedVocabularyIsRefusedAndTriedAgainLater(t *testing.T) {
	b, v := file(t, 60_000)
	for name, damage := range map[string]func([]byte) []byte{
		"a bit":     func(p []byte) []byte { p[1000] ^= 4; return p },
		"cut short": func(p []byte) []byte { return p[:len(p)-1] },
		"too long":  func(p []byte) []byte { return append(p, 0) },
		"a header":  func(p []byte) []byte { p[0] = 'X'; return p },
	} {
		t.Run(name, func(t *testing.T) {
			host, s, keys := vm(t)
			s.Want([]policy.Vocabulary{v})
			store(host, keys, v, b)
			key := keys.Shard(v.Hash, 0)
			host.Shared[key] = abi.FakeShared{Value: damage(bytes.Clone(host.Shared[key].Value)), CAS: 1}
			for range 10 {
				s.Tick(start)
			}
			if s.Refusals(v.Hash) != 1 || s.Ready() != 0 {
				t.Fatalf("%d refusals at once, ready %b", s.Refusals(v.Hash), s.Ready())
			}
			if len(host.Logs) != 1 || !strings.Contains(host.Logs[0].Message, v.Hash.String()) {
				t.Errorf("%v", host.Logs)
			}
			store(host, keys, v, b)
			for range 10 {
				s.Tick(start + int64(2*time.Second))
			}
			if s.Ready() != 0 {
				t.Error("tried again at once")
			}
			for range 10 {
				s.Tick(start + int64(10*time.Second))
			}
			if s.Ready() != 1 || s.Refusals(v.Hash) != 1 {
				t.Errorf("not loaded when it was good: %d refusals", s.Refusals(v.Hash))
			}
		})
	}
}

func TestWhatHasAnotherNameIsRefused(t *testing.T) {
	host, s, keys := vm(t)
	b, v := file(t, 60_000)
	v.Hash[3] ^= 1
	s.Want([]policy.Vocabulary{v})
	store(host, keys, v, b)
	for range 10 {
		s.Tick(start)
	}
	if s.Refusals(v.Hash) != 1 || s.Ready() != 0 {
		t.Errorf("%d refusals, ready %b", s.Refusals(v.Hash), s.Ready())
	}
}
