package wasmbin

import (
	"errors"
	"strings"
	"testing"
)

func section(id byte, contents ...byte) []byte {
	return append([]byte{id, byte(len(contents))}, contents...)
}

func small() []byte {
	b := []byte(header)
	b = append(b, section(2, 1, 3, 'e', 'n', 'v', 1, 'f', 0, 0)...)
	b = append(b, section(3, 2, 0, 0)...)
	b = append(b, section(5, 1, 0, 2)...)
	b = append(b, section(7, 2, 1, 'm', 2, 0, 1, 'g', 0, 1)...)
	b = append(b, section(10, 0)...)
	b = append(b, section(11, 2, 0, 0x41, 4, 0x0b, 2, 'a', 'b', 0, 0x41, 0xc0, 0, 0x0b, 1, 'z')...)
	return append(b, section(0, 4, 'n', 'a', 'm', 'e', 0, 2, 1, 'M', 1, 6, 1, 2, 3, 'm', '.', 'h')...)
}

func TestSectionsAreRead(t *testing.T) {
	f, err := Parse(small())
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Imports) != 1 || f.Imports[0] != (Import{"env", "f", Function}) || f.ImportedFunctions != 1 || f.Functions != 2 {
		t.Errorf("imports %v, %d imported and %d own functions", f.Imports, f.ImportedFunctions, f.Functions)
	}
	if len(f.Exports) != 2 || f.Exports[1] != (Export{"g", Function, 1}) || f.MinPages != 2 {
		t.Errorf("exports %v, %d pages", f.Exports, f.MinPages)
	}
	if f.ModuleName != "M" || f.Names[2] != "m.h" {
		t.Errorf("names %q %v", f.ModuleName, f.Names)
	}
	image := f.Image()
	if len(image) != 65 || string(image[4:6]) != "ab" || image[64] != 'z' || image[0] != 0 {
		t.Errorf("image %q", image)
	}
}

func TestEveryTruncationIsAnErrorOrAShorterModule(t *testing.T) {
	whole := small()
	for n := range len(whole) {
		f, err := Parse(whole[:n])
		if err == nil {
			if n < len(header) {
				t.Errorf("%d bytes are a module", n)
			}
			continue
		}
		if !errors.Is(err, ErrFormat) || f != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestWhatIsNoCoreModuleIsSaidSo(t *testing.T) {
	for input, want := range map[string]string{
		"":                           "does not begin",
		"(module)":                   "text file",
		"\x1f\x8b\x08\x00\x00\x00":   "gzip",
		"\x00asm\x0d\x00\x01\x00abc": "component",
	} {
		if _, err := Parse([]byte(input)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", input, err, want)
		}
	}
}

// FuzzParse: any bytes are a module or an error, within bounds.
func FuzzParse(f *testing.F) {
	f.Add(small())
	f.Add([]byte(header))
	f.Add([]byte(header + "\x0b\x05\x01\x00\x41\x7f\x0b"))
	f.Fuzz(func(t *testing.T, wasm []byte) {
		m, err := Parse(wasm)
		if err != nil {
			return
		}
		total := 0
		for _, s := range m.Data {
			total += len(s.Bytes)
		}
		if total > len(wasm) || len(m.Imports) > len(wasm) || len(m.Exports) > len(wasm) {
			t.Fatalf("more came out than went in: %d bytes of data of %d", total, len(wasm))
		}
		if len(wasm) < 1<<12 {
			m.Image()
		}
	})
}
