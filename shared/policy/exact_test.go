package policy

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	hashA = "00112233445566778899aabbccddeeff"
	hashB = "ffeeddccbbaa99887766554433221100"
)

func pools(t testing.TB) *Set {
	t.Helper()
	s, err := Parse([]byte(`{"pools":[{"name":"chat","models":["a"]},{"name":"code","models":["b"]},{"name":"rest","models":["*"]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func exactText(pool, vocab string, more string) string {
	return `{"pool":"` + pool + `","vocab":"` + vocab + `","bytes":1000,"template":"qwen3","engine":"vllm"` + more + `}`
}

func TestExactIsFoundByPoolAndVocabulariesAreListedOnce(t *testing.T) {
	s := pools(t)
	text := `[` + exactText("chat", hashA, `,"active":true`) + `,` + exactText("gone", hashB, "") + `,
		{"pool":"code","vocab":"` + hashA + `","bytes":1000,"template":{"user": {"prefix":"<u>"}},"engine":"sglang","active":false}]`
	if err := ParseExact([]byte(text), s); err != nil {
		t.Fatal(err)
	}
	a, _ := ParseHash(hashA)
	b, _ := ParseHash(hashB)
	va := Vocabulary{a, 1000}
	want := []*Exact{{va, "qwen3", "vllm", true}, {va, `{"user": {"prefix":"<u>"}}`, "sglang", false}, nil}
	for i := range s.Pools {
		if diff := cmp.Diff(want[i], s.Pools[i].Exact); diff != "" {
			t.Errorf("pool %s: %s", s.Pools[i].Name, diff)
		}
	}
	if diff := cmp.Diff([]Vocabulary{va, {b, 1000}}, s.Vocabularies); diff != "" {
		t.Error(diff)
	}
	if a.String() != hashA {
		t.Errorf("%v", a)
	}
}

func TestWhatIsInForceStaysWhileItsSuccessorLoads(t *testing.T) {
	first, next := exactText("chat", hashA, `,"active":true`), exactText("chat", hashB, `,"active":false`)
	for _, text := range []string{first + "," + next, next + "," + first} {
		s := pools(t)
		if err := ParseExact([]byte("["+text+"]"), s); err != nil {
			t.Fatal(err)
		}
		if e := s.Pools[0].Exact; e.Vocabulary.Hash.String() != hashA || !e.Active || len(s.Vocabularies) != 2 {
			t.Errorf("%+v %v", e, s.Vocabularies)
		}
	}
}

func TestAnExactSectionThatIsNotUnderstoodChangesNothing(t *testing.T) {
	good := exactText("chat", hashA, `,"active":true`)
	large := strings.Replace(good, `"bytes":1000`, `"bytes":12582912`, 1)
	for text, want := range map[string]string{
		`{}`:                              "exact: not an array",
		`[`:                               "exact: not valid JSON",
		`[` + good + `,1]`:                "exact[1]: not an object",
		`[` + good + `,{}]`:               "exact[1].pool: missing",
		`[{"pool":"chat"}]`:               "exact[0].vocab: missing",
		`[{"pool":1}]`:                    "exact[0].pool: not a string",
		`[{"vocab":"` + hashA[1:] + `"}]`: "exact[0].vocab: not the hash",
		`[{"vocab":"` + strings.ToUpper(hashA) + `"}]`:                                            "exact[0].vocab: not the hash",
		`[` + strings.Replace(good, "1000", "0", 1) + `]`:                                         "exact[0].bytes: out of range",
		`[` + strings.Replace(good, "1000", "12582913", 1) + `]`:                                  "exact[0].bytes: out of range",
		`[` + strings.Replace(good, `"qwen3"`, `{"a":"`+strings.Repeat("x", 8<<10)+`"}`, 1) + `]`: "exact[0].template: empty, or longer",
		`[` + strings.Replace(good, `true`, `1`, 1) + `]`:                                         "exact[0].active: not a boolean",
		`[` + strings.Replace(good, `"active"`, `"shards":3,"active"`, 1) + `]`:                   "exact[0].shards: unknown key",
		`[` + good + `,` + strings.Replace(good, "1000", "1001", 1) + `]`:                         "exact[1].bytes: another size",
		`[` + large + `,` + exactText("code", hashB, "") + `]`:                                    "exact[1].bytes: the vocabularies are larger",
		`[[[[[[[[[[` + `]]]]]]]]]]`:                                                               "nested deeper",
	} {
		s := pools(t)
		if err := ParseExact([]byte(`[`+exactText("rest", hashB, "")+`]`), s); err != nil {
			t.Fatal(err)
		}
		before := *s
		before.Pools = slices.Clone(s.Pools)
		err := ParseExact([]byte(text), s)
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want) || e.Remedy == "" {
			t.Errorf("%.60s: %v, want %q with a remedy", text, err, want)
		}
		if diff := cmp.Diff(&before, s); diff != "" {
			t.Errorf("%.60s: %s", text, diff)
		}
	}
}

func TestNoExactSectionNamesNothing(t *testing.T) {
	s := pools(t)
	if err := ParseExact(nil, s); err != nil || s.Vocabularies != nil || s.Pools[0].Exact != nil {
		t.Errorf("%v %+v", err, s)
	}
	if err := ParseExact([]byte(`[`+exactText("chat", hashA, "")+`]`), s); err != nil {
		t.Fatal(err)
	}
	if err := ParseExact([]byte(`[]`), s); err != nil || s.Vocabularies != nil || s.Pools[0].Exact != nil {
		t.Errorf("an empty list left %+v, %v", s, err)
	}
}

func FuzzExact(f *testing.F) {
	f.Add([]byte(`[` + exactText("chat", hashA, `,"active":true`) + `,` + exactText("code", hashB, "") + `]`))
	f.Add([]byte(`[{"pool":"code","template":{"user":{}}}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s := pools(t)
		if err := ParseExact(text, s); err != nil {
			return
		}
		total := 0
		for _, v := range s.Vocabularies {
			total += v.Bytes
		}
		if total > MaxVocabularyBytes || len(s.Vocabularies) > MaxVocabularies {
			t.Fatalf("%d bytes in %d vocabularies", total, len(s.Vocabularies))
		}
		for _, p := range s.Pools {
			if p.Exact == nil {
				continue
			}
			known := false
			for _, v := range s.Vocabularies {
				known = known || v == p.Exact.Vocabulary
			}
			if !known || p.Exact.Template == "" || p.Exact.Engine == "" {
				t.Fatalf("%+v", p.Exact)
			}
		}
	})
}
