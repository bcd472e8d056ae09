package compat

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// binary is a module with function imports and exports.
func binary(imports, exports []string) []byte {
	section := func(id byte, body []byte) []byte { return append(append([]byte{id}, uleb(len(body))...), body...) }
	text := func(s string) []byte { return append(uleb(len(s)), s...) }
	b := []byte("\x00asm\x01\x00\x00\x00")
	var list []byte
	for _, i := range imports {
		module, name, _ := strings.Cut(i, ".")
		list = append(append(append(list, text(module)...), text(name)...), 0, 0)
	}
	b = append(b, section(2, append(uleb(len(imports)), list...))...)
	list = nil
	for _, e := range exports {
		list = append(append(list, text(e)...), 0, 0)
	}
	return append(b, section(7, append(uleb(len(exports)), list...))...)
}

func uleb(n int) []byte {
	var b []byte
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

var base = []string{"proxy_abi_version_0_2_1", "proxy_on_memory_allocate", "proxy_on_request_headers"}

// verdicts checks a module and returns the findings by host.
func verdicts(t *testing.T, imports []string, exports ...string) map[string][]string {
	t.Helper()
	r, err := Check(binary(imports, exports), nil)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for _, res := range r.Results {
		for _, f := range res.Findings {
			found[res.Host.ID] = append(found[res.Host.ID], string(f.Severity)+" "+f.Subject)
		}
		if res.OK() != !slices.ContainsFunc(res.Findings, func(f Finding) bool { return f.Severity != Note }) {
			t.Errorf("%s: OK() is %t with %v", res.Host.ID, res.OK(), res.Findings)
		}
	}
	return found
}

func TestASimpleModuleRunsEverywhere(t *testing.T) {
	if found := verdicts(t, []string{"env.proxy_log", "env.proxy_get_header_map_value", "wasi_snapshot_preview1.fd_write"}, base...); len(found) != 0 {
		t.Errorf("%v", found)
	}
}

func TestEveryLackIsFoundWhereItIs(t *testing.T) {
	for _, c := range []struct {
		imports, exports []string
		host, want       string // "" in want: no finding
	}{
		{imports: []string{"wasi_snapshot_preview1.poll_oneoff"}, host: "envoy-1.36", want: "fails wasi_snapshot_preview1.poll_oneoff"},
		{imports: []string{"wasi_snapshot_preview1.poll_oneoff"}, host: "envoy-1.38", want: "fails wasi_snapshot_preview1.poll_oneoff"},
		{imports: []string{"wasi_snapshot_preview1.poll_oneoff"}, host: "envoy-1.39"},
		{imports: []string{"wasi_snapshot_preview1.poll_oneoff"}, host: "istio-1.28", want: "fails wasi_snapshot_preview1.poll_oneoff"},
		{imports: []string{"wasi_snapshot_preview1.fd_filestat_get"}, host: "envoy-1.38", want: "refused wasi_snapshot_preview1.fd_filestat_get"},
		{imports: []string{"wasi_snapshot_preview1.fd_filestat_get"}, host: "envoy-1.40"},
		{imports: []string{"wasi_snapshot_preview1.path_open"}, host: "envoy-1.40", want: "note wasi_snapshot_preview1.path_open"},
		{imports: []string{"wasi_unstable.fd_write"}, host: "envoy-1.40"},
		{imports: []string{"wasi_unstable.fd_write"}, host: "ngx_wasm_module", want: "refused wasi_unstable.fd_write"},
		{imports: []string{"env.abort"}, host: "envoy-1.40", want: "refused env.abort"},
		{imports: []string{"env.proxy_redis_call"}, host: "envoy-1.40", want: "refused env.proxy_redis_call"},
		{imports: []string{"env.proxy_redis_call"}, host: "higress-2"},
		{imports: []string{"env.proxy_get_shared_data"}, host: "apisix-3", want: "fails env.proxy_get_shared_data"},
		{imports: []string{"env.proxy_get_shared_data"}, host: "ngx_wasm_module"},
		{imports: []string{"env.proxy_resolve_shared_queue"}, host: "ngx_wasm_module", want: "fails env.proxy_resolve_shared_queue"},
		{imports: []string{"env.proxy_get_buffer_status"}, host: "ngx_wasm_module", want: "refused env.proxy_get_buffer_status"},
		{imports: []string{"env.proxy_http_call"}, host: "google-service-extensions", want: "fails env.proxy_http_call"},
		{imports: []string{"env.proxy_grpc_call"}, host: "hostsim", want: "fails env.proxy_grpc_call"},
		{exports: []string{"proxy_on_tick"}, host: "apisix-3", want: "note proxy_on_tick"},
		{exports: []string{"proxy_on_tick"}, host: "envoy-1.33"},
	} {
		got := verdicts(t, c.imports, append(slices.Clone(base), c.exports...)...)[c.host]
		if strings.Join(got, ",") != c.want {
			t.Errorf("%v %v on %s: %v, want %q", c.imports, c.exports, c.host, got, c.want)
		}
	}
}

func TestOldABIsAndMissingAllocatorsAreRefused(t *testing.T) {
	got := verdicts(t, nil, "proxy_abi_version_0_1_0", "malloc")
	if strings.Join(got["hostsim"], ",") != "refused ABI 0.1.0" || got["envoy-1.40"] != nil {
		t.Errorf("%v", got)
	}
	got = verdicts(t, nil, "proxy_abi_version_0_2_0")
	if strings.Join(got["envoy-1.40"], ",") != "refused proxy_on_memory_allocate" {
		t.Errorf("%v", got)
	}
	for text, want := range map[string]string{"": "does not begin", string(binary(nil, []string{"main"})): "exports no proxy_abi_version"} {
		if _, err := Check([]byte(text), nil); !errors.Is(err, ErrModule) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestHostsHaveASourceAndAreFoundByIDAndFamily(t *testing.T) {
	seen := map[string]bool{}
	for _, h := range Hosts() {
		if seen[h.ID] || h.Name == "" || h.Source == "" || !slices.Contains([]string{"measured", "source", "documentation"}, h.Evidence) {
			t.Errorf("%+v", h)
		}
		seen[h.ID] = true
		// What fails or is noted must be something the host has at all.
		for _, names := range []map[string]string{h.table.fails, h.table.notes} {
			for name := range names {
				if !h.table.calls[name] && !h.table.wasi[name] {
					t.Errorf("%s: %s fails, but is not provided", h.ID, name)
				}
			}
		}
	}
	if some, err := Find("envoy"); err != nil || len(some) != 8 {
		t.Errorf("%d, %v", len(some), err)
	}
	if one, err := Find("istio-1.27"); err != nil || len(one) != 1 || !strings.Contains(one[0].Name, "Envoy 1.35") {
		t.Errorf("%v, %v", one, err)
	}
	if _, err := Find("envoy-9"); err == nil || !strings.Contains(err.Error(), "envoy-1.36") {
		t.Errorf("%v", err)
	}
}
