package fingerprint

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/minio/highwayhash"
	"pgregory.net/rapid"
)

// oracle computes the checkpoints of a whole text in the plainest way: every fingerprint first,
// then a set of wanted positions, thinned by the rule in the documentation.
func oracle(salt uint64, text []byte, turnEnds []int) []Checkpoint {
	const key = "\x24\x3f\x6a\x88\x85\xa3\x08\xd3\x13\x19\x8a\x2e\x03\x70\x73\x44\xa4\x09\x38\x22\x29\x9f\x31\xd0\x08\x2e\xfa\x98\xec\x4e\x6c\x89"
	fingerprints := []uint64{salt}
	segment := binary.LittleEndian.AppendUint64(nil, salt)
	segment = append(segment, make([]byte, 24)...)
	for u := 1; u*UnitBytes <= len(text); u++ {
		segment = append(segment, text[(u-1)*UnitBytes:u*UnitBytes]...)
		fp := highwayhash.Sum64(segment, []byte(key))
		fingerprints = append(fingerprints, fp)
		if u <= 64 && u%4 == 0 || u > 64 && u <= 512 && u%16 == 0 || u > 512 && u%64 == 0 {
			segment = append(binary.LittleEndian.AppendUint64(nil, fp), make([]byte, 24)...)
		}
	}
	units := len(fingerprints) - 1

	scheduled := func(sparse int) []int {
		var s []int
		for u := 1; u <= units; u++ {
			if u <= 64 && u%4 == 0 || u > 64 && u <= 512 && u%16 == 0 || u > 512 && u%sparse == 0 {
				s = append(s, u)
			}
		}
		return s
	}
	sparse := 64
	for len(scheduled(sparse)) > 256 {
		sparse *= 2
	}
	schedule := scheduled(sparse)

	turns := map[int]bool{}
	for _, at := range turnEnds {
		if at >= UnitBytes {
			turns[at/UnitBytes] = true
		}
	}
	var deepest []int
	for u := range turns {
		deepest = append(deepest, u)
	}
	slices.Sort(deepest)
	deepest = deepest[max(0, len(deepest)-224):]

	for stride := 1; len(schedule) > 256-1-len(deepest); stride *= 2 {
		schedule = slices.DeleteFunc(schedule, func(u int) bool { return u%(2*stride) != 0 })
	}
	want := map[int]bool{}
	for _, u := range schedule {
		want[u] = false
	}
	if units > 0 {
		want[units] = false
	}
	for _, u := range deepest {
		want[u] = true
	}
	var out []Checkpoint
	for u, turn := range want {
		out = append(out, Checkpoint{Fingerprint: fingerprints[u], End: uint32(u), TurnEnd: turn})
	}
	slices.SortFunc(out, func(a, b Checkpoint) int { return int(a.End) - int(b.End) })
	return out
}

func TestCheckpointsEqualTheOracleHoweverTheTextIsCut(t *testing.T) {
	var chain Chain // reused: nothing of the prompt before may show
	rapid.Check(t, func(t *rapid.T) {
		length := rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(0, 40_000), rapid.IntRange(900_000, 2_000_000)).Draw(t, "length")
		text := make([]byte, length)
		for i := range text {
			text[i] = byte(i * 131 >> 3)
		}
		cuts := rapid.SliceOfN(rapid.IntRange(0, length), 0, 400).Draw(t, "cuts")
		slices.Sort(cuts)
		salt := rapid.Uint64().Draw(t, "salt")
		var turnEnds []int
		chain.Reset(salt)
		from := 0
		for i, cut := range append(cuts, length) {
			if i%3 == 0 {
				chain.WriteString(string(text[from:cut]))
			} else {
				chain.Write(text[from:cut])
			}
			from = cut
			if i%5 != 0 {
				chain.TurnEnd()
				turnEnds = append(turnEnds, cut)
			}
		}
		got := chain.Finish()
		if diff := cmp.Diff(oracle(salt, text, turnEnds), slices.Clone(got)); diff != "" && !(len(got) == 0 && length < UnitBytes) {
			t.Fatalf("checkpoints differ (-oracle +chain):\n%s", diff)
		}
		if int(chain.Units()) != length/UnitBytes {
			t.Fatalf("%d units of %d bytes", chain.Units(), length)
		}
	})
}

func TestCheckpointsAscendAndStayWithinTheBoundWhateverTheTurns(t *testing.T) {
	var chain Chain
	for _, turns := range []int{0, 1, 223, 224, 225, 256, 257, 5000} {
		chain.Reset(1)
		unit := make([]byte, 3*UnitBytes)
		for range turns {
			chain.Write(unit)
			chain.TurnEnd()
		}
		chain.Write(make([]byte, 65536*UnitBytes))
		cps := chain.Finish()
		if len(cps) > MaxCheckpoints {
			t.Errorf("%d turns: %d checkpoints", turns, len(cps))
		}
		kept := 0
		for i, cp := range cps {
			if cp.TurnEnd {
				kept++
			}
			if i > 0 && cp.End <= cps[i-1].End {
				t.Fatalf("%d turns: checkpoint %d does not ascend", turns, i)
			}
		}
		if want := min(turns, 224); kept != want {
			t.Errorf("%d turns: %d turn ends kept, want %d", turns, kept, want)
		}
		if deepest := cps[len(cps)-1].End; deepest != chain.Units() {
			t.Errorf("%d turns: the deepest of %d units is missing", turns, chain.Units())
		}
	}
}

func TestFollowUpTurnRepeatsTheCheckpointOfTheTurnBefore(t *testing.T) {
	var first, second Chain
	system, question, answer := strings.Repeat("You help. ", 400), strings.Repeat("Why? ", 30), strings.Repeat("Because. ", 70)
	first.Reset(9)
	first.WriteString(system)
	first.TurnEnd()
	first.WriteString(question)
	first.TurnEnd()
	before := slices.Clone(first.Finish())

	second.Reset(9)
	for _, s := range []string{system, question, answer, question} {
		second.WriteString(s)
		second.TurnEnd()
	}
	after := second.Finish()
	for _, cp := range before {
		if cp.TurnEnd && !slices.Contains(after, cp) {
			t.Errorf("turn end at unit %d is not found again", cp.End)
		}
	}
}

// A prompt that is longer keeps a subset of the schedule its prefix kept, so that the two
// still meet when the schedule is thinned.
func TestThinningKeepsPositionsThatShorterPromptsKeep(t *testing.T) {
	var short, long Chain
	short.Reset(3)
	short.Write(make([]byte, 20_000*UnitBytes))
	long.Reset(3)
	long.Write(make([]byte, 200_000*UnitBytes))
	for _, cp := range long.Finish() {
		if cp.End <= 20_000 && !slices.Contains(short.Finish(), cp) {
			t.Errorf("position %d of the long prompt is not one of the short prompt's", cp.End)
		}
	}
}

func TestOneByteAnywhereChangesEveryLaterFingerprintAndNoEarlierOne(t *testing.T) {
	text := make([]byte, 64*UnitBytes)
	var chain Chain
	chain.Reset(5)
	chain.Write(text)
	before := slices.Clone(chain.Finish())
	for at := 0; at < len(text); at += 97 {
		text[at] ^= 1
		chain.Reset(5)
		chain.Write(text)
		for i, cp := range chain.Finish() {
			if changed := cp.Fingerprint != before[i].Fingerprint; changed != (at < int(cp.End)*UnitBytes) {
				t.Fatalf("byte %d flipped: checkpoint at unit %d changed: %v", at, cp.End, changed)
			}
		}
		text[at] ^= 1
	}
}

func TestSaltSeparatesPoolAdapterGenerationTenantAndMode(t *testing.T) {
	seen := map[uint64]string{}
	for _, pool := range []string{"", "a", "ab", strings.Repeat("long", 200)} {
		for _, adapter := range []string{"", "b", "ab"} {
			for _, generation := range []uint64{0, 1} {
				for _, tenant := range []string{"", "a", "b"} {
					for _, mode := range []Mode{Approximate, Exact} {
						name := strings.Join([]string{pool, adapter, strconv.FormatUint(generation, 10), tenant, mode.String()}, "|")
						salt := Salt(pool, adapter, generation, tenant, mode)
						if other, twice := seen[salt]; twice {
							t.Errorf("%q and %q have the same salt", name, other)
						}
						seen[salt] = name
					}
				}
			}
		}
	}
}

func TestRingKeyIsTheWatchedPositionOrTheLastWholeUnit(t *testing.T) {
	var chain Chain
	at := func(n int) uint64 {
		chain.Reset(2)
		chain.Write(make([]byte, n*UnitBytes))
		cps := chain.Finish()
		return cps[len(cps)-1].Fingerprint
	}
	sixteen, five := at(16), at(5)
	chain.Watch(16)
	for _, c := range []struct {
		name  string
		bytes int
		key   uint64
		ok    bool
	}{
		{"no text", 0, 0, false},
		{"less than a unit", 63, 0, false},
		{"shorter", 5*UnitBytes + 10, five, true},
		{"just there", 16 * UnitBytes, sixteen, true},
		{"longer", 400 * UnitBytes, sixteen, true},
		{"shorter, after a longer one", 5 * UnitBytes, five, true},
		{"no text, after a longer one", 0, 0, false},
	} {
		chain.Reset(2)
		chain.Write(make([]byte, c.bytes))
		if key, ok := chain.RingKey(); key != c.key || ok != c.ok {
			t.Errorf("%s: ring key %x, %v, want %x, %v", c.name, key, ok, c.key, c.ok)
		}
	}
	chain.Watch(0)
	if _, ok := chain.RingKey(); ok {
		t.Error("a key with nothing watched")
	}
}

func TestTokensAreLittleEndianUnits(t *testing.T) {
	ids := make([]uint32, 100)
	var bytes []byte
	for i := range ids {
		ids[i] = uint32(i) * 0x01020304
		bytes = binary.LittleEndian.AppendUint32(bytes, ids[i])
	}
	var a, b Chain
	a.Reset(1)
	a.WriteTokens(ids[:7])
	a.WriteTokens(ids[7:])
	b.Reset(1)
	b.Write(bytes)
	if diff := cmp.Diff(b.Finish(), a.Finish()); diff != "" {
		t.Error(diff)
	}
}

func TestChainDoesNotAllocate(t *testing.T) {
	chain := new(Chain)
	text := make([]byte, 300_000)
	if n := testing.AllocsPerRun(5, func() {
		chain.Reset(Salt("default", "adapter", 1, "tenant", Approximate))
		chain.Write(text[:1000])
		chain.TurnEnd()
		chain.Write(text)
		chain.WriteString("tail")
		chain.Finish()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkChain(b *testing.B) {
	for _, size := range []int{1 << 10, 100 << 10} {
		b.Run(strconv.Itoa(size>>10)+"KiB", func(b *testing.B) {
			chain := new(Chain)
			text := make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				chain.Reset(1)
				chain.Write(text)
				chain.Finish()
			}
		})
	}
}

func BenchmarkChainUnaligned(b *testing.B) {
	chain := new(Chain)
	text := make([]byte, 100<<10)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		chain.Reset(1)
		for p := text; len(p) > 0; p = p[min(len(p), 331):] {
			chain.Write(p[:min(len(p), 331)])
		}
		chain.Finish()
	}
}
