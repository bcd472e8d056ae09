package abi_test

import (
	"fmt"
	"strings"
	"testing"
)

func TestResultsInDifferentScratchesDoNotDisturbEachOther(t *testing.T) {
	r := newRecorder(t, guestWasm)
	r.start(t)
	r.answers["proxy_get_shared_data"] = answer{data: "first"}
	r.answers["proxy_get_header_map_value"] = answer{data: "other"}
	if got := r.run(t, "twoResults"); got != "first other" {
		t.Errorf("got %q", got)
	}
	// The documented contract: with one Scratch the second replaces the first.
	if got := r.run(t, "sameScratch"); got != "first other false" {
		t.Errorf("got %q", got)
	}
}

func TestSmallSDKResultsMayBeKept(t *testing.T) {
	r := newRecorder(t, guestWasm)
	r.start(t)
	r.answers["proxy_get_header_map_value"] = answer{data: strings.Repeat("kept", 100)}
	if got := r.run(t, "sdk.keptValue"); got != strings.Repeat("kept", 100) {
		t.Errorf("the value changed to %q", got)
	}
}

func TestMemoryTheModuleNeverHandedOutIsRefused(t *testing.T) {
	r := newRecorder(t, guestWasm)
	r.start(t)
	r.lie = true
	r.answers["proxy_get_header_map_value"] = answer{data: "value"}
	if got := r.run(t, "Header"); got != `"" invalid memory access` {
		t.Errorf("got %s", got)
	}
}

func TestHostMayReenterTheModuleInsideAForeignCall(t *testing.T) {
	r := newRecorder(t, guestWasm)
	r.start(t)
	r.answers["proxy_get_header_map_value"] = answer{data: "inner"}
	r.answers["proxy_call_foreign_function"] = answer{data: "outer result"}
	for _, exercise := range []string{"CallForeign", "sdk.CallForeignFunction"} {
		r.onForeign = func() {
			r.foreign = "sdk.GetHttpRequestHeader"
			r.call(t, "proxy_on_foreign_function", 1, 0, uint64(len(r.foreign)))
			r.onForeign = nil
		}
		if got := r.run(t, exercise); got != `"outer result" ok` {
			t.Errorf("%s: got %s", exercise, got)
		}
	}
}

// TestManyLargeBodiesCostNoMemory reads bodies of 100 KB by both ways, as a
// busy gateway's VM does.
func TestManyLargeBodiesCostNoMemory(t *testing.T) {
	r := newRecorder(t, guestWasm)
	r.start(t)
	body := answer{data: strings.Repeat("0123456789", 10_000)}
	r.answers["proxy_get_buffer_bytes"] = body
	r.answers["proxy_get_buffer_status"] = body
	measure := func() (collections, inUse, fromHost int) {
		if _, err := fmt.Sscan(r.run(t, "memory"), &collections, &inUse, &fromHost); err != nil {
			t.Fatal(err)
		}
		return collections, inUse, fromHost
	}
	read := func(times int) {
		for range times / 50 {
			if got := r.run(t, "readBodies 50"); got != "equal" {
				t.Fatal(got)
			}
		}
	}
	read(50) // the scratch blocks reach their size
	collections, _, before := measure()
	size := r.mod.Memory().Size()
	const bodies = 5_000
	read(bodies)
	after, inUse, fromHost := measure()
	t.Logf("%d bodies of 100 KB, each read twice: %d collections, heap in use %d KiB, from host %d -> %d KiB",
		bodies, after-collections, inUse, before, fromHost)
	if after-collections > 5 {
		t.Errorf("%d collections for %d bodies, want next to none", after-collections, bodies)
	}
	if fromHost > before || r.mod.Memory().Size() > size {
		t.Errorf("memory grew: runtime %d -> %d KiB, wasm %d -> %d bytes", before, fromHost, size, r.mod.Memory().Size())
	}
}

// BenchmarkEmptyCallback is the cost of one callback that does nothing, host
// side included.
func BenchmarkEmptyCallback(b *testing.B) {
	wasm, err := buildModule(cacheDir(), "guest", "bare")
	if err != nil {
		b.Fatal(err)
	}
	r := newRecorder(b, wasm)
	r.call(b, "proxy_on_context_create", 1, 0)
	r.call(b, "proxy_on_context_create", 2, 1)
	f := r.mod.ExportedFunction("proxy_on_response_body")
	stack := make([]uint64, 3)
	b.ReportAllocs()
	for b.Loop() {
		stack[0], stack[1], stack[2] = 2, 100, 0
		if err := f.CallWithStack(b.Context(), stack); err != nil {
			b.Fatal(err)
		}
		if stack[0] != 0 {
			b.Fatalf("answered %d, want Continue", stack[0])
		}
	}
	b.ReportMetric(float64(len(wasm))/1e6, "MB-module")
}

// BenchmarkRead is what a read of the host costs by each way: 2 KB of shared
// data, a header of 20 bytes, a body of 100 KB. The host's part is the least
// possible: a copy.
func BenchmarkRead(b *testing.B) {
	for _, read := range []struct {
		name string
		size int
	}{
		{"SharedData", 2040},
		{"sdk.SharedData", 2040},
		{"Header", 20},
		{"sdk.Header", 20},
		{"Body", 100_000},
		{"sdk.Body", 100_000},
	} {
		b.Run(read.name, func(b *testing.B) {
			r := newRecorder(b, guestWasm)
			r.start(b)
			a := answer{data: strings.Repeat("x", read.size)}
			r.answers["proxy_get_shared_data"] = a
			r.answers["proxy_get_header_map_value"] = a
			r.answers["proxy_get_buffer_bytes"] = a
			r.quiet = true
			var before, after, ignored int
			if _, err := fmt.Sscan(r.run(b, "memory"), &before, &ignored, &ignored); err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			if got := r.run(b, fmt.Sprintf("repeat %d %s", b.N, read.name)); got != "ok" {
				b.Fatalf("the read %s", got)
			}
			b.StopTimer()
			if _, err := fmt.Sscan(r.run(b, "memory"), &after, &ignored, &ignored); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(after-before)/float64(b.N)*1e6, "collections/Mop")
		})
	}
}
