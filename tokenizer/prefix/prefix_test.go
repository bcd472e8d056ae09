package prefix

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/tokenizer/bpe"
	"github.com/warmpath/warmpath/tokenizer/pretoken"
	"github.com/warmpath/warmpath/tokenizer/recent"
	"github.com/warmpath/warmpath/tokenizer/vocab"
	"github.com/warmpath/warmpath/tokenizer/vocabtest"
)

const words = "the longest match wins, and 1234 more foxes follow the lazy dog; Größe, 敏捷的棕色狐狸 e\u0301 "

func vocabulary(t testing.TB, added ...string) *vocab.Vocab {
	t.Helper()
	s := vocabtest.Train(words, pretoken.Qwen2, 60)
	s.NFC = true
	for i, content := range append(added, "<|start|>", "<|end|>") {
		s.Added = append(s.Added, vocab.AddedSpec{ID: 9000 + uint32(i), Content: content, Special: true})
	}
	s.Before = []uint32{s.Added[0].ID}
	return vocabtest.Compile(t, s)
}

// plain is the checkpoints and the number of tokens without any memo.
func plain(v *vocab.Vocab, p Prompt) ([]fingerprint.Checkpoint, int) {
	marks := make([]int, len(p.Ends))
	ids, r := bpe.New(v, bpe.Config{MemoIDs: -1, CacheEntries: 16}).Encode(nil, p.Text, bpe.Options{AddSpecial: p.AddSpecial, Marks: p.Ends, MarkIDs: marks})
	if p.Open {
		ids = ids[:max(r.Cut.IDs, len(ids)-fingerprint.UnitTokens)]
	}
	var chain fingerprint.Chain
	chain.Reset(p.Salt)
	at := 0
	for _, mark := range marks {
		if mark > len(ids) {
			break
		}
		chain.WriteTokens(ids[at:mark])
		chain.TurnEnd()
		at = mark
	}
	chain.WriteTokens(ids[at:])
	return chain.Finish(), len(ids)
}

// talk is a conversation that grows.
type talk struct {
	text []byte
	ends []int
}

func (c *talk) add(text string) {
	c.text = append(c.text, text...)
	c.ends = append(c.ends, len(c.text))
}

func (c talk) clone() talk { return talk{slices.Clone(c.text), slices.Clone(c.ends)} }

func speech(rng *rand.Rand, most int) string {
	from := rng.IntN(len(words))
	return strings.ToValidUTF8(strings.Repeat(words, 2+most/len(words))[from:from+rng.IntN(most)], "")
}

// grow adds a turn in one of several forms: some end right behind an added token, some a little
// later, some in the middle of a word, some where the text goes on as one token or another.
func (c *talk) grow(rng *rand.Rand) {
	most := []int{20, 300, 3000}[rng.IntN(3)]
	switch rng.IntN(8) {
	case 0:
		c.add(speech(rng, most))
	case 1:
		c.add(speech(rng, most) + "<|end|>")
	case 2:
		c.add("\n\n" + speech(rng, most))
	default:
		c.add("<|start|>user\n" + speech(rng, most) + "<|end|>\n")
	}
}

func TestCheckpointsAreTheSameWhateverIsRemembered(t *testing.T) {
	v := vocabulary(t, "<|end|>\n\n")
	reused := 0
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		var chain fingerprint.Chain
		memo, e := new(Memo), bpe.New(v, bpe.Config{MemoIDs: 1 << 12})
		if rng.IntN(2) == 0 { // so small that things are forgotten all the time
			memo.store = tiny()
		}
		talks := []talk{{}}
		for range 40 {
			c := talks[rng.IntN(len(talks))].clone()
			if len(c.ends) > 0 && rng.IntN(4) == 0 { // another continuation of an earlier beginning
				c.ends = c.ends[:rng.IntN(len(c.ends))]
				c.text = c.text[:append(c.ends, 0)[max(0, len(c.ends)-1)]]
			}
			for range 1 + rng.IntN(3) {
				c.grow(rng)
			}
			talks = append(talks, c)
			p := Prompt{Salt: uint64(rng.IntN(2)), Text: c.text, Ends: c.ends, AddSpecial: rng.IntN(2) == 0, Open: rng.IntN(4) == 0}
			if rng.IntN(4) == 0 {
				p.Ends = slices.DeleteFunc(slices.Clone(p.Ends), func(int) bool { return rng.IntN(3) == 0 })
			}
			want, tokens := plain(v, p)
			got := memo.Chain(&chain, e, p)
			if diff := cmp.Diff(want, slices.Clone(chain.Finish())); diff != "" {
				t.Fatalf("%q, turns end at %v: checkpoints differ (-plain +remembered):\n%s", p.Text, p.Ends, diff)
			}
			if got.Tokens != tokens || got.Covered != len(p.Text) || got.Exhausted {
				t.Fatalf("%+v, want %d tokens of %d bytes", got, tokens, len(p.Text))
			}
			if got.Memoised > len(p.Text)/2 {
				reused++
			}
		}
	})
	if reused < 200 {
		t.Errorf("only %d prompts were known for the most part", reused)
	}
}

// tiny remembers next to nothing.
func tiny() recent.Store[note, fingerprint.Checkpoint] {
	return recent.New[note, fingerprint.Checkpoint](4, 200)
}

func TestAFollowUpTurnIsTokenisedAlone(t *testing.T) {
	e, memo := bpe.New(vocabulary(t), bpe.Config{MemoIDs: -1}), new(Memo)
	var chain fingerprint.Chain
	var c talk
	c.add("<|start|>system\n" + strings.Repeat(words, 50) + "<|end|>\n")
	for i := range 30 {
		c.add("<|start|>user\n" + strings.Repeat(words, 5) + string(rune('a'+i)) + "<|end|>\n")
		r := memo.Chain(&chain, e, Prompt{Text: c.text, Ends: c.ends})
		fresh := len(words)*5 + 40
		if i == 0 {
			fresh += len(words) * 50
		}
		if r.Fresh > fresh || r.Memoised+r.Fresh < len(c.text)*9/10 {
			t.Fatalf("turn %d: %d bytes fresh of %d, %d known", i, r.Fresh, len(c.text), r.Memoised)
		}
	}
	// Another conversation with the same system prompt.
	other := talk{slices.Clone(c.text[:c.ends[0]]), c.ends[:1:1]}
	other.add("<|start|>user\nhello<|end|>\n")
	if r := memo.Chain(&chain, e, Prompt{Text: other.text, Ends: other.ends}); r.Fresh > 100 {
		t.Errorf("%d bytes fresh behind a known system prompt", r.Fresh)
	}
}

func TestAConversationInUseStaysKnown(t *testing.T) {
	e, memo := bpe.New(vocabulary(t), bpe.Config{MemoIDs: -1}), new(Memo)
	memo.store = recent.New[note, fingerprint.Checkpoint](1024, 1000)
	var chain fingerprint.Chain
	conversation := func(begin string) Result {
		var c talk
		c.add("<|start|>system\n" + begin + strings.Repeat(words, 5) + "<|end|>\n")
		return memo.Chain(&chain, e, Prompt{Text: c.text, Ends: c.ends})
	}
	first := conversation("first").Fresh
	for i := range 500 {
		if r := conversation(string(rune(0x4e00 + i))); r.Fresh < first/2 {
			t.Fatalf("%d bytes fresh in conversation %d, want about %d", r.Fresh, i, first)
		}
		if r := conversation("first"); r.Fresh > 10 {
			t.Fatalf("after %d others %d bytes of a conversation in use are fresh", i+1, r.Fresh)
		}
	}
}

func TestABudgetThatEndsAnywhereLeavesABeginning(t *testing.T) {
	v := vocabulary(t)
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 2))
		var chain fingerprint.Chain
		memo, e := new(Memo), bpe.New(v, bpe.Config{})
		var c talk
		for range 4 {
			c.grow(rng)
			whole, _ := plain(v, Prompt{Text: c.text, Ends: c.ends})
			fingerprints := map[uint32]uint64{}
			for _, cp := range whole {
				fingerprints[cp.End] = cp.Fingerprint
			}
			for range 3 { // it gets further with every request
				memo.Chain(&chain, e, Prompt{Text: c.text, Ends: c.ends, Budget: 1 + rng.IntN(600)})
				for _, cp := range chain.Finish() {
					if want, ok := fingerprints[cp.End]; ok && want != cp.Fingerprint {
						t.Fatalf("unit %d of %q is %x, want %x", cp.End, c.text, cp.Fingerprint, want)
					}
				}
			}
		}
	})
}

func BenchmarkFollowUp(b *testing.B) {
	e, memo := bpe.New(vocabulary(b), bpe.Config{}), new(Memo)
	var chain fingerprint.Chain
	var c talk
	for range 12 {
		c.add(strings.Repeat(words, 80) + "<|end|>")
	}
	p := Prompt{Text: c.text, Ends: c.ends}
	memo.Chain(&chain, e, p)
	b.SetBytes(int64(len(c.text)))
	b.ReportAllocs()
	for b.Loop() {
		memo.Chain(&chain, e, p)
	}
}
