package courier

import (
	"encoding/binary"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/fleet"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
)

// update is an update frame that is being applied: the frame's own bytes are
// the backlog, and a position in them is all the state.
type update struct {
	frame   []byte
	header  wire.Header
	puts    []byte // payloads within frame
	removes []byte
	at      int // bytes of puts, then removes, that are applied
}

func (u *update) drop() { *u = update{} }

// sections are the parts of an update frame that have been checked.
type sections struct {
	geometry                     *wire.Geometry
	roster, loads, policy, sets  []byte
	exact, admission             []byte // go with policy
	caches, homes, copies        []byte // go with loads
	puts, removes, digests       []byte
	hasRoster, hasLoads, hasSets bool
}

// takeUpdate checks an update frame whole and begins to apply it. A frame with
// anything unreadable in it changes nothing.
func (c *Courier) takeUpdate(frame []byte, now int64) bool {
	header, err := wire.DecodeHeader(frame)
	if err == nil && header.Kind != wire.Update {
		err = &wire.Error{Offset: 4, What: "frame: not an update"}
	}
	var parts sections
	if err == nil {
		parts, err = split(frame)
	}
	if err != nil {
		c.tell("update: " + err.Error())
		return false
	}
	if header.Resync() {
		return c.takeResync(&header, &parts, now)
	}
	if !c.meta.Ready || header.Epoch != c.meta.Epoch || header.From != c.meta.Version {
		// Changes to a table that is not ours: ask for the whole.
		c.ask = true
		return true
	}
	c.meta.UpdatedUnixNanos = now
	c.meta.Off = header.Off()
	if !c.writeRecords(&parts) || !c.writeMeta() {
		return true // the lease is lost, the frame was good
	}
	c.update = update{frame: frame, header: header, puts: parts.puts, removes: parts.removes}
	return true
}

// split finds and checks the sections of an update.
func split(frame []byte) (parts sections, err error) {
	err = wire.ForEachSection(frame, func(s wire.Section) error {
		b := s.Payload
		switch s.Type {
		case wire.SectionGeometry:
			g, err := wire.DecodeGeometry(b)
			parts.geometry = &g
			return err
		case wire.SectionRoster:
			parts.roster, parts.hasRoster = b, true
			return wire.ForEachWorker(b, func(*wire.Worker) error { return nil })
		case wire.SectionLoads:
			parts.loads, parts.hasLoads = b, true
			return wire.ForEachLoad(b, func(*wire.Load) error { return nil })
		case wire.SectionCaches:
			parts.caches = b
			return wire.ForEachCache(b, func(*wire.Cache) error { return nil })
		case wire.SectionHomes:
			parts.homes = b
			return wire.ForEachHome(b, func(*wire.Home) error { return nil })
		case wire.SectionCopies:
			parts.copies = b
			return wire.ForEachCopy(b, func(*wire.Copy) error { return nil })
		case wire.SectionPolicy:
			parts.policy = b
			_, err := policy.Parse(b)
			return err
		case wire.SectionExact:
			// Read by the VMs alone: one that can't goes on in approximate
			// mode, and needs everything else.
			parts.exact = b
		case wire.SectionAdmission:
			parts.admission = b // the same: the settings before stay
		case wire.SectionSets:
			parts.sets, parts.hasSets = b, true
			return wire.ForEachSet(b, func(uint32, []byte) error { return nil })
		case wire.SectionPuts:
			parts.puts = b
			return wire.ForEachPut(b, func(*table.Entry) error { return nil })
		case wire.SectionRemoves:
			parts.removes = b
			return wire.ForEachRemove(b, func(uint64) error { return nil })
		case wire.SectionDigests:
			parts.digests = b
			return wire.ForEachDigest(b, func(int, uint64) error { return nil })
		}
		return nil
	})
	return parts, err
}

// writeRecords writes the sections that are stored as they are, and gives each
// a new version in the meta record, which is written afterwards.
func (c *Courier) writeRecords(parts *sections) bool {
	keys := c.fleet.Keys
	if parts.hasRoster {
		if !c.write(keys.RosterKey, parts.roster) {
			return false
		}
		c.meta.RosterVersion++
	}
	if parts.policy != nil {
		if !c.write(keys.PolicyKey, parts.policy) || !c.writeOrEmpty(keys.ExactKey, parts.exact) || !c.writeOrEmpty(keys.AdmissionKey, parts.admission) {
			return false
		}
		c.meta.PolicyVersion++
	}
	if parts.hasLoads {
		if !c.write(keys.LoadsKey, parts.loads) || !c.writeOrEmpty(keys.CachesKey, parts.caches) || !c.writeOrEmpty(keys.HomesKey, parts.homes) ||
			!c.writeOrEmpty(keys.CopiesKey, parts.copies) {
			return false
		}
		c.meta.LoadsVersion++
	}
	if parts.hasSets {
		if !c.write(keys.SetsKey, parts.sets) {
			return false
		}
		c.meta.SetsVersion++
	}
	return true
}

// writeOrEmpty replaces a section that comes with another; one that did not come
// says nothing.
func (c *Courier) writeOrEmpty(key string, payload []byte) bool {
	if len(payload) == 0 {
		return c.empty(key)
	}
	return c.write(key, payload)
}

// applyUpdate writes entry changes page by page until the slice is spent. The
// last slice writes the new version.
func (c *Courier) applyUpdate(s *slice) {
	u := &c.update
	for u.at < len(u.puts)+len(u.removes) {
		if !c.applyPage() {
			return
		}
		if s.spentAt(c.lease.clock) {
			c.onTime()
			return
		}
	}
	c.meta.Version = u.header.To
	u.drop()
	c.writeMeta() // looks at the clock behind the last page, too
}

// applyPage applies the changes at the position that belong to one page.
// Control sorts them by fingerprint, so that a page is written once.
func (c *Courier) applyPage() bool {
	u := &c.update
	bits := c.meta.Bits
	index := table.PageIndex(u.fingerprint(), bits)
	key := c.fleet.Keys.PageView(bits, index)
	page, cas, status := c.readPage(key, bits, index)
	for u.at < len(u.puts)+len(u.removes) && table.PageIndex(u.fingerprint(), bits) == index {
		if u.at < len(u.puts) {
			e := table.DecodeEntry(u.puts[u.at:])
			if !page.Put(&e) {
				c.metrics.Inc(metrics.BadData, metrics.BadPage) // full: control's page is not ours
			}
			u.at += table.EntryBytes
		} else {
			page.Remove(u.fingerprint())
			u.at += 8
		}
	}
	return c.writePage(key, index, page, cas, status)
}

// fingerprint is that of the change at the position.
func (u *update) fingerprint() uint64 {
	if u.at < len(u.puts) {
		return binary.LittleEndian.Uint64(u.puts[u.at:])
	}
	return binary.LittleEndian.Uint64(u.removes[u.at-len(u.puts):])
}

// readPage gets a page to be changed. An absent or damaged one is empty. A page is checked whole the
// first time this courier meets it; from then on nobody else writes it.
func (c *Courier) readPage(key string, bits uint8, index uint32) (page table.Page, cas uint32, status abi.Status) {
	value, cas, status := abi.SharedData(key, &c.value)
	if status == abi.OK && len(value) == table.PageBytes {
		page = value
		if c.known.has(bits, index) && fleet.IsPage(page, bits, index) ||
			page.Check() == nil && page.Bits() == bits && page.Index() == index {
			return page, cas, status
		}
		c.metrics.Inc(metrics.BadData, metrics.BadPage)
	}
	page = c.page[:]
	page.Init(bits, index)
	return page, cas, status
}

// writePage replaces a page; see replace.
func (c *Courier) writePage(key string, index uint32, page table.Page, cas uint32, status abi.Status) bool {
	if !c.replace(key, page, cas, status) {
		return false
	}
	c.known.add(page.Bits(), index)
	c.fleet.Pages.Forget(index)
	c.metrics.Inc(metrics.PagesWritten, 0)
	return true
}

// knownPages are the pages that a courier has written itself in its term.
type knownPages struct {
	bits uint8
	set  [1 << 16 / 64]uint64
}

func (k *knownPages) has(bits uint8, index uint32) bool {
	return k.bits == bits && k.set[index/64]>>(index%64)&1 != 0
}

func (k *knownPages) add(bits uint8, index uint32) {
	if k.bits != bits {
		k.forget()
		k.bits = bits
	}
	k.set[index/64] |= 1 << (index % 64)
}

func (k *knownPages) forget() { *k = knownPages{} }

// tell logs what control sent wrongly, the first time and then seldom.
func (c *Courier) tell(what string) {
	c.told++
	if c.told&(c.told-1) == 0 {
		abi.Log(abi.LogError, "warmpath: control sent what this module can't read, nothing of it is used: "+what+
			"; do control and module have the same wire version?")
	}
}
