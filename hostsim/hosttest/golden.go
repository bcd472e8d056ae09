package hosttest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func init() {
	// gotest.tools/golden and others define the same flag with the same meaning.
	if flag.Lookup("update") == nil {
		flag.Bool("update", false, "rewrite the golden transcripts in testdata")
	}
}

// updating says whether -update is set (or HOSTTEST_UPDATE=1, for packages whose
// own flags are in the way).
func updating() bool {
	f := flag.Lookup("update")
	return f != nil && f.Value.String() == "true" || os.Getenv("HOSTTEST_UPDATE") == "1"
}

// Golden compares a transcript with testdata/<test name>.txt and fails at the
// first difference. `go test -update` writes the file anew; read it before you
// commit it.
func Golden(t T, transcript string) {
	t.Helper()
	path := filepath.Join("testdata", strings.NewReplacer("/", "_", " ", "_", ":", "_").Replace(t.Name())+".txt")
	golden(t, path, transcript, updating())
}

func golden(t T, path, got string, update bool) {
	t.Helper()
	if update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatalf("hosttest: %v", err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatalf("hosttest: write the transcript: %v", err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("hosttest: no transcript to compare with: %v (go test -update writes it)\n%s", err, got)
		return
	}
	if diff := firstDifference(string(want), got); diff != "" {
		t.Errorf("the transcript differs from %s (go test -update takes it over):\n%s", path, diff)
	}
}

// firstDifference shows the first lines that differ with what stands before.
func firstDifference(want, got string) string {
	if want == got {
		return ""
	}
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	at := 0
	for at < len(w) && at < len(g) && w[at] == g[at] {
		at++
	}
	var b strings.Builder
	for _, line := range w[max(at-5, 0):at] {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	for _, line := range w[at:min(at+5, len(w))] {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	for _, line := range g[at:min(at+5, len(g))] {
		fmt.Fprintf(&b, "+ %s\n", line)
	}
	return b.String()
}
