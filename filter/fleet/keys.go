package fleet

import (
	"unsafe"

	"github.com/warmpath/warmpath/shared/wire"
)

// Keys are the shared-data keys of one deployment, those that are used again
// and again kept or built without an allocation.
type Keys struct {
	wire.Keys
	MetaKey, RosterKey, LoadsKey, CachesKey, HomesKey, CopiesKey, ClaimsKey, PolicyKey, ExactKey, AdmissionKey, SetsKey, CourierKey, LateKey string

	rows  [wire.MaxSlots]string
	taken [wire.MaxSlots]string
	sent  [wire.SentCells]string
	page  []byte
}

// NewKeys makes the keys of a deployment.
func NewKeys(deployment string) *Keys {
	k := wire.NewKeys(deployment)
	keys := &Keys{
		Keys: k, MetaKey: k.Meta(), RosterKey: k.Roster(), LoadsKey: k.Loads(), CachesKey: k.Caches(), HomesKey: k.Homes(), CopiesKey: k.Copies(), ClaimsKey: k.Copying(),
		PolicyKey: k.Policy(), ExactKey: k.Exact(), AdmissionKey: k.Admission(), SetsKey: k.Sets(), CourierKey: k.Courier(), LateKey: k.Late(),
		page: make([]byte, 0, 96),
	}
	for slot := range keys.rows {
		keys.rows[slot] = k.Row(uint16(slot))
		keys.taken[slot] = k.Taken(uint16(slot))
	}
	for cell := range keys.sent {
		keys.sent[cell] = k.Sent(uint8(cell))
	}
	return keys
}

// PageView is the key of one page, valid until the next PageView: a request
// reads several pages and none of their keys is kept.
func (k *Keys) PageView(bits uint8, index uint32) string {
	k.page = k.AppendPage(k.page[:0], bits, index)
	return unsafe.String(unsafe.SliceData(k.page), len(k.page))
}

// TakenKey is the key of what the courier has of a slot's chunks.
func (k *Keys) TakenKey(slot uint16) string { return k.taken[slot] }

// RowKey is the key of a slot's row.
func (k *Keys) RowKey(slot uint16) string { return k.rows[slot] }
