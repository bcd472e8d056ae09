package wire

import (
	"strconv"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/table"
)

const (
	// MaxSlots is the number of rows a gateway has: one VM each.
	MaxSlots = 128
	// ReportChunks is the length of each VM's ring of report chunks.
	ReportChunks = 16
)

// Keys names the values in the proxy's shared data. Shared data is one space for the whole
// process and has neither delete nor list, so every key carries the deployment and the version
// of what is stored: old and new modules overlap during a swap.
type Keys struct{ prefix string }

// NewKeys returns the keys of a deployment: `wp.<deployment>.1.*`.
func NewKeys(deployment string) Keys {
	return Keys{prefix: "wp." + deployment + "." + strconv.Itoa(table.Wire) + "."}
}

// Courier is the election record.
func (k Keys) Courier() string { return k.prefix + "courier" }

// Late is what a courier leaves behind that has written after its lease had ended: its nonce
// and the time, 8 bytes each. The one that follows compares its table with control's again.
func (k Keys) Late() string { return k.prefix + "late" }

// Meta is the table's meta record.
func (k Keys) Meta() string { return k.prefix + "meta" }

// Roster is the payload of the last ROSTER section.
func (k Keys) Roster() string { return k.prefix + "roster" }

// Loads is the payload of the last LOADS section.
func (k Keys) Loads() string { return k.prefix + "loads" }

// Caches is the payload of the CACHES section that came with the last LOADS, empty for none.
func (k Keys) Caches() string { return k.prefix + "caches" }

// Policy is the payload of the last POLICY section.
func (k Keys) Policy() string { return k.prefix + "policy" }

// Exact is the payload of the last EXACT section.
func (k Keys) Exact() string { return k.prefix + "exact" }

// Admission is the payload of the last ADMISSION section.
func (k Keys) Admission() string { return k.prefix + "admission" }

// Process is the nonce of the proxy's process, 8 bytes, made by the VM that needs it first.
func (k Keys) Process() string { return k.prefix + "process" }

// Lease is the gateway's lease of admission: which one it is and until when it counts.
func (k Keys) Lease() string { return k.prefix + "lease" }

// PoolSlots is what the gateway may admit to a pool and what its VMs have in use.
func (k Keys) PoolSlots(pool uint8) string { return k.prefix + "slots." + strconv.Itoa(int(pool)) }

// TenantSlots is the same of a tenant.
func (k Keys) TenantSlots(tenant uint16) string {
	return k.prefix + "tenant." + strconv.Itoa(int(tenant))
}

// Bypass is the same of the requests that pass by the bypass's secret.
func (k Keys) Bypass() string { return k.prefix + "bypass" }

// Sent is a cell in which VMs tell each other of prompts that they have just sent: `sent.<cell>`,
// below SentCells.
func (k Keys) Sent(cell uint8) string { return k.prefix + "sent." + strconv.Itoa(int(cell)) }

// Active is the set of the tenants that the gateway tells control of: bit i of byte i/8.
func (k Keys) Active() string { return k.prefix + "active" }

// Resets is the prompts whose workers' connections broke lately.
func (k Keys) Resets() string { return k.prefix + "resets" }

// Wake is the name of the shared queue that wakes a VM, by its boot nonce.
func (k Keys) Wake(nonce uint64) string { return k.prefix + "wake." + strconv.FormatUint(nonce, 16) }

// TTFT is the LATENCY record of a pool's class.
func (k Keys) TTFT(pool, class uint8) string {
	return k.prefix + "ttft." + strconv.Itoa(int(pool)) + "." + strconv.Itoa(int(class))
}

// Vocabularies is the list of the vocabularies whose shards are in shared data.
func (k Keys) Vocabularies() string { return k.prefix + "voc" }

// Shard is a piece of a vocabulary: `voc.<hash>.<n>`, n from 0, decimal.
func (k Keys) Shard(hash policy.Hash, n int) string {
	return k.prefix + "voc." + hash.String() + "." + strconv.Itoa(n)
}

// Sets is the payload of the last SETS section.
func (k Keys) Sets() string { return k.prefix + "sets" }

// Row is a VM's row: `row.<slot>`.
func (k Keys) Row(slot uint16) string { return k.prefix + "row." + strconv.Itoa(int(slot)) }

// Report is a VM's report chunk: `rep.<slot>.<n>`, n = sequence mod ReportChunks.
func (k Keys) Report(slot uint16, sequence uint64) string {
	return k.prefix + "rep." + strconv.Itoa(int(slot)) + "." + strconv.Itoa(int(sequence%ReportChunks))
}

// Taken says how far the courier has taken a VM's chunks: `taken.<slot>`.
func (k Keys) Taken(slot uint16) string { return k.prefix + "taken." + strconv.Itoa(int(slot)) }

// Page is a page of a size class: `p<bits, 2 digits>.<index, 4 hex digits>`.
func (k Keys) Page(bits uint8, index uint32) string {
	var b [80]byte
	return string(k.AppendPage(b[:0], bits, index))
}

// AppendPage appends the key of a page.
func (k Keys) AppendPage(b []byte, bits uint8, index uint32) []byte {
	const digits = "0123456789abcdef"
	b = append(b, k.prefix...)
	return append(b, 'p', '0'+bits/10, '0'+bits%10, '.',
		digits[index>>12&15], digits[index>>8&15], digits[index>>4&15], digits[index&15])
}
