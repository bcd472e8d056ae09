package control

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/control/vocabulary"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/wire"
	"github.com/warmpath/warmpath/tokenizer/bpe"
	"github.com/warmpath/warmpath/tokenizer/pretoken"
	"github.com/warmpath/warmpath/tokenizer/vocab"
)

// wpv writes a vocabulary of all bytes and a few words into dir.
func wpv(t testing.TB, dir, name string, words ...string) (path string, hash policy.Hash) {
	t.Helper()
	spec := vocab.Spec{ByRank: true, Kind: pretoken.GPT2}
	for b := range 256 {
		spec.Tokens = append(spec.Tokens, []byte{byte(b)})
	}
	for _, w := range words {
		spec.Tokens = append(spec.Tokens, []byte(w))
	}
	spec.Added = []vocab.AddedSpec{
		{ID: 9000, Content: "<|im_start|>", Special: true}, {ID: 9001, Content: "<|im_end|>", Special: true},
	}
	file, err := spec.Compile()
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, name)
	if err := os.WriteFile(path, file, 0o644); err != nil {
		t.Fatal(err)
	}
	text, err := vocab.Hash(file)
	if err != nil {
		t.Fatal(err)
	}
	hash, _ = policy.ParseHash(text)
	return path, hash
}

// honest answers /tokenize for text with the tokens of a vocabulary file, as
// SGLang does: conversations come rendered.
func honest(t testing.TB, path string) func(string, []byte) (int, any) {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	v, err := vocab.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	encoder := bpe.New(v, bpe.Config{MemoIDs: -1})
	var mu sync.Mutex
	return func(_ string, body []byte) (int, any) {
		mu.Lock()
		defer mu.Unlock()
		var asked struct{ Prompt string }
		if err := json.Unmarshal(body, &asked); err != nil {
			return http.StatusBadRequest, map[string]string{"detail": err.Error()}
		}
		ids, _ := encoder.Encode(nil, []byte(asked.Prompt), bpe.Options{})
		return http.StatusOK, map[string]any{"tokens": ids, "count": len(ids), "max_model_len": 4096}
	}
}

func policyWith(path, more string) []byte {
	return fmt.Appendf(nil, "pools:\n- {name: default, models: ['*'], tokenizer: {file: %q, template: chatml, engine: sglang%s}}\n", path, more)
}

// entries are those of the EXACT section as the gateway has it.
func (g *gateway) exactEntries() (active, loading string) {
	g.b.t.Helper()
	if g.exact == "" {
		return "", ""
	}
	var list []struct {
		Pool, Vocab string
		Active      bool
	}
	decode(g.b.t, []byte(g.exact), &list)
	set, err := policy.Parse([]byte(g.policy))
	if err == nil {
		err = policy.ParseExact([]byte(g.exact), set)
	}
	if err != nil {
		g.b.t.Fatalf("gateways can't read it: %v", err)
	}
	for _, e := range list {
		if e.Active {
			active = e.Vocab
		} else {
			loading = e.Vocab
		}
	}
	return active, loading
}

// report sends a batch that says how many of its one VM have the vocabulary.
func (g *gateway) report(hash policy.Hash, vms int) {
	g.b.t.Helper()
	g.ready = []wire.Ready{{Hash: hash, VMs: uint16(vms), Pieces: 1}}
	g.send(nil)
}

func (b *bench) tokenizer() api.Tokenizer {
	b.t.Helper()
	status, body := b.do("GET", "/v1/status", nil, "")
	var s api.Status
	decode(b.t, body, &s)
	if status != http.StatusOK || len(s.Tokenizers) != 1 {
		b.t.Fatalf("%d: %d tokenizers", status, len(s.Tokenizers))
	}
	return s.Tokenizers[0]
}

func TestAPoolTurnsExactWhenEveryGatewayHasTheVocabularyAndTheWorkersAgree(t *testing.T) {
	path, hash := wpv(t, t.TempDir(), "a.wpv", "Hello", "lo")
	tokenize := honest(t, path)
	bubble(t, func(t *testing.T) {
		e := newEngines(alpha, beta)
		e.tokenize = tokenize
		b := start(t, e, Config{Workers: specs(alpha, beta), Policy: policyWith(path, "")})
		<-b.s.Ready()
		one, two := b.gateway("one"), b.gateway("two")
		for _, g := range []*gateway{one, two} {
			g.catchUp()
			if active, loading := g.exactEntries(); active != "" || loading != hash.String() {
				t.Fatalf("at first %q is active and %q loading", active, loading)
			}
			g.report(hash, 0)
		}
		if strings.Contains(one.policy, "tokenizer") || strings.Contains(one.policy, "exact") {
			t.Errorf("an older gateway would refuse %s", one.policy)
		}
		one.report(hash, 1)
		time.Sleep(5 * time.Second)
		one.report(hash, 1)
		two.report(hash, 0)
		one.catchUp()
		if active, _ := one.exactEntries(); active != "" {
			t.Error("active before the second gateway has it")
		}
		s := b.tokenizer()
		if s.Mode != "approximate" || s.Gateways != 2 || s.ReadyGateways != 1 || !strings.Contains(s.Reason, "1 of 2") {
			t.Errorf("%+v", s)
		}
		for _, w := range s.Workers {
			if w.Outcome != "tokens_verified" || w.Compared < 10 {
				t.Errorf("%+v", w)
			}
		}
		before := one.version
		two.report(hash, 1)
		time.Sleep(1100 * time.Millisecond)
		for _, g := range []*gateway{one, two} {
			g.catchUp()
			if active, loading := g.exactEntries(); active != hash.String() || loading != "" {
				t.Errorf("%s: %q active, %q loading", g.name, active, loading)
			}
		}
		if one.version == before || one.version != two.version {
			t.Errorf("versions %d, %d after %d", one.version, two.version, before)
		}
		if s := b.tokenizer(); s.Mode != "exact" || s.Serving != hash.String() || s.Reason != "" {
			t.Errorf("%+v", s)
		}
		if _, page := b.do("GET", "/metrics", nil, ""); !strings.Contains(string(page), `warmpath_control_fingerprint_mode{mode="exact",pool="default"} 1`) ||
			!strings.Contains(string(page), `warmpath_control_tokenizer_parity{pool="default",worker="`+alpha+`"} 1`) {
			t.Error("metrics don't say so")
		}
		// One that comes later runs as the others do, and loads.
		late := b.gateway("late")
		late.catchUp()
		late.report(hash, 0)
		time.Sleep(2 * time.Second)
		late.catchUp()
		if active, _ := late.exactEntries(); active != hash.String() {
			t.Error("a gateway that came late has undone it")
		}
	})
}

func TestTheGraceEndsTheWaitForGatewaysButNotForParity(t *testing.T) {
	path, hash := wpv(t, t.TempDir(), "a.wpv", "Hello")
	bubble(t, func(t *testing.T) {
		for rule, want := range map[string]string{"": hash.String(), ", parity: require": "", ", parity: 'off'": hash.String()} {
			// Nobody has /tokenize.
			b, g := serving(t, newEngines(alpha), Config{Workers: specs(alpha), Policy: policyWith(path, rule+", exact_grace_ms: 10000")})
			for range 4 {
				g.report(hash, 0)
				time.Sleep(2 * time.Second)
			}
			g.catchUp()
			if active, _ := g.exactEntries(); active != "" {
				t.Errorf("%q: active within the grace", rule)
			}
			time.Sleep(4 * time.Second)
			g.catchUp()
			if active, _ := g.exactEntries(); active != want {
				t.Errorf("%q: %q active after the grace, want %q", rule, active, want)
			}
			if s := b.tokenizer(); want == "" && !strings.Contains(s.Reason, "parity is required, and is unverified") {
				t.Errorf("%q", s.Reason)
			}
			b.stop()
		}
	})
}

func TestAWorkerWithOtherTokensKeepsThePoolApproximateUntilItIsAnother(t *testing.T) {
	dir := t.TempDir()
	path, hash := wpv(t, dir, "a.wpv", "el")
	other, _ := wpv(t, dir, "b.wpv", "ll")
	right, wrong := honest(t, path), honest(t, other)
	bubble(t, func(t *testing.T) {
		e := newEngines(alpha, beta)
		e.tokenize = func(address string, body []byte) (int, any) {
			if address == beta && e.startedAt(beta) < 5000 {
				return wrong(address, body)
			}
			return right(address, body)
		}
		b := start(t, e, Config{Workers: specs(alpha, beta), Policy: policyWith(path, "")})
		<-b.s.Ready()
		g := b.gateway("g")
		for range 40 { // beyond the grace
			g.report(hash, 1)
			time.Sleep(time.Second)
		}
		g.catchUp()
		if active, _ := g.exactEntries(); active != "" {
			t.Fatal("active although a worker has other tokens")
		}
		s := b.tokenizer()
		if s.Mode != "approximate" || !strings.Contains(s.Reason, beta) || !strings.Contains(s.Reason, `"el"`) {
			t.Errorf("%+v", s)
		}
		found := false
		for _, w := range s.Workers {
			if w.Worker == beta && w.Outcome == "differs" && w.Difference != nil && w.Difference.Ours[w.Difference.At].Text == "el" && w.Difference.Theirs[w.Difference.At].Text == "e" {
				found = true
			}
		}
		if !found {
			t.Errorf("%+v", s.Workers)
		}
		if _, page := b.do("GET", "/metrics", nil, ""); !strings.Contains(string(page), `warmpath_control_tokenizer_parity{pool="default",worker="`+beta+`"} -1`) {
			t.Error("the metric doesn't say so")
		}
		// It restarts with the right one, and later with the wrong one again.
		e.set(beta, 6000)
		for range 10 {
			g.report(hash, 1)
			time.Sleep(time.Second)
		}
		g.catchUp()
		if active, _ := g.exactEntries(); active != hash.String() {
			t.Fatalf("still approximate: %+v", b.tokenizer())
		}
		e.set(beta, 4000)
		for range 10 {
			g.report(hash, 1)
			time.Sleep(time.Second)
		}
		g.catchUp()
		if active, loading := g.exactEntries(); active != "" || loading != hash.String() {
			t.Errorf("%q active, %q loading after a worker came back with other tokens", active, loading)
		}
	})
}

func (e *engines) startedAt(address string) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.started[address]
}

func TestWhatWasInForceStaysUntilAnotherVocabularyIsLoaded(t *testing.T) {
	dir := t.TempDir()
	first, hashOfFirst := wpv(t, dir, "a.wpv", "el")
	second, hashOfSecond := wpv(t, dir, "b.wpv", "ll")
	bubble(t, func(t *testing.T) {
		b := start(t, newEngines(alpha), Config{Workers: specs(alpha), Policy: policyWith(first, ", exact_grace_ms: 0")})
		<-b.s.Ready()
		g := b.gateway("g")
		time.Sleep(2 * time.Second)
		g.report(hashOfFirst, 1)
		g.catchUp()
		if active, _ := g.exactEntries(); active != hashOfFirst.String() {
			t.Fatalf("%q active without a grace", active)
		}
		if err := b.s.SetPolicy(policyWith(second, "")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		g.report(hashOfFirst, 1)
		g.catchUp()
		if active, loading := g.exactEntries(); active != hashOfFirst.String() || loading != hashOfSecond.String() {
			t.Errorf("%q active, %q loading", active, loading)
		}
		for _, h := range []policy.Hash{hashOfFirst, hashOfSecond} {
			if status, _ := b.do("GET", "/v1/vocabulary/"+h.String()+"?shard=0", nil, ""); status != http.StatusOK {
				t.Errorf("%v: %d", h, status)
			}
		}
		g.report(hashOfSecond, 1)
		time.Sleep(2 * time.Second)
		g.catchUp()
		if active, loading := g.exactEntries(); active != hashOfSecond.String() || loading != "" {
			t.Errorf("%q active, %q loading", active, loading)
		}
		if status, _ := b.do("GET", "/v1/vocabulary/"+hashOfFirst.String(), nil, ""); status != http.StatusNotFound {
			t.Errorf("a vocabulary that nobody needs: %d", status)
		}
		// A mode that is switched doesn't touch it; a policy without it ends it.
		if err := b.s.SetMode("default", "observe"); err != nil {
			t.Fatal(err)
		}
		g.catchUp()
		if active, _ := g.exactEntries(); active != hashOfSecond.String() {
			t.Error("a switch of the mode has ended it")
		}
		if err := b.s.SetPolicy([]byte("pools: [{name: default, models: ['*']}]")); err != nil {
			t.Fatal(err)
		}
		g.catchUp()
		if g.exact != "" {
			t.Errorf("left: %s", g.exact)
		}
	})
}

func TestAnotherVocabularyThatWorkersDoNotHaveLeavesTheOneInForceAndSaysSo(t *testing.T) {
	dir := t.TempDir()
	first, hashOfFirst := wpv(t, dir, "a.wpv", "el")
	second, hashOfSecond := wpv(t, dir, "b.wpv", "ll")
	bubble(t, func(t *testing.T) {
		var log strings.Builder
		e := newEngines(alpha)
		e.tokenize = honest(t, first)
		b := start(t, e, Config{
			Workers: specs(alpha), Policy: policyWith(first, ""), Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		<-b.s.Ready()
		g := b.gateway("g")
		for range 5 {
			g.report(hashOfFirst, 1)
			time.Sleep(time.Second)
		}
		g.catchUp()
		if active, _ := g.exactEntries(); active != hashOfFirst.String() {
			t.Fatalf("%q active", active)
		}
		if err := b.s.SetPolicy(policyWith(second, "")); err != nil {
			t.Fatal(err)
		}
		for range 40 { // beyond the grace
			g.report(hashOfFirst, 1)
			g.report(hashOfSecond, 1)
			time.Sleep(time.Second)
		}
		g.catchUp()
		if active, _ := g.exactEntries(); active != hashOfFirst.String() {
			t.Errorf("%q active", active)
		}
		synctest.Wait()
		if text := log.String(); !strings.Contains(text, "the vocabulary before this one stays in force") || strings.Contains(text, "approximate mode") {
			t.Errorf("the log says\n%s", text)
		}
	})
}

func TestAPolicyWithABadTokenizerIsRefusedWithPlaceAndRemedy(t *testing.T) {
	dir := t.TempDir()
	good, _ := wpv(t, dir, "good.wpv", "Hello")
	damaged := filepath.Join(dir, "damaged.wpv")
	file, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	file[len(file)-1] ^= 1
	for name, content := range map[string][]byte{damaged: file, filepath.Join(dir, "text.wpv"): []byte("hello"), filepath.Join(dir, "t5.json"): []byte(`{"version":"1.0","model":{"type":"Unigram"}}`)} {
		if err := os.WriteFile(name, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for written, want := range map[string]string{
		`[]`: "pools[0].tokenizer: not an object",
		`{}`: "pools[0].tokenizer.engine: missing",
		`{engine: trt, file: good.wpv, template: qwen3}`:                      "pools[0].tokenizer.engine: unknown",
		`{engine: vllm, file: good.wpv, template: qwen9}`:                     "pools[0].tokenizer.template: unknown for engine vllm: qwen9",
		`{engine: sglang, file: good.wpv, template: gpt-oss}`:                 "unknown for engine sglang: gpt-oss",
		`{engine: vllm, file: good.wpv}`:                                      "pools[0].tokenizer.template: missing",
		`{engine: vllm, file: good.wpv, template: {user: {prefix: 1}}}`:       "pools[0].tokenizer.template.user.prefix: not a",
		`{engine: vllm, template: qwen3}`:                                     "pools[0].tokenizer.file: missing",
		`{engine: vllm, template: qwen3, file: none.wpv}`:                     "no such file",
		`{engine: vllm, template: qwen3, file: .}`:                            "is a folder",
		`{engine: vllm, template: qwen3, file: damaged.wpv}`:                  "wrong checksum",
		`{engine: vllm, template: qwen3, file: text.wpv}`:                     "neither a .wpv file nor a tokenizer.json",
		`{engine: vllm, template: qwen3, file: t5.json}`:                      "Unigram",
		`{engine: vllm, template: qwen3, file: good.wpv, parity: x}`:          "pools[0].tokenizer.parity: unknown",
		`{engine: vllm, template: qwen3, file: good.wpv, exact_grace_ms: -1}`: "pools[0].tokenizer.exact_grace_ms: out of range",
		`{engine: vllm, template: qwen3, file: good.wpv, vocab: x}`:           "pools[0].tokenizer.vocab: unknown key",
	} {
		_, err := parsePolicy("p.yaml", dir, []byte("pools: [{name: default, models: ['*'], tokenizer: "+written+"}]"), &vocabulary.Store{})
		var f *api.Failure
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", written, err, want)
		} else if f, _ = err.(*api.Failure); f == nil || f.Remedy == "" || f.Status != 400 {
			t.Errorf("%s: no remedy: %#v", written, err)
		}
	}
	var many strings.Builder
	many.WriteString("pools:\n")
	for i := range 5 {
		fmt.Fprintf(&many, "- {name: p%d, models: [m%d], tokenizer: {file: good.wpv, engine: vllm, template: {user: {prefix: %q, suffix: U}, assistant: {prefix: A, suffix: A}, generation: A}}}\n", i, i, strings.Repeat("x", 4000))
	}
	if _, err := parsePolicy("p.yaml", dir, []byte(many.String()), &vocabulary.Store{}); err == nil || !strings.Contains(err.Error(), "pools[4].tokenizer: the policy's templates have") {
		t.Errorf("more templates than fit a frame: %v", err)
	}
	d, err := parsePolicy("p.yaml", dir, []byte(`pools: [{name: default, models: ['*'], tokenizer: {engine: vllm, file: good.wpv, template: {user: {prefix: "U:", suffix: "\n"}, assistant: {prefix: "A:", suffix: "\n"}, generation: "A:"}}}]`), &vocabulary.Store{})
	if err != nil {
		t.Fatal(err)
	}
	again, err := parsePolicy("shown", dir, d.shown, &vocabulary.Store{})
	if err != nil || !again.tokenizers["default"].same(d.tokenizers["default"]) {
		t.Errorf("what is shown can't be written back: %v\n%s", err, d.shown)
	}
}

func TestAChangedVocabularyFileIsTakenOverAndABadOneIsNot(t *testing.T) {
	dir := t.TempDir()
	path, hash := wpv(t, dir, "a.wpv", "el")
	bubble(t, func(t *testing.T) {
		b := start(t, newEngines(alpha), Config{Workers: specs(alpha), Policy: policyWith(path, ", exact_grace_ms: 0")})
		<-b.s.Ready()
		if err := b.s.SetMode("default", "observe"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, good[:len(good)-1], 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		if s := b.tokenizer(); s.Mode != "exact" || s.Serving != hash.String() || s.Vocabulary != hash.String() || !strings.Contains(s.FileProblem, "a.wpv: ") {
			t.Errorf("after a bad file: %+v", s)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		if s := b.tokenizer(); s.Serving != hash.String() || !strings.Contains(s.FileProblem, "no such file") {
			t.Errorf("after the file has gone: %+v", s)
		}
		_, next := wpv(t, dir, "a.wpv", "ll", "el")
		time.Sleep(20 * time.Second)
		if s := b.tokenizer(); s.Serving != next.String() || s.Vocabulary != next.String() || s.FileProblem != "" {
			t.Errorf("after a good file: %+v", s)
		}
		if !strings.Contains(string(b.s.Policy()), `"observe"`) {
			t.Error("the mode that was set at run time is gone")
		}
	})
}

func TestARestartOfControlDoesNotInterruptAnExactPool(t *testing.T) {
	dir := t.TempDir()
	path, hash := wpv(t, dir, "a.wpv", "el")
	tokenize := honest(t, path)
	bubble(t, func(t *testing.T) {
		e := newEngines(alpha)
		e.tokenize = tokenize
		cfg := Config{Workers: specs(alpha), Policy: policyWith(path, ""), StateFile: filepath.Join(dir, "state")}
		first := start(t, e, cfg)
		<-first.s.Ready()
		g := first.gateway("g")
		for range 4 {
			g.catchUp()
			g.report(hash, 1)
			time.Sleep(time.Second)
		}
		g.catchUp()
		if active, _ := g.exactEntries(); active != hash.String() {
			t.Fatal("not active")
		}
		first.stop()

		for name, c := range map[string]struct{ policy, want string }{
			"same":             {string(cfg.Policy), hash.String()},
			"another template": {strings.Replace(string(cfg.Policy), "chatml", "qwen3", 1), ""},
			"required parity":  {strings.Replace(string(cfg.Policy), "chatml", "chatml, parity: require", 1), ""},
		} {
			state, err := os.ReadFile(cfg.StateFile)
			if err != nil {
				t.Fatal(err)
			}
			next := cfg
			next.Policy, next.StateFile = []byte(c.policy), filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
			if err := os.WriteFile(next.StateFile, state, 0o600); err != nil {
				t.Fatal(err)
			}
			second := start(t, e, next)
			<-second.s.Ready()
			g := second.gateway("g")
			g.catchUp()
			if active, _ := g.exactEntries(); active != c.want {
				t.Errorf("%s: %q active at once, want %q", name, active, c.want)
			}
			second.stop()
		}
	})
}

func TestAPieceThatTheGatewayHasIsNotSentAgain(t *testing.T) {
	path, hash := wpv(t, t.TempDir(), "a.wpv", "el")
	s, err := New(Config{Listen: "127.0.0.1:0", Policy: policyWith(path, "")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ask := func(tag string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", "/v1/vocabulary/"+hash.String()+"?shard=0", nil)
		r.Header.Set("If-None-Match", tag)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		return w
	}
	first := ask("")
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if first.Code != http.StatusOK || !bytes.Equal(first.Body.Bytes(), file) || !strings.Contains(first.Header().Get("Cache-Control"), "immutable") {
		t.Errorf("%d, %d bytes, %v", first.Code, first.Body.Len(), first.Header())
	}
	if again := ask(first.Header().Get("ETag")); again.Code != http.StatusNotModified || again.Body.Len() != 0 {
		t.Errorf("%d, %d bytes", again.Code, again.Body.Len())
	}
}

func TestAStateFileFromBeforeExactPoolsIsRead(t *testing.T) {
	want := &state{saved: time.Unix(5, 0), off: true, exact: []exactMark{{"default", policy.Hash{7}, 9}}}
	b := appendState(nil, want, func(b []byte) []byte { return append(b, "snapshot"...) })
	got, err := decodeState(b)
	if err != nil || len(got.exact) != 1 || got.exact[0] != want.exact[0] || string(got.snapshot) != "snapshot" {
		t.Fatalf("%+v %v", got, err)
	}
	old := append([]byte(nil), b[:stateFixed]...)
	old[4] = 1
	old = append(old, "snapshot"...)
	old = binary.LittleEndian.AppendUint64(old, xxhash.Sum64(old))
	if got, err = decodeState(old); err != nil || got.exact != nil || !got.off || string(got.snapshot) != "snapshot" {
		t.Errorf("%+v %v", got, err)
	}
	for n := stateFixed; n < stateFixed+1+exactFixed+len("default"); n++ {
		cut := append([]byte(nil), b[:n]...)
		if _, err := decodeState(binary.LittleEndian.AppendUint64(cut, xxhash.Sum64(cut))); err == nil {
			t.Errorf("cut to %d bytes: no error", n)
		}
	}
}

func TestVocabulariesThatVMsHaveNoRoomForAreRefusedTogether(t *testing.T) {
	of := func(hash byte) *tokenizer {
		return &tokenizer{vocabulary: &vocabulary.Vocabulary{Vocabulary: policy.Vocabulary{Hash: policy.Hash{hash}, Bytes: 5 << 20}}}
	}
	if err := room("", map[string]*tokenizer{"a": of(1), "b": of(2), "c": of(1), "d": of(2)}); err != nil {
		t.Errorf("two that four pools share: %v", err)
	}
	if err := room("x", map[string]*tokenizer{"a": of(1), "b": of(2), "c": of(3)}); err == nil || !strings.Contains(err.Error(), "15728640 bytes") {
		t.Errorf("three: %v", err)
	}
}
