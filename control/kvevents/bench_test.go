package kvevents

import (
	"runtime"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/warmpath/warmpath/control/index"
	"github.com/warmpath/warmpath/shared/fingerprint"
)

// encode writes events as the newest release does: maps, all fields.
func encode(ts float64, events ...Event) []byte {
	b := msgp.AppendArrayHeader(nil, 3)
	b = msgp.AppendFloat64(b, ts)
	b = msgp.AppendArrayHeader(b, uint32(len(events)))
	for i := range events {
		b = encodeEvent(b, &events[i])
	}
	return msgp.AppendInt(b, 0)
}

func encodeEvent(b []byte, e *Event) []byte {
	hashes := func() {
		b = msgp.AppendString(b, "block_hashes")
		b = msgp.AppendArrayHeader(b, uint32(len(e.Hashes)))
		for _, h := range e.Hashes {
			b = msgp.AppendUint64(b, h)
		}
	}
	switch e.Kind {
	case Cleared:
		b = msgp.AppendMapHeader(b, 1)
		return msgp.AppendString(msgp.AppendString(b, "type"), "AllBlocksCleared")
	case Removed:
		b = msgp.AppendMapHeader(b, 4)
		b = msgp.AppendString(msgp.AppendString(b, "type"), "BlockRemoved")
		hashes()
	default:
		b = msgp.AppendMapHeader(b, 11)
		b = msgp.AppendString(msgp.AppendString(b, "type"), "BlockStored")
		hashes()
		b = msgp.AppendString(b, "parent_block_hash")
		if e.HasParent {
			b = msgp.AppendUint64(b, e.Parent)
		} else {
			b = msgp.AppendNil(b)
		}
		b = msgp.AppendString(b, "token_ids")
		b = msgp.AppendArrayHeader(b, uint32(len(e.Tokens)))
		for _, t := range e.Tokens {
			b = msgp.AppendUint32(b, t)
		}
		b = msgp.AppendInt(msgp.AppendString(b, "block_size"), e.BlockSize)
		b = msgp.AppendNil(msgp.AppendString(b, "lora_id"))
		b = msgp.AppendNil(msgp.AppendString(b, "lora_name"))
		b = msgp.AppendString(b, "extra_keys")
		b = msgp.AppendArrayHeader(b, uint32(len(e.Hashes)))
		for range e.Hashes {
			b = msgp.AppendNil(b)
		}
		b = msgp.AppendString(msgp.AppendString(b, "kv_cache_spec_kind"), "full_attention")
	}
	b = msgp.AppendString(msgp.AppendString(b, "medium"), "GPU")
	return msgp.AppendInt(msgp.AppendString(b, "group_idx"), 0)
}

type nobody struct{}

func (nobody) Hold([]fingerprint.Checkpoint) {}
func (nobody) Drop(uint64)                   {}
func (nobody) Clear()                        {}
func (nobody) Slow(uint64, bool)             {}

// traffic is batches of the recorded shape: one prompt of 30 blocks of 32 (or
// the size given) tokens each, and once 60,000 blocks are stored one removal per
// block, leaf first.
func traffic(batches, size int) [][]byte {
	const blocks, resident = 30, 60_000
	var out [][]byte
	var prompts [][]uint64
	x := uint64(88172645463325252)
	random := func() uint64 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		return x
	}
	for i := range batches {
		e := Event{Kind: Stored, BlockSize: size}
		for range blocks {
			e.Hashes = append(e.Hashes, random())
			for range size {
				e.Tokens = append(e.Tokens, uint32(random()%151_000))
			}
		}
		var events []Event
		if len(prompts)*blocks >= resident {
			for b := blocks - 1; b >= 0; b-- {
				events = append(events, Event{Kind: Removed, Hashes: prompts[0][b : b+1]})
			}
			prompts = prompts[1:]
		}
		prompts = append(prompts, e.Hashes)
		out = append(out, encode(float64(i), append(events, e)...))
	}
	return out
}

// indexed is the way into the real index.
type indexed struct{ *index.Index }

func (x indexed) Hold(path []fingerprint.Checkpoint) { x.Report(1, path, benchTime) }
func (x indexed) Drop(fp uint64)                     { x.Withdraw(1, fp, benchTime) }
func (x indexed) Clear()                             { x.WithdrawAll(1) }
func (indexed) Slow(uint64, bool)                    {}

var benchTime = time.Unix(1_800_000_000, 0)

// BenchmarkIngest reports blocks stored (and, once the cache is full, as many
// removed) per second of decoding and applying, and per second of CPU time,
// collections included: on a busy machine that alone means something.
func BenchmarkIngest(b *testing.B) {
	b.Run("map", func(b *testing.B) { benchmarkIngest(b, func() Sink { return nobody{} }) })
	b.Run("map and index", func(b *testing.B) {
		benchmarkIngest(b, func() Sink {
			x := index.New(index.Config{})
			x.AddWorker(index.WorkerSpec{Ref: 1, Pool: "pool", CapacityTokens: 2 << 20})
			x.Reporting(1, true, benchTime)
			return indexed{x}
		})
	})
}

func benchmarkIngest(b *testing.B, sink func() Sink) {
	batches := traffic(4000, 32)
	b.ResetTimer()
	blocks := 0
	var used time.Duration
	began := cpuTime()
	for i := 0; b.Loop(); i++ {
		if i%len(batches) == 0 {
			b.StopTimer()
			used += cpuTime() - began
			benchMap = NewMap(Config{Pool: "pool", TurnEnds: []uint32{151_645}}, sink())
			began = cpuTime()
			b.StartTimer()
		}
		if err := Decode(batches[i%len(batches)], &benchBatch); err != nil {
			b.Fatal(err)
		}
		benchMap.Apply(&benchBatch)
		blocks += 30
	}
	used += cpuTime() - began
	b.ReportMetric(float64(blocks)/b.Elapsed().Seconds(), "blocks/s")
	if used > 0 {
		b.ReportMetric(float64(blocks)/used.Seconds(), "blocks/cpu-s")
	}
}

var (
	benchMap   *Map
	benchBatch Batch
)

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestABlockTakesAtMost150Bytes(t *testing.T) {
	for _, size := range []int{16, 32} {
		batches := traffic(2000, size)
		before := heap()
		m := NewMap(Config{Pool: "pool"}, nobody{})
		var b Batch
		for _, data := range batches {
			if err := Decode(data, &b); err != nil {
				t.Fatal(err)
			}
			m.Apply(&b)
		}
		b = Batch{}
		blocks := m.Counts().Blocks
		each := (heap() - before) / int64(blocks)
		t.Logf("%d blocks of %d tokens: %d bytes each on the heap, %d by Bytes", blocks, size, each, m.Bytes()/int64(blocks))
		if blocks != 60_000 || each > 150 {
			t.Errorf("%d bytes each", each)
		}
		runtime.KeepAlive(m)
		runtime.KeepAlive(batches)
	}
}
