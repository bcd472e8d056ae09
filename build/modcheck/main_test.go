package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// builder makes WebAssembly binaries by hand.
type builder struct{ sections []byte }

func (b *builder) section(id byte, body []byte) *builder {
	b.sections = append(b.sections, id)
	b.sections = binary.AppendUvarint(b.sections, uint64(len(body)))
	b.sections = append(b.sections, body...)
	return b
}

func (b *builder) imports(entries ...[]byte) *builder {
	return b.section(sectionImport, vector(entries))
}

func (b *builder) exports(names ...string) *builder {
	var entries [][]byte
	for _, n := range names {
		entries = append(entries, append(text(n), byte(kindFunction), 0))
	}
	return b.section(sectionExport, vector(entries))
}

func (b *builder) code(size int) *builder { return b.section(sectionCode, make([]byte, size)) }

func (b *builder) wasm() []byte { return append([]byte("\x00asm\x01\x00\x00\x00"), b.sections...) }

func vector(entries [][]byte) []byte {
	return append(binary.AppendUvarint(nil, uint64(len(entries))), bytes.Join(entries, nil)...)
}

func text(s string) []byte { return append(binary.AppendUvarint(nil, uint64(len(s))), s...) }

// function is an import of a function of type 0.
func function(module, name string) []byte {
	return append(append(text(module), text(name)...), byte(kindFunction), 0)
}

// good is a module that keeps every rule, with or without response bodies.
func good(responseBody bool) *builder {
	exports := append([]string{}, requiredExports...)
	if responseBody {
		exports = append(exports, responseBodyExport)
	}
	return new(builder).
		section(0, append(text("name"), "anything"...)).
		imports(function("env", "proxy_log"), function("wasi_snapshot_preview1", "fd_write")).
		exports(exports...).
		code(1000)
}

func runOn(t *testing.T, wasm []byte, flags ...string) (code int, stdout, stderr string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "m.wasm")
	if err := os.WriteFile(file, wasm, 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	code = run(append(flags, file), &out, &errs)
	return code, out.String(), errs.String()
}

func TestModuleThatKeepsTheRulesPasses(t *testing.T) {
	code, stdout, stderr := runOn(t, good(true).wasm())
	if code != 0 || stderr != "" {
		t.Errorf("exit %d, errors %q", code, stderr)
	}
	if !strings.Contains(stdout, "ok") {
		t.Errorf("no verdict in\n%s", stdout)
	}
	if code, _, stderr := runOn(t, good(false).wasm(), "--no-response-body"); code != 0 {
		t.Errorf("the variant without response bodies: exit %d, %s", code, stderr)
	}
}

func TestEachBrokenRuleIsNamedWithItsRemedy(t *testing.T) {
	without := func(missing string) *builder {
		var exports []string
		for _, name := range append([]string{responseBodyExport}, requiredExports...) {
			if name != missing {
				exports = append(exports, name)
			}
		}
		return new(builder).exports(exports...)
	}
	memory := append(append(text("env"), text("memory")...), byte(kindMemory), 1, 1, 2)
	for _, c := range []struct {
		what  string
		wasm  []byte
		flags []string
		want  []string
	}{
		{
			"a WASI function that proxies lack", good(true).imports(function("wasi_snapshot_preview1", "path_open")).wasm(), nil,
			[]string{"imports wasi_snapshot_preview1.path_open", "grep '-> .*path_open'"},
		},
		{
			"a host function of another ABI", good(true).imports(function("env", "proxy_clear_route_cache")).wasm(), nil,
			[]string{"imports env.proxy_clear_route_cache"},
		},
		{
			"a module proxies do not know", good(true).imports(function("wasi_unstable", "fd_write")).wasm(), nil,
			[]string{"imports wasi_unstable.fd_write"},
		},
		{"an imported memory", good(true).imports(memory).wasm(), nil, []string{"imports the memory env.memory"}},
		{"a missing callback", without("proxy_on_tick").wasm(), nil, []string{"does not export the function proxy_on_tick", "filter/abi"}},
		{"no start function", without("_initialize").wasm(), nil, []string{"does not export the function _initialize", "c-shared"}},
		{"no response body callback", good(false).wasm(), nil, []string{"does not export proxy_on_response_body", "--no-response-body"}},
		{
			"a response body callback too many", good(true).wasm(),
			[]string{"--no-response-body"},
			[]string{"exports proxy_on_response_body", "-tags noresponsebody"},
		},
		{
			"a large code section", good(true).code(3<<20 + 1<<18).wasm(), nil,
			[]string{"the code section has 3.25 MiB, 0.25 MiB over its budget of 3.00 MiB", "0.9 CPU seconds"},
		},
		{
			"a large file", good(true).section(11, make([]byte, 7<<20)).wasm(), nil,
			[]string{"1.00 MiB over its budget of 6.00 MiB", "-s -w"},
		},
		{"a budget of one's own", good(true).wasm(), []string{"--max-code-bytes", "999"}, []string{"the code section has"}},
	} {
		code, _, stderr := runOn(t, c.wasm, c.flags...)
		if code != 1 {
			t.Errorf("%s: exit %d, want 1 (%s)", c.what, code, stderr)
		}
		for _, want := range c.want {
			if !strings.Contains(stderr, want) {
				t.Errorf("%s: the message lacks %q:\n%s", c.what, want, stderr)
			}
		}
		if n := strings.Count(stderr, "\n"); n != 1 {
			t.Errorf("%s: %d messages, want 1:\n%s", c.what, n, stderr)
		}
	}
}

func TestJSONCarriesWhatTheTableShows(t *testing.T) {
	code, stdout, _ := runOn(t, good(true).code(5<<20).wasm(), "--json")
	var reports []report
	if err := json.Unmarshal([]byte(stdout), &reports); err != nil {
		t.Fatal(err)
	}
	if code != 1 || len(reports) != 1 {
		t.Fatalf("exit %d, %d reports", code, len(reports))
	}
	r := reports[0]
	if r.CodeBytes != 5<<20 || r.MaxCodeBytes != 3<<20 || len(r.Findings) != 1 || r.Findings[0].Rule != "code_size" {
		t.Errorf("report %+v", r)
	}
	if len(r.ProxyImports) != 1 || r.ProxyImports[0] != "proxy_log" || len(r.WASIImports) != 1 || len(r.Callbacks) == 0 {
		t.Errorf("imports and callbacks: %+v", r)
	}
}

func TestUnreadableInputIsAnErrorOfItsOwn(t *testing.T) {
	wasm := good(true).wasm()
	for what, c := range map[string]struct {
		wasm []byte
		want string
	}{
		"no module":                  {[]byte("#!/bin/sh"), "does not begin as a WebAssembly 1.0 module"},
		"nothing":                    {nil, "does not begin as a WebAssembly 1.0 module"},
		"cut off":                    {wasm[:len(wasm)-1], "the file is cut off or damaged"},
		"a number without end":       {append(wasm, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), "number of more than five bytes"},
		"an import of unknown kind":  {new(builder).imports(append(append(text("env"), text("x")...), 9)).wasm(), "kind 9"},
		"an import that is cut off":  {new(builder).section(sectionImport, []byte{2, 1, 'a'}).wasm(), "read section 2: offset 13"},
		"a count beyond all entries": {new(builder).section(sectionExport, []byte{0xff, 0xff, 0xff, 0xff, 0x0f}).wasm(), "cut off"},
	} {
		code, _, stderr := runOn(t, c.wasm)
		if code != 2 || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: exit %d, message %q, want 2 and %q", what, code, stderr, c.want)
		}
	}
	var out, errs bytes.Buffer
	if code := run([]string{filepath.Join(t.TempDir(), "absent.wasm")}, &out, &errs); code != 2 || !strings.Contains(errs.String(), "make wasm") {
		t.Errorf("an absent file: exit %d, %q", code, errs.String())
	}
	if code := run(nil, &out, &errs); code != 2 || !strings.Contains(errs.String(), "usage:") {
		t.Errorf("no file: exit %d, %q", code, errs.String())
	}
}

func TestAllowlistsNameWhatTheyClaim(t *testing.T) {
	if len(proxyImports) != 39 {
		t.Errorf("%d host functions, ABI 0.2.1 has 39", len(proxyImports))
	}
	if len(wasiImports) != 14 {
		t.Errorf("%d WASI functions, want the 14 that Envoy and our runtime share", len(wasiImports))
	}
}

func FuzzParse(f *testing.F) {
	f.Add(good(true).wasm())
	f.Add([]byte("\x00asm\x01\x00\x00\x00\x02\x05\x01\x01a\x01b"))
	f.Fuzz(func(_ *testing.T, wasm []byte) {
		if m, err := parse(wasm); err == nil {
			defaultRules.check(m)
		}
	})
}
