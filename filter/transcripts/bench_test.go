package transcripts

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/warmpath/warmpath/hostsim"
	"github.com/warmpath/warmpath/shared/wire"
)

// BenchmarkRequest is a whole request through the module in wazero: headers,
// body, choice, answer, end. Compare with the host alone by subtracting the
// time for a path that is not ours.
func BenchmarkRequest(b *testing.B) {
	for _, size := range []int{0, 1 << 10, 16 << 10, 100 << 10, 400 << 10, 2 << 20} {
		name := fmt.Sprint(size>>10, "KB")
		path := "/v1/chat/completions"
		if size == 0 {
			name, path = "not-ours", "/other"
		}
		b.Run(name, func(b *testing.B) {
			p := start(b, modules.full, `{}`, 1)
			p.control.doubts = true
			p.advance(time.Second)
			body := chat("m", size, "hello")
			b.ReportAllocs()
			b.SetBytes(int64(size))
			defer cpu(b)()
			for b.Loop() {
				x := p.send(0, post(path), body, 0)
				x.answer("10.0.0.1:9000", 200, 1, "application/json", `{"usage":{"prompt_tokens":500,"completion_tokens":3}}`)
			}
		})
	}
}

// BenchmarkAdmission is a request of 1 KB with and without admission in wazero,
// for a tenant with every kind of limit and for one without.
func BenchmarkAdmission(b *testing.B) {
	for _, with := range []string{"none", "class", "tenant"} {
		b.Run(with, func(b *testing.B) {
			p := start(b, modules.full, `{}`, 4)
			p.control.doubts = true
			tenant := "other"
			if with != "none" {
				p.control.leases.settings = `{"enforce":["default"],"identity":{"tenant_header":"x-tenant"},
					"tenants":{"acme":{"concurrency":64,"requests_per_minute":100000,"uncached_tokens_per_minute":1000000,"index":1}}}`
				p.control.leases.slots(1000, 1000, 1000, 1000)
				p.control.leases.tenants[1] = wire.Lease{Tenant: 1, Pool: wire.AnyPool, Class: wire.AnyClass, Slots: 64, Requests: wire.NoCredit, Tokens: wire.NoCredit}
				p.control.changed()
			}
			if with == "tenant" {
				tenant = "acme"
			}
			p.advance(2 * time.Second)
			body := chat("m", 1000, "hello")
			for vm := range 4 { // every VM has its share in the cells
				p.send(vm, post("/v1/chat/completions", "x-tenant", tenant), body, 0)
			}
			defer cpu(b)()
			for b.Loop() {
				x := p.send(0, post("/v1/chat/completions", "x-tenant", tenant), body, 0)
				x.answer("10.0.0.1:9000", 200, 1, "application/json", `{"usage":{"prompt_tokens":500,"completion_tokens":3}}`)
			}
		})
	}
}

// BenchmarkChunk is one event of a stream through the module in wazero.
func BenchmarkChunk(b *testing.B) {
	p := start(b, modules.full, `{}`, 1)
	p.advance(time.Second)
	x := p.send(0, post("/v1/chat/completions"), chat("m", 1000, "hello"), 0)
	x.Info.UpstreamAddress = "10.0.0.1:9000"
	x.ResponseHeaders(hostsim.NewHeaderMap(":status", "200", "content-type", "text/event-stream"), false)
	chunk := []byte(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}]}` + "\n\n")
	defer cpu(b)()
	for b.Loop() {
		x.ResponseData(chunk, false)
	}
}

// BenchmarkIdleTick is one tick of all 16 VMs of an idle proxy.
func BenchmarkIdleTick(b *testing.B) {
	p := start(b, modules.full, `{}`, 15)
	p.advance(time.Second)
	defer cpu(b)()
	for b.Loop() {
		p.advance(100 * time.Millisecond)
	}
}

// cpu reports the process' CPU time per operation: on a busy machine the
// wall clock says little.
func cpu(b *testing.B) func() {
	var before, after syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	return func() {
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
		used := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
		b.ReportMetric(float64(used.Microseconds())/float64(b.N), "cpu-us/op")
	}
}
