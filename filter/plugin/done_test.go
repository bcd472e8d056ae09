//go:build !wasm

package plugin

import (
	"testing"

	"github.com/warmpath/warmpath/filter/metrics"
)

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
