package fleet

import (
	"time"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/shared/table"
)

const (
	cachedPages  = 128
	pageLifetime = 50 * time.Millisecond
)

// Pages reads the table's pages from shared data through a small direct-mapped
// cache in one block of memory. A cached page is used for pageLifetime, so a
// hot system prompt costs a host call twenty times a second and not once a
// request; an old page is a whole page, only a little behind.
type Pages struct {
	keys    *Keys
	scratch abi.Scratch
	bits    uint8
	now     int64

	until [cachedPages]int64  // unix ns, 0 = empty line
	index [cachedPages]uint32 // which page the line holds
	there [cachedPages]bool   // false: the page is absent, cached as such
	slab  [cachedPages * table.PageBytes]byte

	gets, hits uint64 // since the last tick
}

// Use sets the size class and the time for the Get calls that follow.
func (p *Pages) Use(bits uint8, now int64) {
	if bits != p.bits {
		p.bits = bits
		p.forgetAll()
	}
	p.now = now
}

// Get answers page index, of zero length when it is absent. The page is valid
// until the next Get and must not be changed.
func (p *Pages) Get(index uint32) table.Page {
	line := index % cachedPages
	room := table.Page(p.slab[line*table.PageBytes:][:table.PageBytes])
	if p.index[line] == index && p.until[line] > p.now {
		p.hits++
		return p.answer(line, room)
	}
	p.gets++
	value, _, _ := abi.SharedData(p.keys.PageView(p.bits, index), &p.scratch)
	p.index[line] = index
	p.until[line] = p.now + int64(pageLifetime)
	// Only the courier writes pages, and it checks them whole. The magic,
	// size class and index are looked at again because another plugin may
	// share the key space.
	p.there[line] = copy(room, value) == table.PageBytes && len(value) == table.PageBytes && IsPage(room, p.bits, index)
	return p.answer(line, room)
}

// Forget drops one page from the cache: its writer calls it.
func (p *Pages) Forget(index uint32) {
	if line := index % cachedPages; p.index[line] == index {
		p.until[line] = 0
	}
}

func (p *Pages) forgetAll() { clear(p.until[:]) }

func (p *Pages) answer(line uint32, room table.Page) table.Page {
	if !p.there[line] {
		return nil
	}
	return room
}

// IsPage is the cheap part of table.Page.Check, for pages that were checked
// whole before. p has PageBytes.
func IsPage(p table.Page, bits uint8, index uint32) bool {
	return p[0] == 0x50 && p[1] == 0x57 && p[2] == table.Wire && p.Bits() == bits && p.Index() == index
}
