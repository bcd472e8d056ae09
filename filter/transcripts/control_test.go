package transcripts

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/warmpath/warmpath/hostsim"
	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
)

// control is a control service for tests: it believes every dispatch report,
// keeps the table as a map and answers as the contract says.
type control struct {
	dead       string // "", "503", "fail", "silent", "garbage"
	epoch      uint64
	version    uint64
	bits       uint8
	keepPages  bool
	lie        uint64 // added to the version that changes start from
	doubts     bool   // takes reports and believes none
	off        bool
	workers    []worker
	policy     map[string]any
	entries    map[uint64]table.Entry
	log        []change // entry changes by version
	waiting    []poll
	reports    []string
	seen       map[string]bool // chunks by slot, nonce, sequence
	requests   map[string]int  // by path
	batches    [][]byte
	inFlight   map[uint16]wire.InFlight
	prompts    map[uint64][]uint64 // checkpoints by request id
	dispatched map[uint64]bool     // requests by id
	tokens     []string            // authorization headers seen

	copies       []wire.Copy       // COPIES section
	copied       []string          // copies that the gateway has told of
	copiers      map[string]bool   // gateways, and whether they say that they make copies
	exact        []map[string]any  // EXACT section, nil: none, as an older control
	vocabularies map[string][]byte // by hash
	ready        map[string]wire.Ready
	leases       leases
	hurry        uint32 // HINTS: the next batch in so many ms, 0 no word
}

type worker struct {
	wire.Worker
	load wire.Load
}

type change struct {
	version uint64
	entry   table.Entry
	remove  bool
	all     bool // roster, loads, policy
}

type poll struct {
	call  *hostsim.HTTPCall
	until time.Time
	from  uint64
	epoch uint64
}

func newControl() *control {
	c := &control{
		epoch: 7, version: 1, bits: 6,
		entries: map[uint64]table.Entry{}, seen: map[string]bool{}, requests: map[string]int{},
		inFlight: map[uint16]wire.InFlight{}, copiers: map[string]bool{}, prompts: map[uint64][]uint64{}, dispatched: map[uint64]bool{}, leases: newLeases(),
		policy: map[string]any{"off": false, "pools": []map[string]any{{
			"name": "default", "index": 0, "models": []string{"*"}, "mode": "route",
			"policy": map[string]any{"name": "threshold"},
		}}},
	}
	for i := range 4 {
		c.add(uint16(i+1), fmt.Sprintf("10.0.0.%d:9000", i+1))
	}
	return c
}

func (c *control) add(ref uint16, address string) {
	c.workers = append(c.workers, worker{
		Worker: wire.Worker{Ref: ref, Generation: 100 + uint64(ref), BlockTokens: 16, MaxRunning: 64, QueueLimit: 256, Address: []byte(address)},
		load:   wire.Load{Ref: ref, State: 1, PrefillRate: 10000, Trust: 1},
	})
}

// pool is the JSON of a pool, for a test to change.
func (c *control) pool(i int) map[string]any { return c.policy["pools"].([]map[string]any)[i] }

// changed publishes roster, loads and policy anew.
func (c *control) changed() {
	c.version++
	c.log = append(c.log, change{version: c.version, all: true})
}

func (c *control) put(e table.Entry) {
	c.version++
	c.entries[e.Fingerprint] = e
	c.log = append(c.log, change{version: c.version, entry: e})
}

func (c *control) answer(call *hostsim.HTTPCall, now time.Time) {
	target, _ := call.Headers.Get(":path")
	u, err := url.Parse(target)
	if err != nil {
		panic(err)
	}
	c.requests[u.Path]++
	c.tokens = append(c.tokens, call.Headers.Value("authorization"))
	switch c.dead {
	case "503":
		call.ReplyDead()
		return
	case "401":
		call.Reply(status(401), []byte(`{"error":"bad token"}`), nil)
		return
	case "fail":
		call.Fail()
		return
	case "silent":
		return
	case "garbage":
		call.Reply(status(200), []byte("this is no frame, whatever its status says"), nil)
		return
	case "empty":
		call.Reply(status(200), nil, nil)
		return
	}
	switch u.Path {
	case "/v1/table":
		q := u.Query()
		p := poll{
			call: call, from: number(q.Get("version")), epoch: number(q.Get("epoch")),
			until: now.Add(time.Duration(number(q.Get("wait_ms"))) * time.Millisecond),
		}
		if p.epoch == c.epoch && p.from == c.version {
			c.waiting = append(c.waiting, p)
			return
		}
		c.update(p)
	case "/v1/table/pages":
		q := u.Query()
		if number(q.Get("epoch")) != c.epoch || uint8(number(q.Get("bits"))) != c.bits {
			call.Reply(status(409), nil, nil)
			return
		}
		call.Reply(status(200), c.pages(int(number(q.Get("range")))), nil)
	case "/v1/vocabulary/" + path.Base(u.Path):
		c.piece(call, path.Base(u.Path), int(number(u.Query().Get("shard"))))
	case "/v1/batch":
		c.batches = append(c.batches, call.Body)
		call.Reply(status(200), c.batch(call.Body), nil)
	default:
		call.Reply(status(404), nil, nil)
	}
}

// release answers long-polls that have something to hear or have waited enough.
func (c *control) release(now time.Time) bool {
	for i, p := range c.waiting {
		switch {
		case c.dead != "":
			c.waiting = append(c.waiting[:i], c.waiting[i+1:]...)
			p.call.ReplyDead()
		case p.epoch != c.epoch || p.from != c.version:
			c.waiting = append(c.waiting[:i], c.waiting[i+1:]...)
			c.update(p)
		case !now.Before(p.until):
			c.waiting = append(c.waiting[:i], c.waiting[i+1:]...)
			p.call.Reply(status(204), nil, nil)
		default:
			continue
		}
		return true
	}
	return false
}

func (c *control) update(p poll) {
	h := wire.Header{Kind: wire.Update, Epoch: c.epoch, From: p.from, To: c.version}
	if c.off {
		h.Flags |= wire.FlagOff
	}
	if p.epoch != c.epoch {
		h.Flags |= wire.FlagResync
		if c.keepPages && p.epoch != 0 {
			h.Flags |= 4
		}
		b := wire.AppendHeader(nil, &h)
		b = wire.AppendSection(b, wire.SectionGeometry, wire.AppendGeometry(nil, wire.Geometry{Bits: c.bits, Entries: uint32(len(c.entries))}))
		b = c.records(b)
		b, mark := wire.BeginSection(b, wire.SectionDigests)
		for r := range table.Ranges(c.bits) {
			b = wire.AppendDigest(b, c.digest(r))
		}
		p.call.Reply(status(200), wire.EndSection(b, mark), nil)
		return
	}
	h.From += c.lie
	b := wire.AppendHeader(nil, &h)
	all := false
	latest := map[uint64]bool{}
	for _, l := range c.log {
		if l.version > p.from {
			all = all || l.all
			if !l.all {
				latest[l.entry.Fingerprint] = true
			}
		}
	}
	if all {
		b = c.records(b)
	}
	var puts, removes []byte
	for _, fp := range slices.Sorted(maps.Keys(latest)) {
		if e, ok := c.entries[fp]; ok {
			puts = table.AppendEntry(puts, &e)
		} else {
			removes = wire.AppendRemove(removes, fp)
		}
	}
	b = wire.AppendSection(b, wire.SectionPuts, puts)
	b = wire.AppendSection(b, wire.SectionRemoves, removes)
	p.call.Reply(status(200), b, nil)
}

func (c *control) records(b []byte) []byte {
	b, mark := wire.BeginSection(b, wire.SectionRoster)
	for _, w := range c.workers {
		b = wire.AppendWorker(b, &w.Worker)
	}
	b = wire.EndSection(b, mark)
	b, mark = wire.BeginSection(b, wire.SectionLoads)
	for _, w := range c.workers {
		b = wire.AppendLoad(b, &w.load)
	}
	b = wire.EndSection(b, mark)
	if len(c.copies) > 0 {
		b, mark = wire.BeginSection(b, wire.SectionCopies)
		for i := range c.copies {
			b = wire.AppendCopy(b, &c.copies[i])
		}
		b = wire.EndSection(b, mark)
	}
	text, err := json.Marshal(c.policy)
	if err != nil {
		panic(err)
	}
	b = wire.AppendSection(b, wire.SectionPolicy, text)
	b = wire.AppendSection(b, wire.SectionAdmission, []byte(c.leases.settings))
	if c.exact == nil {
		return b
	}
	if text, err = json.Marshal(c.exact); err != nil {
		panic(err)
	}
	return wire.AppendSection(b, wire.SectionExact, text)
}

// piece answers with a piece of a vocabulary.
func (c *control) piece(call *hostsim.HTTPCall, hash string, n int) {
	file := c.vocabularies[hash]
	size := wire.ShardSize(len(file), n)
	if size == 0 {
		call.Reply(status(404), nil, nil)
		return
	}
	call.Reply(status(200), file[n*wire.ShardBytes:][:size], nil)
}

// pagesOf are the pages of a range as one map, made from the entries.
func (c *control) pagesOf(r int) map[uint32]table.Page {
	out := map[uint32]table.Page{}
	for fp, e := range c.entries {
		index := table.PageIndex(fp, c.bits)
		if table.RangeOf(index) != r {
			continue
		}
		page := out[index]
		if page == nil {
			page = make(table.Page, table.PageBytes)
			page.Init(c.bits, index)
			out[index] = page
		}
		if !page.Put(&e) {
			panic("test table too small for its entries")
		}
	}
	return out
}

func (c *control) digest(r int) (digest uint64) {
	for _, p := range c.pagesOf(r) {
		digest ^= p.Digest()
	}
	return digest
}

func (c *control) pages(r int) []byte {
	b := wire.AppendHeader(nil, &wire.Header{Kind: wire.Pages, Epoch: c.epoch, To: c.version})
	b, mark := wire.BeginSection(b, wire.SectionPages)
	pages := c.pagesOf(r)
	for index := range uint32(1) << c.bits {
		b = append(b, pages[index]...)
	}
	return wire.EndSection(b, mark)
}

// batch takes reports: a dispatch puts the worker into all its checkpoints, a
// done from another worker moves it there.
func (c *control) batch(frame []byte) []byte {
	h := wire.Header{Kind: wire.Ack, Epoch: c.epoch, To: c.version}
	if c.off {
		h.Flags |= wire.FlagOff
	}
	out := wire.AppendHeader(nil, &h)
	out, mark := wire.BeginSection(out, wire.SectionAcked)
	var usage []byte
	err := wire.ForEachSection(frame, func(s wire.Section) error {
		switch s.Type {
		case wire.SectionGateway:
			g, err := wire.DecodeGateway(s.Payload)
			c.copiers[g.Name] = g.Copies
			return err
		case wire.SectionInFlight:
			clear(c.inFlight)
			return wire.ForEachInFlight(s.Payload, func(r wire.InFlight) error {
				c.inFlight[r.Ref] = r
				return nil
			})
		case wire.SectionReady:
			c.ready = map[string]wire.Ready{}
			return wire.ForEachReady(s.Payload, func(r wire.Ready) error {
				c.ready[r.Hash.String()] = r
				return nil
			})
		case wire.SectionUsage:
			usage = s.Payload
		case wire.SectionLatency:
			return c.leases.latency(s.Payload)
		case wire.SectionReports:
			slot, chunk, records, err := wire.DecodeReports(s.Payload)
			if err != nil {
				return err
			}
			out = wire.AppendAcked(out, wire.Acked{Slot: slot, Nonce: chunk.Nonce, Sequence: chunk.Sequence})
			key := fmt.Sprint(slot, chunk.Nonce, chunk.Sequence)
			if c.seen[key] {
				return nil
			}
			c.seen[key] = true
			return wire.ForEachReport(records, c.report)
		}
		return nil
	})
	if err != nil {
		panic(err)
	}
	out = wire.EndSection(out, mark)
	if usage != nil {
		out = c.leases.answer(out, usage)
	}
	if c.hurry > 0 {
		out = wire.AppendSection(out, wire.SectionHints, wire.AppendHints(nil, wire.Hints{BatchMillis: c.hurry}))
	}
	return out
}

func (c *control) report(r *wire.Report) error {
	if r.Kind == wire.Dispatch && r.Copy {
		c.copied = append(c.copied, fmt.Sprintf("%x at %d: %d units, %d matched, %d checkpoints",
			r.Checkpoint(r.Checkpoints()-1).Fingerprint, r.Chosen, r.PromptUnits, r.MatchedUnits, r.Checkpoints()))
	}
	if r.Kind == wire.Dispatch {
		c.reports = append(c.reports, fmt.Sprintf("dispatch to %d: %d units, %d matched, %d checkpoints", r.Chosen, r.PromptUnits, r.MatchedUnits, r.Checkpoints()))
		c.dispatched[r.ID] = true
		for i := range r.Checkpoints() {
			c.prompts[r.ID] = append(c.prompts[r.ID], r.Checkpoint(i).Fingerprint)
		}
		c.believe(r.ID, r.Chosen)
		return nil
	}
	if r.Served != 0 && r.Served != r.Chosen {
		c.believe(r.ID, r.Served)
	}
	c.reports = append(c.reports, fmt.Sprintf("done at %d (sent to %d): status %d, outcome %d, attempts %d, predicted %d, cached %d, prompt %d, output %d, ttft %d ms",
		r.Served, r.Chosen, r.Status, r.Outcome, r.Attempts, r.PredictedTokens, r.CachedTokens, r.PromptTokens, r.OutputTokens, int32(r.TTFTMillis)))
	return nil
}

// believe puts a worker into all checkpoints of a dispatched prompt.
func (c *control) believe(id uint64, ref uint16) {
	if c.doubts {
		return
	}
	for _, fp := range c.prompts[id] {
		e := c.entries[fp]
		e.Fingerprint = fp
		e.Add(ref)
		c.put(e)
	}
}

func status(code int) *hostsim.HeaderMap {
	return hostsim.NewHeaderMap(":status", strconv.Itoa(code))
}

func number(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}
