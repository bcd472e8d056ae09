package hostsim

// A tiny encoder of wasm binaries, enough to write a proxy-wasm module by hand:
// it shows that the host needs nothing of Go's own toolchain.
//
//	module  = 00 61 73 6d 01 00 00 00 section*
//	section = id size bytes

func uleb(n uint64) []byte {
	var b []byte
	for n >= 0x80 {
		b = append(b, byte(n)|0x80)
		n >>= 7
	}
	return append(b, byte(n))
}

func vector(items ...[]byte) []byte {
	b := uleb(uint64(len(items)))
	for _, it := range items {
		b = append(b, it...)
	}
	return b
}

func text(s string) []byte { return append(uleb(uint64(len(s))), s...) }

func section(id byte, body []byte) []byte {
	return append(append([]byte{id}, uleb(uint64(len(body)))...), body...)
}

// wasmModule is what handModule is made of.
type wasmModule struct {
	types   [][]byte // function types
	imports [][]byte
	funcs   []byte // type of each function
	exports [][]byte
	code    [][]byte
	data    [][]byte
}

const i32 = 0x7f

// typ adds a function type and returns its index.
func (m *wasmModule) typ(params, results int) byte {
	b := append([]byte{0x60}, uleb(uint64(params))...)
	for range params {
		b = append(b, i32)
	}
	b = append(b, uleb(uint64(results))...)
	for range results {
		b = append(b, i32)
	}
	m.types = append(m.types, b)
	return byte(len(m.types) - 1)
}

func (m *wasmModule) importFunc(name string, params int) byte {
	t := m.typ(params, 1)
	m.imports = append(m.imports, append(append(text("env"), text(name)...), 0, t))
	return byte(len(m.imports) - 1)
}

// export adds a function with its body (without locals) under a name. All
// imports come before.
func (m *wasmModule) export(name string, params, results int, body ...byte) {
	m.funcs = append(m.funcs, m.typ(params, results))
	index := len(m.imports) + len(m.funcs) - 1
	m.exports = append(m.exports, append(append(text(name), 0), uleb(uint64(index))...))
	code := append([]byte{0}, body...)
	code = append(code, 0x0b)
	m.code = append(m.code, append(uleb(uint64(len(code))), code...))
}

func (m *wasmModule) dataAt(offset int32, s string) {
	m.data = append(m.data, append(append([]byte{0}, i32Const(offset)...), append([]byte{0x0b}, text(s)...)...))
}

func i32Const(n int32) []byte {
	b := []byte{0x41}
	for {
		c := byte(n & 0x7f)
		n >>= 7
		if n == 0 && c&0x40 == 0 || n == -1 && c&0x40 != 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}

func cat(parts ...[]byte) []byte {
	var b []byte
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

func call(f byte) []byte { return []byte{0x10, f} }

func (m *wasmModule) bytes() []byte {
	out := []byte{0, 'a', 's', 'm', 1, 0, 0, 0}
	out = append(out, section(1, vector(m.types...))...)
	out = append(out, section(2, vector(m.imports...))...)
	funcs := make([][]byte, len(m.funcs))
	for i, t := range m.funcs {
		funcs[i] = []byte{t}
	}
	out = append(out, section(3, vector(funcs...))...)
	out = append(out, section(5, vector([]byte{0, 1}))...) // one page
	memory := append(text("memory"), 2, 0)
	out = append(out, section(7, vector(append(m.exports, memory)...))...)
	out = append(out, section(10, vector(m.code...))...)
	return append(out, section(11, vector(m.data...))...)
}

// handModule sets x-hand: made on every request, logs "seen", and stops at a
// body until its end; its allocator always answers address 1024.
func handModule() []byte {
	m := &wasmModule{}
	replace := m.importFunc("proxy_replace_header_map_value", 5)
	log := m.importFunc("proxy_log", 3)
	m.export("proxy_abi_version_0_2_1", 0, 0)
	m.export("proxy_on_memory_allocate", 1, 1, i32Const(1024)...)
	m.export("proxy_on_context_create", 2, 0)
	m.export("proxy_on_request_headers", 3, 1, cat(
		i32Const(0), i32Const(0), i32Const(6), i32Const(16), i32Const(4), call(replace), []byte{0x1a},
		i32Const(2), i32Const(32), i32Const(4), call(log), []byte{0x1a},
		i32Const(0))...)
	// return end_of_stream == 0
	m.export("proxy_on_request_body", 3, 1, 0x20, 2, 0x45)
	m.export("proxy_on_response_body", 3, 1, 0x00) // unreachable
	m.export("proxy_on_tick", 1, 0)
	m.dataAt(0, "x-hand")
	m.dataAt(16, "made")
	m.dataAt(32, "seen")
	return m.bytes()
}
