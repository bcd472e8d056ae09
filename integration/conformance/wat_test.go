package conformance

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAssembledModulesAreThoseOfTheirText: testdata/wat.sum ties each .wat to
// the .wasm that was made of it, so that neither changes alone; where wat2wasm
// (wabt) is installed the text is assembled again.
func TestAssembledModulesAreThoseOfTheirText(t *testing.T) {
	sums, err := os.ReadFile("testdata/wat.sum")
	if err != nil {
		t.Fatal(err)
	}
	texts, err := filepath.Glob("testdata/*.wat")
	if err != nil || len(texts) == 0 {
		t.Fatalf("no .wat in testdata: %v", err)
	}
	for _, text := range texts {
		wat, err := os.ReadFile(text)
		if err != nil {
			t.Fatal(err)
		}
		wasm, err := os.ReadFile(strings.TrimSuffix(text, "t") + "sm")
		if err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("%s %x %x\n", filepath.Base(text), sha256.Sum256(wat), sha256.Sum256(wasm))
		if !bytes.Contains(sums, []byte(line)) {
			t.Errorf("%s and its .wasm are not a pair of wat.sum: assemble it (wat2wasm), then write there\n%s", text, line)
		}
		tool, err := exec.LookPath("wat2wasm")
		if err != nil {
			continue
		}
		fresh := filepath.Join(t.TempDir(), "fresh.wasm")
		if out, err := exec.Command(tool, text, "-o", fresh).CombinedOutput(); err != nil {
			t.Fatalf("wat2wasm %s: %v\n%s", text, err, out)
		}
		if again, err := os.ReadFile(fresh); err != nil || !bytes.Equal(again, wasm) {
			t.Errorf("%s assembles to other bytes than the committed ones (%v)", text, err)
		}
	}
}

// TestEveryScenarioIsListed: docs/conformance.md has each by name, and no other.
func TestEveryScenarioIsListed(t *testing.T) {
	doc, err := os.ReadFile("../../docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, ok := strings.Cut(string(doc), "\n## Scenarios\n")
	if !ok {
		t.Fatal("docs/conformance.md has no section Scenarios")
	}
	listed := map[string]bool{}
	for line := range strings.Lines(list) {
		if name, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " |"); ok && !strings.HasPrefix(line, "|---") {
			listed[name] = true
		}
	}
	delete(listed, "scenario")
	for _, sc := range scenarios(t) {
		name := strings.ReplaceAll(sc.Name, "_", " ")
		if !listed[name] {
			t.Errorf("docs/conformance.md does not list %q (make conformance CONFORMANCE='-table FILE' writes the list)", name)
		}
		delete(listed, name)
	}
	for name := range listed {
		t.Errorf("docs/conformance.md lists %q, which is no scenario", name)
	}
}
