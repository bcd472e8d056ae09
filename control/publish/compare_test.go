package publish

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
)

// TestTwoReplicasThatKnowTheSameHaveTheSamePages: the same facts in two orders,
// some of them changed on the way, holders named in any order.
func TestTwoReplicasThatKnowTheSameHaveTheSamePages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		facts := map[uint64][]uint16{}
		for range rapid.IntRange(1, 200).Draw(t, "facts") {
			fp := rapid.Uint64Range(1, 1<<16).Draw(t, "fp") * 0x9E3779B97F4A7C15
			facts[fp] = rapid.SliceOfNDistinct(rapid.Uint16Range(1, 200), 1, 14, rapid.ID[uint16]).Draw(t, "holders")
		}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0))
		replica := func() *Table {
			x := New(Config{MinBits: 6}, start)
			fingerprints := make([]uint64, 0, len(facts))
			for fp := range facts {
				fingerprints = append(fingerprints, fp)
			}
			slices.Sort(fingerprints)
			rng.Shuffle(len(fingerprints), func(i, j int) {
				fingerprints[i], fingerprints[j] = fingerprints[j], fingerprints[i]
			})
			var b Batch
			for _, fp := range fingerprints {
				b.Reset()
				if rng.IntN(3) == 0 { // it was held by others before
					b.Add(fp, []uint16{201, 202, 203, 204, 205, 206, 207, 208}, 300)
				}
				holders := slices.Clone(facts[fp])
				rng.Shuffle(len(holders), func(i, j int) { holders[i], holders[j] = holders[j], holders[i] })
				b.Add(fp, holders, 300)
				x.Apply(&b, start)
			}
			return x
		}
		a, b := replica(), replica()
		if !slices.Equal(a.digests, b.digests) || a.bits != b.bits {
			t.Fatalf("the digests differ")
		}
		if !bytes.Equal(a.sets.payload(nil), b.sets.payload(nil)) {
			t.Fatalf("the sets differ")
		}
	})
}

// comparison is the frame that a gateway with these pages sends.
func comparison(pages []table.Page) []byte {
	b := wire.AppendHeader(nil, &wire.Header{Kind: wire.Pages, Wire: wire.Version})
	b, mark := wire.BeginSection(b, wire.SectionDigests)
	for _, p := range pages {
		b = wire.AppendDigest(b, p.Digest())
	}
	return wire.EndSection(b, mark)
}

// TestAGatewayFromAnotherReplicaIsSentWhatDiffers measures the way from one
// replica to another that knows a few things more and a few less.
func TestAGatewayFromAnotherReplicaIsSentWhatDiffers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	a, b := New(Config{MinBits: 14}, start), New(Config{MinBits: 14}, start.Add(1))
	var batch Batch
	for range 200_000 {
		batch.Add(rng.Uint64()|1, []uint16{uint16(rng.IntN(16) + 1)}, 16)
	}
	a.Apply(&batch, start)
	b.Apply(&batch, start)
	first := batch.changes[0].fingerprint
	batch.Reset()
	batch.Add(first, nil, 16) // b has forgotten one
	for range 99 {
		batch.Add(rng.Uint64()|1, []uint16{3}, 16) // and learned what a hasn't heard of
	}
	b.Apply(&batch, start)

	pages := slices.Clone(a.pages)
	up, down, ranges, whole := 0, 0, 0, 0
	for r := range b.digests {
		if frame, err := b.Pages(b.epoch, b.bits, r); err == nil {
			whole += len(frame)
		}
		if a.digests[r] == b.digests[r] {
			continue
		}
		ranges++
		own := pages[r*table.RangePages:][:table.RangePages]
		body := comparison(own)
		frame, err := b.Compare(b.epoch, b.bits, r, body)
		if err != nil {
			t.Fatal(err)
		}
		up, down = up+len(body), down+len(frame)
		err = wire.ForEachSection(frame, func(s wire.Section) error {
			return wire.ForEachPage(s.Payload, func(p table.Page) error {
				pages[p.Index()] = p
				return nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range pages {
		if pages[i].Digest() != b.pages[i].Digest() {
			t.Fatalf("page %d differs after the comparison", i)
		}
	}
	t.Logf("100 of 200,000 entries differ, in %d of %d ranges: %d bytes there, %d back; all ranges are %d", ranges, len(b.digests), up, down, whole)
	if down > 100*table.PageBytes+ranges*100 || up+down > whole/50 {
		t.Errorf("%d bytes there and %d back for 100 differences, the whole table is %d", up, down, whole)
	}
}

func TestAPageThatOnlyTheGatewayHasComesBackEmpty(t *testing.T) {
	x := New(Config{MinBits: 6}, start)
	own := make([]table.Page, 64)
	own[5] = make(table.Page, table.PageBytes)
	own[5].Init(6, 5)
	own[5].Put(&table.Entry{Fingerprint: 5<<58 | 1, Refs: [6]uint16{1}})
	frame, err := x.Compare(x.epoch, 6, 0, comparison(own))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	_ = wire.ForEachSection(frame, func(s wire.Section) error {
		return wire.ForEachPage(s.Payload, func(p table.Page) error {
			n++
			if p.Index() != 5 || p.Count() != 0 {
				t.Errorf("page %d with %d entries", p.Index(), p.Count())
			}
			return nil
		})
	})
	if n != 1 {
		t.Errorf("%d pages", n)
	}
}

func TestAComparisonThatIsNoneIsRefused(t *testing.T) {
	x := New(Config{MinBits: 6}, start)
	good := comparison(make([]table.Page, 64))
	var moved *Moved
	if _, err := x.Compare(1, 6, 0, good); !errors.As(err, &moved) {
		t.Errorf("of another epoch: %v", err)
	}
	for name, frame := range map[string][]byte{
		"nothing":    nil,
		"cut short":  good[:len(good)-1],
		"a batch":    wire.AppendHeader(nil, &wire.Header{Kind: wire.Batch}),
		"two ranges": comparison(make([]table.Page, table.RangePages+1)),
	} {
		var e *wire.Error
		if _, err := x.Compare(x.epoch, 6, 0, frame); !errors.As(err, &e) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := x.Compare(x.epoch, 6, 1, good); err == nil {
		t.Error("a range beyond the table is answered")
	}
}
