package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
)

// snapshotDeployment is the deployment whose keys a fetched table is put under.
const snapshotDeployment = "explain"

// source answers the paths of a control service: a running one, or a file that was saved.
type source struct {
	name string
	get  func(ctx context.Context, path string) ([]byte, error)
}

// tableSnapshot is a table of which pages are fetched as they are needed.
type tableSnapshot struct {
	source  *source
	keys    wire.Keys
	meta    table.Meta
	digests []uint64
	have    map[int]bool // ranges
}

// fetch puts all about the fleet into shared data, as a courier does: the
// sections and the meta record, no pages yet.
func (c *source) fetch(ctx context.Context, host *abi.Fake, now int64) (*tableSnapshot, error) {
	frame, err := c.get(ctx, "/v1/table?epoch=0&version=0&wait_ms=0")
	if err != nil {
		return nil, err
	}
	unreadable := func(err error) error {
		return fmt.Errorf("read the table of %s: %w (is that a control service, and of this version?)", c.name, err)
	}
	header, err := wire.DecodeHeader(frame)
	if err == nil && !header.Resync() {
		err = errors.New("not a whole table")
	}
	if err != nil {
		return nil, unreadable(err)
	}
	s := &tableSnapshot{source: c, keys: wire.NewKeys(snapshotDeployment), have: map[int]bool{}}
	put := func(key string, value []byte) { host.Shared[key] = abi.FakeShared{Value: value, CAS: 1} }
	clear(host.Shared)
	var geometry wire.Geometry
	err = wire.ForEachSection(frame, func(section wire.Section) (err error) {
		switch b := section.Payload; section.Type {
		case wire.SectionGeometry:
			geometry, err = wire.DecodeGeometry(b)
		case wire.SectionRoster:
			put(s.keys.Roster(), b)
		case wire.SectionLoads:
			put(s.keys.Loads(), b)
		case wire.SectionCaches:
			put(s.keys.Caches(), b)
		case wire.SectionHomes:
			put(s.keys.Homes(), b)
		case wire.SectionPolicy:
			put(s.keys.Policy(), b)
			_, err = policy.Parse(b)
		case wire.SectionExact:
			put(s.keys.Exact(), b)
		case wire.SectionSets:
			put(s.keys.Sets(), b)
		case wire.SectionDigests:
			err = wire.ForEachDigest(b, func(_ int, d uint64) error { s.digests = append(s.digests, d); return nil })
		}
		return err
	})
	if err == nil && (!table.ValidBits(geometry.Bits) || len(s.digests) != table.Ranges(geometry.Bits)) {
		err = errors.New("geometry and digests don't fit")
	}
	if err != nil {
		return nil, unreadable(err)
	}
	s.meta = table.Meta{
		Bits: geometry.Bits, Ready: true, Off: header.Off(), Epoch: header.Epoch, Version: header.To, UpdatedUnixNanos: now,
		RosterVersion: 1, LoadsVersion: 1, PolicyVersion: 1, SetsVersion: 1,
	}
	put(s.keys.Meta(), table.AppendMeta(nil, &s.meta))
	return s, nil
}

// fetchPages fetches the ranges that the checkpoints may be in.
func (s *tableSnapshot) fetchPages(ctx context.Context, host *abi.Fake, checkpoints []fingerprint.Checkpoint) error {
	for _, c := range checkpoints {
		if err := s.fetchRange(ctx, host, table.RangeOf(table.PageIndex(c.Fingerprint, s.meta.Bits))); err != nil {
			return err
		}
	}
	return nil
}

// fetchAllPages fetches the whole table.
func (s *tableSnapshot) fetchAllPages(ctx context.Context, host *abi.Fake) error {
	for r := range s.digests {
		if err := s.fetchRange(ctx, host, r); err != nil {
			return err
		}
	}
	return nil
}

func (s *tableSnapshot) fetchRange(ctx context.Context, host *abi.Fake, r int) error {
	if s.have[r] || s.digests[r] == 0 {
		return nil // an empty range has no digest
	}
	frame, err := s.source.get(ctx, fmt.Sprintf("/v1/table/pages?epoch=%d&bits=%d&range=%d", s.meta.Epoch, s.meta.Bits, r))
	if err != nil {
		return err
	}
	s.have[r] = true
	if _, err = wire.DecodeHeader(frame); err == nil {
		err = wire.ForEachSection(frame, func(section wire.Section) error {
			if section.Type != wire.SectionPages {
				return nil
			}
			return wire.ForEachPage(section.Payload, func(p table.Page) error {
				host.Shared[s.keys.Page(p.Bits(), p.Index())] = abi.FakeShared{Value: bytes.Clone(p), CAS: 1}
				return nil
			})
		})
	}
	if err != nil {
		return fmt.Errorf("read range %d of the table: %w", r, err)
	}
	return nil
}

// fetchVocabularies brings the vocabularies that the policy names.
func (c *source) fetchVocabularies(ctx context.Context, host *abi.Fake, list []policy.Vocabulary) error {
	keys := wire.NewKeys(snapshotDeployment)
	for _, v := range list {
		for n := range wire.Shards(v.Bytes) {
			piece, err := c.get(ctx, fmt.Sprintf("/v1/vocabulary/%s?shard=%d", v.Hash, n))
			if err != nil {
				return fmt.Errorf("fetch vocabulary %s: %w", v.Hash, err)
			}
			host.Shared[keys.Shard(v.Hash, n)] = abi.FakeShared{Value: piece, CAS: 1}
		}
	}
	return nil
}
