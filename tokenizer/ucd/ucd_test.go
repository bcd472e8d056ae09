package ucd

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// reference is the extract read the plain way.
type reference struct {
	category map[rune]string
	class    map[rune]int
	mapping  map[rune][]rune
	composed map[[2]rune]rune
}

var extract = readExtract()

func readExtract() reference {
	ref := reference{map[rune]string{}, map[rune]int{}, map[rune][]rune{}, map[[2]rune]rune{}}
	file, err := os.Open("../../build/ucd/ucd.txt")
	if err != nil {
		panic(err)
	}
	defer file.Close()
	code := func(field string) rune {
		c, err := strconv.ParseUint(field, 16, 32)
		if err != nil {
			panic(err)
		}
		return rune(c)
	}
	for scanner := bufio.NewScanner(file); scanner.Scan(); {
		fields := strings.Fields(scanner.Text())
		switch fields[0] {
		case "G":
			for r := code(fields[1]); r <= code(fields[2]); r++ {
				ref.category[r] = fields[3]
			}
		case "C":
			for r := code(fields[1]); r <= code(fields[2]); r++ {
				ref.class[r], _ = strconv.Atoi(fields[3])
			}
		case "D", "X":
			var parts []rune
			for _, field := range fields[2:] {
				parts = append(parts, code(field))
			}
			ref.mapping[code(fields[1])] = parts
			if fields[0] == "D" {
				ref.composed[[2]rune{parts[0], parts[1]}] = code(fields[1])
			}
		}
	}
	for l := rune(0); l < countL; l++ {
		for v := rune(0); v < countV; v++ {
			pair := hangulS + (l*countV+v)*countT
			ref.mapping[pair] = []rune{hangulL + l, hangulV + v}
			ref.composed[[2]rune{hangulL + l, hangulV + v}] = pair
			for t := rune(1); t < countT; t++ {
				ref.mapping[pair+t] = []rune{pair, hangulT + t}
				ref.composed[[2]rune{pair, hangulT + t}] = pair + t
			}
		}
	}
	return ref
}

func (ref reference) want(r rune) Class {
	if strings.ContainsRune("\t\n\v\f\r\u0085", r) {
		return Space
	}
	switch category := ref.category[r]; category {
	case "":
		return 0
	case "Lu", "Lt":
		return Upper
	case "Ll":
		return Lower
	case "Lm", "Lo":
		return OtherLetter
	default:
		return map[byte]Class{'M': Mark, 'N': Number, 'P': Punct, 'S': Symbol, 'Z': Space}[category[0]]
	}
}

func TestEveryCodePointHasItsClass(t *testing.T) {
	for r := rune(-1); r <= utf8.MaxRune+1; r++ {
		if got, want := Of(r), extract.want(r); got != want {
			t.Fatalf("Of(U+%04X) = %08b, want %08b", r, got, want)
		}
	}
}

func TestClassAtReadsWhatStandsInTheText(t *testing.T) {
	for r := rune(0); r <= utf8.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		for _, tail := range []string{"", "x", "\u0301\u0301"} {
			text := "ab" + string(r) + tail
			class, size := ClassAt([]byte(text), 2)
			if class != extract.want(r) || size != utf8.RuneLen(r) {
				t.Fatalf("ClassAt(%+q, 2) = %08b, %d, want %08b, %d", text, class, size, extract.want(r), utf8.RuneLen(r))
			}
		}
	}
}

func TestBrokenBytesCountAloneAsReplacementCharacters(t *testing.T) {
	for _, text := range []string{
		"\x80", "\xbf\xbf\xbf", "\xc2", "\xc0\x80\x80", "\xc1\xbf\xbf", "\xc2\x20\x20", "\xe3\x81", "\xe0\x80\x80",
		"\xe3\x81\x20", "\xe3\x20\x81", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf0\x9f\x98", "\xff\xff\xff",
	} {
		if class, size := ClassAt([]byte(text), 0); class != Symbol || size != 1 {
			t.Errorf("ClassAt(%q) = %08b, %d, want %08b, 1", text, class, size, Symbol)
		}
	}
}

// slowNFC follows the three steps of the standard literally.
func (ref reference) slowNFC(text string) string {
	var parts []rune
	var decompose func(rune)
	decompose = func(r rune) {
		if mapping, ok := ref.mapping[r]; ok {
			for _, part := range mapping {
				decompose(part)
			}
			return
		}
		parts = append(parts, r)
	}
	for _, r := range text {
		decompose(r)
	}
	for swapped := true; swapped; {
		swapped = false
		for i := 1; i < len(parts); i++ {
			if a, b := ref.class[parts[i-1]], ref.class[parts[i]]; b != 0 && a > b {
				parts[i-1], parts[i], swapped = parts[i], parts[i-1], true
			}
		}
	}
	for i := 1; i < len(parts); i++ {
		base := i - 1
		for base >= 0 && ref.class[parts[base]] != 0 {
			base--
		}
		if base < 0 {
			continue
		}
		blocked := false
		for _, between := range parts[base+1 : i] {
			blocked = blocked || ref.class[between] >= ref.class[parts[i]]
		}
		if whole, ok := ref.composed[[2]rune{parts[base], parts[i]}]; ok && !blocked {
			parts[base] = whole
			parts = slices.Delete(parts, i, i+1)
			i--
		}
	}
	return string(parts)
}

func checkNFC(t interface {
	Helper()
	Fatalf(string, ...any)
}, text string,
) {
	t.Helper()
	want := extract.slowNFC(text)
	guard := []byte("guard")
	got := NFC(slices.Clone(guard), []byte(text))
	if !strings.HasPrefix(string(got), "guard") || string(got[len(guard):]) != want {
		t.Fatalf("NFC(%+q)\n got %+q\nwant %+q", text, got, want)
	}
	if IsNFC([]byte(text)) && text != want {
		t.Fatalf("IsNFC(%+q) is true, but NFC is %+q", text, want)
	}
	if again := NFC(nil, got[len(guard):]); string(again) != want {
		t.Fatalf("NFC of NFC(%+q) = %+q, want %+q", text, again, want)
	}
}

func TestEveryMappingIsUndoneOrApplied(t *testing.T) {
	for r := range extract.mapping {
		var whole []rune
		for parts := []rune{r}; len(parts) > 0; {
			head, rest := parts[0], parts[1:]
			if mapping, ok := extract.mapping[head]; ok {
				parts = append(slices.Clone(mapping), rest...)
				continue
			}
			whole, parts = append(whole, head), rest
		}
		checkNFC(t, string(r))
		checkNFC(t, "x"+string(r)+"\u0301\u0323")
		checkNFC(t, string(whole))
		checkNFC(t, "\u0301"+string(whole)+"\u0327")
		checkNFC(t, string(whole[:1])+"\u0334"+string(whole[1:]))
	}
}

func TestEveryMarkIsPutInOrder(t *testing.T) {
	for r := range extract.class {
		checkNFC(t, "a\u0345"+string(r)+"\u0334")
		checkNFC(t, "\u00e9"+string(r)+"\u0301\u0323"+string(r))
	}
}

// nasty are the characters that compose, decompose or block.
var nasty = []rune("aAeo oq\u00e9\u00c5\u1ea5\u212b\u0301\u0300\u0323\u0327\u0345\u0334\u0344\u0308\u3099\u304b\u304c" +
	"\u1100\u1161\u11a7\u11a8\u11c2\uac00\uac01\u0f71\u0f72\u0f73\u0f80\u0f81\u0958\u0915\u093c\u09c7\u09be\u09d7" +
	"\U0001d15e\U0001d157\U0001d165\U00011099\U000110ba\ufb2c\u05c1\u05bc\u1f82\u1f00\U0002f800\U0002fa1d\ufa6c\u2126\ufffd")

func TestNFCFollowsTheStandardOnNastyText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		checkNFC(t, string(rapid.SliceOfN(rapid.SampledFrom(nasty), 0, 40).Draw(t, "text")))
	})
}

func TestTextIsTheSameWhenCutAtABoundary(t *testing.T) {
	for _, c := range []struct {
		text string
		at   int
		want int
	}{
		{"plain", 3, 3},
		{"plain", 9, 5},
		{"xe\u0301y", 3, 1},
		{"xe\u0301y", 4, 4},
		{"e\u0301\u0323\u0301", 5, 0},
		{"a\u1100\u1161\u11a8", 8, 1},
		{"a\u4e2d", 2, 1},
	} {
		if got := Boundary([]byte(c.text), c.at); got != c.want {
			t.Errorf("Boundary(%+q, %d) = %d, want %d", c.text, c.at, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(string(rapid.SliceOfN(rapid.SampledFrom(nasty), 0, 40).Draw(t, "text")))
		at := rapid.IntRange(0, len(text)).Draw(t, "at")
		cut := Boundary(text, at)
		if cut > at {
			t.Fatalf("Boundary(%+q, %d) = %d", text, at, cut)
		}
		if got, want := string(NFC(NFC(nil, text[:cut]), text[cut:])), extract.slowNFC(string(text)); got != want {
			t.Fatalf("cut at %d, NFC(%+q) = %+q, want %+q", cut, text, got, want)
		}
	})
}

func TestNFCWithinALimitIsTheBeginning(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(string(rapid.SliceOfN(rapid.SampledFrom(nasty), 0, 40).Draw(t, "text")))
		if rapid.Bool().Draw(t, "broken") {
			text = append(text, "\xe3\x80 e\u0301"...)
		}
		most := rapid.IntRange(0, len(text)+3).Draw(t, "most")
		got, read, rewritten := NFCWithin([]byte("guard"), text, most)
		if rewritten > most || rewritten > len(text) || read > len(text) || read < len(text) && most >= len(text) {
			t.Fatalf("NFCWithin(%+q, %d) read %d, rewrote %d", text, most, read, rewritten)
		}
		// What was read is whole: with the form of the rest it is that of all.
		if all := string(NFC(got, text[read:])); all != "guard"+string(NFC(nil, text)) {
			t.Fatalf("NFCWithin(%+q, %d) = %+q of %d bytes", text, most, got, read)
		}
	})
	marks := []byte("x e" + strings.Repeat("\u0301\u0323", 500) + " y")
	if got, read, rewritten := NFCWithin(nil, marks, 100); string(got) != "x " || read != 2 || rewritten > 100 {
		t.Errorf("a sequence of 2,001 bytes is %+q after %d bytes, %d rewritten", got, read, rewritten)
	}
}

func TestUnicodeAfter9IsLeftAloneByNFC(t *testing.T) {
	// Hugging Face's normaliser composes none of these (all composed in Unicode 16).
	for _, text := range []string{"\U00011935\U00011930", "\U000105d2\u0307", "\U00016d67\U00016d67"} {
		if got := string(NFC(nil, []byte(text))); got != text {
			t.Errorf("NFC(%+q) = %+q, want it unchanged", text, got)
		}
	}
	if got, want := string(NFC(nil, []byte("e\U0001e08f\u0301"))), "e\U0001e08f\u0301"; got != want {
		t.Errorf("NFC = %+q, want %+q: U+1E08F came with Unicode 15 and blocks like a letter", got, want)
	}
}

func TestNFCCopiesBrokenBytes(t *testing.T) {
	for _, text := range []string{"\xff", "\xff\u0301", "e\xff\u0301", "a\u0323\xc3", "\xe3\x81\u0301\u0323\xff\xff\u0300"} {
		got := string(NFC(nil, []byte(text)))
		if strings.Count(got, "\xff") != strings.Count(text, "\xff") || strings.Contains(got, "\ufffd") {
			t.Errorf("NFC(%q) = %q, want the broken bytes as they were", text, got)
		}
	}
}

// The forms are those of Hugging Face's tokenizers 0.23.3;
// integration/tokenizers/pretoken/cases.py wrote them.
func TestNFCIsHuggingFaces(t *testing.T) {
	file, err := os.Open("testdata/huggingface.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	seen, changed := 0, 0
	for lines := bufio.NewScanner(file); lines.Scan(); seen++ {
		var example struct{ Text, Form string }
		if err := json.Unmarshal(lines.Bytes(), &example); err != nil {
			t.Fatal(err)
		}
		if example.Text != example.Form {
			changed++
		}
		checkNFC(t, example.Text)
		if got := string(NFC(nil, []byte(example.Text))); got != example.Form {
			t.Errorf("NFC(%+q)\n got %+q\nwant %+q", example.Text, got, example.Form)
		}
	}
	if seen < 100 || changed < 10 {
		t.Errorf("%d texts, %d of them changed: the file says too little", seen, changed)
	}
}

// longRuns are sequences that grow with the text; each has marks out of order.
var longRuns = []string{"\u0301\u0323", "\u0345\u0334\u0301", "\u0344\u0f73\u0327", "\u1161", "\u09be\u09d7", "e\u0301\u0323", "\u00e9\u0323"}

func TestLongRunsOfMarksAreNormal(t *testing.T) {
	for _, unit := range longRuns {
		checkNFC(t, "x"+strings.Repeat(unit, 150)+"\u0316y")
		checkNFC(t, strings.Repeat(unit, 150))
		checkNFC(t, "\u1100\u09c7"+strings.Repeat(unit, 150))
	}
}

func TestNFCIsLinearAndNeedsNoMemoryBesideItsOutput(t *testing.T) {
	for _, unit := range longRuns {
		short := []byte("e" + strings.Repeat(unit, 4000/len(unit)))
		long := []byte("e" + strings.Repeat(unit, 128_000/len(unit)))
		dst := make([]byte, 0, 3*len(long))
		took := func(text []byte) time.Duration {
			start := time.Now()
			dst = NFC(dst[:0], text)
			return time.Since(start)
		}
		// Quadratic time would be 1,024 times as much, each time; a machine that is busy
		// elsewhere gets more tries.
		x, y := took(short), time.Duration(math.MaxInt64)
		for tries := 0; tries < 12 && y > 200*x; tries++ {
			x, y = max(x, took(short)), min(y, took(long))
		}
		if y > 200*x {
			t.Fatalf("32 times as much of %+q took %v after %v", unit, y, x)
		}
		if n := testing.AllocsPerRun(2, func() { dst = NFC(dst[:0], long) }); n != 0 {
			t.Errorf("NFC of %+q... allocates %v times, want 0", unit, n)
		}
	}
}

func FuzzNFCIsStableAndCopiesWhatIsNormal(f *testing.F) {
	f.Add("e\u0301\u0323 \u1100\u1161\u11a8 \xff\u0301")
	f.Fuzz(func(t *testing.T, text string) {
		once := NFC(nil, []byte(text))
		if twice := NFC(nil, once); string(twice) != string(once) {
			t.Fatalf("NFC(%q) = %q, again %q", text, once, twice)
		}
		if IsNFC([]byte(text)) && string(once) != text {
			t.Fatalf("IsNFC(%q), yet NFC is %q", text, once)
		}
		if utf8.ValidString(text) && len(text) < 300 && string(once) != extract.slowNFC(text) {
			t.Fatalf("NFC(%q) = %q, want %q", text, once, extract.slowNFC(text))
		}
	})
}

func BenchmarkNFC(b *testing.B) {
	for _, c := range []struct{ name, text string }{
		{"ascii", strings.Repeat("plain text of ASCII\n", 5000)},
		{"chinese", strings.Repeat("\u6307\u7eb9\u5fc5\u987b", 8000)},
		{"decomposed", strings.Repeat("e\u0301le\u0300ve ", 10000)},
		{"marks", strings.Repeat("\u0301\u0323", 25000)},
		{"jamo", strings.Repeat("\u1100\u1161\u11a8", 12000)},
	} {
		b.Run(c.name, func(b *testing.B) {
			text := []byte(c.text)
			dst := make([]byte, 0, 2*len(text))
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				dst = NFC(dst[:0], text)
			}
		})
	}
}
