// Pretoken compares the pieces and normal forms that cases.py got from Hugging
// Face's tokenizers with those of tokenizer/pretoken and tokenizer/ucd. It reads
// cases from standard input, prints the first differences and one line per kind,
// and exits with 1 if there was a difference.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/warmpath/warmpath/tokenizer/pretoken"
	"github.com/warmpath/warmpath/tokenizer/ucd"
)

func main() { os.Exit(run(os.Stdin, os.Stdout, os.Stderr)) }

const shown = 10 // differences printed

// example is a line of cases.py.
type example struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
	Ends []int  `json:"ends"`
	Form string `json:"form"` // of kind "nfc"
}

type tally struct{ cases, bytes, pieces, different int }

func run(in io.Reader, out, errs io.Writer) int {
	kinds := map[string]pretoken.Kind{}
	for k := pretoken.GPT2; k.Known(); k++ {
		kinds[k.String()] = k
	}
	tallies := map[string]*tally{}
	different := 0
	for lines := json.NewDecoder(in); ; {
		var c example
		if err := lines.Decode(&c); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			fmt.Fprintf(errs, "read a case: %v; is this the output of cases.py?\n", err)
			return 1
		}
		t := tallies[c.Kind]
		if t == nil {
			t = new(tally)
			tallies[c.Kind] = t
		}
		t.cases++
		t.bytes += len(c.Text)
		got, want := "", ""
		if c.Kind == "nfc" {
			got, want = fmt.Sprintf("%+q", ucd.NFC(nil, []byte(c.Text))), fmt.Sprintf("%+q", c.Form)
			if ucd.IsNFC([]byte(c.Text)) && c.Text != c.Form {
				got = "IsNFC is true, NFC is " + got
			}
		} else {
			kind, ok := kinds[c.Kind]
			if !ok {
				fmt.Fprintf(errs, "unknown kind %q in a case\n", c.Kind)
				return 1
			}
			if found := ends(kind, []byte(c.Text)); !slices.Equal(found, c.Ends) {
				got, want = fmt.Sprint(found), fmt.Sprint(c.Ends)
			}
			t.pieces += len(c.Ends)
		}
		if got != want {
			t.different++
			if different++; different <= shown {
				fmt.Fprintf(out, "%s %+q\n  got  %s\n  want %s\n", c.Kind, c.Text, got, want)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(tallies)) {
		t := tallies[name]
		fmt.Fprintf(out, "%-12s %8d texts %9d bytes %9d pieces: %d different\n", name, t.cases, t.bytes, t.pieces, t.different)
	}
	if different > 0 || len(tallies) == 0 {
		return 1
	}
	return 0
}

// ends cuts text; a piece that ends where it begins is the last.
func ends(kind pretoken.Kind, text []byte) []int {
	found := []int{}
	for at, before := 0, -1; at < len(text) && at > before; {
		before, at = at, pretoken.Next(kind, text, at)
		found = append(found, at)
	}
	return found
}
