package dialect

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// checkAgainstStandard compares a body with encoding/json: validity, and the
// whole value rebuilt from nodes.
func checkAgainstStandard(t interface {
	Helper()
	Fatalf(string, ...any)
}, body []byte,
) {
	t.Helper()
	root, ok := valid(body)
	want := json.Valid(body)
	if depth := strings.Count(string(body), "[") + strings.Count(string(body), "{"); depth > 5000 {
		want = ok // encoding/json gives up at 10,000
	}
	if ok != want {
		t.Fatalf("valid %v, encoding/json says %v: %.200q", ok, want, body)
	}
	if !ok || !utf8.Valid(body) {
		return
	}
	var value any
	if json.Unmarshal(body, &value) != nil {
		return // a number out of range
	}
	got, err1 := json.Marshal(rebuild(root))
	exp, err2 := json.Marshal(value)
	if err1 != nil || err2 != nil || string(got) != string(exp) {
		t.Fatalf("%.200q reads as %s (%v), want %s", body, got, err1, exp)
	}
}

func rebuild(n node) any {
	switch n.kind() {
	case object:
		m := map[string]any{}
		n.fields(func(key string, v node) bool {
			m[key] = rebuild(v)
			return true
		})
		return m
	case list:
		l := []any{}
		n.items(func(v node) bool {
			l = append(l, rebuild(v))
			return true
		})
		return l
	case str:
		return n.text()
	case number:
		return n.float()
	case boolean:
		return n.isTrue()
	}
	return nil
}

var jsonCases = []string{
	`{}`, `[]`, ` [ ] `, `{"a":{"b":[1,2,{"c":null}]},"a":true}`, "\r\n\t {\"a\" : [ 1 , 2 ] } \n",
	`"\u00e9\ud83d\ude00\ud83d x\udc00\ud800\ud800\u0041"`, `"\"\\\/\b\f\n\r\t"`, `"abcdefg\"hijklmnop"`, `"1234567\\"`,
	`{"mod\u0065l":"x"}`, `-0.5e+10`, `01`, `1.`, `.5`, `-`, `1e`, `tru`, `nul`, `"c:\m"`, `"\u12g4"`, `"\u123`, `"`, `{`, `[1,]`,
	`{"a":1,}`, `{"a"}`, `{a:1}`, `[1}`, `{]`, "\"a\x01b\"", "\"12345678\x1f\"", `1 2`, ``, ` `, `[1 2]`, "\xef\xbb\xbf{}", `"é\ttab"`,
	`[[[[[[[[]]]]]]]]`, `[1,[2,[3,"]"]]]`, `{"":{"":""}}`, "\"a\x80b\"",
}

func TestJSONReadsAsTheStandardLibraryReadsIt(t *testing.T) {
	for _, c := range jsonCases {
		checkAgainstStandard(t, []byte(c))
	}
	rapid.Check(t, func(t *rapid.T) {
		// A random mutation of a case: mostly invalid, sometimes not.
		body := []byte(rapid.SampledFrom(jsonCases).Draw(t, "case"))
		for range rapid.IntRange(0, 3).Draw(t, "edits") {
			at := rapid.IntRange(0, len(body)).Draw(t, "at")
			c := rapid.SampledFrom([]byte(`{}[]",:\u0e-1tfn `)).Draw(t, "byte")
			body = append(body[:at], append([]byte{c}, body[at:]...)...)
		}
		checkAgainstStandard(t, body)
	})
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "text")
		quoted, err := json.Marshal(map[string]any{s: []any{s, s + "\x00\n\"" + s}})
		if err != nil {
			t.Fatal(err)
		}
		checkAgainstStandard(t, quoted)
	})
}

func FuzzJSON(f *testing.F) {
	for _, c := range jsonCases {
		f.Add([]byte(c))
	}
	f.Fuzz(func(t *testing.T, body []byte) { checkAgainstStandard(t, body) })
}

func FuzzParse(f *testing.F) {
	for _, c := range goodBodies {
		f.Add(uint8(c.endpoint), []byte(c.body))
	}
	var p Parser
	f.Fuzz(func(t *testing.T, endpoint uint8, body []byte) {
		r, err := p.Parse(Endpoint(endpoint%5), body)
		if (r == nil) == (err == nil) {
			t.Fatalf("request %v, error %v", r, err)
		}
		if err != nil && err.Status != 400 {
			t.Fatalf("status %d", err.Status)
		}
	})
}

func TestNestingAMillionDeepHarmsNothing(t *testing.T) {
	const depth = 1_000_000
	deep := strings.Repeat("[", depth) + strings.Repeat("]", depth)
	var p Parser
	r, err := p.Parse(Chat, []byte(`{"model":"m","metadata":`+deep+`,"messages":[{"role":"user","content":"x"}]}`))
	if err != nil || len(r.Prompts) != 1 {
		t.Errorf("%v %v", r, err)
	}
	if _, err := p.Parse(Chat, []byte(`{"messages":`+strings.Repeat(`[{"a":`, depth))); err == nil {
		t.Error("a body that breaks off was taken")
	}
	if _, err := p.Parse(Messages, []byte(`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":`+
		strings.Repeat(`[{"type":"tool_result","content":`, 100_000)+`"x"`+strings.Repeat(`}]`, 100_000)+`}]}`)); err == nil {
		t.Error("tool results nested 100,000 deep were taken")
	}
}
