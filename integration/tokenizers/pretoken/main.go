// Pretoken compares the pieces and normal forms that cases.py got from Hugging
// Face's tokenizers with those of tokenizer/pretoken and tokenizer/ucd. It reads
// cases from standard input, prints the first differences and one line per kind,
// and exits with 1 if there was a difference.
package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/warmpath/warmpath/tokenizer/pretoken"
	"github.com/warmpath/warmpath/tokenizer/ucd"
)

func main() { os.Exit(run(os.Stdin, os.Stdout, os.Stderr)) }

const shown = 10 // differences printed

type tally struct{ cases, bytes, pieces, different int }

func run(in io.Reader, out, errs io.Writer) int {
	kinds := map[string]pretoken.Kind{}
	for k := pretoken.GPT2; k.Known(); k++ {
		kinds[k.String()] = k
	}
	tallies := map[string]*tally{}
	different := 0
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), "\t")
		if len(fields) != 3 {
			fmt.Fprintf(errs, "a case has %d fields, want 3: is this the output of cases.py?\n", len(fields))
			return 1
		}
		text, err := hex.DecodeString(fields[1])
		if err != nil {
			fmt.Fprintf(errs, "decode the text of a case: %v\n", err)
			return 1
		}
		t := tallies[fields[0]]
		if t == nil {
			t = new(tally)
			tallies[fields[0]] = t
		}
		var got string
		if fields[0] == "nfc" {
			got = hex.EncodeToString(ucd.NFC(nil, text))
			if ucd.IsNFC(text) && got != fields[1] {
				got = "IsNFC is true, NFC is " + got
			}
		} else {
			kind, ok := kinds[fields[0]]
			if !ok {
				fmt.Fprintf(errs, "unknown kind %q in a case\n", fields[0])
				return 1
			}
			var n int
			got, n = ends(kind, text)
			t.pieces += n
		}
		t.cases++
		t.bytes += len(text)
		if got != fields[2] {
			t.different++
			if different++; different <= shown {
				fmt.Fprintf(out, "%s %+q\n  got  %s\n  want %s\n", fields[0], text, got, fields[2])
			}
		}
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintf(errs, "read cases: %v\n", err)
		return 1
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

func ends(kind pretoken.Kind, text []byte) (string, int) {
	var b []byte
	n := 0
	for at := 0; at < len(text); n++ {
		next := pretoken.Next(kind, text, at)
		if next <= at {
			return fmt.Sprintf("%s, then stuck at %d", b, at), n
		}
		at = next
		if n > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(at), 10)
	}
	return string(b), n
}
