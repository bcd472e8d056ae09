package ingest

import (
	"log/slog"
	"testing"
	"time"

	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/control/index"
	"github.com/warmpath/warmpath/shared/wire"
)

// hears is an ingest of a replica, whose index gives orders of its own.
func hears(replica uint16) *Ingest {
	return &Ingest{
		Index: index.New(index.Config{Replica: replica}), Fleet: discovery.NewFleet(discovery.FleetConfig{}, discovery.Hooks{}), Gateways: NewGateways(),
		Observing: func(uint8) bool { return false }, Dispatched: func(string, uint8, []index.Checkpoint, time.Time) {}, Copied: func(string, uint8, uint64, uint16) {}, Log: slog.New(slog.DiscardHandler),
		Admission: func(_ string, _, _ []byte, _ time.Time, ack []byte) ([]byte, error) { return ack, nil },
	}
}

// TestABatchHasOneOrderAtAllReplicas, whatever their clocks say; one of a version
// that gave none is as of now.
func TestABatchHasOneOrderAtAllReplicas(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	frame := wire.AppendHeader(nil, &wire.Header{Kind: wire.Batch})
	frame = wire.AppendSection(frame, wire.SectionGateway, wire.AppendGateway(nil, &wire.Gateway{Name: "gw", Nonce: 7, LiveRows: 1}))
	// A gateway's own word on it counts for nothing.
	frame = wire.AppendSection(frame, wire.SectionOrder, make([]byte, 8))
	here, there := hears(1), hears(2)
	_, order, err := here.Batch(frame, 1, 1, false, now, nil)
	if err != nil || order == 0 {
		t.Fatal(order, err)
	}
	slow := now.Add(-time.Minute)
	for _, part := range ForOthers(frame, order, 1<<20) {
		b, err := read(part)
		if err != nil || b.order != order {
			t.Errorf("order %x, want %x; %v", b.order, order, err)
		}
		if err := there.Shared(part, slow); err != nil {
			t.Error(err)
		}
	}
	plain := frame[:len(frame)-wire.SectionHeaderBytes-8]
	if err := there.Shared(plain, slow); err != nil {
		t.Errorf("of an earlier version: %v", err)
	}
	if err := there.Shared(wire.AppendSection(plain, wire.SectionOrder, make([]byte, 7)), slow); err == nil {
		t.Error("an order of 7 bytes is taken")
	}
}

// TestAnOrderGoesOnFromTheLatestThatWasHeard: of a clock that is ahead, but not of
// one that is broken.
func TestAnOrderGoesOnFromTheLatestThatWasHeard(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	x := index.New(index.Config{Replica: 5})
	first, second := x.Order(now), x.Order(now)
	if second <= first || first&0xfff != 5 {
		t.Errorf("%x after %x", second, first)
	}
	ahead := index.New(index.Config{Replica: 6}).Order(now.Add(time.Hour))
	x.Dispatch(index.Dispatch{Order: ahead}, now)
	if next := x.Order(now); next <= ahead {
		t.Errorf("%x after %x", next, ahead)
	}
	broken := index.New(index.Config{Replica: 6}).Order(now.Add(1000 * time.Hour))
	x.Dispatch(index.Dispatch{Order: broken}, now)
	if next := x.Order(now); next >= broken {
		t.Errorf("%x follows a clock that is broken", next)
	}
}
