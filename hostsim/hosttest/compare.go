package hosttest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// CompareFile compares a transcript with a file and fails at the first
// difference; with update it writes the file instead. Package hosttest/golden has
// the flag -update and the file's name for it; this is for packages with a flag
// of their own.
func CompareFile(t T, path, got string, update bool) {
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
		t.Fatalf("hosttest: no transcript to compare with: %v (-update writes it)\n%s", err, got)
		return
	}
	if diff := firstDifference(string(want), got); diff != "" {
		t.Errorf("the transcript differs from %s (-update takes it over):\n%s", path, diff)
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
