package moduletest

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/warmpath/warmpath/hostsim/hosttest"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/route"
	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
)

// control is a control service of one pool. Each poll is answered at once, as if all workers had
// reported this moment, with what has been learned and changed since the last.
type control struct {
	policy  string // JSON of the pool's rule
	workers []route.Worker
	changed bool // other workers or another rule
	homes   []uint16
	hot     fingerprint.Checkpoint // the deepest of the last prompt

	epoch, version uint64
	entries        map[uint64]table.Entry
	news           map[uint64]bool // fingerprints that have changed since the last poll
}

// bits is the size class of the table: 64 pages hold thousands of prompts.
const bits = 6

func (c *control) answer(call *hosttest.Call) {
	switch path := call.Headers.Value(":path"); {
	case strings.HasPrefix(path, "/v1/table?"):
		call.Answer(200, string(c.update(strings.HasPrefix(path, "/v1/table?epoch=0&"))))
	case path == "/v1/batch":
		ack, err := c.take(call.Body)
		if err != nil {
			call.Answer(400, err.Error())
			return
		}
		call.Answer(200, string(ack))
	default:
		call.Answer(404, "")
	}
}

// update is the table's next version; the first one, and one that is asked for from the start, is a
// new and empty table.
func (c *control) update(anew bool) []byte {
	h := wire.Header{Kind: wire.Update, From: c.version, To: c.version + 1}
	if anew || c.epoch == 0 {
		c.epoch++
		c.entries, c.news = map[uint64]table.Entry{}, map[uint64]bool{}
		h.Flags, h.From, h.To = wire.FlagResync, 0, 1
	}
	c.version, h.Epoch = h.To, c.epoch
	b := wire.AppendHeader(nil, &h)
	c.changed = c.changed || h.Resync()
	if h.Resync() {
		b = wire.AppendSection(b, wire.SectionGeometry, wire.AppendGeometry(nil, wire.Geometry{Bits: bits}))
	}
	b = c.appendFleet(b)
	if h.Resync() {
		b, mark := wire.BeginSection(b, wire.SectionDigests)
		for range table.Ranges(bits) {
			b = wire.AppendDigest(b, 0)
		}
		return wire.EndSection(b, mark)
	}
	var puts []byte
	for fp := range c.news {
		e := c.entries[fp]
		puts = table.AppendEntry(puts, &e)
	}
	clear(c.news)
	return wire.AppendSection(b, wire.SectionPuts, puts)
}

func (c *control) appendFleet(b []byte) []byte {
	var roster, loads, caches []byte
	for i := range c.workers {
		w := c.workers[i]
		if w.Ref == 0 {
			w.Ref = uint16(i + 1)
		}
		if w.State == route.Unknown {
			w.State = route.Healthy
		}
		if w.Trust == 0 {
			w.Trust = 1
		}
		if w.BlockTokens == 0 {
			w.BlockTokens = fingerprint.UnitTokens
		}
		age := uint32(wire.Never)
		if w.Age >= 0 {
			age = millis(w.Age)
		}
		roster = wire.AppendWorker(roster, &wire.Worker{
			Ref: w.Ref, Generation: 1, BlockTokens: uint16(w.BlockTokens),
			MaxRunning: uint16(w.MaxRunning), QueueLimit: uint16(w.QueueLimit), Address: []byte(w.Address),
		})
		loads = wire.AppendLoad(loads, &wire.Load{
			Ref: w.Ref, State: uint8(w.State), Running: uint16(w.Running), Waiting: uint16(w.Waiting),
			KVShare: float32(w.Watermark), PrefillRate: float32(w.PrefillRate), Trust: float32(w.Trust),
			FleetInFlight: uint16(w.InFlight), FleetUncachedTokens: uint32(w.UncachedTokens),
			AgeMillis: age, AvoidMillis: millis(w.AvoidFor), DecodeSecondsPerToken: float32(w.DecodeSeconds),
		})
		caches = wire.AppendCache(caches, &wire.Cache{
			Ref: w.Ref, FreeTokens: uint32(w.FreeTokens), TailAgeMillis: millis(w.TailAge), RecentTokens: uint32(w.RecentTokens),
			EmptyAgeMillis: millis(w.CacheAge),
		})
	}
	if c.changed {
		c.changed = false
		b = wire.AppendSection(b, wire.SectionRoster, roster)
		b = wire.AppendSection(b, wire.SectionPolicy, []byte(`{"pools":[{"name":"test","models":["*"],"policy":`+c.policy+`}]}`))
	}
	b = wire.AppendSection(b, wire.SectionLoads, loads)
	b = wire.AppendSection(b, wire.SectionCaches, caches)
	if len(c.homes) == 0 {
		return b
	}
	bitmap := make([]byte, 1+slices.Max(c.homes)/8)
	for _, ref := range c.homes {
		bitmap[ref/8] |= 1 << (ref % 8)
	}
	return wire.AppendSection(b, wire.SectionHomes, wire.AppendHome(nil, &wire.Home{Fingerprint: c.hot.Fingerprint, Units: c.hot.End, Bitmap: bitmap}))
}

func millis(d time.Duration) uint32 { return uint32(min(max(d.Milliseconds(), 0), math.MaxInt32)) }

// take believes the requests that a batch reports: their prompts are held where they were sent.
func (c *control) take(frame []byte) (ack []byte, err error) {
	ack = wire.AppendHeader(nil, &wire.Header{Kind: wire.Ack, Epoch: c.epoch, To: c.version})
	ack, mark := wire.BeginSection(ack, wire.SectionAcked)
	err = wire.ForEachSection(frame, func(s wire.Section) error {
		if s.Type != wire.SectionReports {
			return nil
		}
		slot, chunk, records, err := wire.DecodeReports(s.Payload)
		if err != nil {
			return err
		}
		ack = wire.AppendAcked(ack, wire.Acked{Slot: slot, Nonce: chunk.Nonce, Sequence: chunk.Sequence})
		return wire.ForEachReport(records, func(r *wire.Report) error {
			if r.Kind == wire.Dispatch {
				c.learn(r)
			}
			return nil
		})
	})
	return wire.EndSection(ack, mark), err
}

func (c *control) learn(r *wire.Report) {
	for i := range r.Checkpoints() {
		fp := r.Checkpoint(i).Fingerprint
		e := c.entries[fp]
		e.Fingerprint = fp
		e.Add(r.Chosen)
		c.entries[fp], c.news[fp] = e, true
		c.hot = r.Checkpoint(i)
	}
}
