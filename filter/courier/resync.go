package courier

import (
	"strconv"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
)

// resync is a comparison of the whole table with control's, range by range.
type resync struct {
	active  bool
	header  wire.Header
	bits    uint8
	digests []uint64
	next    int // range to compare next

	frame []byte                   // a fetched range that is being written
	pages []byte                   // its pages
	at    int                      // next index within the range
	own   [table.RangePages]uint64 // digests of the pages before it
}

func (r *resync) drop() { *r = resync{} }

// takeResync begins a comparison. Roster, loads and policy count at once: they
// decide who is alive.
func (c *Courier) takeResync(header *wire.Header, parts *sections, now int64) bool {
	if parts.geometry == nil || !parts.hasRoster || parts.policy == nil {
		c.tell("resync without geometry, roster or policy")
		return false
	}
	bits := parts.geometry.Bits
	keep := header.KeepPages() && c.meta.Ready && c.sameWorkers(parts.roster)
	if !keep && len(parts.digests) != 8*table.Ranges(bits) {
		c.tell("resync with " + strconv.Itoa(len(parts.digests)/8) + " digests for " + strconv.Itoa(table.Ranges(bits)) + " ranges")
		return false
	}
	c.metrics.Inc(metrics.Resyncs, 0)
	c.ask = false
	c.meta.UpdatedUnixNanos = now
	c.meta.Off = header.Off()
	if !c.writeRecords(parts) {
		return true
	}
	if keep {
		c.meta.Epoch, c.meta.Version = header.Epoch, header.To
		if c.writeMeta() {
			c.compared() // there is nothing to compare with
		}
		return true
	}
	if !c.meta.Ready {
		// Nothing to compare with and nothing to wait for: an empty table of
		// the new size routes by load and fills up range by range.
		c.meta.Bits = bits
	}
	if !c.writeMeta() {
		return true
	}
	r := resync{active: true, header: *header, bits: bits, digests: make([]uint64, 0, table.Ranges(bits))}
	_ = wire.ForEachDigest(parts.digests, func(_ int, digest uint64) error {
		r.digests = append(r.digests, digest)
		return nil
	})
	c.resync = r
	return true
}

// sameWorkers tells whether no ref of a roster names another worker than the
// stored roster does. Pages may be kept only then.
func (c *Courier) sameWorkers(roster []byte) bool {
	type identity struct {
		generation uint64
		address    string
	}
	value, _, status := abi.SharedData(c.fleet.Keys.RosterKey, &c.value)
	if status != abi.OK {
		return false
	}
	before := map[uint16]identity{}
	err := wire.ForEachWorker(value, func(w *wire.Worker) error {
		before[w.Ref] = identity{w.Generation, string(w.Address)}
		return nil
	})
	if err != nil {
		return false
	}
	same := true
	_ = wire.ForEachWorker(roster, func(w *wire.Worker) error {
		old, known := before[w.Ref]
		same = same && (!known || old == identity{w.Generation, string(w.Address)})
		return nil
	})
	return same
}

// continueResync compares ranges until the slice is spent or one has to be
// fetched, and writes a fetched one.
func (c *Courier) continueResync(s *slice) {
	r := &c.resync
	if c.poll.open {
		return
	}
	for r.active {
		if r.frame != nil {
			if !c.writeRange(s) {
				return
			}
			continue
		}
		if r.next == len(r.digests) {
			c.endResync()
			return
		}
		digest, ok := c.rangeDigest(s)
		switch {
		case !ok:
			return
		case digest == r.digests[r.next]:
			r.next++
			r.at = 0
		default:
			c.fetchRange(s.began)
			return
		}
	}
}

// rangeDigest notes the digests of the stored pages of the next range, over as
// many slices as it takes, and adds them up.
func (c *Courier) rangeDigest(s *slice) (digest uint64, ok bool) {
	r := &c.resync
	first, n := r.span()
	for r.at < n {
		if s.spent() {
			return 0, false
		}
		index := first + uint32(r.at)
		value, _, status := abi.SharedData(c.fleet.Keys.PageView(r.bits, index), &c.value)
		r.own[r.at] = 0
		if status == abi.OK && len(value) == table.PageBytes {
			r.own[r.at] = table.Page(value).Digest()
		}
		r.at++
	}
	for _, page := range r.own[:n] {
		digest ^= page
	}
	return digest, true
}

// span is the first page and the number of pages of the next range.
func (r *resync) span() (first uint32, n int) {
	return uint32(r.next * table.RangePages), min(table.RangePages, 1<<r.bits)
}

func (c *Courier) fetchRange(now int64) {
	headers, body := c.rangeRequest()
	c.call(now, headers, body, c.rangeAnswered)
}

// rangeRequest asks for the pages of the next range: for those whose digests
// differ, where control can tell, or for all.
func (c *Courier) rangeRequest() (headers [][2]string, body []byte) {
	r := &c.resync
	path := "/v1/table/pages?epoch=" + strconv.FormatUint(r.header.Epoch, 10) +
		"&bits=" + strconv.Itoa(int(r.bits)) + "&range=" + strconv.Itoa(r.next)
	if !r.comparing() {
		return c.headers("GET", path), nil
	}
	b := wire.AppendHeader(c.out[:0], &wire.Header{Kind: wire.Pages, Wire: wire.Version, Epoch: r.header.Epoch})
	b, mark := wire.BeginSection(b, wire.SectionDigests)
	for _, digest := range r.own[:r.at] {
		b = wire.AppendDigest(b, digest)
	}
	c.out = wire.EndSection(b, mark)
	return c.headers("POST", path), c.out
}

// comparing tells whether control answers with the pages that differ: it speaks
// this version.
func (r *resync) comparing() bool { return r.header.Wire >= wire.Version }

// rangeAnswered takes the pages of a range.
func (c *Courier) rangeAnswered(status, size int) {
	now := abi.Now()
	switch {
	case !c.lease.held || !c.resync.active:
		return
	case status != 200:
		// 409: control has moved on, the long-poll will tell how.
		c.pollRefused(now, status)
		return
	}
	frame, ok := c.body(size)
	if !ok || !c.takeRange(frame) {
		c.pollFailed(now, metrics.PollBody)
		return
	}
	c.pollSucceeded()
	c.work(now)
	c.pace(now)
}

// takeRange checks a frame of pages. All of them must belong to the range.
func (c *Courier) takeRange(frame []byte) bool {
	r := &c.resync
	header, err := wire.DecodeHeader(frame)
	if err == nil && (header.Kind != wire.Pages || header.Epoch != r.header.Epoch) {
		err = &wire.Error{Offset: 4, What: "frame: not the pages that were asked for"}
	}
	var pages []byte
	first, n := r.span()
	next := int64(first)
	if err == nil {
		err = wire.ForEachSection(frame, func(s wire.Section) error {
			if s.Type != wire.SectionPages {
				return nil
			}
			pages = s.Payload
			return wire.ForEachPage(s.Payload, func(p table.Page) error {
				index := int64(p.Index())
				if p.Bits() != r.bits || index < next || index >= int64(first)+int64(n) {
					return &wire.Error{What: "pages: page " + strconv.FormatInt(index, 10) + " is not of this range or not in order"}
				}
				next = index + 1
				return nil
			})
		})
	}
	if err != nil {
		c.tell("pages: " + err.Error())
		return false
	}
	r.frame, r.pages, r.at = frame, pages, 0
	return true
}

// writeRange writes the pages of a fetched range and empties those that
// control doesn't have: it sends them without entries in a comparison, and not at
// all otherwise. It answers true when the range is done.
func (c *Courier) writeRange(s *slice) bool {
	r := &c.resync
	first, n := r.span()
	for r.at < n {
		if s.spent() {
			return false
		}
		index := first + uint32(r.at)
		var page table.Page
		sent := len(r.pages) > 0 && table.Page(r.pages[:table.PageBytes]).Index() == index
		if sent {
			if page = r.pages[:table.PageBytes]; page.Count() == 0 {
				page = nil
			}
		}
		if (sent || !r.comparing()) && !c.replacePage(r.bits, index, page) {
			return false
		}
		if sent {
			r.pages = r.pages[table.PageBytes:]
		}
		r.at++
	}
	r.frame, r.pages, r.at = nil, nil, 0
	r.next++
	return true
}

// replacePage writes a page whole; a nil page empties what is there. An equal
// page is left alone.
func (c *Courier) replacePage(bits uint8, index uint32, page table.Page) bool {
	value, cas, status := abi.SharedData(c.fleet.Keys.PageView(bits, index), &c.value)
	if page == nil && (status != abi.OK || len(value) == 0) {
		return true
	}
	if !c.writeOver(c.fleet.Keys.PageView(bits, index), page, cas, status) {
		return false
	}
	c.fleet.Pages.Forget(index)
	c.metrics.Inc(metrics.PagesWritten, 0)
	return true
}

// endResync puts the new table in force: one write of the meta record.
func (c *Courier) endResync() {
	r := &c.resync
	if c.meta.Ready && c.meta.Bits != r.bits {
		c.sweep = sweep{active: true, bits: c.meta.Bits}
	}
	c.meta.Bits, c.meta.Epoch, c.meta.Version, c.meta.Ready = r.bits, r.header.Epoch, r.header.To, true
	r.drop()
	if c.writeMeta() {
		c.compared()
	}
}

// sweep empties the pages of a size class that is no longer used: shared data
// can't delete a key, but an empty value gives its memory back.
type sweep struct {
	active bool
	bits   uint8
	next   uint32
}

func (c *Courier) continueSweep(s *slice) {
	for c.sweep.next < 1<<c.sweep.bits {
		if s.spent() || !c.replacePage(c.sweep.bits, c.sweep.next, nil) {
			return
		}
		c.sweep.next++
	}
	c.sweep = sweep{}
}
