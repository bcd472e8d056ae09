package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// smallVocabularies have the settings of published ones and 900 tokens.
const smallVocabularies = "../../integration/tokenizers/testdata/small/"

// warmpathIn is warmpath with something on standard input.
func warmpathIn(stdin string, args ...string) (code int, out, errs string) {
	var stdout, stderr bytes.Buffer
	root := rootCommand()
	root.SetArgs(args)
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	if err := root.Execute(); err != nil {
		return 1, stdout.String(), stderr.String() + err.Error()
	}
	return 0, stdout.String(), stderr.String()
}

func compileSmall(t *testing.T, family string) string {
	t.Helper()
	wpv := filepath.Join(t.TempDir(), family+".wpv")
	if code, _, errs := warmpath("tokenizer", "compile", smallVocabularies+family+".tokenizer.json", "-o", wpv); code != 0 {
		t.Fatal(errs)
	}
	return wpv
}

func TestCompileTellsWhatItMadeAndMakesTheSameAgain(t *testing.T) {
	wpv := filepath.Join(t.TempDir(), "q.wpv")
	var hashes []string
	for range 2 {
		code, out, errs := warmpath("tokenizer", "compile", smallVocabularies+"qwen.tokenizer.json", "-o", wpv, "--json")
		var told struct {
			Hash   string
			Tokens int
			Added  int
			Rules  string
			Bytes  int64
		}
		if err := json.Unmarshal([]byte(out), &told); code != 0 || err != nil {
			t.Fatalf("exit %d, %q, %v", code, errs, err)
		}
		info, err := os.Stat(wpv)
		if err != nil || info.Size() != told.Bytes || told.Tokens != 900 || told.Added != 7 || told.Rules != "qwen2" {
			t.Errorf("told %+v of a file of %d bytes, %v", told, info.Size(), err)
		}
		hashes = append(hashes, told.Hash)
	}
	if hashes[0] != hashes[1] || len(hashes[0]) != 32 {
		t.Errorf("hashes %v", hashes)
	}
	if code, out, _ := warmpath("tokenizer", "compile", smallVocabularies+"qwen.tokenizer.json", "-o", wpv); code != 0 || !strings.Contains(out, "rules qwen2") {
		t.Errorf("exit %d, %q", code, out)
	}
	if left, _ := filepath.Glob(wpv + ".*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// 256 bytes, then "ab", "abab" and two more: cut, merged and looked up as
// tiktoken does.
func TestRankFilesAreCompiledByEncodingNameOrPattern(t *testing.T) {
	var ranks strings.Builder
	for b := range 256 {
		ranks.WriteString(base64.StdEncoding.EncodeToString([]byte{byte(b)}) + " " + strconv.Itoa(b) + "\n")
	}
	for i, token := range []string{"ab", "abab", " ab", "  "} {
		ranks.WriteString(base64.StdEncoding.EncodeToString([]byte(token)) + " " + strconv.Itoa(256+i) + "\n")
	}
	dir := t.TempDir()
	named, other, wpv := filepath.Join(dir, "cl100k_base.tiktoken"), filepath.Join(dir, "my.model"), filepath.Join(dir, "x.wpv")
	for _, name := range []string{named, other} {
		if err := os.WriteFile(name, []byte(ranks.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args     []string
		in, want string
	}{
		{[]string{named}, "ababab ab", "257 256 258"},
		{[]string{named}, "  ", "259"},
		{[]string{named}, "ab<|endoftext|>", "256 100257"},
		{[]string{other, "--pattern", "gpt2", "--special", "<|end=|>=300"}, "ab<|end=|>ab", "256 300 256"},
		{[]string{other, "--encoding", "r50k_base"}, "abab", "257"},
	} {
		if code, _, errs := warmpath(append([]string{"tokenizer", "compile", "-o", wpv}, c.args...)...); code != 0 {
			t.Errorf("%v: %s", c.args, errs)
			continue
		}
		if code, out, errs := warmpathIn(c.in, "tokenizer", "encode", "--vocab", wpv); code != 0 || strings.TrimSpace(out) != c.want {
			t.Errorf("%v %q: exit %d, %q %s; want %s", c.args, c.in, code, out, errs, c.want)
		}
	}
}

// Every golden of the reference goes through the command as a user would send it.
func TestEncodeByLinesGivesTheReferencesIDs(t *testing.T) {
	for _, family := range []string{"qwen", "llama3", "gpt-oss", "mistral-nemo", "deepseek-v3", "gpt2"} {
		wpv := compileSmall(t, family)
		data, err := os.ReadFile(smallVocabularies + family + ".goldens")
		if err != nil {
			t.Fatal(err)
		}
		var texts, want strings.Builder
		for line := range strings.Lines(string(data)) {
			var golden struct {
				Text json.RawMessage
				IDs  json.RawMessage
			}
			if err := json.Unmarshal([]byte(line), &golden); err != nil {
				t.Fatal(err)
			}
			texts.Write(golden.Text)
			texts.WriteString("\r\n")
			want.WriteString(`{"ids":` + string(golden.IDs) + "}\n")
		}
		code, out, errs := warmpathIn(texts.String(), "tokenizer", "encode", "--vocab", wpv, "--json-lines", "--json")
		if code != 0 || out != want.String() {
			t.Errorf("%s: exit %d, %q; ids differ: %v", family, code, errs, out != want.String())
		}
	}
}

func TestWhatEncodeWritesDecodeReads(t *testing.T) {
	wpv := compileSmall(t, "mistral-nemo")
	text := "It's 12 о'clock,\n\t中文 🙂 [INST] x [/INST]  "
	quoted, _ := json.Marshal(text)
	for _, c := range []struct {
		name           string
		encode, decode []string
		in, want       string
	}{
		{"text", nil, nil, text, text},
		{"JSON ids", []string{"--json"}, nil, text, text},
		{"lines", []string{"--json-lines", "--json"}, []string{"--json-lines", "--json"}, string(quoted) + "\n\n\"\"\n", string(quoted) + "\n\"\"\n"},
		{"BOS shown", []string{"--special"}, nil, "x", "<s>x"},
		{"BOS left out", []string{"--special"}, []string{"--skip-special"}, "x", "x"},
		{"broken bytes", nil, nil, "a\xe4\xb8b", "a\uFFFDb"},
	} {
		code, ids, errs := warmpathIn(c.in, append([]string{"tokenizer", "encode", "--vocab", wpv}, c.encode...)...)
		if code != 0 {
			t.Fatalf("%s: %s", c.name, errs)
		}
		code, out, errs := warmpathIn(ids, append([]string{"tokenizer", "decode", "--vocab", wpv}, c.decode...)...)
		if code != 0 || out != c.want {
			t.Errorf("%s: exit %d, %q %s; want %q", c.name, code, out, errs, c.want)
		}
	}
	// A character that is cut is one U+FFFD in JSON and stays as it is otherwise.
	_, ids, _ := warmpathIn("\U0001F5FF", "tokenizer", "encode", "--vocab", wpv)
	most := strings.Join(strings.Fields(ids)[:len(strings.Fields(ids))-1], " ")
	_, plain, _ := warmpathIn(most, "tokenizer", "decode", "--vocab", wpv)
	_, inJSON, _ := warmpathIn(most, "tokenizer", "decode", "--vocab", wpv, "--json")
	if len(plain) < 1 || !strings.HasPrefix("\U0001F5FF", plain) || inJSON != "\"\uFFFD\"\n" {
		t.Errorf("ids %s of a cut character: %q and %q", most, plain, inJSON)
	}
	if code, out, _ := warmpathIn("[10, 11]\n", "tokenizer", "decode", "--vocab", wpv); code != 0 || len(out) != 2 {
		t.Errorf("a JSON list: exit %d, %q", code, out)
	}
}

func TestCountAddsUp(t *testing.T) {
	wpv := compileSmall(t, "llama3")
	a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	for name, text := range map[string]string{a: "hello world", b: "12345"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code, out, errs := warmpath("tokenizer", "count", "--vocab", wpv, "--json", a, b)
	var counts []struct {
		Name   string
		Tokens int
		Bytes  int
	}
	for line := range strings.Lines(out) {
		counts = append(counts, struct {
			Name   string
			Tokens int
			Bytes  int
		}{})
		if err := json.Unmarshal([]byte(line), &counts[len(counts)-1]); err != nil {
			t.Fatal(err)
		}
	}
	if code != 0 || len(counts) != 3 || counts[2].Name != "total" || counts[2].Tokens != counts[0].Tokens+counts[1].Tokens || counts[2].Bytes != 16 || counts[0].Tokens < 2 {
		t.Errorf("exit %d, %+v %s", code, counts, errs)
	}
	_, plain, _ := warmpathIn("12345", "tokenizer", "count", "--vocab", wpv, "--json")
	_, special, _ := warmpathIn("12345", "tokenizer", "count", "--vocab", wpv, "--json", "--special")
	if !strings.Contains(plain, `"tokens":`+strconv.Itoa(counts[1].Tokens)) || !strings.Contains(special, `"tokens":`+strconv.Itoa(counts[1].Tokens+1)) {
		t.Errorf("from standard input %q, with BOS %q", plain, special)
	}
}

func TestRenderShowsPromptTokensAndTurns(t *testing.T) {
	wpv := compileSmall(t, "qwen")
	body := `{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi 龘\n"}]}`
	prompt := "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi 龘\n<|im_end|>\n<|im_start|>assistant\n"
	render := func(args ...string) (int, string, string) {
		return warmpathIn(body, append([]string{"tokenizer", "render", "--template", "qwen3"}, args...)...)
	}
	if code, out, errs := render(); code != 0 || out != prompt || !strings.Contains(errs, "3 turns") {
		t.Errorf("text: exit %d, %q, %q", code, out, errs)
	}
	code, out, errs := render("--vocab", wpv, "--json")
	var shown rendered
	if err := json.Unmarshal([]byte(out), &shown); code != 0 || err != nil {
		t.Fatalf("exit %d, %q, %v", code, errs, err)
	}
	if shown.Text != prompt || !shown.Exact || shown.Stopped != "complete" || len(shown.IDs) == 0 || len(shown.TurnTokens) != len(shown.Turns) {
		t.Errorf("JSON: %+v", shown)
	}
	for i, end := range shown.Turns {
		_, ids, _ := warmpathIn(prompt[:end], "tokenizer", "encode", "--vocab", wpv)
		if got := len(strings.Fields(ids)); got != shown.TurnTokens[i] {
			t.Errorf("turn %d ends after %d tokens, encode says %d", i, shown.TurnTokens[i], got)
		}
	}
	code, out, _ = render("--vocab", wpv, "--color", "always")
	if code != 0 || strings.Count(out, "▏") != len(shown.Turns) || !strings.Contains(out, "‹") || strings.Count(out, addedColor) < 5 {
		t.Errorf("colours: exit %d, %q", code, out)
	}
	body = `{"messages":[{"role":"user","content":"First"},{"role":"assistant","content":"Yes"},{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}`
	if code, _, errs := render("--vocab", wpv); code != 0 || !strings.Contains(errs, "exact up to here, then stopped: media") {
		t.Errorf("a picture: exit %d, %q", code, errs)
	}
	body = `{"prompt":"Once upon"}`
	if code, out, _ := render(); code != 0 || out != "Once upon" {
		t.Errorf("a completion: exit %d, %q", code, out)
	}
}

func TestRenderTakesADeclaredTemplate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "template.json")
	if err := os.WriteFile(file, []byte(`{"user":{"prefix":"Q: ","suffix":"\n"},"assistant":{"prefix":"A: ","suffix":"\n"},"generation":"A:"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := warmpathIn(`{"messages":[{"role":"user","content":"Why?"}]}`, "tokenizer", "render", "--template", file)
	if code != 0 || out != "Q: Why?\nA:" {
		t.Errorf("exit %d, %q, %q", code, out, errs)
	}
}

func TestBenchMeasures(t *testing.T) {
	wpv := compileSmall(t, "gpt2")
	code, out, errs := warmpath("tokenizer", "bench", "--vocab", wpv, "--rounds", "1", "--json")
	var told struct {
		Bytes, Tokens int
		MBPerSecond   float64
	}
	if err := json.Unmarshal([]byte(out), &told); code != 0 || err != nil || told.Bytes < 100<<10 || told.Tokens < 1000 || told.MBPerSecond <= 0 {
		t.Errorf("exit %d, %q %q %v", code, out, errs, err)
	}
}

func TestTokenizerMistakesSayWhatWouldBeRight(t *testing.T) {
	wpv := compileSmall(t, "qwen")
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	whole, err := os.ReadFile(wpv)
	if err != nil {
		t.Fatal(err)
	}
	whole[len(whole)-1] ^= 1
	published, err := os.ReadFile(smallVocabularies + "qwen.tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		stdin string
		args  []string
		want  string
	}{
		{"", []string{"compile"}, "name the tokenizer.json"},
		{"", []string{"compile", smallVocabularies + "qwen.tokenizer.json"}, "-o NAME.wpv"},
		{"", []string{"compile", "missing.json", "-o", filepath.Join(dir, "x")}, "missing.json"},
		{"", []string{"compile", file("bad.json", "{"), "-o", filepath.Join(dir, "x")}, "bad.json"},
		{"", []string{"compile", file("x.wpv", "WPV\x01"), "-o", filepath.Join(dir, "x")}, "compiled already"},
		{"", []string{"compile", file("wordpiece.json", strings.Replace(string(published), `"type":"BPE"`, `"type":"WordPiece"`, 1)), "-o", filepath.Join(dir, "x")}, "WordPiece"},
		{"", []string{"compile", file("nfkc.json", strings.Replace(string(published), `{"type":"NFC"}`, `{"type":"NFKC"}`, 1)), "-o", filepath.Join(dir, "x")}, "NFKC"},
		{"", []string{"compile", smallVocabularies + "qwen.tokenizer.json", "-o", filepath.Join(dir, "no", "x")}, "no such file"},
		{"", []string{"compile", file("some.tiktoken", ""), "-o", filepath.Join(dir, "x")}, "there are cl100k_base, o200k_base"},
		{"", []string{"compile", file("ranks.txt", "YQ== 0\n"), "-o", filepath.Join(dir, "x")}, "needs --encoding"},
		{"", []string{"compile", file("cl100k_base.tiktoken", "YQ== zero\n"), "-o", filepath.Join(dir, "x")}, "line 1"},
		{"", []string{"compile", file("few.txt", "YQ== 0\n"), "--pattern", "gpt2", "-o", filepath.Join(dir, "x")}, "few.txt"},
		{"", []string{"compile", file("p.txt", "YQ== 0\n"), "--pattern", `\w+`, "-o", filepath.Join(dir, "x")}, "not supported"},
		{"", []string{"compile", file("s.txt", "YQ== 0\n"), "--pattern", "gpt2", "--special", "<x>", "-o", filepath.Join(dir, "x")}, "NAME=ID"},
		{"", []string{"compile", file("e.txt", "YQ== 0\n"), "--encoding", "o200k_base", "--pattern", "o200k", "-o", filepath.Join(dir, "x")}, "exclude each other"},
		{"x", []string{"encode"}, "--vocab FILE.wpv"},
		{"x", []string{"encode", "--vocab", "missing.wpv"}, "missing.wpv"},
		{"x", []string{"encode", "--vocab", file("flipped.wpv", string(whole))}, "compile it again"},
		{"\"a\"\nb\n", []string{"encode", "--vocab", wpv, "--json-lines"}, "line 2 of the input is no JSON string"},
		{"null\n", []string{"encode", "--vocab", wpv, "--json-lines"}, "line 1"},
		{"12 x", []string{"decode", "--vocab", wpv}, `"x" is no token id`},
		{"1\n99999999", []string{"decode", "--vocab", wpv, "--json-lines"}, "line 2 of the input: the vocabulary has no token 99999999"},
		{"", []string{"count", "--vocab", wpv, "missing.txt"}, "missing.txt"},
		{"{}", []string{"render"}, "--template NAME"},
		{"{}", []string{"render", "--template", "gpt5"}, "there are chatml"},
		{"{}", []string{"render", "--template", file("t.json", `{"users":{}}`)}, "t.json"},
		{"{}", []string{"render", "--template", "qwen3", "--engine", "tgi"}, "vllm or sglang"},
		{"{}", []string{"render", "--template", "qwen3", "--endpoint", "audio"}, "want chat, completions"},
		{"{}", []string{"render", "--template", "qwen3", "--date", "today"}, "2026-11-29"},
		{"{}", []string{"render", "--template", "qwen3", "--color", "blue"}, "auto, always or never"},
		{`{"a":}`, []string{"render", "--template", "qwen3"}, "not valid JSON"},
		{`[]`, []string{"render", "--template", "qwen3"}, "want a JSON object"},
		{"", []string{"bench", "--vocab", wpv, "--rounds", "0"}, "one or more"},
	} {
		code, _, errs := warmpathIn(c.stdin, append([]string{"tokenizer"}, c.args...)...)
		if code != 1 || !strings.Contains(errs, c.want) {
			t.Errorf("%v: exit %d, %q; want 1 and %q", c.args, code, errs, c.want)
		}
	}
}

func TestTokenizerHelpHasExamples(t *testing.T) {
	for _, name := range []string{"compile", "encode", "decode", "count", "render", "bench"} {
		if code, help, _ := warmpath("tokenizer", name, "--help"); code != 0 || !strings.Contains(help, "Examples:") || !strings.Contains(help, "warmpath tokenizer "+name) {
			t.Errorf("%s: exit %d, %q", name, code, help)
		}
	}
}
