package jsontext

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

func scan(t testing.TB, text string) *Doc {
	t.Helper()
	d := new(Doc)
	if fault := d.Scan([]byte(text)); fault != None {
		t.Fatalf("fault %d in %.60q", fault, text)
	}
	return d
}

// tree rebuilds the value at i by walking, in the form that encoding/json
// decodes into.
func tree(w *Walker, i int) (any, int) {
	b := w.doc.text
	next := w.Skip(i)
	switch b[i] {
	case '{':
		object := map[string]any{}
		at := i + 1
		for {
			m, ok := w.Member(at)
			if !ok {
				return object, next
			}
			name := string(m.Name)
			object[name], at = tree(w, m.Value)
		}
	case '[':
		list := []any{}
		at := i + 1
		for {
			e, ok := w.Element(at)
			if !ok {
				return list, next
			}
			var v any
			v, at = tree(w, e)
			list = append(list, v)
		}
	case '"':
		end, _ := w.StringEnd(i + 1)
		return string(AppendDecoded(nil, b[i+1:end])), next
	}
	return json.Number(b[i:next]), next
}

func plain(text []byte) any {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return err
	}
	return literals(v)
}

// literals makes true, false and null into what tree makes of them.
func literals(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = literals(v[k])
		}
	case []any:
		for i := range v {
			v[i] = literals(v[i])
		}
	case bool:
		return json.Number(strconv.FormatBool(v))
	case nil:
		return json.Number("null")
	}
	return v
}

var texts = []string{
	`{}`, ` { } `, "{\"a\":1}\r\n",
	`{"a":[],"b":[[],{}],"c":{"d":null,"e":[1,2.5e-7,-0,true,false]}}`,
	`{ "a" : "x" , "\u0061b" : [ "\ud83d\udea2" , "\\\"" , "` + strings.Repeat("long ", 40) + `\n" ] }`,
	`{"` + strings.Repeat("k", 90) + `":"` + strings.Repeat("é", 90) + `"}`,
}

func TestWalkingFindsWhatEncodingJSONFinds(t *testing.T) {
	for _, text := range texts {
		d := scan(t, text)
		var w Walker
		w.Reset(d)
		got, _ := tree(&w, SkipSpace(d.text, 0))
		if want := plain([]byte(text)); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s\ngot  %v\nwant %v", text, got, want)
		}
	}
}

func TestTopsAreAllMembersInOrderHoweverMany(t *testing.T) {
	for _, count := range []int{0, 1, maxTops - 1, maxTops, maxTops + 1, 3 * maxTops} {
		text := "{"
		for i := range count {
			if i > 0 {
				text += " , "
			}
			text += fmt.Sprintf(`"\u006e%d" : [%d, "%s"]`, i, i, strings.Repeat("x", i))
		}
		d := scan(t, text+" }")
		n := 0
		for m := d.Tops(); m.Next(); n++ {
			name, value := fmt.Sprint("n", n), fmt.Sprintf(`[%d, "%s"]`, n, strings.Repeat("x", n))
			if string(m.Name) != name || string(d.text[m.Value:m.End]) != value {
				t.Fatalf("member %d of %d: %s = %s", n, count, m.Name, d.text[m.Value:m.End])
			}
		}
		if n != count {
			t.Errorf("%d members of %d", n, count)
		}
	}
}

func TestAFaultLeavesNothing(t *testing.T) {
	d := scan(t, texts[3])
	for text, want := range map[string]Fault{
		`{"a":1`: Invalid, `{"a":1}x`: Invalid, "": Invalid, `{"a":nul}`: Invalid, `[1]`: NotObject, `"a"`: NotObject,
		`{"a":` + strings.Repeat("[", MaxDepth): TooDeep,
	} {
		if got := d.Scan([]byte(text)); got != want || d.Text() != nil {
			t.Errorf("%.20q: fault %d, want %d; text %.20q", text, got, want, d.Text())
		}
		for m := d.Tops(); m.Next(); {
			t.Errorf("%.20q: member %s is left", text, m.Name)
		}
	}
}

func TestOnlyUnicodeTextIsTaken(t *testing.T) {
	for s, want := range map[string]bool{
		``: true, `a\nb`: true, `\ud83d\udea2`: true, `\\ud83d`: true, `\u00e9\ud83d\udea2x`: true, `\ufffd`: true, "\ufffd": true,
		`\ud83d`: false, `\udea2`: false, `\udea2\ud83d`: false, `\ud83d\ud83d\udea2`: false, `x\ud83d\n`: false, `\ud83dabcdefgh`: false,
		`\ud83d\u0041`: false, `\ud83d\udea2\udea2`: false,
		"é港🚢": true, "\xe6\xb8": false, "\xff": false, "\xed\xa0\x80": false, "long enough for words of eight \xc0\xaf": false,
	} {
		got, ok := AppendText([]byte("before "), []byte(s))
		if ok != want {
			t.Errorf("%q: %v", s, ok)
		}
		if !ok && string(got) != "before " {
			t.Errorf("%q left %q", s, got)
		}
	}
}

func TestTextIsWhatEncodingJSONDecodes(t *testing.T) {
	pieces := []string{`\n`, `\"`, `\\`, `\u00e9`, `\ud83d\udea2`, `\ud83d`, `\udea2`, `\u005c`, "é", "港", "🚢", "\xff", "\xe6\xb8", "a", "word ", "eight by", "\ufffd"}
	rng := rand.New(rand.NewPCG(3, 4))
	taken := 0
	for range 50_000 {
		s := ""
		for range rng.IntN(12) {
			s += pieces[rng.IntN(len(pieces))]
			if n := rng.IntN(30); n < 10 {
				s += strings.Repeat("x", n)
			}
		}
		var decoded string
		if err := json.Unmarshal([]byte(`"`+s+`"`), &decoded); err != nil {
			t.Fatal(err)
		}
		// What encoding/json puts in the place of what is no text.
		fault := strings.Count(decoded, "\ufffd") > strings.Count(s, "\ufffd")
		got, ok := AppendText(nil, []byte(s))
		if ok == fault || ok && string(got) != decoded {
			t.Fatalf("%q is %q (%v), want %q", s, got, ok, decoded)
		}
		if plain := !strings.Contains(s, `\`); plain && IsText([]byte(s)) == fault {
			t.Fatalf("%q is text: %v", s, fault)
		}
		if ok {
			taken++
		}
	}
	if taken < 5000 || taken > 45_000 {
		t.Errorf("%d were taken", taken)
	}
}

func TestNothingIsAllocated(t *testing.T) {
	text, d, w := []byte(texts[4]), new(Doc), new(Walker)
	if n := testing.AllocsPerRun(100, func() {
		d.Scan(text)
		w.Reset(d)
		for m := d.Tops(); m.Next(); {
			w.Skip(m.Value)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzScan(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d := new(Doc)
		fault := d.Scan(text)
		if valid := json.Valid(text) && bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")); valid != (fault == None) {
			t.Fatalf("fault %d, encoding/json says %v", fault, valid)
		}
		if fault != None {
			return
		}
		for m := d.Tops(); m.Next(); {
			if !json.Valid(text[m.Value:m.End]) {
				t.Fatalf("member %q is %q", m.Name, text[m.Value:m.End])
			}
		}
	})
}
