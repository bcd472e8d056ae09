package httpfile

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestRequestsAreReadAsEditorsWriteThem(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "b.json"), []byte("{\n}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := ParseRequests(strings.Join([]string{
		"# a comment", "", "POST https://llm.example.com/v1/chat?x=1 HTTP/1.1\r", "Content-Type: application/json\r", "X-Twice: a", "x-twice: b", "",
		`{"a":`, "", `1}`, "", "", "### second one", "// comment", "PUT /b", "host: h", "", "< b.json", "###", "/only", "### trailers", "POST /t", "", "abc", "", "> x-sum: 1", "> x-n: 2", "", "### only a comment", "# nothing",
	}, "\n"), dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []Message{
		{
			Line: 3, Method: "POST", Target: "/v1/chat?x=1", Host: "llm.example.com", Body: []byte("{\"a\":\n\n1}"),
			Fields: []Field{{"Content-Type", "application/json"}, {"X-Twice", "a"}, {"x-twice", "b"}},
		},
		{Name: "second one", Line: 15, Method: "PUT", Target: "/b", Host: "h", Body: []byte("{\n}\n")},
		{Line: 20, Method: "GET", Target: "/only"},
		{Name: "trailers", Line: 22, Method: "POST", Target: "/t", Body: []byte("abc"), Trailers: []Field{{"x-sum", "1"}, {"x-n", "2"}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestResponsesHaveAStatus(t *testing.T) {
	got, err := ParseResponses("HTTP/1.1 200 OK\nx-a: b\n\nhello\n###\n503\n", "")
	if err != nil || len(got) != 2 || got[0].Status != 200 || string(got[0].Body) != "hello" || got[1].Status != 503 || got[1].Line != 6 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestErrorsNameTheLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "1: not a .http file: it holds no message",
		"\n\nPOST":                     "3: ",
		"post /":                       `"post /" is no request line`,
		"GET x":                        "begins neither",
		"GET /\nno field\n":            `2: not a .http file: "no field" is no field`,
		"GET /\n\n< missing.json":      "3: body: ",
		"GET /\n\nx\n> bad trailer":    "4: ",
		"### a\nGET /\n### b\nx y z\n": "4: ",
	} {
		if _, err := ParseRequests(text, t.TempDir()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
	for _, text := range []string{"HTTP/1.1", "HTTP/1.1 x", "600", "GET /"} {
		if _, err := ParseResponses(text, ""); !errors.Is(err, ErrFormat) {
			t.Errorf("%q: %v", text, err)
		}
	}
	path := filepath.Join(t.TempDir(), "r.http")
	if err := os.WriteFile(path, []byte("GET x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path, ParseRequests); err == nil || !strings.HasPrefix(err.Error(), path+":1: ") {
		t.Errorf("%v", err)
	}
	if _, err := Read(path+"x", ParseRequests); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// FuzzParse: any text is messages or an error that names a line of it.
func FuzzParse(f *testing.F) {
	f.Add("### a\nPOST /v1 HTTP/1.1\nHost: h\n\nbody\n> t: v\n###\nGET /\n")
	f.Add("HTTP/1.1 200 OK\n\n< /nowhere")
	f.Add("GET /\r\n:path: x\r\n\r\n")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "< ") { // the fuzzer must not read files
			return
		}
		for _, parse := range []func(string, string) ([]Message, error){ParseRequests, ParseResponses} {
			all, err := parse(text, dir)
			if err != nil {
				continue
			}
			for _, m := range all {
				if m.Line < 1 || m.Line > strings.Count(text, "\n")+1 || (m.Method == "") == (m.Status == 0) {
					t.Fatalf("%q: %+v", text, m)
				}
				for _, f := range append(m.Fields, m.Trailers...) {
					if f.Name == "" || strings.ContainsAny(f.Name, " \t\n") {
						t.Fatalf("%q: field %+v", text, f)
					}
				}
			}
		}
	})
}
