//go:build !wasm

package courier

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
)

// golden is a frame that a control service of the wire version before wrote.
func golden(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "shared", "wire", "testdata", "v1", name+".bin"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// asks compares the next range and returns what control is asked for: method, path
// and body.
func (c *Courier) asks(t *testing.T, host *abi.Fake) (what string, body []byte) {
	t.Helper()
	if _, ok := c.rangeDigest(&slice{began: host.Clock}); !ok {
		t.Fatal("the range is not compared in one slice")
	}
	headers, body := c.rangeRequest()
	return headers[0][1] + " " + headers[1][1], body
}

// TestAControlServiceOfTheVersionBeforeIsUnderstood: whole ranges are asked for, as
// it can't compare.
func TestAControlServiceOfTheVersionBeforeIsUnderstood(t *testing.T) {
	host, c := begin(t)
	if !c.takeUpdate(golden(t, "resync"), host.Clock) {
		t.Fatalf("refused: %v", host.Logs)
	}
	if what, _ := c.asks(t, host); what != "GET /v1/table/pages?epoch=7&bits=6&range=0" {
		t.Fatalf("asks for %s", what)
	}
	if !c.takeRange(golden(t, "pages")) {
		t.Fatalf("refused: %v", host.Logs)
	}
	c.finish(host)
	if m, ok := c.fleet.Meta(); !ok || !m.Ready || m.Version != 44 {
		t.Fatalf("%+v", m)
	}
	if !c.takeUpdate(golden(t, "update"), host.Clock) {
		t.Fatalf("refused: %v", host.Logs)
	}
	c.finish(host)
	if m, _ := c.fleet.Meta(); m.Version != 45 {
		t.Errorf("%+v", m)
	}
	if got := c.stored(); len(got) != 1 {
		t.Errorf("%v", got)
	}
	if !c.takeAck(golden(t, "ack"), host.Clock) {
		t.Errorf("refused: %v", host.Logs)
	}
	h, err := wire.DecodeHeader(c.batchFrame(host.Clock))
	if err != nil || h.Wire != wire.OldestVersion {
		t.Errorf("a batch is sent in version %d, which one replica of two may not read: %v", h.Wire, err)
	}
}

// TestOnlyThePagesThatDifferAreFetched: the courier has two pages, of which control
// has one as it is and the other not at all.
func TestOnlyThePagesThatDifferAreFetched(t *testing.T) {
	host, c := begin(t)
	c.takeUpdate(resyncFrame(7, 3), host.Clock)
	c.finish(host)
	if !c.takeUpdate(updateFrame(7, 3, 4), host.Clock) { // leaves an entry at 5<<60
		t.Fatal(host.Logs)
	}
	c.finish(host)
	kept := c.stored()
	extra := make(table.Page, table.PageBytes)
	extra.Init(6, 9)
	extra.Put(&table.Entry{Fingerprint: 9<<58 | 1, Refs: [6]uint16{1}})
	c.replacePage(6, 9, extra)

	// Another replica has the first page and one of its own.
	other := make(table.Page, table.PageBytes)
	other.Init(6, 33)
	other.Put(&table.Entry{Fingerprint: 33<<58 | 1, Refs: [6]uint16{1}})
	digest := other.Digest()
	for i := range kept {
		digest ^= table.EntryDigest(&kept[i])
	}
	b := wire.AppendHeader(nil, &wire.Header{Kind: wire.Update, Wire: wire.Version, Flags: wire.FlagResync, Epoch: 8, To: 1})
	_ = wire.ForEachSection(resyncFrame(8, 1), func(s wire.Section) error {
		if s.Type != wire.SectionDigests {
			b = wire.AppendSection(b, s.Type, s.Payload)
		}
		return nil
	})
	b = wire.AppendSection(b, wire.SectionDigests, wire.AppendDigest(nil, digest))
	if !c.takeUpdate(b, host.Clock) {
		t.Fatal(host.Logs)
	}
	what, body := c.asks(t, host)
	if what != "POST /v1/table/pages?epoch=8&bits=6&range=0" {
		t.Fatalf("asks for %s", what)
	}
	sent := map[int]uint64{}
	_ = wire.ForEachSection(body, func(s wire.Section) error {
		return wire.ForEachDigest(s.Payload, func(i int, d uint64) error {
			if d != 0 {
				sent[i] = d
			}
			return nil
		})
	})
	if len(sent) != 2 || sent[9] != extra.Digest() {
		t.Fatalf("digests %x", sent)
	}
	empty := make(table.Page, table.PageBytes)
	empty.Init(6, 9)
	answer := wire.AppendHeader(nil, &wire.Header{Kind: wire.Pages, Wire: wire.Version, Epoch: 8, To: 1})
	answer = wire.AppendSection(answer, wire.SectionPages, append(append([]byte{}, empty...), other...))
	if !c.takeRange(answer) {
		t.Fatal(host.Logs)
	}
	c.finish(host)
	got := c.stored()
	if len(got) != len(kept)+1 || got[len(got)-1].Fingerprint != 33<<58|1 {
		t.Errorf("%v", got)
	}
	if m, _ := c.fleet.Meta(); m.Epoch != 8 || m.Version != 1 {
		t.Errorf("%+v", m)
	}
}

// TestAGatewayKeepsToItsReplicaUntilThatFails: its authority, by which a proxy
// hashes, changes with a failure and only then.
func TestAGatewayKeepsToItsReplicaUntilThatFails(t *testing.T) {
	_, c := begin(t)
	first := c.authority()
	c.leave(c.replica + 7) // a call that began before another move
	if c.authority() != first || !strings.HasPrefix(first, "warmpath-control-") {
		t.Fatalf("%s, then %s", first, c.authority())
	}
	c.poll.open = true
	c.leave(c.replica)
	if c.authority() == first || c.poll.open {
		t.Errorf("after a failure still at %s, poll open: %v", c.authority(), c.poll.open)
	}
	other := *c.config
	other.Gateway += "2"
	mine := c.authority()
	c.config = &other
	if c.authority() == mine {
		t.Error("all gateways keep to one replica")
	}
	other.Control.Authority = "control.example.com"
	if c.authority() != "control.example.com" {
		t.Errorf("%s, though another is configured", c.authority())
	}
}

// TestSectionsThatItDoesntKnowAreSkipped: so that control can tell newer modules more.
func TestSectionsThatItDoesntKnowAreSkipped(t *testing.T) {
	host, c := begin(t)
	if !c.takeUpdate(golden(t, "resync"), host.Clock) || !c.takeRange(golden(t, "pages")) {
		t.Fatalf("refused: %v", host.Logs)
	}
	c.finish(host)
	frame := golden(t, "update")
	unknown := wire.AppendSection(slices.Clone(frame[:wire.HeaderBytes]), 250, []byte("of a version to come"))
	unknown = append(unknown, frame[wire.HeaderBytes:]...)
	unknown = wire.AppendSection(unknown, 251, nil)
	if !c.takeUpdate(unknown, host.Clock) {
		t.Fatalf("refused: %v", host.Logs)
	}
	c.finish(host)
	if m, _ := c.fleet.Meta(); m.Version != 45 {
		t.Errorf("%+v", m)
	}
	if got := c.stored(); len(got) != 1 {
		t.Errorf("the table has %v", got)
	}
}
