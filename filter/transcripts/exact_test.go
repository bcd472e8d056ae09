package transcripts

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/jsontext"
	"github.com/warmpath/warmpath/tokenizer/bpe"
	chattext "github.com/warmpath/warmpath/tokenizer/chat"
	"github.com/warmpath/warmpath/tokenizer/vocab"
)

// exactProxy is a proxy whose only pool is exact, with explanations.
type exactProxy struct {
	*proxy
	encoder  *bpe.Encoder
	template chattext.Template
}

func startExact(t testing.TB, workers int) *exactProxy {
	t.Helper()
	return startExactWith(t, `{"explain":true}`, workers)
}

func startExactWith(t testing.TB, config string, workers int) *exactProxy {
	t.Helper()
	p := start(t, modules.full, config, workers)
	p.advance(time.Second)
	file, hash := vocabulary(t, 1, 20_000)
	p.control.name(file, hash, true)
	p.advance(6 * time.Second)
	v, err := vocab.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	template, ok := chattext.ByName("qwen3", "vllm")
	if !ok {
		t.Fatal("no template qwen3")
	}
	return &exactProxy{p, bpe.New(v, bpe.Config{}), template}
}

// ids are the prompt's tokens as a native encoder that has seen nothing else
// finds them, and the number of ids before the end of each turn.
func (p *exactProxy) ids(t testing.TB, body []byte) (ids []uint32, ends []int) {
	t.Helper()
	var doc jsontext.Doc
	if fault := doc.Scan(body); fault != jsontext.None {
		t.Fatal(fault)
	}
	var r chattext.Renderer
	out := r.Render(p.template, chattext.Request{Doc: &doc, Endpoint: chattext.Chat}, 0)
	ends = make([]int, len(out.Ends))
	ids, _ = p.encoder.Encode(nil, out.Text, bpe.Options{AddSpecial: out.AddSpecial, Marks: out.Ends, MarkIDs: ends})
	return ids, ends
}

// play sends one chat and answers it; it returns the explanation.
func (p *exactProxy) play(vm int, path string, body []byte) string {
	x := p.send(vm, post(path), body, 0)
	best, _, _ := strings.Cut(x.endpoint(), ",")
	x.answer(best, 200, 1, "application/json", `{"usage":{"prompt_tokens":500,"completion_tokens":3}}`)
	p.advance(300 * time.Millisecond)
	return x.out.Response.Value("x-warmpath-explain")
}

func conversation(model string, turns ...string) []byte {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	messages := []message{{"system", "You are a careful assistant. " + words(3, 400)}}
	for i, turn := range turns {
		messages = append(messages, message{[]string{"user", "assistant"}[i%2], turn})
	}
	b, err := json.Marshal(map[string]any{"model": model, "messages": messages})
	if err != nil {
		panic(err)
	}
	return b
}

// words is text that differs by seed.
func words(seed, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%c%d ", 'a'+(seed*7+i*i)%26, (seed+i)*37%101)
	}
	return b.String()
}

// TestAnExactPromptIsKeyedByTheTokensOfTheEngine: the checkpoints that the
// module reports are the fingerprints of what a tokenizer outside of it finds.
func TestAnExactPromptIsKeyedByTheTokensOfTheEngine(t *testing.T) {
	p := startExact(t, 2)
	body := conversation("m", words(1, 900), words(2, 300), "and now?")
	explained := p.play(0, "/v1/chat/completions", body)
	ids, ends := p.ids(t, body)
	if want := fmt.Sprintf("mode=exact tokens=%d fresh=", len(ids)); !strings.HasPrefix(explained, want) || !strings.Contains(explained, " memo=0 ") || !strings.Contains(explained, "fp=exact") {
		t.Errorf("explanation %q, want %q...", explained, want)
	}

	var chain fingerprint.Chain
	chain.Reset(fingerprint.Salt("default", "m", 0, "", fingerprint.Exact))
	at := 0
	for _, end := range ends {
		chain.WriteTokens(ids[at:end])
		chain.TurnEnd()
		at = end
	}
	chain.WriteTokens(ids[at:])
	wanted := chain.Finish()
	_, stored := p.stored()
	for _, c := range wanted {
		if _, ok := stored[c.Fingerprint]; !ok {
			t.Errorf("no entry for the first %d tokens", c.End*fingerprint.UnitTokens)
		}
	}
	if len(stored) != len(wanted) || len(wanted) < 10 {
		t.Errorf("%d entries, %d checkpoints", len(stored), len(wanted))
	}
}

// TestAFollowUpTurnCostsItsNewMessages and is found where the first one went,
// also by another VM, which has none of it in its memo.
func TestAFollowUpTurnCostsItsNewMessages(t *testing.T) {
	p := startExact(t, 2)
	first := conversation("m", words(1, 900))
	follow := conversation("m", words(1, 900), words(2, 300), "and now?")
	p.play(0, "/v1/chat/completions", first)
	again := p.play(0, "/v1/chat/completions", follow)
	var tokens, fresh, memo, hit int
	if _, err := fmt.Sscanf(again, "mode=exact tokens=%d fresh=%d memo=%d", &tokens, &fresh, &memo); err != nil {
		t.Fatalf("%q: %v", again, err)
	}
	if fresh > 1600 || memo < 3500 {
		t.Errorf("%d bytes fresh, %d from the memo", fresh, memo)
	}
	_, tail, _ := strings.Cut(again, "hit=")
	if _, err := fmt.Sscanf(tail, "%d/", &hit); err != nil {
		t.Fatal(err)
	}
	_, ends := p.ids(t, first)
	if least := ends[len(ends)-1]/16*16 - 16; hit < least {
		t.Errorf("hit %d tokens, want at least %d: %s", hit, least, again)
	}
	elsewhere := p.play(1, "/v1/chat/completions", follow)
	if !strings.Contains(elsewhere, fmt.Sprintf("tokens=%d ", tokens)) || !strings.Contains(elsewhere, " memo=0 ") {
		t.Errorf("the other VM: %q, this one %q", elsewhere, again)
	}
	_, there, _ := strings.Cut(elsewhere, " at=")
	_, here, _ := strings.Cut(again, " at=")
	if at, _, _ := strings.Cut(there, " "); !strings.HasPrefix(here, at+" ") {
		t.Errorf("checkpoints differ: %q and %q", there, here)
	}
}

// TestAPromptOfTokenIDsIsTheSameAsItsText in an exact pool.
func TestAPromptOfTokenIDsIsTheSameAsItsText(t *testing.T) {
	p := startExact(t, 1)
	text := words(5, 500)
	ids, _ := p.encoder.Encode(nil, []byte(text), bpe.Options{})
	asText, err := json.Marshal(map[string]any{"model": "m", "prompt": text})
	if err != nil {
		t.Fatal(err)
	}
	asIDs, err := json.Marshal(map[string]any{"model": "m", "prompt": ids})
	if err != nil {
		t.Fatal(err)
	}
	p.play(0, "/v1/completions", asText)
	_, before := p.stored()
	explained := p.play(0, "/v1/completions", asIDs)
	_, after := p.stored()
	if len(before) == 0 || len(after) != len(before) {
		t.Errorf("%d entries from the text, %d after the same as ids", len(before), len(after))
	}
	if !strings.Contains(explained, fmt.Sprintf("tokens=%d ", len(ids))) || !strings.Contains(explained, "why=holder") {
		t.Errorf("%q", explained)
	}
}

// TestWhatCannotBeRenderedExactlyHasNoWrongKey: up to a picture the tokens are
// known; with a template of its own not even the first is, and the text serves.
func TestWhatCannotBeRenderedExactlyHasNoWrongKey(t *testing.T) {
	p := startExact(t, 1)
	plain := conversation("m", words(1, 900))
	pictured := conversation("m", words(1, 900), words(2, 100), "PICTURE")
	pictured = []byte(strings.Replace(string(pictured), `"PICTURE"`, `[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}},{"type":"text","text":"what is this?"}]`, 1))
	p.play(0, "/v1/chat/completions", plain)
	got := p.play(0, "/v1/chat/completions", pictured)
	if !strings.Contains(got, "mode=exact") || !strings.Contains(got, "stopped=media") || !strings.Contains(got, "why=holder") {
		t.Errorf("with a picture: %q", got)
	}
	own := append([]byte(`{"chat_template":"{{ messages }}",`), plain[1:]...)
	if got := p.play(0, "/v1/chat/completions", own); !strings.HasPrefix(got, "mode=inexact tokens=") || !strings.Contains(got, " stopped=request_template") || strings.Contains(got, "why=holder") {
		t.Errorf("with its own template: %q", got)
	}
	if got := p.play(0, "/v1/chat/completions", own); !strings.Contains(got, "why=holder") {
		t.Errorf("again: %q", got)
	}
	for mode, n := range map[string]uint64{"exact": 2, "inexact": 2} {
		if got := p.counter("fingerprint_mode.default." + mode); got != n {
			t.Errorf("%d prompts counted as %s, want %d", got, mode, n)
		}
	}
}

func TestTheExplanationOfARequestWithoutAPoolSaysSo(t *testing.T) {
	p := start(t, modules.full, `{"explain":true}`, 1)
	p.control.policy["pools"] = []map[string]any{{"name": "a", "index": 0, "models": []string{"model-a"}}}
	p.advance(time.Second)
	x := p.send(0, post("/v1/chat/completions"), conversation("nobody's", "hello"), 0)
	x.answer("10.0.0.1:9000", 404, 1, "application/json", `{}`)
	if got := x.out.Response.Value("x-warmpath-explain"); got != "mode=none w=- why=no_pool" {
		t.Errorf("%q", got)
	}
}

// TestALongFreshPromptIsTokenisedInPart, the rest next time, as the memo knows
// the beginning then.
func TestALongFreshPromptIsTokenisedInPart(t *testing.T) {
	p := startExact(t, 1)
	var turns []string
	for i := range 81 {
		turns = append(turns, words(i, 800))
	}
	body := conversation("m", turns...)
	last := -1
	for range 12 {
		got := p.play(0, "/v1/chat/completions", body)
		var tokens, fresh, memo int
		if _, err := fmt.Sscanf(got, "mode=exact tokens=%d fresh=%d memo=%d", &tokens, &fresh, &memo); err != nil {
			t.Fatalf("%q: %v", got, err)
		}
		if fresh > 110_000 {
			t.Fatalf("%d bytes in one request", fresh)
		}
		if !strings.Contains(got, " capped") {
			if last < 0 {
				t.Fatal("nothing was capped: the test tests nothing")
			}
			return
		}
		if memo+fresh <= last {
			t.Fatalf("no further than before: %q", got)
		}
		last = memo + fresh
	}
	t.Error("never whole")
}

// TestAVMWithoutTheVocabularyStaysApproximate and counts it.
func TestAVMWithoutTheVocabularyStaysApproximate(t *testing.T) {
	p := start(t, modules.full, `{"explain":true}`, 1)
	p.advance(time.Second)
	file, hash := vocabulary(t, 1, 20_000)
	p.control.name(file, hash, true)
	delete(p.control.vocabularies, hash)
	p.advance(3 * time.Second)
	e := &exactProxy{proxy: p}
	if got := e.play(0, "/v1/chat/completions", conversation("m", "hello")); !strings.HasPrefix(got, "mode=missing tokens=") {
		t.Errorf("%q", got)
	}
	if n := p.counter("fingerprint_mode.default.missing"); n != 1 {
		t.Errorf("counted %d times", n)
	}
}
