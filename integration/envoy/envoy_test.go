//go:build envoy

package envoy

import (
	"testing"
)

// TestEnvoy runs every scenario on every version, with both ways of holding a
// request. One Envoy serves all scenarios of a column: each leaves it as it
// found it, which is itself part of what is proved.
func TestEnvoy(t *testing.T) {
	for _, version := range versions(t) {
		t.Run(version, func(t *testing.T) {
			for _, m := range modes {
				t.Run(m.name, func(t *testing.T) {
					column(newRig(t, version, m, nil))
				})
				withoutEarlyMutation(t, version, m)
				wrongSetUp(t, version, m)
			}
		})
	}
}

func column(r *rig) {
	r.scenario("starts and serves without the control service", startsWithoutControl)
	if r.t.Failed() {
		r.t.Fatal("nothing is steered: the other scenarios would prove nothing")
	}
	r.scenario("warmpath doctor finds the example well", doctorFindsItWell)
	r.scenario("second turn lands where the first went and counts as a hit", secondTurnReturns)
	r.scenario("model chooses pool and cluster", modelChoosesPool)
	r.scenario("clients cannot name an endpoint", clientsCannotNameAnEndpoint)
	r.scenario("400 KB and 2 MB bodies arrive byte for byte", bodiesArriveByteForByte)
	r.scenario("HTTP/2 requests pass, with trailers too", http2Passes)
	r.scenario("a body over the cap passes unread", overCapPasses)
	r.scenario("event streams pass unharmed", streamsPassUnharmed)
	r.scenario("a first token later than the hold limit is waited for", slowFirstToken)
	r.scenario("a refusal is re-routed to the second choice", refusalIsRerouted)
	r.scenario("a worker killed under load costs no error before headers", workerKilled)
	r.scenario("control killed and restarted under load costs no error", controlRestarted)
	r.scenario("a client that leaves frees everything", clientLeaves)
	r.scenario("metrics are visible with labels", metricsVisible)
	r.scenario("module and config swapped under load, none failed", swappedUnderLoad)
	r.scenario("a rule of one's own swapped in under load, none failed", customUnderLoad)
	r.scenario("a corrupt module or bad config leaves the old one", badSwapRefused)
	r.scenario("a panic before the header strip leaks nothing", panicLeaksNothing)
	r.scenario("garbage collections under load cost no error", collectsUnderLoad)
	r.scenario("a trapped VM ends its held requests in time", trappedVM)
}
