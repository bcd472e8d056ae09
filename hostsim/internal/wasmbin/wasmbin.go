// Package wasmbin reads the parts of a wasm binary that wazero keeps to itself:
// what a module imports and exports, the names of its functions and what its
// memory holds at the start.
//
//	module  = 00 61 73 6d 01 00 00 00 section*
//	section = id (1 byte), size (LEB128), contents
//
// Parse walks the sections once and keeps slices of the input. Code is not
// looked at.
package wasmbin

import (
	"errors"
	"fmt"
	"math"
)

// Kind is what an import or export is.
type Kind byte

// The kinds of the core specification.
const (
	Function Kind = iota
	Table
	Memory
	Global
	Tag
)

func (k Kind) String() string {
	names := [...]string{"function", "table", "memory", "global", "tag"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind %d", byte(k))
}

// Import is one thing that a module wants from its host.
type Import struct {
	Module, Name string
	Kind         Kind
}

// Export is one thing that a module offers.
type Export struct {
	Name  string
	Kind  Kind
	Index uint32
}

// Segment is a piece of memory that is there at the start. Offset is only known
// of active segments with a constant address.
type Segment struct {
	Offset uint32
	Bytes  []byte
}

// File is what a binary says about itself.
type File struct {
	Imports []Import
	Exports []Export
	// Functions is the number of functions with code; their indexes follow the
	// imported functions'.
	Functions         int
	ImportedFunctions int
	// Names are the function names of the name section, by index.
	Names map[uint32]string
	// ModuleName is the name section's, often empty.
	ModuleName string
	Data       []Segment
	Custom     map[string][]byte // by name; the last one counts
	// CodeBytes is the size of the code section: what a host compiles.
	CodeBytes int
	MinPages  uint32
}

// ErrFormat is wrapped by every error of Parse.
var ErrFormat = errors.New("malformed wasm binary")

const header = "\x00asm\x01\x00\x00\x00"

// Parse reads a binary. Errors say at which byte reading stopped. A broken name
// section (which hosts ignore too) leaves Names short.
func Parse(wasm []byte) (*File, error) {
	if len(wasm) < len(header) || string(wasm[:4]) != header[:4] {
		return nil, fmt.Errorf("%w: it does not begin with \"\\0asm\" (is it a text file, an OCI image or a gzip?)", ErrFormat)
	}
	if string(wasm[:8]) != header {
		return nil, fmt.Errorf("%w: version % x is not core wasm 1 (a component? proxies load core modules)", ErrFormat, wasm[4:8])
	}
	f := &File{Names: map[uint32]string{}, Custom: map[string][]byte{}}
	r := &reader{b: wasm, at: len(header)}
	for r.at < len(r.b) {
		start := r.at
		id := r.byte()
		contents := r.bytes(r.u32())
		if r.err != nil {
			return nil, fmt.Errorf("%w: section at byte %d: %w", ErrFormat, start, r.err)
		}
		s := &reader{b: contents}
		f.section(id, s)
		if s.err != nil {
			return nil, fmt.Errorf("%w: section %d at byte %d: %w", ErrFormat, id, start, s.err)
		}
	}
	return f, nil
}

func (f *File) section(id byte, r *reader) {
	switch id {
	case 0:
		name := r.name()
		if r.err != nil {
			return
		}
		f.Custom[name] = r.b[r.at:]
		if name == "name" {
			f.names(&reader{b: r.b[r.at:]})
		}
	case 2:
		for n := r.u32(); n > 0 && r.err == nil; n-- {
			i := Import{Module: r.name(), Name: r.name(), Kind: Kind(r.byte())}
			switch i.Kind {
			case Function:
				r.u32()
				f.ImportedFunctions++
			case Table:
				r.byte()
				r.limits()
			case Memory:
				f.MinPages = r.limits()
			case Global:
				r.byte()
				r.byte()
			case Tag:
				r.byte()
				r.u32()
			default:
				r.fail("import of unknown kind")
			}
			if r.err == nil {
				f.Imports = append(f.Imports, i)
			}
		}
	case 3:
		f.Functions = int(r.u32())
	case 5:
		if r.u32() > 0 {
			f.MinPages = r.limits()
		}
	case 7:
		for n := r.u32(); n > 0 && r.err == nil; n-- {
			e := Export{Name: r.name(), Kind: Kind(r.byte()), Index: r.u32()}
			if r.err == nil {
				f.Exports = append(f.Exports, e)
			}
		}
	case 10:
		f.CodeBytes = len(r.b)
	case 11:
		f.data(r)
	}
}

// data keeps the active segments whose address is an i32.const.
func (f *File) data(r *reader) {
	for n := r.u32(); n > 0 && r.err == nil; n-- {
		flag := r.u32()
		if flag == 2 {
			r.u32()
		}
		var offset uint32
		constant := false
		if flag != 1 {
			switch op := r.byte(); op {
			case 0x41:
				offset, constant = uint32(r.i32()), true
			case 0x23:
				r.u32()
			default:
				r.fail("data segment with an address that is no constant")
			}
			if r.byte() != 0x0b {
				r.fail("data segment with an address that is no constant")
			}
		}
		bytes := r.bytes(r.u32())
		if constant && r.err == nil {
			f.Data = append(f.Data, Segment{offset, bytes})
		}
	}
}

// names reads the name section: subsection 0 is the module's name, 1 those of
// functions.
func (f *File) names(r *reader) {
	for r.at < len(r.b) && r.err == nil {
		id := r.byte()
		sub := &reader{b: r.bytes(r.u32())}
		switch id {
		case 0:
			f.ModuleName = sub.name()
		case 1:
			for n := sub.u32(); n > 0 && sub.err == nil; n-- {
				index, name := sub.u32(), sub.name()
				if sub.err == nil {
					f.Names[index] = name
				}
			}
		}
	}
}

// maxImage bounds what Image makes: no more than a module's data can be worth.
const maxImage = 256 << 20

// Image is memory as it is at the start, up to the last byte of data. Segments
// beyond 256 MiB are left out.
func (f *File) Image() []byte {
	end := uint64(0)
	for _, s := range f.Data {
		if e := uint64(s.Offset) + uint64(len(s.Bytes)); e <= maxImage {
			end = max(end, e)
		}
	}
	image := make([]byte, end)
	for _, s := range f.Data {
		if uint64(s.Offset)+uint64(len(s.Bytes)) <= end {
			copy(image[s.Offset:], s.Bytes)
		}
	}
	return image
}

// reader takes values off the front of b; after the first error it gives zeroes.
type reader struct {
	b   []byte
	at  int
	err error
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%s at byte %d of it", what, r.at)
	}
}

func (r *reader) byte() byte {
	if r.err != nil {
		return 0
	}
	if r.at >= len(r.b) {
		r.fail("cut off")
		return 0
	}
	r.at++
	return r.b[r.at-1]
}

func (r *reader) u64() (v uint64) {
	for shift := 0; ; shift += 7 {
		c := r.byte()
		if shift == 63 && c > 1 {
			r.fail("number too long")
			return 0
		}
		v |= uint64(c&0x7f) << shift
		if c&0x80 == 0 {
			return v
		}
	}
}

func (r *reader) u32() uint32 {
	v := r.u64()
	if v > math.MaxUint32 {
		r.fail("number too large")
		return 0
	}
	return uint32(v)
}

func (r *reader) i32() int32 {
	var v int64
	for shift := 0; shift < 35; shift += 7 {
		c := r.byte()
		v |= int64(c&0x7f) << shift
		if c&0x80 == 0 {
			if c&0x40 != 0 {
				v |= -1 << (shift + 7)
			}
			return int32(v)
		}
	}
	r.fail("number too long")
	return 0
}

func (r *reader) bytes(n uint32) []byte {
	if r.err != nil {
		return nil
	}
	if uint64(n) > uint64(len(r.b)-r.at) {
		r.fail("cut off")
		return nil
	}
	r.at += int(n)
	return r.b[r.at-int(n) : r.at]
}

func (r *reader) name() string { return string(r.bytes(r.u32())) }

// limits reads the limits of a table or memory and returns the minimum.
func (r *reader) limits() uint32 {
	flag := r.byte()
	least := r.u64()
	if flag&1 != 0 {
		r.u64()
	}
	return uint32(min(least, math.MaxUint32))
}
