package golden

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// named is a test of another name in a folder of its own.
type named struct {
	*testing.T
	failures []string
}

func (n *named) Name() string { return "TestA/b c" }

func (n *named) Errorf(format string, args ...any) { n.failures = append(n.failures, format) }

func TestTheFlagWritesTheTranscriptOfTheTest(t *testing.T) {
	t.Chdir(t.TempDir())
	n := &named{T: t}
	was := flag.Lookup("update").Value.String()
	t.Cleanup(func() { _ = flag.Set("update", was) })
	if err := flag.Set("update", "true"); err != nil {
		t.Fatal(err)
	}
	Compare(n, "one\n")
	if b, err := os.ReadFile(filepath.Join("testdata", "TestA_b_c.txt")); err != nil || string(b) != "one\n" {
		t.Errorf("%q, %v", b, err)
	}
	if err := flag.Set("update", "false"); err != nil {
		t.Fatal(err)
	}
	Compare(n, "one\n")
	if len(n.failures) != 0 {
		t.Errorf("%q", n.failures)
	}
	Compare(n, "two\n")
	if len(n.failures) != 1 || !strings.Contains(n.failures[0], "differs from") {
		t.Errorf("%q", n.failures)
	}
}
