package pretoken

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

var kinds = func() (all []Kind) {
	for k := GPT2; k.Known(); k++ {
		all = append(all, k)
	}
	return all
}()

// The texts were cut by Hugging Face's tokenizers 0.23.3, those of tiktoken's kinds by
// tiktoken 0.14.0; integration/tokenizers/pretoken/cases.py wrote them.
func TestPiecesAreTheReferences(t *testing.T) {
	file, err := os.Open("testdata/reference.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	seen := map[string]int{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var example struct {
			Kind, Text string
			Ends       []int
		}
		if err := json.Unmarshal(lines.Bytes(), &example); err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(kinds, func(k Kind) bool { return k.String() == example.Kind })
		if i < 0 {
			t.Fatalf("no kind is called %q", example.Kind)
		}
		seen[example.Kind]++
		var want []string
		at := 0
		for _, end := range example.Ends {
			want = append(want, example.Text[at:end])
			at = end
		}
		compare(t, kinds[i], example.Text, want)
	}
	for _, k := range kinds {
		if seen[k.String()] < 50 {
			t.Errorf("%d texts of kind %v, want 50 or more", seen[k.String()], k)
		}
	}
}

func TestRulesThatAreEasyToGetWrong(t *testing.T) {
	for _, c := range []struct {
		kind Kind
		text string
		want string // pieces, separated by |
	}{
		{CL100K, "a   b", "a|  | b"},
		{CL100K, "a   1", "a|  | |1"},
		{CL100K, "end   ", "end|   "},
		{CL100K, "a \n \n b", "a| \n \n| b"},
		{CL100K, "\t\tx", "\t|\tx"},
		{CL100K, "x!\r\n\n  y", "x|!\r\n\n| | y"},
		{CL100K, "12345", "123|45"},
		{CL100K, "I'LL 'X it'sun", "I|'LL| '|X| it|'s|un"},
		{CL100K, "a'\u017fa", "a|'\u017f|a"},
		{CL100K, "e\u0301a", "e|\u0301a"},
		{Qwen35, "e\u0301a", "e\u0301a"},
		{Qwen2, "12 34", "1|2| |3|4"},
		{CL100K, "x \n ", "x| \n| "},
		{CL100KTail, "x \n ", "x| \n "},
		{CL100KTail, " \n x", " \n| x"},
		{O200K, "HTTPServer don't", "HTTPServer| don't"},
		{O200K, "camelCaseWORD's", "camel|Case|WORD's"},
		{O200K, "AB\u3042CD", "AB\u3042|CD"},
		{O200K, "\u0301AB", "\u0301|AB"},
		{O200K, "!\n/\n/x", "!\n/\n/|x"},
		{O200K, "a /usr", "a| /|usr"},
		{Tekken, "don't 12", "don|'t| |1|2"},
		{KimiK2, "HTTPServer\u4e2d\u6587A's", "HTTPServer|\u4e2d\u6587|A's"},
		{KimiK2, "!\u4e2d \u4e2d \u2e80/\n/", "!|\u4e2d| |\u4e2d| \u2e80/\n|/"},
		{KimiK2, "\u3007 1\u30071 AB\u304b\u4e00", "\u3007| |1\u30071| AB\u304b|\u4e00"},
		{GPT2, "don't DON'T  12", "don|'t| DON|'|T| | 12"},
		{StarCoder, "a  12", "a|  |1|2"},
		{StarCoder, "\u0378\U00011de1\u0378", "\u0378|\U00011de1|\u0378"},
		{DeepSeekV3, "a   12", "a|   |12"},
		{DeepSeekV3, "\u4e2d\u6587abc\u9fa6", "\u4e2d\u6587|abc\u9fa6"},
		{DeepSeekV3, ".caf\u00e9 x", ".caf|\u00e9| x"},
		{DeepSeekV3, "\x00\x00a\x00", "\x00|\x00a|\x00"},
		{DeepSeekV3, "\u30ab\u30fb\u30ab", "\u30ab|\u30fb|\u30ab"},
	} {
		if got := strings.Join(cut(t, c.kind, c.text), "|"); got != c.want {
			t.Errorf("%v of %+q\n got %+q\nwant %+q", c.kind, c.text, got, c.want)
		}
	}
}

func TestPatternsAreKnownByTheirExactText(t *testing.T) {
	for _, p := range published {
		if got, ok := KindOf(p.patterns...); !ok || got != p.kind || !got.Known() {
			t.Errorf("KindOf(%q) = %v, %v, want %v", p.patterns, got, ok, p.kind)
		}
		longer := append(slices.Clone(p.patterns), `\s`)
		if got, ok := KindOf(longer...); ok {
			t.Errorf("KindOf(%q) = %v, want none", longer, got)
		}
	}
	if got, ok := KindOf(patternCL100K + " "); ok {
		t.Errorf("a pattern with one more space is taken for %v", got)
	}
	for _, p := range tiktoken {
		if got, ok := KindOf(p.pattern); ok {
			t.Errorf("KindOf(%q) = %v, but Hugging Face's engine reads it otherwise", p.pattern, got)
		}
		if got, ok := KindOfTiktoken(p.pattern); !ok || got != p.kind {
			t.Errorf("KindOfTiktoken(%q) = %v, %v, want %v", p.pattern, got, ok, p.kind)
		}
	}
	if got, ok := KindOfTiktoken(patternO200K); !ok || got != O200K {
		t.Errorf("KindOfTiktoken of o200k = %v, %v, want it", got, ok)
	}
	if got, ok := KindOf(); ok {
		t.Errorf("no pattern is taken for %v", got)
	}
}

func TestUnknownKindsAndEndsAreHarmless(t *testing.T) {
	text := []byte("two words")
	for _, k := range []Kind{0, KimiK2 + 1, 255} {
		if k.Known() || k.String() != "unknown" {
			t.Errorf("Kind(%d) is known as %v", k, k)
		}
		if got := Next(k, text, 3); got != len(text) {
			t.Errorf("Kind(%d): Next = %d, want the rest as one piece", k, got)
		}
	}
	for _, k := range kinds {
		if got := Next(k, text, len(text)); got != len(text) {
			t.Errorf("%v: Next at the end = %d, want %d", k, got, len(text))
		}
		if got := Next(k, nil, 0); got != 0 {
			t.Errorf("%v: Next of nothing = %d, want 0", k, got)
		}
	}
}

func TestBrokenTextIsCutToItsEnd(t *testing.T) {
	for _, text := range []string{"\xff", "a\xc3", "\xe3\x81", "\xe4\xb8", "'\xc5", "\xf0\x91\xb7", " \x80\x80 \xed\xa0\x80", "\xe9\xbe", "\xf0\x9f\x98\n"} {
		for _, k := range kinds {
			if got := strings.Join(cut(t, k, text), ""); got != text {
				t.Errorf("%v: pieces of %q join to %q", k, text, got)
			}
		}
	}
}

func TestCuttingAllocatesNothing(t *testing.T) {
	text := []byte("It's 12 caf\u00e9s,  \u4e2d\u6587\n\u0378\U00011de1 HTTPServer/\U0001f600")
	for _, k := range kinds {
		if n := testing.AllocsPerRun(10, func() {
			for at := 0; at < len(text); {
				at = Next(k, text, at)
			}
		}); n != 0 {
			t.Errorf("%v: %v allocations a text, want 0", k, n)
		}
	}
}

// hostile are texts on which a pattern backtracks or looks ahead far.
var hostile = []string{
	" ", "\n", "\t ", " \n", "\u3000", "a", "A", "aA", "1", "'", "!", "/\n", "\u0301", " \u0301", "\u4e2d", "\u3042", "\u3042A", "\u00e9", "\x00", "\x00a", "\u0378", "\U00011de1", "'s", "\xff",
}

func TestTimeIsLinearInHostileText(t *testing.T) {
	took := func(k Kind, text []byte) time.Duration {
		start := time.Now()
		for at := 0; at < len(text); {
			at = Next(k, text, at)
		}
		return time.Since(start)
	}
	for _, unit := range hostile {
		short := strings.Repeat(unit, 1000/len(unit))
		long := strings.Repeat(short, 32)
		for _, shape := range []string{"\n%s", "\u3042%s!", "%s\u3042", "%s1"} {
			a, b := fmt.Appendf(nil, shape, short), fmt.Appendf(nil, shape, long)
			for _, k := range kinds {
				// Quadratic time would be 1,024 times as much, each time; a machine that is
				// busy elsewhere gets more tries.
				x, y := took(k, a), time.Duration(math.MaxInt64)
				for tries := 0; tries < 12 && y > 200*x; tries++ {
					x, y = max(x, took(k, a)), min(y, took(k, b))
				}
				if y > 200*x {
					t.Fatalf("%v: 32 times as much of %+q in %+q took %v after %v", k, unit, shape, y, x)
				}
			}
		}
	}
}

func BenchmarkNext(b *testing.B) {
	prose := strings.Repeat("The fingerprint must be over the tokens the engine will see, or its events can't be matched.\n", 1000)
	mixed := strings.Repeat("func (e *Encoder) Encode(dst []uint32) { return 12345 } // caf\u00e9 \u4e2d\u6587\u8bcd\u8bed \u0440\u0443\u0441\u0441\u043a\u0438\u0439 \U0001f600\n\t\t", 700)
	for _, c := range []struct{ name, text string }{{"prose", prose}, {"mixed", mixed}, {"chinese", strings.Repeat("\u6307\u7eb9\u5fc5\u987b\u57fa\u4e8e\u5f15\u64ce\u5c06\u770b\u5230\u7684\u6807\u8bb0\uff0c", 2000)}} {
		text := []byte(c.text)
		for _, k := range kinds {
			b.Run(c.name+"/"+k.String(), func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					for at := 0; at < len(text); {
						at = Next(k, text, at)
					}
				}
			})
		}
	}
}
