package conformance

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Scenario is one story: what a proxy with a scripted filter is put through,
// step by step, and all that it does.
type Scenario struct {
	Name  string   // of its file: the claim in short
	Claim []string // the comment at the top of the file, a line each
	Steps []Step
}

// Step is one thing that is done and what follows from it.
type Step struct {
	Line    int      // in the file, from 1
	Comment []string // lines before the step, without the mark
	Command string   // after the mark
	Input   []string // indented lines below the command
	Want    []string // what follows, a line each
}

// The grammar of a file, line by line: an empty line ends a step (or the claim),
// "# " is a comment, "> " a command, two blanks an input line of the command
// before, anything else a line of the expected transcript.
const (
	commentMark = "#"
	commandMark = "> "
	inputMark   = "  "
)

// ErrSyntax marks text that is no scenario.
var ErrSyntax = errors.New("not a scenario")

// Parse reads a scenario file.
func Parse(name, text string) (*Scenario, error) {
	s := &Scenario{Name: name}
	var comment []string
	open := false // a step takes input and transcript lines
	seen := false // a transcript line of it has been read
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		refuse := func(why string) error {
			return fmt.Errorf("%s, line %d: %s: %w", name, i+1, why, ErrSyntax)
		}
		if strings.ContainsAny(line, "\r\x00") || strings.TrimRight(line, " \t") != line {
			return nil, refuse("control characters or blanks at the end of the line")
		}
		switch {
		case line == "":
			if open = false; len(s.Steps) == 0 && s.Claim == nil {
				s.Claim, comment = comment, nil
			}
		case strings.HasPrefix(line, commentMark):
			if open {
				return nil, refuse("a comment inside a step (leave an empty line before it)")
			}
			comment = append(comment, strings.TrimPrefix(line[1:], " "))
		case strings.HasPrefix(line, commandMark):
			if open {
				return nil, refuse("a command inside a step (leave an empty line before it)")
			}
			s.Steps = append(s.Steps, Step{Line: i + 1, Comment: comment, Command: line[len(commandMark):]})
			comment, open, seen = nil, true, false
		case !open:
			return nil, refuse("text outside of a step")
		case strings.HasPrefix(line, inputMark) && !seen:
			st := &s.Steps[len(s.Steps)-1]
			st.Input = append(st.Input, line[len(inputMark):])
		case line[0] == ' ', line[0] == '>':
			return nil, refuse("a transcript line cannot begin with a blank or >")
		default:
			st := &s.Steps[len(s.Steps)-1]
			st.Want, seen = append(st.Want, line), true
		}
	}
	if comment != nil {
		return nil, fmt.Errorf("%s: a comment after the last step: %w", name, ErrSyntax)
	}
	if len(s.Claim) == 0 {
		return nil, fmt.Errorf("%s: no claim: begin with comment lines and an empty line: %w", name, ErrSyntax)
	}
	if len(s.Steps) == 0 {
		return nil, fmt.Errorf("%s: no step: %w", name, ErrSyntax)
	}
	return s, nil
}

// Format is the file of a scenario: Parse's inverse.
func (s *Scenario) Format() string {
	var b strings.Builder
	write := func(mark string, lines []string) {
		for _, line := range lines {
			b.WriteString(strings.TrimRight(mark+line, " ") + "\n")
		}
	}
	write(commentMark+" ", s.Claim)
	for _, st := range s.Steps {
		b.WriteString("\n")
		write(commentMark+" ", st.Comment)
		write(commandMark, []string{st.Command})
		write(inputMark, st.Input)
		write("", st.Want)
	}
	return b.String()
}

// Differs returns the reason why a release of Envoy is known to answer
// otherwise, from a claim line such as "Envoy 1.36: the queue is ...". release
// is "1.36.2". Empty: no difference is known.
func (s *Scenario) Differs(release string) string {
	minor := release[:strings.LastIndex(release, ".")]
	for _, line := range s.Claim {
		if which, why, ok := strings.Cut(line, ": "); ok {
			which, ok = strings.CutPrefix(which, "Envoy ")
			if ok && slices.Contains(strings.Split(which, ", "), minor) {
				return why
			}
		}
	}
	return ""
}

// Load reads every scenario of a folder, in the order of their names.
func Load(files fs.FS) ([]*Scenario, error) {
	names, err := fs.Glob(files, "*.txt")
	if err != nil {
		return nil, err
	}
	var all []*Scenario
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("read scenario: %w", err)
		}
		s, err := Parse(strings.TrimSuffix(path.Base(name), ".txt"), string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}
