package kvevents

import (
	"github.com/tinylib/msgp/msgp"
)

// raw is what the fields of an event say, before they are taken together.
type raw struct {
	Event
	kind      Kind
	adapterID bool   // a lora_id was given
	extra     []byte // extra_keys, undecoded
	spec      []byte
}

// Fields in the order of the positional form. vLLM and SGLang agree as far as
// SGLang goes.
var (
	storedFields  = []string{"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind"}
	removedFields = []string{"block_hashes", "medium", "group_idx"}
)

func kindOf(tag []byte) Kind {
	switch string(tag) {
	case "BlockStored":
		return Stored
	case "BlockRemoved":
		return Removed
	case "AllBlocksCleared":
		return Cleared
	}
	return 0
}

func (b *Batch) event(r *reader) {
	e := raw{Event: Event{Medium: GPU, Group: -1}}
	if r.next() == msgp.MapType {
		b.eventMap(r, &e)
	} else {
		b.eventArray(r, &e)
	}
	if r.err != nil {
		return
	}
	if e.kind == 0 {
		b.Unknown++
		return
	}
	e.Kind = e.kind
	e.finish(r)
	b.Events = append(b.Events, e.Event)
}

func (b *Batch) eventArray(r *reader, e *raw) {
	n := r.array("event")
	if n == 0 {
		r.fail("event without a tag", nil)
		return
	}
	e.kind = kindOf(r.text("tag of an event"))
	var fields []string
	switch e.kind {
	case Stored:
		fields = storedFields
	case Removed:
		fields = removedFields
	}
	for i := 0; i < n-1 && r.err == nil; i++ {
		if i < len(fields) {
			b.field(r, e, fields[i])
		} else {
			r.skip("field of an event")
		}
	}
}

func (b *Batch) eventMap(r *reader, e *raw) {
	n := r.mapping("event")
	for i := 0; i < n && r.err == nil; i++ {
		name := r.text("name of a field of an event")
		if string(name) == "type" {
			e.kind = kindOf(r.text("type of an event"))
			continue
		}
		b.field(r, e, string(name))
	}
}

func (b *Batch) field(r *reader, e *raw, name string) {
	switch name {
	case "block_hashes":
		n := r.array(name)
		at := len(b.hashes)
		for i := 0; i < n && r.err == nil; i++ {
			b.hashes = append(b.hashes, r.hash(name))
		}
		e.Hashes = b.hashes[at:len(b.hashes):len(b.hashes)]
	case "parent_block_hash":
		if !r.isNil() {
			e.Parent, e.HasParent = r.hash(name), true
		}
	case "token_ids":
		if r.isNil() {
			return
		}
		n := r.array(name)
		at := len(b.tokens)
		b.tokens = r.tokenIDs(b.tokens, n)
		e.Tokens = b.tokens[at:len(b.tokens):len(b.tokens)]
	case "block_size":
		e.BlockSize = int(r.number(name, 0, 1<<24))
	case "lora_id":
		e.adapterID = !r.isNil()
		if e.adapterID {
			r.skip(name)
		}
	case "medium":
		e.Medium = mediumOf(r.text(name))
	case "lora_name":
		e.Adapter = string(r.text(name))
	case "extra_keys":
		before := r.b
		r.skip(name)
		e.extra = before[:len(before)-len(r.b)]
	case "group_idx":
		e.Group = int(r.number(name, -1, 1<<16))
	case "kv_cache_spec_kind":
		e.spec = r.text(name)
	default:
		r.skip("field " + name)
	}
}

func mediumOf(s []byte) Medium {
	switch string(s) {
	case "", "GPU", "gpu", "DEVICE":
		return GPU
	case "CPU", "cpu", "HOST", "CPU_PINNED", "CPU_TIER1", "CPU_TIER2":
		return CPU
	}
	return Disk
}

// finish takes the fields together.
func (e *raw) finish(r *reader) {
	switch string(e.spec) {
	case "full_attention", "mla_attention":
		e.FullAttention = true
	case "":
		// Releases without kinds number their groups at most; the first is the
		// only one of a model without sliding windows.
		e.FullAttention = e.Group <= 0
	}
	e.Opaque = len(e.Hashes)
	if e.adapterID && e.Adapter == "" {
		e.Opaque = 0
	}
	if len(e.extra) == 0 || e.extra[0] == 0xc0 || e.Kind != Stored {
		return
	}
	x := &reader{all: r.all, b: e.extra}
	n := x.array("extra_keys")
	for i := 0; i < n && x.err == nil && i < e.Opaque; i++ {
		if !e.extraKeys(x, i) {
			e.Opaque = i
		}
	}
	if x.err != nil {
		r.fail("extra_keys", x.err)
	}
}

// extraKeys reads what else went into the name of block i. The list is
// untagged: an adapter's name on every block, digests of images, the cache salt
// on the first block of a prompt. It answers false when there is anything that
// gateways' fingerprints don't know.
func (e *raw) extraKeys(x *reader, i int) bool {
	if x.isNil() {
		return true
	}
	known, salted := true, false
	n := x.array("extra keys of a block")
	for k := 0; k < n && x.err == nil; k++ {
		if x.next() != msgp.StrType {
			known = false
			x.skip("extra key")
			continue
		}
		switch s := string(x.text("extra key")); {
		case k == 0 && e.Adapter != "" && s == e.Adapter:
		case i == 0 && !e.HasParent && !salted:
			e.CacheSalt, salted = s, true
		default:
			known = false
		}
	}
	return known
}
