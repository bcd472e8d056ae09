//go:build !wasm

package plugin

import (
	"testing"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/admission"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/wire"
)

// TestAPanicAtTheEndOfARequestKeepsNoSlot: the callback comes once, and nobody else gives it back.
func TestAPanicAtTheEndOfARequestKeepsNoSlot(t *testing.T) {
	host, s := begin(t, `{}`)
	publish(host)
	lease(s.plugin, host)
	gate, body := s.plugin.gate, []byte(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`)
	inUse := func() int {
		gate.Tick(host.Clock, true)
		u, ok := admission.InspectTenant(host.Shared[wire.NewKeys("default").TenantSlots(1)].Value)
		if !ok {
			t.Fatal("no cell of the tenant")
		}
		return u.InUse
	}
	host.Buffers[abi.RequestBody] = body
	host.Headers[abi.RequestHeaders] = [][2]string{{":method", "POST"}, {":path", "/v1/chat/completions"}, {"content-type", "application/json"}, {"x-tenant", "acme"}}
	s.OnHttpRequestHeaders(4, false)
	s.OnHttpRequestBody(len(body), true)
	if s.phase != phaseReleased || inUse() != 1 {
		t.Fatalf("phase %d, %d slots of the tenant in use", s.phase, inUse())
	}
	func() {
		defer func() { _ = recover() }()
		broken := *s.plugin
		broken.fleet = nil // the panic
		s.plugin = &broken
		s.OnHttpStreamDone()
		t.Error("no panic")
	}()
	if n := inUse(); n != 0 {
		t.Errorf("%d slots of the tenant are in use for ever", n)
	}
}

func TestAnErrorOfTheEngineIsCountedAsNoAnswer(t *testing.T) {
	for status, want := range map[uint16]int{
		200: metrics.OutcomeComplete, 206: metrics.OutcomeComplete,
		302: metrics.OutcomeError, 400: metrics.OutcomeError, 404: metrics.OutcomeError, 500: metrics.OutcomeError,
		429: metrics.OutcomeRefused, 503: metrics.OutcomeRefused,
	} {
		s := stream{answered: true, upstream: true, bodyEnded: true, status: status}
		if got := s.counted(s.outcome()); got != want {
			t.Errorf("%d: outcome %d, want %d", status, got, want)
		}
	}
	aborted := stream{status: 400}
	if got := aborted.counted(aborted.outcome()); got != metrics.OutcomeClientAbort {
		t.Errorf("a client that left: %d", got)
	}
}
