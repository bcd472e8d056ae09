package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheInstalledGoCanBePatched(t *testing.T) {
	dir := t.TempDir()
	var stdout, stderr bytes.Buffer
	if code := run([]string{"-dir", dir}, &stdout, &stderr); code != 0 {
		t.Fatalf("exit %d: %s", code, &stderr)
	}
	data, err := os.ReadFile(filepath.Join(dir, "overlay.json"))
	if err != nil {
		t.Fatal(err)
	}
	var overlay struct{ Replace map[string]string }
	if err := json.Unmarshal(data, &overlay); err != nil || len(overlay.Replace) != 2 {
		t.Fatalf("overlay %s: %v", data, err)
	}
	for original, file := range overlay.Replace {
		if _, err := os.Stat(original); err != nil {
			t.Errorf("replaces a file that Go lacks: %v", err)
		}
		patched, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, gone := range []string{"wasmimport wasi_snapshot_preview1 poll_oneoff", "bisect"} {
			if strings.Contains(string(patched), gone) {
				t.Errorf("%s: %q is still there", original, gone)
			}
		}
	}
}

func TestAnotherDeclarationIsRefused(t *testing.T) {
	if _, err := patch("package runtime\n"); err == nil {
		t.Fatal("a runtime without the declaration was accepted")
	}
}

func TestTheModuleIsBuiltWithoutEncodingJSON(t *testing.T) {
	dir := t.TempDir()
	var stdout, stderr bytes.Buffer
	if code := run([]string{"-dir", dir}, &stdout, &stderr); code != 0 {
		t.Fatalf("exit %d: %s", code, &stderr)
	}
	list := exec.Command("go", "list", "-deps", "-modfile", filepath.Join(dir, "go.mod"), "../../filter")
	list.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	deps, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for dep := range strings.FieldsSeq(string(deps)) {
		switch dep {
		case "encoding/json", "net/http", "regexp", "text/template":
			t.Errorf("the module imports %s", dep)
		}
	}
}
