package kvevents

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tinylib/msgp/msgp"
)

// frames reads one recorded ZMQ message.
func frames(t testing.TB, name string) [][]byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	for len(data) > 0 {
		n := int(binary.BigEndian.Uint32(data))
		out, data = append(out, data[4:4+n]), data[4+n:]
	}
	return out
}

// recorded is every message of a folder, by name.
func recorded(t testing.TB, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("no recordings %s: %v", pattern, err)
	}
	for i := range names {
		names[i], _ = filepath.Rel("testdata", names[i])
	}
	return names
}

func payload(t testing.TB, name string) []byte {
	f := frames(t, name)
	return f[len(f)-1]
}

func TestEveryReleaseSaysTheSame(t *testing.T) {
	tokens := make([]uint32, 32)
	for i := range tokens {
		tokens[i] = uint32(100 + i)
	}
	for _, name := range recorded(t, "wire_by_version/*.msgpack") {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		var b Batch
		if err := Decode(data, &b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if b.Time != 1700000000.5 || b.Rank != 0 || len(b.Events) != 3 || b.Unknown != 0 {
			t.Fatalf("%s: %+v", name, b)
		}
		stored, removed, cleared := b.Events[0], b.Events[1], b.Events[2]
		if stored.Kind != Stored || removed.Kind != Removed || cleared.Kind != Cleared {
			t.Fatalf("%s: kinds %d %d %d", name, stored.Kind, removed.Kind, cleared.Kind)
		}
		if diff := cmp.Diff(tokens, stored.Tokens); diff != "" {
			t.Errorf("%s: tokens %s", name, diff)
		}
		if stored.BlockSize != 16 || stored.HasParent || stored.Medium != GPU || stored.Adapter != "" || !stored.FullAttention || stored.Opaque != 2 {
			t.Errorf("%s: %+v", name, stored)
		}
		if removed.Medium != GPU || len(removed.Hashes) != 1 || removed.Hashes[0] != stored.Hashes[0] {
			t.Errorf("%s: removed %+v of %v", name, removed, stored.Hashes)
		}
		if strings.HasSuffix(name, "_int.msgpack") && (stored.Hashes[0] != 325518042768679598 || stored.Hashes[1] != 9532178832478255211) {
			t.Errorf("%s: hashes %v", name, stored.Hashes)
		}
		if salted := stored.CacheSalt == "tenant-A"; salted == (name < "wire_by_version/0.20") {
			t.Errorf("%s: salt %q", name, stored.CacheSalt)
		}
	}
}

func TestEveryRecordingIsUnderstood(t *testing.T) {
	for _, pattern := range []string{"main/*.bin", "evict/*.bin", "lora/*.bin", "dp2/*.bin"} {
		for _, name := range recorded(t, pattern) {
			data := payload(t, name)
			if len(data) == 0 {
				continue // the end of a replay
			}
			var b Batch
			if err := Decode(data, &b); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if len(b.Events) == 0 || b.Unknown != 0 || b.Time < 1.7e9 || b.Rank < 0 {
				t.Errorf("%s: %+v", name, b)
			}
			for _, e := range b.Events {
				if e.Kind == Stored && (len(e.Tokens) != len(e.Hashes)*e.BlockSize || e.BlockSize != 32 || e.Opaque != len(e.Hashes)) {
					t.Errorf("%s: %d tokens, %d hashes of %d, opaque from %d", name, len(e.Tokens), len(e.Hashes), e.BlockSize, e.Opaque)
				}
			}
		}
	}
}

func TestAdapterAndSaltAreTakenFromUntaggedKeys(t *testing.T) {
	for name, want := range map[string][2]string{
		"lora/0000_lora_pub.bin": {"", ""}, "lora/0001_lora_pub.bin": {"lora-a", ""}, "lora/0002_lora_pub.bin": {"lora-a", "tenant-B"}, "evict/0001_salt_pub.bin": {"", "tenant-A"},
	} {
		var b Batch
		if err := Decode(payload(t, name), &b); err != nil {
			t.Fatal(err)
		}
		if e := b.Events[0]; e.Adapter != want[0] || e.CacheSalt != want[1] {
			t.Errorf("%s: adapter %q, salt %q, want %q", name, e.Adapter, e.CacheSalt, want)
		}
	}
}

// sglang writes an event the way SGLang does: by position, no trailing fields.
func sglang(hash int64, parent any, tokens []uint32) []byte {
	b := msgp.AppendArrayHeader(nil, 3)
	b = msgp.AppendFloat64(b, 5)
	b = msgp.AppendArrayHeader(b, 1)
	b = msgp.AppendArrayHeader(b, 6)
	b = msgp.AppendString(b, "BlockStored")
	b = msgp.AppendArrayHeader(b, 1)
	b = msgp.AppendInt64(b, hash)
	b, _ = msgp.AppendIntf(b, parent)
	b = msgp.AppendArrayHeader(b, uint32(len(tokens)))
	for _, t := range tokens {
		b = msgp.AppendUint32(b, t)
	}
	b = msgp.AppendInt(b, len(tokens))
	b = msgp.AppendNil(b)
	return msgp.AppendInt(b, 3)
}

func TestSGLangSpeaksByPosition(t *testing.T) {
	var b Batch
	if err := Decode(sglang(-5, int64(-9), []uint32{1, 2, 3}), &b); err != nil {
		t.Fatal(err)
	}
	five, nine := int64(-5), int64(-9)
	want := []Event{{Kind: Stored, Hashes: []uint64{uint64(five)}, Parent: uint64(nine), HasParent: true, Tokens: []uint32{1, 2, 3}, BlockSize: 3, Medium: GPU, Group: -1, FullAttention: true, Opaque: 1}}
	if diff := cmp.Diff(want, b.Events); diff != "" || b.Rank != 3 {
		t.Error(b.Rank, diff)
	}
}

func TestABatchMayBeAMapAndKindsMayBeNew(t *testing.T) {
	b, err := msgp.AppendIntf(nil, map[string]any{
		"ts": 7, "attn_dp_rank": 2, "later": []any{map[string]any{"x": nil}},
		"events": []any{
			map[string]any{"type": "BlockPondered", "block_hashes": []any{1}},
			[]any{"AllBlocksCleared", 4, "x"},
			map[string]any{
				"extra_keys": []any{[]any{"ad"}, []any{"ad", []any{"image", 3}}}, "lora_name": "ad", "type": "BlockStored",
				"block_hashes": []any{1, 2}, "token_ids": []any{1, 2, 3, 4}, "block_size": 2, "kv_cache_spec_kind": "sliding_window", "group_idx": 1, "medium": "FLOPPY",
			},
			map[string]any{"type": "BlockStored", "block_hashes": []any{1}, "token_ids": []any{1}, "block_size": 1, "lora_id": 4},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got Batch
	if err := Decode(b, &got); err != nil {
		t.Fatal(err)
	}
	want := []Event{
		{Kind: Cleared, Medium: GPU, Group: -1, FullAttention: true},
		{Kind: Stored, Hashes: []uint64{1, 2}, Tokens: []uint32{1, 2, 3, 4}, BlockSize: 2, Medium: Disk, Group: 1, Adapter: "ad", Opaque: 1},
		{Kind: Stored, Hashes: []uint64{1}, Tokens: []uint32{1}, BlockSize: 1, Medium: GPU, Group: -1, FullAttention: true, Opaque: 0},
	}
	if diff := cmp.Diff(want, got.Events); diff != "" || got.Rank != 2 || got.Unknown != 1 || got.Time != 7 {
		t.Error(got.Rank, got.Unknown, got.Time, diff)
	}
}

func TestADamagedBatchNamesTheByte(t *testing.T) {
	whole := payload(t, "evict/0011_evict_pub.bin")
	var b Batch
	for n := range len(whole) {
		err := Decode(whole[:n], &b)
		if err == nil || !strings.Contains(err.Error(), "at byte ") {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	for name, data := range map[string]string{
		"bytes behind": string(whole) + "x", "huge array": "\x93\xca\x00\x00\x00\x00\xdd\xff\xff\xff\xff\xc0", "huge map": "\xdf\xff\xff\xff\xff",
		"no time": "\x92\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00\x90", "text for events": "\x92\x01\xa1x", "number": "\x05", "nothing": "",
		"negative token": "\x92\x01\x91\x94\xabBlockStored\x91\x01\xc0\x91\xff", "empty event": "\x92\x01\x91\x90",
	} {
		if err := Decode([]byte(data), &b); err == nil || !strings.Contains(err.Error(), "at byte ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, pattern := range []string{"main/*pub.bin", "evict/*.bin", "lora/*.bin"} {
		for _, name := range recorded(f, pattern) {
			f.Add(payload(f, name))
		}
	}
	for _, name := range recorded(f, "wire_by_version/*.msgpack") {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add(sglang(-5, nil, []uint32{1, 2, 3}))
	f.Fuzz(func(t *testing.T, data []byte) {
		var b, again Batch
		err := Decode(data, &b)
		if err2 := Decode(data, &again); (err == nil) != (err2 == nil) {
			t.Fatalf("%v, then %v", err, err2)
		}
		if err != nil {
			return
		}
		held := newLedger()
		m := NewMap(Config{Pool: "p", TurnEnds: []uint32{101}, MaxBlocks: 1000, MaxAside: 4096}, held)
		m.Apply(&b)
		m.Apply(&b)
		c := m.Counts()
		if c.Held > c.Blocks || c.Blocks+c.Gone != m.byHash.count || c.Gone < 0 {
			t.Fatalf("%+v of %d nodes", c, m.byHash.count)
		}
	})
}
