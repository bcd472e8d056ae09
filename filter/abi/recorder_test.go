package abi_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

// recorder is the bare other side of the calling convention: it writes down
// every host call with its arguments as they arrive in wasm, and answers as it
// is told. It knows nothing of proxies; package hostsim does.
type recorder struct {
	mod     api.Module
	lines   []string
	answers map[string]answer
	foreign string // what ForeignArguments reads as: the next exercise

	// onForeign runs inside proxy_call_foreign_function, before its result is
	// written: hosts may re-enter the module there.
	onForeign func()
	// quiet answers without writing anything down, for measurements.
	quiet bool
	// lie makes header values point to memory that the module never handed out.
	lie bool
}

// answer is what a host call returns: a status and values for its
// out-parameters.
type answer struct {
	status uint64
	data   string // o: address and length
	id     uint32 // u
	value  uint64 // U
}

// hostCalls is ABI 0.2.1: s is a string (address, length), i an i32, l an i64;
// out-parameters are o (address and length of a result), u (u32), U (u64), n
// (a length).
var hostCalls = map[string]string{
	"proxy_log":                          "is",
	"proxy_get_log_level":                "u",
	"proxy_get_current_time_nanoseconds": "U",
	"proxy_set_tick_period_milliseconds": "i",
	"proxy_set_effective_context":        "i",
	"proxy_done":                         "",
	"proxy_get_buffer_bytes":             "iiio",
	"proxy_set_buffer_bytes":             "iiis",
	"proxy_get_buffer_status":            "inu",
	"proxy_get_header_map_size":          "in",
	"proxy_get_header_map_pairs":         "io",
	"proxy_set_header_map_pairs":         "is",
	"proxy_get_header_map_value":         "iso",
	"proxy_add_header_map_value":         "iss",
	"proxy_replace_header_map_value":     "iss",
	"proxy_remove_header_map_value":      "is",
	"proxy_get_property":                 "so",
	"proxy_set_property":                 "ss",
	"proxy_continue_stream":              "i",
	"proxy_close_stream":                 "i",
	"proxy_get_status":                   "uo",
	"proxy_send_local_response":          "isssi",
	"proxy_http_call":                    "ssssiu",
	"proxy_grpc_call":                    "sssssiu",
	"proxy_grpc_stream":                  "ssssu",
	"proxy_grpc_send":                    "isi",
	"proxy_grpc_cancel":                  "i",
	"proxy_grpc_close":                   "i",
	"proxy_get_shared_data":              "sou",
	"proxy_set_shared_data":              "ssi",
	"proxy_register_shared_queue":        "su",
	"proxy_resolve_shared_queue":         "ssu",
	"proxy_enqueue_shared_queue":         "is",
	"proxy_dequeue_shared_queue":         "io",
	"proxy_define_metric":                "isu",
	"proxy_increment_metric":             "il",
	"proxy_record_metric":                "il",
	"proxy_get_metric":                   "iU",
	"proxy_call_foreign_function":        "sso",
}

// newRecorder starts the module on a recorder, up to and including
// _initialize.
func newRecorder(t testing.TB, wasm []byte) *recorder {
	t.Helper()
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCompilationCache(wasmCache))
	t.Cleanup(func() { rt.Close(ctx) })
	wasi_snapshot_preview1.MustInstantiate(ctx, rt)
	r := &recorder{answers: map[string]answer{}}
	env := rt.NewHostModuleBuilder("env")
	for name, signature := range hostCalls {
		var params []api.ValueType
		for _, c := range signature {
			switch c {
			case 's', 'o':
				params = append(params, api.ValueTypeI32, api.ValueTypeI32)
			case 'l':
				params = append(params, api.ValueTypeI64)
			default:
				params = append(params, api.ValueTypeI32)
			}
		}
		call := func(ctx context.Context, mod api.Module, stack []uint64) {
			stack[0] = r.hostCall(ctx, mod, name, signature, stack)
		}
		env.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(call), params, []api.ValueType{api.ValueTypeI32}).Export(name)
	}
	if _, err := env.Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	mod, err := rt.InstantiateWithConfig(ctx, wasm, wazero.NewModuleConfig().WithStartFunctions("_initialize").
		WithSysWalltime().WithSysNanotime())
	if err != nil {
		t.Fatal(err)
	}
	r.mod = mod
	return r
}

// start creates plugin context 1 with stream 2 and TCP stream 1000.
func (r *recorder) start(t testing.TB) {
	t.Helper()
	for _, c := range [][]uint64{{1, 0}, {2, 1}, {1000, 1}} {
		r.call(t, "proxy_on_context_create", c...)
	}
	r.take()
}

// call calls an export and returns its result, if it has one. A trap fails the
// test.
func (r *recorder) call(t testing.TB, export string, arguments ...uint64) []uint64 {
	t.Helper()
	f := r.mod.ExportedFunction(export)
	if f == nil {
		t.Fatalf("the module does not export %s", export)
	}
	results, err := f.Call(context.Background(), arguments...)
	if err != nil {
		t.Fatalf("%s%v: %v", export, arguments, err)
	}
	return results
}

// run runs an exercise of the guest and returns what it reported last.
func (r *recorder) run(t testing.TB, exercise string) string {
	t.Helper()
	r.take()
	r.foreign = exercise
	r.call(t, "proxy_on_foreign_function", 1, 0, uint64(len(exercise)))
	last := r.lines[len(r.lines)-1]
	quoted := strings.TrimSuffix(strings.TrimPrefix(last, "proxy_log(2, "), ")")
	report, err := strconv.Unquote(quoted)
	if err != nil {
		t.Fatalf("%s ended with %s, not with a report", exercise, last)
	}
	return report
}

// take returns the lines written since the last call.
func (r *recorder) take() []string {
	lines := r.lines
	r.lines = nil
	return lines
}

func (r *recorder) hostCall(ctx context.Context, mod api.Module, name, signature string, stack []uint64) uint64 {
	arguments := append([]uint64(nil), stack...)
	var in []string
	var out []func()
	a := r.answers[name]
	if name == "proxy_get_buffer_bytes" && arguments[0] == 8 {
		a = answer{data: r.foreign}
	}
	memory := mod.Memory()
	if r.quiet && name != "proxy_log" && a.status == 0 && strings.HasSuffix(strings.TrimRight(signature, "u"), "o") {
		out := strings.IndexByte(signature, 'o') + strings.Count(signature, "s") // a string takes two words
		r.writeResult(ctx, mod, a.data, uint32(stack[out]), uint32(stack[out+1]), false)
		return 0
	}
	for _, c := range signature {
		v := uint32(arguments[0])
		switch c {
		case 's':
			b, ok := memory.Read(v, uint32(arguments[1]))
			if !ok {
				panic(fmt.Sprintf("%s: string at %d, length %d is outside the memory", name, v, arguments[1]))
			}
			in = append(in, strconv.Quote(string(b)))
			arguments = arguments[1:]
		case 'i':
			in = append(in, strconv.Itoa(int(int32(v))))
		case 'l':
			in = append(in, strconv.FormatInt(int64(arguments[0]), 10))
		case 'u':
			out = append(out, func() { memory.WriteUint32Le(v, a.id) })
		case 'U':
			out = append(out, func() { memory.WriteUint64Le(v, a.value) })
		case 'n':
			out = append(out, func() { memory.WriteUint32Le(v, uint32(len(a.data))) })
		case 'o':
			size := uint32(arguments[1])
			out = append(out, func() { r.writeResult(ctx, mod, a.data, v, size, r.lie && name == "proxy_get_header_map_value") })
			arguments = arguments[1:]
		}
		arguments = arguments[1:]
	}
	if name != "proxy_get_buffer_bytes" || in[0] != "8" {
		r.lines = append(r.lines, name+"("+strings.Join(in, ", ")+")")
	}
	if name == "proxy_call_foreign_function" && r.onForeign != nil {
		r.onForeign()
	}
	if a.status == 0 {
		for _, write := range out {
			write()
		}
	}
	return a.status
}

// writeResult copies data into memory it gets from the module, as proxies do:
// nothing is allocated for an empty result.
func (r *recorder) writeResult(ctx context.Context, mod api.Module, data string, addressAt, sizeAt uint32, lie bool) {
	var address uint32
	if data != "" {
		res, err := mod.ExportedFunction("proxy_on_memory_allocate").Call(ctx, uint64(len(data)))
		if err != nil {
			panic(err)
		}
		address = uint32(res[0])
		if lie {
			address += 8
		}
		if !mod.Memory().WriteString(address, data) {
			panic(fmt.Sprintf("the module handed out %d bytes at %d, outside its memory", len(data), address))
		}
	}
	mod.Memory().WriteUint32Le(addressAt, address)
	mod.Memory().WriteUint32Le(sizeAt, uint32(len(data)))
}
