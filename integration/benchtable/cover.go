package main

import (
	"math/rand/v2"
	"time"

	"github.com/warmpath/warmpath/control/index"
	"github.com/warmpath/warmpath/control/publish"
	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
)

// coverFigures say how much a table tells for its size.
type coverFigures struct {
	Workers         int     `json:"workers"`
	Entries         int     `json:"entries"`
	TableBytes      int     `json:"table_bytes"` // pages that a proxy keeps, and the sets of holders
	Tokens          float64 `json:"tokens_covered"`
	TokensPerMB     float64 `json:"tokens_covered_per_mb"`
	TokensPerEntry  float64 `json:"tokens_per_entry"`
	IndexBytes      int64   `json:"index_bytes"`
	EntriesDropped  uint64  `json:"entries_dropped"`
	PublishedMillis float64 `json:"publish_ms"` // wall
}

// covers reports the caches of a fleet, full of conversations, as the engines'
// events would, and publishes them.
func covers(workers, tokensPerWorker int) coverFigures {
	rng := rand.New(rand.NewPCG(uint64(workers), 3))
	now := time.Unix(1_800_000_000, 0)
	x := index.New(index.Config{MaxBytes: 4 << 30})
	systems := make([]session, 400)
	for i := range systems {
		systems[i].say(rng, 2050)
	}
	for ref := 1; ref <= workers; ref++ {
		x.AddWorker(index.WorkerSpec{Ref: uint16(ref), Pool: "p", CapacityTokens: tokensPerWorker})
		x.Reporting(uint16(ref), true, now)
		for held := 0; held < tokensPerWorker; {
			system := &systems[rng.IntN(len(systems))]
			s := session{tokens: append([]uint32(nil), system.tokens...), ends: append([]int(nil), system.ends...)}
			for range 3 + rng.IntN(10) {
				s.say(rng, 150)
				s.say(rng, 250)
			}
			x.Report(uint16(ref), s.path(), now)
			held += len(s.tokens) - len(system.tokens)
		}
	}
	f := coverFigures{Workers: workers, IndexBytes: x.Stats().Bytes}
	for ref := 1; ref <= workers; ref++ {
		st, _ := x.Worker(uint16(ref), now)
		f.Tokens += st.CoveredTokens
	}
	t := publish.New(publish.Config{Value: x.Value}, now)
	var b publish.Batch
	x.Drain(func(c index.Change) { b.Add(c.Fingerprint, c.Holders, c.PoolSize) })
	began := time.Now()
	t.Apply(&b, now)
	f.PublishedMillis = float64(time.Since(began).Microseconds()) / 1000
	s := t.Stats()
	f.Entries, f.TableBytes, f.EntriesDropped = s.Entries, s.Bytes+setBytes(t), s.Dropped
	f.TokensPerMB, f.TokensPerEntry = f.Tokens/(float64(f.TableBytes)/1e6), f.Tokens/float64(f.Entries)
	return f
}

// setBytes is the size of the sets of holders that a gateway has.
func setBytes(t *publish.Table) (n int) {
	frame, _ := t.Update(0, 0, wire.Version, time.Unix(1_800_000_000, 0))
	_ = wire.ForEachSection(frame, func(s wire.Section) error {
		if s.Type == wire.SectionSets {
			n = len(s.Payload)
		}
		return nil
	})
	return n
}

// holderFigures say what a table of a million entries takes.
type holderFigures struct {
	Holders    int     `json:"holders"` // of each entry, out of 1,000 workers
	Entries    int     `json:"entries"`
	Dropped    uint64  `json:"entries_dropped"`
	PageBytes  int     `json:"page_bytes"`
	SetBytes   int     `json:"set_bytes"`
	PerEntry   float64 `json:"bytes_per_entry"`
	Complete   float64 `json:"share_with_all_holders"`
	ApplyMicro float64 `json:"apply_us_per_entry"` // wall
}

// holderSets is how many different sets of workers hold the hot prefixes.
const holderSets = 200

// holds fills a table with entries that each have so many holders.
func holds(entries, holders int) holderFigures {
	rng := rand.New(rand.NewPCG(uint64(holders), 5))
	now := time.Unix(1_800_000_000, 0)
	sets := make([][]uint16, holderSets)
	for i := range sets {
		for _, ref := range rng.Perm(1000)[:holders] {
			sets[i] = append(sets[i], uint16(ref+1))
		}
	}
	t := publish.New(publish.Config{}, now)
	complete := 0
	began := time.Now()
	for left := entries; left > 0; {
		var b publish.Batch
		n := min(left, 10_000)
		for range n {
			b.Add(rng.Uint64()|1, sets[rng.IntN(holderSets)], 1000)
		}
		t.Apply(&b, now)
		left -= n
	}
	took := time.Since(began)
	s := t.Stats()
	f := holderFigures{Holders: holders, Entries: s.Entries, Dropped: s.Dropped, PageBytes: s.Bytes, SetBytes: setBytes(t)}
	f.PerEntry = float64(f.PageBytes+f.SetBytes) / float64(s.Entries)
	f.ApplyMicro = float64(took.Nanoseconds()) / 1000 / float64(entries)
	for r := range table.Ranges(s.Bits) {
		frame, err := t.Pages(s.Epoch, s.Bits, r)
		if err != nil {
			continue
		}
		_ = wire.ForEachSection(frame, func(sec wire.Section) error {
			return wire.ForEachPage(sec.Payload, func(p table.Page) error {
				for i := range p.Count() {
					if e := p.At(i); holders <= table.InlineRefs || e.Overflow() != 0 {
						complete++
					}
				}
				return nil
			})
		})
	}
	f.Complete = float64(complete) / float64(s.Entries)
	return f
}
