package hostsim

import (
	"bytes"
	"debug/gosym"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/ianlancetaylor/demangle"

	"github.com/warmpath/warmpath/hostsim/internal/wasmbin"
)

// symbols name a module's functions. Sources, best first: the table that Go's
// own runtime carries (it is there even after -ldflags='-s -w'), the name
// section, the name section of another, unstripped build (Module.SetSymbols).
type symbols struct {
	once     sync.Once
	wasm     []byte
	external []byte // an unstripped build of the same source

	module   string
	imported int
	names    map[uint32]string // by index, imports included
	indexes  map[string]uint32
	goFuncs  *gosym.Table
}

// SetSymbols names the functions of a stripped module after an unstripped build
// of the same source (Rust: the same profile with strip = false; C++: without
// -s). Both must have the same functions, else an error says so. Stripped Go
// modules do not need it.
func (m *Module) SetSymbols(unstripped []byte) error {
	with, err := wasmbin.Parse(unstripped)
	if err != nil {
		return fmt.Errorf("symbols for %s: %w", m.name, err)
	}
	if len(with.Names) == 0 {
		return fmt.Errorf("symbols for %s: %w: no function has a name there (it is stripped too)", m.name, ErrModule)
	}
	own, err := wasmbin.Parse(m.symbols.wasm)
	if err != nil {
		return fmt.Errorf("symbols for %s: %w", m.name, err)
	}
	if own.Functions != with.Functions || own.ImportedFunctions != with.ImportedFunctions {
		return fmt.Errorf("symbols for %s: %w: it has %d+%d functions (imported, own), the other file %d+%d: not of one build",
			m.name, ErrModule, own.ImportedFunctions, own.Functions, with.ImportedFunctions, with.Functions)
	}
	m.symbols = &symbols{wasm: m.symbols.wasm, external: unstripped}
	return nil
}

// load reads the tables at the first trap.
func (s *symbols) load() {
	s.once.Do(func() {
		f, err := wasmbin.Parse(s.wasm)
		if err != nil {
			return // wazero has compiled it; then it has no names
		}
		s.module, s.imported, s.names = f.ModuleName, f.ImportedFunctions, f.Names
		s.goFuncs = goTable(f)
		if s.external != nil {
			if other, err := wasmbin.Parse(s.external); err == nil {
				for index, name := range other.Names {
					if s.names[index] == "" {
						s.names[index] = name
					}
				}
			}
		}
		s.indexes = make(map[string]uint32, len(s.names))
		for index, name := range s.names {
			s.indexes[name] = index
		}
	})
}

// Go's program counter table begins with a magic number, two zeroes, the size of
// an instruction and of a pointer (debug/gosym has the format). On wasm its
// addresses are function numbers from goFirstFunction on, imports not counted.
var goTableMagic = []byte{0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8}

const goFirstFunction = 0x1000

// goTable finds the table in the memory image of a Go module; nil in others.
func goTable(f *wasmbin.File) *gosym.Table {
	if _, ok := f.Custom["go:buildid"]; !ok {
		return nil
	}
	image := f.Image()
	for {
		at := bytes.Index(image, goTableMagic)
		if at < 0 {
			return nil
		}
		image = image[at:]
		if t, err := gosym.NewTable(nil, gosym.NewLineTable(image, 0)); err == nil && len(t.Funcs) == f.Functions {
			return t
		}
		image = image[1:]
	}
}

// frame looks a function up, by index (imports included).
func (s *symbols) frame(index uint32) Frame {
	if s.goFuncs != nil && int(index) >= s.imported {
		if fn := s.goFuncs.PCToFunc(goFirstFunction + uint64(int(index)-s.imported)); fn != nil {
			f := Frame{Function: fn.Name}
			if file, line, _ := s.goFuncs.PCToLine(fn.Entry); line > 0 {
				f.File, f.Line = file, line
			}
			return f
		}
	}
	if name := s.names[index]; name != "" {
		return Frame{Function: readableName(name)}
	}
	return Frame{Function: "function " + strconv.FormatUint(uint64(index), 10)}
}

// receiver is how Go's linker writes "(*T)." in a name section.
var receiver = regexp.MustCompile(`\.__(\w+?)_\.`)

// readableName undoes what compilers do to names.
func readableName(name string) string {
	if plain := demangle.Filter(name, demangle.NoClones); plain != name {
		return plain
	}
	return receiver.ReplaceAllString(name, ".(*$1).")
}

// Frame is one function of a stack trace.
type Frame struct {
	Function string // "main.(*filter).OnHttpRequestBody", "function 1234" without a name
	File     string // Go modules: where the function begins, or where it was; else empty
	Line     int
	// Runtime: the language's own machinery (Go's runtime, Rust's panic path).
	Runtime bool
}

func (f Frame) String() string {
	if f.File == "" {
		return f.Function
	}
	return f.Function + " (" + shortPath(f.File) + ":" + strconv.Itoa(f.Line) + ")"
}

// shortPath keeps the last two parts of a path.
func shortPath(path string) string {
	at := strings.LastIndexByte(path, '/')
	if at > 0 {
		if before := strings.LastIndexByte(path[:at], '/'); before >= 0 {
			return path[before+1:]
		}
	}
	return path
}

// runtimePrefixes are what a filter's author did not write.
var runtimePrefixes = []string{
	"runtime.", "internal/", "reflect.", "syscall.", "_rt0_", "wasm_pc_f_loop", "wasm_export_", "go:",
	"core::panicking", "std::panicking", "std::sys", "std::rt", "core::ops::function", "core::result::unwrap_failed",
	"core::option::", "rust_begin_unwind", "__rust_", "__rustc", "rust_panic", "panic_abort::", "abort", "__wasm_call_",
	"~lib/rt/", "dlmalloc",
}

func isRuntime(function string) bool {
	for _, prefix := range runtimePrefixes {
		if strings.HasPrefix(function, prefix) {
			return true
		}
	}
	return strings.HasSuffix(function, ".command_export")
}

// wasmFrame is a line of wazero's stack trace: ".$12(i32,i32) i32", or a name in
// place of the number, or a host function as "env.proxy_log(...)".
var wasmFrame = regexp.MustCompile(`^\t([^\t].*)\(([a-z0-9,]*)\)(?: .*)?$`)

// frames reads a stack trace of wazero's.
func (s *symbols) frames(trace string) []Frame {
	s.load()
	var frames []Frame
	for line := range strings.Lines(trace) {
		m := wasmFrame.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			continue
		}
		// Frames of host functions begin with the module they are in, those of the
		// guest with the name of its name section, mostly none.
		name, own := strings.CutPrefix(m[1], s.module+".")
		var f Frame
		if number, ok := strings.CutPrefix(name, "$"); own && ok {
			index, err := strconv.ParseUint(number, 10, 32)
			if err != nil {
				continue
			}
			f = s.frame(uint32(index))
		} else if index, ok := s.indexes[name]; own && ok {
			f = s.frame(index)
		} else {
			f = Frame{Function: readableName(name)}
		}
		f.Runtime = isRuntime(f.Function)
		frames = append(frames, f)
	}
	return frames
}
