package pretoken

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/tokenizer/ucd"
)

// oracle cuts text by the published patterns, run by a backtracking engine.
type oracle []*regexp2.Regexp

var oracles = func() map[Kind]oracle {
	all := map[Kind]oracle{}
	for _, p := range published {
		all[p.kind] = newOracle(p.patterns...)
	}
	all[CL100KTail] = newOracle(patternTiktoken)
	all[KimiK2] = newOracle(patternKimi)
	return all
}()

func newOracle(patterns ...string) oracle {
	var o oracle
	for _, pattern := range patterns {
		o = append(o, regexp2.MustCompile(spellOut(pattern), regexp2.RE2))
	}
	return o
}

// spellOut writes classes and folding as Hugging Face's engine has them: the
// oracle's engine has Unicode 15 and folds by other rules.
func spellOut(pattern string) string {
	pairs := []string{
		PatternDigit, `[\p{N}\x{11DE0}-\x{11DE9}\x{16FF4}-\x{16FF6}]`,
		`[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]`, `(?:(?![\p{Han}])[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])`,
		`[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]`, `(?:(?![\p{Han}])[\p{Ll}\p{Lm}\p{Lo}\p{M}])`,
		`(?i:'s|'t|'re|'ve|'m|'ll|'d)`, "(?:'[sS\u017f]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])",
		`'(?i:[sdmt]|ll|ve|re)`, "'(?:[sS\u017fdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])",
		`[^\r\n\p{L}\p{N}]?+\p{L}++`, `(?>[^\r\n\p{L}\p{N}]?)(?>\p{L}+)`,
		`\p{N}{1,3}+`, `(?>\p{N}{1,3})`,
		`[^\s\p{L}\p{N}]++[\r\n]*+`, `(?>[^\s\p{L}\p{N}]+)(?>[\r\n]*)`,
		`\p{L}++`, `(?>\p{L}+)`,
		`\p{N}++`, `(?>\p{N}+)`,
		`[^\s\p{L}\p{N}]++`, `(?>[^\s\p{L}\p{N}]+)`,
		`\s++$`, `(?>\s+)\z`,
	}
	pattern = strings.NewReplacer(pairs...).Replace(pattern)
	sets := map[string]ucd.Class{
		`\p{L}`: ucd.Letter, `\p{Lu}`: ucd.Upper, `\p{Lt}`: 0, `\p{Ll}`: ucd.Lower, `\p{Lm}`: ucd.OtherLetter, `\p{Lo}`: 0,
		`\p{M}`: ucd.Mark, `\p{N}`: ucd.Number, `\p{P}`: ucd.Punct, `\p{S}`: ucd.Symbol, `\s`: ucd.Space,
	}
	var out strings.Builder
	inside := false
	for i := 0; i < len(pattern); i++ {
		switch {
		case pattern[i] == '[':
			inside = true
		case pattern[i] == ']':
			inside = false
		case pattern[i] == '\\':
			name := pattern[i : i+2]
			if name == `\p` {
				name = pattern[i : i+strings.IndexByte(pattern[i:], '}')+1]
			}
			i += len(name) - 1
			set, ok := sets[name]
			switch {
			case name == `\p{Han}`:
				for _, within := range han {
					fmt.Fprintf(&out, `\x{%X}-\x{%X}`, within[0], within[1])
				}
			case name == `\S`:
				out.WriteString("[^" + ranges(ucd.Space) + "]")
			case !ok:
				out.WriteString(name)
			case inside:
				out.WriteString(ranges(set))
			default:
				out.WriteString("[" + ranges(set) + "]")
			}
			continue
		}
		out.WriteByte(pattern[i])
	}
	return out.String()
}

var rangesOf = map[ucd.Class]string{}

func ranges(set ucd.Class) string {
	if known, ok := rangesOf[set]; ok {
		return known
	}
	var out strings.Builder
	for r := rune(0); r <= utf8.MaxRune; r++ {
		if ucd.Of(r)&set == 0 {
			continue
		}
		first := r
		for r < utf8.MaxRune && ucd.Of(r+1)&set != 0 {
			r++
		}
		fmt.Fprintf(&out, `\x{%X}-\x{%X}`, first, r)
	}
	rangesOf[set] = out.String()
	return rangesOf[set]
}

// pieces applies the patterns in a row, keeping what they don't match.
func (o oracle) pieces(text string) []string {
	parts := []string{text}
	for _, re := range o {
		var cut []string
		for _, part := range parts {
			runes := []rune(part)
			at := 0
			for m, err := re.FindRunesMatch(runes); m != nil && err == nil; m, err = re.FindNextMatch(m) {
				if m.Index > at {
					cut = append(cut, string(runes[at:m.Index]))
				}
				at = m.Index + m.Length
				cut = append(cut, string(runes[m.Index:at]))
			}
			if at < len(runes) {
				cut = append(cut, string(runes[at:]))
			}
		}
		parts = cut
	}
	return parts
}

func cut(t interface{ Fatalf(string, ...any) }, kind Kind, text string) []string {
	var pieces []string
	for at := 0; at < len(text); {
		next := Next(kind, []byte(text), at)
		if next <= at || next > len(text) {
			t.Fatalf("%v: Next(%+q, %d) = %d", kind, text, at, next)
		}
		pieces = append(pieces, text[at:next])
		at = next
	}
	return pieces
}

func compare(t interface{ Fatalf(string, ...any) }, kind Kind, text string, want []string) {
	got := cut(t, kind, text)
	if fmt.Sprintf("%+q", got) != fmt.Sprintf("%+q", want) {
		t.Fatalf("%v of %+q\n got %+q\nwant %+q", kind, text, got, want)
	}
}

// nasty are the characters on which patterns turn.
var nasty = []rune("aZzsStTrReEvVmMlLdD09'' \u0020\u0020\n\n\r\t\u0085\u00a0\u2003\u3000\u001c\u180e\u200b\u200d\x00!/.$_^`-\u2019\u20ac" +
	"\u00e9\u00c9\u017f\u212a\u01c5\u02b0\u00aa\u0301\u0308\u0903\ufe0f\u00b2\u0663\u2167\U0001d7d8\u3007\u4e00\u4e2d\u9fa5\u9fa6\u3040\u3042\u3099\u309b\u30a0\u30ff\u3100" +
	"\uac00\u0627\u0915\u094d\U00010400\U00010428\U0001f600\U0001f3fd\ufffd\ue000\u0378\U000e0100\U0010ffff\U000116d0\U00010d40\u3005\u3021\u2e80\u3400\U0002a6df\U00016fe2\U00016ff0\U00011de1")

func TestPiecesAreThePatternsOwn(t *testing.T) {
	text := rapid.OneOf(
		rapid.Map(rapid.SliceOfN(rapid.SampledFrom(nasty), 20, 120), func(r []rune) string { return string(r) }),
		rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]string{
			"  ", "\r\n", "\n\n ", " \n", "'s", "'S", "'\u017f", "'ll", "'Re", "don't", "HTTPServer", "camelCase", "\u3042AB", "A\u0301B", "123", " 12", "\u4e2d\u6587", "!!\n/", " //", "\t\tx", "\x00\x00a", "/usr",
		}), 8, 60), func(s []string) string { return strings.Join(s, "") }),
		rapid.StringN(0, 30, -1),
	)
	for kind, o := range oracles {
		t.Run(kind.String(), rapid.MakeCheck(func(t *rapid.T) {
			drawn := text.Draw(t, "text")
			compare(t, kind, drawn, o.pieces(drawn))
		}))
	}
}

func TestTiktokensOldPatternIsGPT2s(t *testing.T) {
	r50k := newOracle(patternR50K)
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOfN(rapid.SampledFrom(nasty), 20, 120).Draw(t, "text"))
		compare(t, GPT2, text, r50k.pieces(text))
	})
}

func FuzzPiecesAreThePatternsOwn(f *testing.F) {
	f.Add("I'll  take\t3 caf\u00e9s,\r\n\u4e2d\u6587 \x00a HTTPServer's")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 400 {
			return // the oracle is slow
		}
		for kind, o := range oracles {
			if got := strings.Join(cut(t, kind, text), ""); got != text {
				t.Fatalf("%v: pieces of %q join to %q", kind, text, got)
			}
			if utf8.ValidString(text) {
				compare(t, kind, text, o.pieces(text))
			}
		}
	})
}
