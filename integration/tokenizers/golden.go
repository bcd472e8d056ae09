package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	_ "embed"

	"github.com/warmpath/warmpath/integration/vocabfiles"
	"github.com/warmpath/warmpath/tokenizer/utf8text"
)

//go:embed train.py
var trainScript []byte

// goldenStrings is how many generated strings of a family are kept.
const goldenStrings = 260

// handmade are texts that a person would try, asked of every small vocabulary.
var handmade = []string{
	"", " ", "  ", "\n", "\r\n", " \n", "\n ", "\t\t", "a", "a ", " a", "  a", "   a  ", "a\n", "a \n b", "a\n\n\nb", "x  \n  \r\n y", "end   ", "end \t\n\t",
	"It's we've they'll I'm you'd we're don't", "IT'S WE'VE THEY'LL I'M YOU'D WE'RE DON'T", "it’s", "'s", "''s", " 's", "x'sy", "x'S1", "'ſ", "1's", "é't", "'ll'll", "a'rex", "'l 'r 'v",
	"0", "12", "123", "1234", "12345678", "1 2 34", "3.14e-10", "1,234,567.89", "٣٤٥٦", "१२३४", "Ⅷ Ⅷ²½", "1²", "x1y22z333", "０１２３", "〇一二", "007-bond",
	"camelCase PascalCase HTTPServer2 snake_case SCREAMING_SNAKE x1 iPhone", "ǅungla ǅ", "ʰa ʰA aʰ", "ªº", "straße STRASSE ß", "ΑΣ ας ΑΣΑ", "éÉ Éé", "中A文a中", "かタひらカタ", "한국어 조선글", "龥龦龧 々 ー",
	"!", "!!", " !", " !! ", "!\n", " !\n\n", "!a", "?!.\r\nx", "//\n/", "a/b", "/\n/", "(x)", "#include <x.h>\n", "=>-> ...", "$100 €5 100%", "a_b_", "_a", "__init__", "`code`", "~~", "¿qué?", "«x»", "“q”", "—dash", "…",
	"e\u0301", "\u0301", "a\u0301\u0323", "a\u0323\u0301", "q\u0307\u0323", "Å Å A\u030a", "Ω Ω", "\u1100\u1161\u11a8", "가\u11a8", "각\u11a8", "\u09c7\u09be", "\u0958", "\u0344", "\u0f73", "か\u3099", "ﬁ", "豈", "s\u0323\u0307 \u1e69 ṩ",
	"👍", "👍🏽", "👩‍💻", "👨‍👩‍👧‍👦", "🇩🇪🇯🇵", "❤️", "1️⃣", "a🙂b", " 🙂", "🙂 ", "🙂\n",
	"\x00", "a\x00b", "\x1c \x1f", "\u0085", "\u00a0x", "x\u3000y", "\u2028", "\u200b", "\u200d", "\ufeffx", "\u180e", "\u2009\u2009x", "\ue000\ue001", "\U0010fffd", "\u0378", "\ufffd", "\ufffe", "\U000e0041",
	"the quick brown fox", "the the the", "All human beings", "requests", " requests", "Tous les êtres", "Все люди", "人人生而自由", "すべての人間は", "모든 인간은", "जन्मजात", "มนุษย์", "בני אדם", "الناس",
	"{\"type\": \"function\"}", "def f(x):\n    return x**2\n", "\tif x {\r\n\t\treturn\r\n\t}\r\n", "SELECT * FROM t WHERE x = 'it''s';", "https://example.com/a?b=c&d=%20", "<p>Hello</p>",
	"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "====================================================================", "                                                  x",
	"<|im_start|>user\nHi<|im_end|>\n", "<|im_start|><|im_start|>", "<|im_start", "<|im_start|", " <|im_end|> ", "x<|endoftext|>y", "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>", "[INST] Hi [/INST]</s>", "<s>[INST]", "<｜User｜>Hi<｜Assistant｜>", "<think>\n</think>", "<TOOL_CALL>", "<tool_call>", "<|start|>user<|message|>Hi<|end|>",
	"  <mask>  x", "x<end>  y", " <both> <both> ", "word words sword word's word_ 1word word", "-word-", "éword wordé", "<a>b<a>c<a", "café cafe\u0301 cafés", "\u212b A\u030a", "\n<mask>\n<end>\n", "<mask><mask>", "a <mask> <end> b",
}

// golden is one text and its ids, without and with what belongs around a prompt.
type golden struct {
	Text    string   `json:"text"`
	IDs     []uint32 `json:"ids"`
	Special []uint32 `json:"special,omitempty"` // absent: the same
}

// runGolden trains the small vocabularies and writes their goldens.
func runGolden(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("golden", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("dir", "integration/tokenizers/testdata", "`folder` with train.txt and small")
	if err := flags.Parse(args); err != nil {
		return err
	}
	// The Python side runs elsewhere.
	home, err := filepath.Abs(*dir)
	if err != nil {
		return err
	}
	c, err := openCache()
	if err != nil {
		return err
	}
	python, err := c.python(ctx)
	if err != nil {
		return err
	}
	script, err := os.CreateTemp("", "train-*.py")
	if err != nil {
		return err
	}
	defer os.Remove(script.Name())
	if _, err := script.Write(trainScript); err != nil {
		return err
	}
	if err := script.Close(); err != nil {
		return err
	}
	small := filepath.Join(home, "small")
	if err := vocabfiles.Command(ctx, "", "", python, script.Name(), filepath.Join(home, "train.txt"), small); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(small, "*.tokenizer.json"))
	if err != nil {
		return err
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".tokenizer.json")
		n, err := c.writeGoldens(ctx, vocabulary{Name: "small-" + name}, file, filepath.Join(small, name+".goldens"))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Fprintf(stdout, "%-13s %d goldens\n", name, n)
	}
	return nil
}

func (c cache) writeGoldens(ctx context.Context, v vocabulary, file, into string) (int, error) {
	added, pieces, err := published(v, file)
	if err != nil {
		return 0, err
	}
	var texts [][]byte
	for _, t := range handmade {
		texts = append(texts, []byte(t))
	}
	for _, t := range generate(4*goldenStrings, added, pieces)[:4*goldenStrings] {
		if t = utf8text.Replaced(t); len(t) < 70 && len(t) > 0 && len(texts) < len(handmade)+goldenStrings {
			texts = append(texts, t)
		}
	}
	plain, err := c.reference(ctx, v, file, texts, false)
	if err != nil {
		return 0, err
	}
	special, err := c.reference(ctx, v, file, texts, true)
	if err != nil {
		return 0, err
	}
	var out bytes.Buffer
	lines := json.NewEncoder(&out)
	lines.SetEscapeHTML(false)
	for i, t := range texts {
		g := golden{Text: string(t), IDs: plain[i]}
		if len(special[i]) != len(plain[i]) {
			g.Special = special[i]
		}
		if err := lines.Encode(g); err != nil {
			return 0, err
		}
	}
	return len(texts), os.WriteFile(into, out.Bytes(), 0o644)
}
