package main

import (
	"errors"
	"fmt"
)

// A module is what modcheck looks at in a WebAssembly binary.
type module struct {
	FileBytes int
	CodeBytes int // payload of the code section
	Imports   []imported
	Exports   map[string]kind
}

// imported is one import of a module.
type imported struct {
	Module, Name string
	Kind         kind
}

// kind is what an import or export is.
type kind byte

const (
	kindFunction kind = 0
	kindTable    kind = 1
	kindMemory   kind = 2
	kindGlobal   kind = 3
	kindTag      kind = 4
)

func (k kind) String() string {
	switch k {
	case kindFunction:
		return "function"
	case kindTable:
		return "table"
	case kindMemory:
		return "memory"
	case kindGlobal:
		return "global"
	case kindTag:
		return "tag"
	}
	return fmt.Sprintf("kind %d", byte(k))
}

// Sections that matter here; the others are skipped by their length.
const (
	sectionImport = 2
	sectionExport = 7
	sectionCode   = 10
)

var errNotWasm = errors.New("it does not begin as a WebAssembly 1.0 module does (00 61 73 6d 01 00 00 00)")

// parse reads the section headers, imports and exports of a WebAssembly 1.0
// binary (https://webassembly.github.io/spec/core/binary/modules.html). It does
// not validate code.
func parse(wasm []byte) (*module, error) {
	if len(wasm) < 8 || string(wasm[:8]) != "\x00asm\x01\x00\x00\x00" {
		return nil, errNotWasm
	}
	m := &module{FileBytes: len(wasm), Exports: map[string]kind{}}
	r := &reader{data: wasm, at: 8}
	for r.at < len(wasm) && r.err == nil {
		id := r.u8()
		size := r.u32()
		body := r.take(size)
		if r.err != nil {
			break
		}
		section := &reader{data: body, base: r.at - len(body)}
		switch id {
		case sectionImport:
			m.readImports(section)
		case sectionExport:
			m.readExports(section)
		case sectionCode:
			m.CodeBytes = len(body)
		}
		if section.err != nil {
			return nil, fmt.Errorf("read section %d: %w", id, section.err)
		}
	}
	if r.err != nil {
		return nil, fmt.Errorf("read the sections: %w", r.err)
	}
	return m, nil
}

func (m *module) readImports(r *reader) {
	for n := r.u32(); n > 0 && r.err == nil; n-- {
		i := imported{Module: r.name(), Name: r.name(), Kind: kind(r.u8())}
		switch i.Kind {
		case kindFunction:
			r.u32() // type index
		case kindTable:
			r.u8() // element type
			r.limits()
		case kindMemory:
			r.limits()
		case kindGlobal:
			r.u8() // value type
			r.u8() // mutability
		case kindTag:
			r.u8() // attribute
			r.u32()
		default:
			r.fail("import " + i.Module + "." + i.Name + " is of an unknown " + i.Kind.String())
		}
		if r.err == nil {
			m.Imports = append(m.Imports, i)
		}
	}
}

func (m *module) readExports(r *reader) {
	for n := r.u32(); n > 0 && r.err == nil; n-- {
		name, k := r.name(), kind(r.u8())
		r.u32() // index
		if r.err == nil {
			m.Exports[name] = k
		}
	}
}

// reader reads WebAssembly's primitive values; its first error sticks and names
// the offset in the file.
type reader struct {
	data []byte
	at   int
	base int // offset of data in the file
	err  error
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("offset %d: %s", r.base+r.at, what)
	}
}

func (r *reader) u8() byte {
	b := r.take(1)
	if r.err != nil {
		return 0
	}
	return b[0]
}

// u32 reads an unsigned LEB128 number of at most five bytes.
func (r *reader) u32() uint32 {
	var v uint64
	for shift := 0; shift < 35; shift += 7 {
		b := r.u8()
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			if v > 1<<32-1 {
				r.fail("number above 32 bits")
			}
			return uint32(v)
		}
	}
	r.fail("number of more than five bytes")
	return 0
}

func (r *reader) take(n uint32) []byte {
	if r.err != nil {
		return nil
	}
	if uint64(n) > uint64(len(r.data)-r.at) {
		r.fail(fmt.Sprintf("%d bytes wanted, %d left; the file is cut off or damaged", n, len(r.data)-r.at))
		return nil
	}
	b := r.data[r.at : r.at+int(n)]
	r.at += int(n)
	return b
}

func (r *reader) name() string { return string(r.take(r.u32())) }

func (r *reader) limits() {
	flags := r.u8()
	r.u32()
	if flags&1 != 0 {
		r.u32()
	}
}
