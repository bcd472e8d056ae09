// Command templates compares rendered prompts with the reference's: the
// published Jinja templates on what the engines hand them (reference.py).
//
//	python3 reference.py --packs DIR --count 400 | go run .
//
// A prompt must equal the reference's byte for byte, or, where ours stops, be
// its beginning. Requests that the engine refuses must stop.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"

	"github.com/warmpath/warmpath/shared/jsontext"
	"github.com/warmpath/warmpath/tokenizer/chat"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "templates:", err)
		os.Exit(1)
	}
}

// reference is one line of reference.py.
type reference struct {
	Family, Engine, Body string
	Endpoint             string
	Text                 *string
	Refused              string
	Prefill              string // tokenised apart from Text
	Apart                bool   // the engine tokenises pieces of the text apart
	Day                  int
}

type tally struct {
	requests, equal, prefix, refused, tooBold, wrong int
	stops                                            map[string]int
}

var endpoints = map[string]chat.Endpoint{"": chat.Chat, "chat": chat.Chat, "responses": chat.Responses, "messages": chat.Messages}

func run() error {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	tallies := map[string]*tally{}
	var doc jsontext.Doc
	var r chat.Renderer
	shown := 0
	for {
		line, err := in.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) == 0 {
			break
		}
		if err != nil {
			return fmt.Errorf("read the reference: %w", err)
		}
		var ref reference
		if err := json.Unmarshal(line, &ref); err != nil {
			return fmt.Errorf("read the reference: %w", err)
		}
		name := strings.TrimSpace(ref.Family + " " + ref.Engine + " " + ref.Endpoint)
		t := tallies[name]
		if t == nil {
			t = &tally{stops: map[string]int{}}
			tallies[name] = t
		}
		template, ok := chat.ByName(ref.Family, ref.Engine)
		if !ok {
			return fmt.Errorf("no template %s for %s", ref.Family, ref.Engine)
		}
		t.requests++
		if doc.Scan([]byte(ref.Body)) != jsontext.None {
			return fmt.Errorf("body is no JSON object: %.200s", ref.Body)
		}
		res := r.Render(template, chat.Request{Doc: &doc, Endpoint: endpoints[ref.Endpoint], Day: ref.Day, TakeBreaks: true}, 0)
		verdict := judge(t, &ref, &res)
		if verdict == "" {
			continue
		}
		if shown++; shown <= 5 {
			show(verdict, &ref, &res)
		}
	}
	return report(tallies)
}

// judge counts, and returns what is wrong.
func judge(t *tally, ref *reference, res *chat.Result) string {
	if res.Stopped != chat.Complete {
		t.stops[res.Stopped.String()]++
	}
	switch {
	case ref.Apart && res.Stopped == chat.Complete && len(res.Breaks) == 0:
		t.tooBold++
		return "rendered what the engine tokenises otherwise"
	case ref.Text == nil && res.Stopped == chat.Complete:
		t.tooBold++
		return "rendered what the engine refuses"
	case ref.Text == nil:
		t.refused++
	case res.Stopped == chat.Complete && string(res.Text) == *ref.Text+ref.Prefill && (ref.Prefill == "" || res.Breaks[0] == len(*ref.Text)):
		t.equal++
	case res.Stopped != chat.Complete && strings.HasPrefix(*ref.Text, string(res.Text)):
		t.prefix++
	default:
		t.wrong++
		return "differs"
	}
	return ""
}

func show(verdict string, ref *reference, res *chat.Result) {
	fmt.Printf("%s, %s %s\n  body %.800s\n", verdict, ref.Family, ref.Engine, ref.Body)
	if ref.Text == nil {
		fmt.Printf("  refused %s\n  ours ...%q\n", ref.Refused, res.Text[max(0, len(res.Text)-200):])
		return
	}
	want, got := *ref.Text, string(res.Text)
	n := 0
	for n < len(want) && n < len(got) && want[n] == got[n] {
		n++
	}
	from := max(0, n-80)
	fmt.Printf("  stopped %s, first difference at byte %d\n  reference ...%q\n  ours      ...%q\n", res.Stopped, n,
		want[from:min(len(want), n+80)], got[from:min(len(got), n+80)])
}

func report(tallies map[string]*tally) error {
	names := make([]string, 0, len(tallies))
	for name := range tallies {
		names = append(names, name)
	}
	sort.Strings(names)
	wrong := 0
	fmt.Printf("%-28s %9s %9s %9s %9s %9s %9s  %s\n", "template engine", "requests", "equal", "prefix", "refused", "too bold", "different", "stopped")
	for _, name := range names {
		t := tallies[name]
		fmt.Printf("%-28s %9d %9d %9d %9d %9d %9d  %v\n", name, t.requests, t.equal, t.prefix, t.refused, t.tooBold, t.wrong, t.stops)
		wrong += t.wrong + t.tooBold
	}
	if wrong > 0 {
		return fmt.Errorf("%d prompts differ from the reference", wrong)
	}
	return nil
}
