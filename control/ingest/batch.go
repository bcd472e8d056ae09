// Package ingest takes in what gateways report.
//
// A batch's way through the package: its frame is checked whole, the gateway's
// books (requests and tokens in flight by worker) replace those of its batch
// before, then every report chunk that wasn't seen yet is applied in order:
// dispatches predict, dones confirm, failures mark the worker. Every chunk is
// acknowledged, a damaged one too: sending it again wouldn't mend it.
package ingest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/control/index"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/wire"
)

// Ingest applies batches. Its fields are set once, before the first batch.
type Ingest struct {
	Index    *index.Index
	Fleet    *discovery.Fleet
	Gateways *Gateways
	// Nudge asks for a probe of a worker that was seen failing.
	Nudge func(address string)
	// Admission takes over the USAGE and LATENCY payloads of a gateway's batch, nil for those it
	// lacks, and appends the sections of the ack that answer them.
	Admission func(gateway string, usage, latency []byte, now time.Time, ack []byte) ([]byte, error)
	// Observing tells whether choices of the pool are only on paper.
	Observing func(pool uint8) bool
	// Dispatched is told of every request's dispatch; it keeps nothing of the path.
	Dispatched func(gateway string, pool uint8, path []index.Checkpoint, now time.Time)
	// Copied is told of every copy of a prefix that a gateway has made at a worker.
	Copied func(gateway string, pool uint8, fingerprint uint64, worker uint16)
	Log    *slog.Logger

	Counters Counters
}

// Counters count since start.
type Counters struct {
	Batches, Chunks, Duplicates, BadChunks atomic.Uint64
	Marks, BadUsage                        atomic.Uint64
}

// MaxBatchBytes bounds the body of a batch: 16 chunks of 128 VMs would be more,
// a courier sends what fits.
const MaxBatchBytes = 4 << 20

var errNoGateway = errors.New("batch: no GATEWAY section")

// Batch applies the frame of one batch and appends the ack frame to out. order is
// that of its reports, for other replicas. The error says what is wrong with the
// frame; nothing was applied then.
func (in *Ingest) Batch(frame []byte, epoch, version uint64, off bool, now time.Time, out []byte) (ack []byte, order uint64, err error) {
	b, err := read(frame)
	if err != nil {
		return nil, 0, err
	}
	b.order = in.Index.Order(now)
	in.take(b, false, now)
	var acked []byte
	for _, r := range b.chunks {
		acked = wire.AppendAcked(acked, wire.Acked{Slot: r.slot, Nonce: r.chunk.Nonce, Sequence: r.chunk.Sequence})
	}
	var flags uint16
	if off {
		flags = wire.FlagOff
	}
	out = wire.AppendHeader(out, &wire.Header{Kind: wire.Ack, Wire: b.wire, Flags: flags, Epoch: epoch, From: version, To: version})
	out = wire.AppendSection(out, wire.SectionAcked, acked)
	answered, err := in.Admission(b.gateway.Name, b.usage, b.latency, now, out)
	if err != nil {
		// The gateway goes on with the lease it has; what else it reported is taken.
		in.Counters.BadUsage.Add(1)
		in.Log.Warn("no lease for a gateway", "gateway", b.gateway.Name, "err", err)
		return out, b.order, nil
	}
	return answered, b.order, nil
}

// Shared applies a batch that another replica took and has answered. One of an
// earlier version has no order: it counts as of now.
func (in *Ingest) Shared(frame []byte, now time.Time) error {
	b, err := read(frame)
	if err != nil {
		return err
	}
	in.take(b, true, now)
	return nil
}

// ForOthers is what of a batch's frame other replicas need, in frames of at most
// so many bytes: who reports, its books and its reports with their order. Its
// admission is the leader's business.
func ForOthers(frame []byte, order uint64, most int) (out [][]byte) {
	head := append([]byte{}, frame[:wire.HeaderBytes]...)
	head = wire.AppendSection(head, wire.SectionOrder, binary.LittleEndian.AppendUint64(nil, order))
	var chunks []wire.Section
	_ = wire.ForEachSection(frame, func(s wire.Section) error { // it was read before
		switch s.Type {
		case wire.SectionGateway, wire.SectionInFlight, wire.SectionReady:
			head = wire.AppendSection(head, s.Type, s.Payload)
		case wire.SectionReports:
			chunks = append(chunks, s)
		}
		return nil
	})
	part := slices.Clone(head)
	for _, c := range chunks {
		if len(part) > len(head) && len(part)+wire.SectionHeaderBytes+len(c.Payload) > most {
			out, part = append(out, part), slices.Clone(head)
		}
		part = wire.AppendSection(part, c.Type, c.Payload)
	}
	return append(out, part)
}

// batch is a batch's frame in parts.
type batch struct {
	wire     uint8
	gateway  wire.Gateway
	inFlight map[uint16]wire.InFlight
	ready    map[policy.Hash]wire.Ready
	chunks   []reports
	order    uint64 // 0: now

	usage, latency []byte
}

// read checks the frame of a batch.
func read(frame []byte) (*batch, error) {
	header, err := wire.DecodeHeader(frame)
	if err != nil {
		return nil, err
	}
	if header.Kind != wire.Batch {
		return nil, fmt.Errorf("frame: kind %d is not a batch", header.Kind)
	}
	b := &batch{wire: header.Wire}
	known := false
	err = wire.ForEachSection(frame, func(s wire.Section) error {
		var err error
		switch s.Type {
		case wire.SectionGateway:
			b.gateway, err = wire.DecodeGateway(s.Payload)
			known = true
		case wire.SectionInFlight:
			b.inFlight = map[uint16]wire.InFlight{}
			err = wire.ForEachInFlight(s.Payload, func(f wire.InFlight) error {
				b.inFlight[f.Ref] = f
				return nil
			})
		case wire.SectionReady:
			b.ready = map[policy.Hash]wire.Ready{}
			err = wire.ForEachReady(s.Payload, func(r wire.Ready) error {
				b.ready[r.Hash] = r
				return nil
			})
		case wire.SectionOrder:
			if len(s.Payload) != 8 {
				return fmt.Errorf("an order of %d bytes", len(s.Payload))
			}
			b.order = binary.LittleEndian.Uint64(s.Payload)
		case wire.SectionUsage:
			b.usage = s.Payload
		case wire.SectionLatency:
			b.latency = s.Payload
		case wire.SectionReports:
			var r reports
			r.slot, r.chunk, r.records, err = wire.DecodeReports(s.Payload)
			b.chunks = append(b.chunks, r)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if !known {
		return nil, errNoGateway
	}
	return b, nil
}

// take brings a batch to the registry of gateways and its chunks, unless they were
// heard before, to the index.
func (in *Ingest) take(b *batch, elsewhere bool, now time.Time) {
	in.Counters.Batches.Add(1)
	in.Gateways.saw(&b.gateway, b.inFlight, b.ready, elsewhere, now)
	queues := in.queues(b.chunks, now)
	for _, r := range b.chunks {
		in.Counters.Chunks.Add(1)
		if !in.Gateways.fresh(b.gateway.Name, r.chunk, now) {
			in.Counters.Duplicates.Add(1)
			continue
		}
		if err := in.apply(b.gateway.Name, r, b.order, queues, now); err != nil {
			in.Counters.BadChunks.Add(1)
			in.Log.Warn("report chunk damaged", "gateway", b.gateway.Name, "slot", r.slot, "sequence", r.chunk.Sequence, "err", err)
		}
	}
}

type reports struct {
	slot    uint16
	chunk   wire.Chunk
	records []byte
}

func (in *Ingest) apply(gateway string, r reports, order uint64, queues map[uint16]queue, now time.Time) error {
	boot := xxhash.Sum64String(gateway) ^ r.chunk.Nonce
	var path []index.Checkpoint
	var pools poolSet
	defer func() { in.Gateways.dispatched(gateway, &pools, now) }()
	return wire.ForEachReport(r.records, func(rep *wire.Report) error {
		id := index.RequestID{Gateway: boot, ID: rep.ID}
		switch rep.Kind {
		case wire.Dispatch:
			path = path[:0]
			for i := range rep.Checkpoints() {
				path = append(path, rep.Checkpoint(i))
			}
			in.Index.Dispatch(index.Dispatch{
				Request: id, Order: order, Chosen: rep.Chosen, PromptUnits: rep.PromptUnits, MatchedUnits: rep.MatchedUnits,
				Path: path, Idle: queues[rep.Chosen].empty(rep), Observe: in.Observing(rep.Pool), Copy: rep.Copy,
			}, now)
			switch {
			case !rep.Copy:
				pools.add(rep.Pool)
				in.Dispatched(gateway, rep.Pool, path, now)
			case len(path) > 0:
				in.Copied(gateway, rep.Pool, path[len(path)-1].Fingerprint, rep.Chosen)
			}
		case wire.Done:
			d := index.Done{
				Request: id, Order: order, Served: rep.Served, Outcome: outcome(rep), PredictedTokens: rep.PredictedTokens,
				CachedTokens: rep.CachedTokens, PromptTokens: rep.PromptTokens, OutputTokens: rep.OutputTokens,
				TTFT: -1, Total: time.Duration(rep.TotalMillis) * time.Millisecond,
			}
			if rep.TTFTMillis != wire.NoTTFT {
				d.TTFT = time.Duration(rep.TTFTMillis) * time.Millisecond
			}
			in.Index.Done(d, now)
			in.blame(rep, now)
		}
		return nil
	})
}

// outcome is the report's, but for an error or a redirect of the engine: a gateway
// calls it complete when it came to its end, and no prompt was computed for it.
func outcome(r *wire.Report) index.Outcome {
	if r.Status >= 300 && (r.Outcome == wire.Complete || r.Outcome == wire.ClientAbort) {
		return index.Refused
	}
	return index.Outcome(r.Outcome)
}

// blame marks the workers that a finished request shows to be in trouble. What
// the client did wrong (4xx other than 429) is no worker's fault.
func (in *Ingest) blame(r *wire.Report, now time.Time) {
	last := r.Served
	if last == 0 {
		last = r.Chosen
	}
	if r.Attempts > 1 && r.Served != 0 && r.Served != r.Chosen {
		// The first choice failed or refused before anybody else was asked.
		in.mark(r.Chosen, discovery.MarkRefused, "re-routed away", now, true)
	}
	switch {
	case r.Outcome == wire.Refused && (r.Status == 429 || r.Status == 503):
		in.mark(last, discovery.MarkRefused, fmt.Sprintf("refused with %d", r.Status), now, false)
	case r.Outcome == wire.UpstreamFailure && (r.Status < 400 || r.Status >= 500 || r.Status == 429):
		in.mark(last, discovery.MarkFailed, "connection failed or reset", now, true)
	}
}

func (in *Ingest) mark(ref uint16, length time.Duration, why string, now time.Time, nudge bool) {
	address, ok := in.Fleet.Mark(ref, length, why, now)
	if !ok {
		return
	}
	in.Counters.Marks.Add(1)
	if nudge {
		in.Nudge(address)
	}
}
