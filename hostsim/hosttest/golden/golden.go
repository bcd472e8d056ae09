// Package golden compares transcripts of hosttest with files in testdata, and
// writes them anew under the flag -update, which it defines:
//
//	golden.Compare(t, f.Transcript())
//
// A package whose tests have a flag -update of their own uses
// hosttest.CompareFile instead.
package golden

import (
	"flag"
	"path/filepath"
	"strings"

	"github.com/warmpath/warmpath/hostsim/hosttest"
)

func init() {
	// gotest.tools/golden and others define the same flag with the same meaning.
	if flag.Lookup("update") == nil {
		flag.Bool("update", false, "rewrite the golden transcripts in testdata")
	}
}

// Compare compares a transcript with testdata/<test name>.txt and fails at the
// first difference. `go test -update` writes the file anew; read it before you
// commit it.
func Compare(t hosttest.T, transcript string) {
	t.Helper()
	name := strings.NewReplacer("/", "_", " ", "_", ":", "_").Replace(t.Name())
	update := flag.Lookup("update").Value.String() == "true"
	hosttest.CompareFile(t, filepath.Join("testdata", name+".txt"), transcript, update)
}
