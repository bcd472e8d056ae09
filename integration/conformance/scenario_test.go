package conformance

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const story = `# Who stops, waits.

> plugin p
  request_headers: pause

# The client begins.
> client headers end
  x-a: 1
on_request_headers(2, 6 headers, end)
-> upstream {:method: GET} end
`

func TestAScenarioIsReadAsItIsWritten(t *testing.T) {
	s, err := Parse("who", story)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Format(); got != story {
		t.Errorf("written again:\n%s", got)
	}
	last := s.Steps[1]
	if last.Line != 7 || last.Command != "client headers end" || !slices.Equal(last.Input, []string{"x-a: 1"}) || len(last.Want) != 2 || len(last.Comment) != 1 {
		t.Errorf("the last step is %+v", last)
	}
}

func TestCommittedScenariosAreInTheirCanonicalForm(t *testing.T) {
	for _, s := range scenarios(t) {
		text, err := os.ReadFile(filepath.Join("testdata", s.Name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		if s.Format() != string(text) {
			t.Errorf("%s.txt is not as Format writes it", s.Name)
		}
		empty := 0
		for _, st := range s.Steps {
			if st.Want == nil {
				empty++
			}
		}
		if empty == len(s.Steps) {
			t.Errorf("%s.txt has no transcript; run: make conformance CONFORMANCE=-rewrite", s.Name)
		}
	}
}

func TestTextThatIsNoScenarioIsRefusedWithItsLine(t *testing.T) {
	for _, c := range []struct{ text, says string }{
		{"", "no claim"},
		{"# Claim.\n", "comment after the last step"},
		{"# Claim.\n\n", "no step"},
		{"> start\n", "no claim"},
		{"# Claim.\n\nlost\n", "line 3: text outside"},
		{"# Claim.\n\n> start\n> start\n", "line 4: a command inside"},
		{"# Claim.\n\n> start\n# why\n", "line 4: a comment inside"},
		{"# Claim.\n\n> start\nseen\n  late input\n", "line 5: a transcript line"},
		{"# Claim.\n\n> start \n", "line 3: control characters or blanks"},
		{"# Claim.\n\n> start\n\n# over\n", "comment after the last step"},
	} {
		_, err := Parse("x", c.text)
		if !errors.Is(err, ErrSyntax) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("Parse(%q): %v, want one that says %q", c.text, err, c.says)
		}
	}
}

func TestCommandsSayWhatIsWrongWithThem(t *testing.T) {
	for _, c := range []struct{ command, says string }{
		{"client", "does what"},
		{"client a flies", "no such verb"},
		{"client response", "no response to give"},
		{"upstream headers", "begins with response"},
		{"client data", "which"},
		{"client data -1", "neither"},
		{"client data 9000000", "neither"},
		{`client data "abc" twice`, "left over"},
		{`client data "abc`, "without an end"},
	} {
		words, err := splitWords(c.command)
		if err == nil {
			_, _, err = parseAction(words, nil)
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want an error that says %q", c.command, err, c.says)
		}
	}
	if _, err := parsePlugin("p", "s", []string{"request_header: pause"}); err == nil {
		t.Error("a misspelt callback is accepted")
	}
	if _, err := parsePlugin("p", "s", []string{"failure_policy: FAIL_OFTEN"}); err == nil {
		t.Error("an unknown failure policy is accepted")
	}
	if err := parseListener(&Setup{}, []string{"protocol: HTTP/3"}); err == nil {
		t.Error("an unknown protocol is accepted")
	}
}

func TestKnownDifferencesAreTiedToAMinorRelease(t *testing.T) {
	s, err := Parse("x", "# Claim.\n# Envoy 1.36, 1.37: it hangs.\n\n> start\n")
	if err != nil {
		t.Fatal(err)
	}
	for release, why := range map[string]string{"1.36.2": "it hangs.", "1.37.0": "it hangs.", "1.3.0": "", "1.40.0": ""} {
		if got := s.Differs(release); got != why {
			t.Errorf("Differs(%s) = %q, want %q", release, got, why)
		}
	}
}

func TestADifferenceIsShownLineByLine(t *testing.T) {
	want, err := Parse("x", story)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse("x", strings.Replace(story, "6 headers", "7 headers", 1))
	if err != nil {
		t.Fatal(err)
	}
	if d := diff(want, want); d != "" {
		t.Errorf("the same differs:\n%s", d)
	}
	shown := `x.txt, line 7: > client headers end
  - on_request_headers(2, 6 headers, end)
  + on_request_headers(2, 7 headers, end)
    -> upstream {:method: GET} end
`
	if d := diff(want, got); d != shown {
		t.Errorf("shown:\n%swant:\n%s", d, shown)
	}
}

// FuzzParse holds that whatever is accepted is written and read again as the
// same, and that no command of it makes the parser panic.
func FuzzParse(f *testing.F) {
	for _, s := range scenarios(f) {
		f.Add(s.Format())
	}
	f.Add(story)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse("x", text)
		if err != nil {
			if !errors.Is(err, ErrSyntax) {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		once := s.Format()
		again, err := Parse("x", once)
		if err != nil {
			t.Fatalf("written, it is refused: %v\n%s", err, once)
		}
		if twice := again.Format(); twice != once {
			t.Fatalf("written twice it differs:\n%s\n---\n%s", once, twice)
		}
		for _, st := range s.Steps {
			words, err := splitWords(st.Command)
			if err != nil {
				continue
			}
			switch words[0] {
			case "listener":
				_ = parseListener(&Setup{}, st.Input)
			case "plugin":
				_, _ = parsePlugin("p", "x", st.Input)
			case client, upstream, control:
				_, _, _ = parseAction(words, st.Input)
			}
		}
	})
}
