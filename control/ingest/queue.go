package ingest

import (
	"time"

	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/wire"
)

// queue is what stood before a request at a worker, as far as a batch and the
// last reports tell.
type queue struct {
	fit        bool   // a prompt would be computed at once, at full speed, as the last load has it
	uncached   uint32 // tokens in flight that wait to be computed, of all gateways
	dispatched int    // requests of this batch
}

const (
	// idleTokens in flight make no wait that could be measured.
	idleTokens = 256
	// freshLoad is the age up to which a load tells what a request met.
	freshLoad = 5 * time.Second
	// halfBatch is half of a batch whose limit nobody told.
	halfBatch = 8
)

// queues tells what the requests of a batch have met, by ref. Sequences that
// decode take little from a prefill while they are less than half of what the
// engine runs at once. Of an engine that never told its load, nothing else in
// flight has to do.
func (in *Ingest) queues(chunks []reports, now time.Time) map[uint16]queue {
	out := map[uint16]queue{}
	totals := in.Gateways.Totals(now)
	for ref, total := range totals {
		out[ref] = queue{uncached: total.UncachedTokens}
	}
	for _, w := range in.Fleet.Workers() {
		limit := halfBatch
		if w.MaxRunning > 0 {
			limit = w.MaxRunning / 2
		}
		q := out[w.Ref]
		q.fit = w.Load.Waiting == 0 && w.Load.Running <= limit && now.Sub(w.LoadAt) <= freshLoad
		if !w.Load.Known {
			q.fit = totals[w.Ref].Requests <= 1
		}
		out[w.Ref] = q
	}
	for _, r := range chunks {
		// A damaged chunk is told of when it is applied.
		_ = wire.ForEachReport(r.records, func(rep *wire.Report) error {
			if rep.Kind == wire.Dispatch {
				q := out[rep.Chosen]
				q.dispatched++
				out[rep.Chosen] = q
			}
			return nil
		})
	}
	return out
}

// empty tells whether a dispatch of the batch found its worker without a queue:
// its predicted wait is about zero. The books count the request itself until its
// first token.
func (q queue) empty(dispatch *wire.Report) bool {
	own := (dispatch.PromptUnits - min(dispatch.MatchedUnits, dispatch.PromptUnits)) * fingerprint.UnitTokens
	others := q.uncached - min(own, q.uncached)
	return q.fit && q.dispatched == 1 && others <= idleTokens
}
