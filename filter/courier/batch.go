package courier

import (
	"time"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/wire"
)

const (
	// heartbeat is how often a gateway with nothing to report says that it
	// is there.
	heartbeat = 2 * time.Second
	// leaseBeat is the same where there is a lease to be renewed.
	leaseBeat = 500 * time.Millisecond
	// leastInterval bounds how soon control may ask for the next batch.
	leastInterval = 50 * time.Millisecond
	// batchBytes bounds a batch; what doesn't fit goes with the next.
	batchBytes = 256 << 10
	// batchTimeout ends a batch that control doesn't answer.
	batchTimeout = 2 * time.Second
)

// batch is the call that takes reports to control.
type batch struct {
	open       bool
	generation uint32
	deadline   int64
	last       int64         // unix ns of the last attempt
	whole      int64         // and of the last one that said everything
	all        bool          // that is what the last one did
	news       bool          // a VM has told of dispatches since
	took       time.Duration // by the last answer
	notBefore  int64
	sooner     time.Duration // control's wish for the time to the next, 0 none
	failures   uint32
	replica    uint32 // that was asked
	more       bool   // chunks were left for the next batch

	consumed [wire.MaxSlots]consumed
	taken    [wire.MaxSlots]consumed // what the VMs' taken records say
	queue    uint32                  // that they say wakes the courier
	sent     []wire.Acked
}

// consumed is how far control has the chunks of one VM.
type consumed struct {
	nonce    uint64
	sequence uint64
}

// startBatch sends a batch when it is time and there is something to say, and
// the heart-beat otherwise. One with news goes sooner, and doesn't say what has
// time: what admission has in use.
func (c *Courier) startBatch(now int64) {
	b := &c.batch
	if b.open && now > b.deadline {
		b.open = false
		c.batchFailed(now)
		c.leave(b.replica)
	}
	if !c.lease.held || b.open || now < b.notBefore {
		return
	}
	all := now-b.whole >= int64(c.batchInterval())
	if news := b.news && now-b.last >= int64(c.newsInterval()); !news && (!all || !c.worthTelling(now)) {
		return
	}
	b.last, b.all, b.news = now, all, false
	if all {
		b.whole = now
	}
	b.deadline = now + int64(batchTimeout+lostAfter)
	b.generation++
	generation := b.generation
	frame := c.batchFrame(now)
	if !c.lease.held {
		return
	}
	b.open, b.replica = true, c.replica
	headers := append(c.headers("POST", "/v1/batch"), [2]string{"content-type", "application/octet-stream"})
	_, status := abi.HTTPCall(c.config.Control.Cluster, headers, frame, batchTimeout,
		func(_, size, _ int) {
			if c.batch.generation != generation || !c.batch.open {
				return
			}
			c.batch.open = false
			c.lease.looked = false
			c.batchAnswered(c.status(), size)
		})
	if status != abi.OK {
		b.open = false
		c.batchFailed(now)
	}
}

// worthTelling tells whether there is something to say, be it that this gateway
// is there.
func (c *Courier) worthTelling(now int64) bool {
	beat := heartbeat
	if c.gate.Active() {
		beat = leaseBeat
	}
	return c.pending() || c.gate.Busy() || c.batch.sooner > 0 || now-c.batch.whole >= int64(beat)
}

// Hurry sends a batch as soon as may be: a request has begun to wait for what
// control may grant.
func (c *Courier) Hurry(now int64) {
	if c.lease.held {
		c.batch.sooner = leastInterval
		c.hasten(now)
	}
}

// News sends a batch as soon as may be: a VM has told of dispatches.
func (c *Courier) News(now int64) {
	if c.lease.held {
		c.batch.news = true
		c.hasten(now)
	}
}

// hasten starts a batch now, or has the tick come when it may be.
func (c *Courier) hasten(now int64) {
	c.lease.looked = false
	c.startBatch(now)
	c.pace(now)
}

// newsInterval is the least time from a batch to one with news. A control
// service that takes long to answer is asked less often.
func (c *Courier) newsInterval() time.Duration {
	return max(c.config.Control.NewsInterval, 2*c.batch.took)
}

// announce tells every VM that its chunks are taken from here on, and how to
// wake this one.
func (c *Courier) announce() {
	b := &c.batch
	if queue := c.gate.Queue(); queue != b.queue {
		b.queue = queue
		clear(b.taken[:])
	}
	c.fleet.Rows(func(slot uint16, nonce, _ uint64) {
		if b.taken[slot].nonce != nonce {
			c.take(slot, nonce, 0)
		}
	})
}

// take says that a VM's chunks are taken up to one: the VM doesn't add to them
// any more. It answers false when the lease is lost.
func (c *Courier) take(slot uint16, nonce, sequence uint64) bool {
	b := &c.batch
	have := &b.taken[slot]
	if have.nonce == nonce && have.sequence >= sequence {
		return true
	}
	if !c.lease.held {
		return false
	}
	key := c.fleet.Keys.TakenKey(slot)
	value, cas, status := abi.SharedData(key, &c.value)
	if was, err := wire.DecodeTaken(value); status == abi.OK && err == nil && was.Nonce == nonce {
		sequence = max(sequence, was.Sequence) // a former courier may have read it
	}
	c.mark = wire.AppendTaken(c.mark[:0], &wire.Taken{Queue: b.queue, Nonce: nonce, Sequence: sequence, Courier: c.fleet.Nonce})
	if !c.writeOver(key, c.mark, cas, status) {
		return false
	}
	*have = consumed{nonce, sequence}
	return true
}

// batchInterval is the least time between two batches: the configured one, or
// less when control asks for it, as somebody waits for a lease.
func (c *Courier) batchInterval() time.Duration {
	if c.batch.sooner > 0 {
		return c.batch.sooner
	}
	return c.config.Control.BatchInterval
}

// pending tells whether any VM has chunks that control doesn't.
func (c *Courier) pending() bool {
	found := c.batch.more
	c.fleet.Rows(func(slot uint16, nonce, sequence uint64) {
		have := &c.batch.consumed[slot]
		if sequence > 0 && (have.nonce != nonce || have.sequence < sequence) {
			found = true
		}
	})
	return found
}

// batchFrame builds a batch: who we are, what is in flight, and the chunks of
// all VMs that control hasn't acknowledged.
func (c *Courier) batchFrame(now int64) []byte {
	b := &c.batch
	c.fleet.LookNow(now)
	out := wire.AppendHeader(c.out[:0], &wire.Header{Kind: wire.Batch, Epoch: c.meta.Epoch, From: c.meta.Version, To: c.meta.Version})
	out, mark := wire.BeginSection(out, wire.SectionGateway)
	out = wire.AppendGateway(out, &wire.Gateway{
		Nonce: c.fleet.Nonce, Epoch: c.meta.Epoch, Version: c.meta.Version, SentUnixNanos: now,
		LiveRows: uint16(c.fleet.LiveRows()), FailedBatches: b.failures, Name: c.config.Gateway,
		Copies: c.config.WorkerCluster != "",
	})
	out = wire.EndSection(out, mark)
	out, mark = wire.BeginSection(out, wire.SectionInFlight)
	out = c.fleet.AppendInFlight(out)
	out = wire.EndSection(out, mark)
	out = c.appendReady(out)
	if b.all {
		out = c.appendAdmission(out, now)
	}

	b.sent, b.more = b.sent[:0], false
	c.fleet.Rows(func(slot uint16, nonce, sequence uint64) {
		have := &b.consumed[slot]
		if have.nonce != nonce {
			*have = consumed{nonce: nonce}
			if sequence > wire.ReportChunks {
				have.sequence = sequence - wire.ReportChunks
			}
		}
		if sequence > have.sequence+wire.ReportChunks {
			c.metrics.Add(metrics.ReportsLost, 0, sequence-wire.ReportChunks-have.sequence)
			have.sequence = sequence - wire.ReportChunks
		}
		if have.sequence < sequence && !c.take(slot, nonce, sequence) {
			return
		}
		for next := have.sequence + 1; next <= sequence; next++ {
			value, _, status := abi.SharedData(c.fleet.Keys.Report(slot, next), &c.value)
			chunk, _, err := wire.DecodeChunk(value)
			if status != abi.OK || err != nil || chunk.Nonce != nonce || chunk.Sequence != next {
				// Overwritten a moment ago, or written to the slot that the VM had before. A
				// VM writes a chunk before it says so: one that isn't there never will be.
				if gone := status == abi.NotFound || status == abi.OK && chunk.Nonce != nonce; gone && next == have.sequence+1 {
					have.sequence = next
				}
				continue
			}
			if len(out)+len(value)+64 > batchBytes {
				b.more = true
				return
			}
			out = wire.AppendReports(out, slot, value)
			b.sent = append(b.sent, wire.Acked{Slot: slot, Nonce: nonce, Sequence: next})
		}
	})
	c.out = out
	return out
}

// appendAdmission appends what the gateway has in use of what it may admit, and
// its times to first token.
func (c *Courier) appendAdmission(b []byte, now int64) []byte {
	if !c.gate.Active() {
		return b
	}
	b, mark := wire.BeginSection(b, wire.SectionUsage)
	b = wire.EndSection(c.gate.AppendUsage(b, now), mark)
	b, mark = wire.BeginSection(b, wire.SectionLatency)
	return wire.EndSection(c.gate.AppendLatency(b), mark)
}

func (c *Courier) batchAnswered(status, size int) {
	now := abi.Now()
	if !c.lease.held {
		return
	}
	switch {
	case status == 200:
		value, read := abi.Buffer(abi.HTTPCallBody, 0, size, &c.acks)
		if read != abi.OK || !c.takeAck(value, now) {
			c.batchFailed(now)
			break
		}
		c.batch.failures = 0
		c.batch.took = time.Duration(now - c.batch.last)
		c.batch.news = c.batch.news || c.batch.more // a full batch is followed by the next
	case status == 400 || status == 413 || status == 422:
		// Control can't read these chunks and never will.
		c.metrics.Add(metrics.ReportsLost, 0, uint64(len(c.batch.sent)))
		for _, s := range c.batch.sent {
			c.consume(s)
		}
		c.batchFailed(now)
	default:
		c.batchFailed(now)
		c.leave(c.batch.replica)
	}
	if c.batch.news {
		c.startBatch(now)
	}
	c.pace(now)
}

// takeAck notes what control has, and what it asks for.
func (c *Courier) takeAck(frame []byte, now int64) bool {
	if c.batch.all {
		c.batch.sooner = 0
	}
	header, err := wire.DecodeHeader(frame)
	if err == nil && header.Kind != wire.Ack {
		err = &wire.Error{Offset: 4, What: "frame: not an ack"}
	}
	if err == nil {
		err = wire.ForEachSection(frame, func(s wire.Section) error {
			switch s.Type {
			case wire.SectionAcked:
				return wire.ForEachAcked(s.Payload, func(a wire.Acked) error {
					c.consume(a)
					return nil
				})
			case wire.SectionLeases:
				return c.gate.Install(s.Payload, c.batch.last, now)
			case wire.SectionHints:
				hints, err := wire.DecodeHints(s.Payload)
				if err == nil {
					c.batch.notBefore = now + int64(hint(hints.BatchMillis))
					if d := hint(hints.BatchMillis); d > 0 && d < c.config.Control.BatchInterval {
						c.batch.notBefore, c.batch.sooner = 0, max(d, leastInterval)
					}
					c.poll.notBefore = max(c.poll.notBefore, now+int64(hint(hints.PollMillis)))
				}
				return err
			}
			return nil
		})
	}
	if err != nil {
		c.tell("ack: " + err.Error())
		return false
	}
	if c.meta.UpdatedUnixNanos != 0 && c.meta.Off != header.Off() {
		c.meta.Off = header.Off()
		c.writeMeta()
	}
	return true
}

// hint bounds what control may ask for: a courier that is told to stay away
// for ever would never hear otherwise.
func hint(millis uint32) time.Duration {
	return min(time.Duration(millis)*time.Millisecond, 30*time.Second)
}

// consume notes one chunk as done. They are sent in order of their sequence.
func (c *Courier) consume(a wire.Acked) {
	have := &c.batch.consumed[a.Slot]
	if have.nonce == a.Nonce && a.Sequence > have.sequence {
		have.sequence = a.Sequence
	}
}

func (c *Courier) batchFailed(now int64) {
	c.metrics.Inc(metrics.BatchFailures, 0)
	c.batch.sooner = 0
	c.batch.notBefore = now + int64(c.backoff(uint(min(c.batch.failures, 10))))
	c.batch.failures++
	c.batch.news = c.batch.news || len(c.batch.sent) > 0
}
