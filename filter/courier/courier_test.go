//go:build !wasm

package courier

import (
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/admission"
	"github.com/warmpath/warmpath/filter/config"
	"github.com/warmpath/warmpath/filter/fleet"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/route"
	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
)

const start = int64(1_700_000_000) * int64(time.Second)

// begin makes a courier that holds the lease, on a fake host that refuses its
// calls: the tests hand it answers themselves.
func begin(t testing.TB) (*abi.Fake, *Courier) {
	t.Helper()
	host := abi.NewFake()
	host.Clock = start
	host.Refuse["proxy_http_call"] = abi.BadArgument
	t.Cleanup(abi.UseFake(host))
	m := &metrics.Set{}
	m.Define()
	rng := route.NewRand(1)
	f := fleet.New("default", m, rng)
	f.Configure(config.Default())
	c := New(f, admission.New(f, m), m, rng)
	f.Tick(start, false)
	c.Tick(start)
	if !c.Working() {
		t.Fatal("the only VM is not the courier")
	}
	return host, c
}

// resyncFrame is a whole empty table with one worker.
func resyncFrame(epoch, to uint64) []byte {
	b := wire.AppendHeader(nil, &wire.Header{Kind: wire.Update, Flags: wire.FlagResync, Epoch: epoch, To: to})
	b = wire.AppendSection(b, wire.SectionGeometry, wire.AppendGeometry(nil, wire.Geometry{Bits: 6}))
	b = wire.AppendSection(b, wire.SectionRoster, wire.AppendWorker(nil, &wire.Worker{Ref: 1, Generation: 1, Address: []byte("a:1")}))
	b = wire.AppendSection(b, wire.SectionLoads, wire.AppendLoad(nil, &wire.Load{Ref: 1, State: 1, Trust: 1}))
	b = wire.AppendSection(b, wire.SectionPolicy, []byte(`{"pools":[{"name":"p","models":["*"]}]}`))
	return wire.AppendSection(b, wire.SectionDigests, wire.AppendDigest(nil, 0))
}

// updateFrame is changes from one version to the next.
func updateFrame(epoch, from, to uint64) []byte {
	b := wire.AppendHeader(nil, &wire.Header{Kind: wire.Update, Epoch: epoch, From: from, To: to})
	b = wire.AppendSection(b, wire.SectionPuts, table.AppendEntry(table.AppendEntry(nil,
		&table.Entry{Fingerprint: 3 << 60, Refs: [6]uint16{1}}), &table.Entry{Fingerprint: 5 << 60, Refs: [6]uint16{1}}))
	return wire.AppendSection(b, wire.SectionRemoves, wire.AppendRemove(nil, 3<<60))
}

// finish ticks until no work waits.
func (c *Courier) finish(host *abi.Fake) {
	for range 100 {
		host.Clock += int64(10 * time.Millisecond)
		c.fleet.Tick(host.Clock, true)
		c.Tick(host.Clock)
	}
}

func TestAnEmptyTableWithMatchingDigestsIsReadyAtOnce(t *testing.T) {
	host, c := begin(t)
	if !c.takeUpdate(resyncFrame(7, 3), host.Clock) {
		t.Fatalf("refused: %v", host.Logs)
	}
	c.finish(host)
	m, ok := c.fleet.Meta()
	if !ok || !m.Ready || m.Epoch != 7 || m.Version != 3 || m.Bits != 6 {
		t.Errorf("%+v", m)
	}
	if !c.takeUpdate(updateFrame(7, 3, 4), host.Clock) {
		t.Fatalf("refused: %v", host.Logs)
	}
	c.finish(host)
	if m, _ := c.fleet.Meta(); m.Version != 4 {
		t.Errorf("%+v", m)
	}
	if got := c.stored(); len(got) != 1 || got[0].Fingerprint != 5<<60 {
		t.Errorf("%v", got)
	}
}

func (c *Courier) stored() (out []table.Entry) {
	c.fleet.Pages.Use(6, abi.Now()+int64(time.Hour))
	for index := range uint32(64) {
		page := c.fleet.Pages.Get(index)
		for i := range page.Count() {
			out = append(out, page.At(i))
		}
	}
	return out
}

func TestASliceThatPanicsIsNotRepeatedForEver(t *testing.T) {
	host, c := begin(t)
	c.takeUpdate(resyncFrame(7, 3), host.Clock)
	c.finish(host)
	c.update = update{frame: []byte{1}, puts: make([]byte, 5)} // not a whole entry
	func() {
		defer func() {
			if recover() == nil {
				t.Fatal("the damaged slice did not panic: the test tests nothing")
			}
		}()
		c.Tick(host.Clock)
	}()
	c.finish(host)
	if c.update.frame != nil || !c.ask {
		t.Error("the damaged update is still there, or control is not asked for the whole")
	}
}

func TestWhatControlSendsWronglyIsToldSeldom(t *testing.T) {
	host, c := begin(t)
	for range 1000 {
		if c.takeUpdate([]byte("not a frame at all, although as long as one"), host.Clock) {
			t.Fatal("accepted")
		}
	}
	if n := len(host.Logs); n != 10 { // 1, 2, 4, ... 512
		t.Errorf("%d lines for 1,000 failures", n)
	}
	if !strings.Contains(host.Logs[0].Message, "wrong magic at offset 0") {
		t.Errorf("%q does not say what is wrong", host.Logs[0].Message)
	}
}

func TestHintsAreBounded(t *testing.T) {
	host, c := begin(t)
	ack := wire.AppendHeader(nil, &wire.Header{Kind: wire.Ack})
	ack = wire.AppendSection(ack, wire.SectionHints, wire.AppendHints(nil, wire.Hints{BatchMillis: 1 << 31, PollMillis: 100}))
	if !c.takeAck(ack, host.Clock) {
		t.Fatalf("%v", host.Logs)
	}
	if got := time.Duration(c.batch.notBefore - host.Clock); got != 30*time.Second {
		t.Errorf("the next batch waits %v", got)
	}
}

// FuzzFrames hands the courier arbitrary answers of all its calls. Whatever
// they are, nothing panics, and what is in shared data can be read.
func FuzzFrames(f *testing.F) {
	pages := wire.AppendHeader(nil, &wire.Header{Kind: wire.Pages, Epoch: 7})
	page := make(table.Page, table.PageBytes)
	page.Init(6, 3)
	page.Put(&table.Entry{Fingerprint: 3 << 58, Refs: [6]uint16{1}})
	pages = wire.AppendSection(pages, wire.SectionPages, page)
	ack := wire.AppendHeader(nil, &wire.Header{Kind: wire.Ack, Flags: wire.FlagOff})
	ack = wire.AppendSection(ack, wire.SectionAcked, wire.AppendAcked(nil, wire.Acked{Slot: 1, Nonce: 2, Sequence: 3}))
	exact := wire.AppendSection(resyncFrame(7, 3), wire.SectionExact, []byte(`[{"pool":"p","vocab":"00112233445566778899aabbccddeeff","bytes":600000,"template":"qwen3","engine":"vllm","active":true}]`))
	for _, seed := range [][]byte{resyncFrame(7, 3), updateFrame(7, 3, 4), exact, pages, ack, nil} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		host, c := begin(t)
		c.takeUpdate(resyncFrame(7, 3), host.Clock)
		c.finish(host)
		c.takeUpdate(append([]byte(nil), frame...), host.Clock)
		c.finish(host)
		c.takeAck(frame, host.Clock)
		c.takeUpdate(resyncFrame(8, 1), host.Clock)
		if c.resync.active && c.takeRange(append([]byte(nil), frame...)) {
			c.finish(host)
		}
		c.finish(host)
		c.stored()
		for key, value := range host.Shared {
			if strings.HasPrefix(key, c.fleet.Keys.Page(6, 0)[:len("wp.default.1.p06.")]) && len(value.Value) > 0 {
				if err := table.Page(value.Value).Check(); err != nil {
					t.Fatalf("%s: %v", key, err)
				}
			}
		}
		if _, err := table.DecodeMeta(host.Shared[c.fleet.Keys.MetaKey].Value); err != nil {
			t.Fatal(err)
		}
		if list := host.Shared[c.fleet.Keys.Vocabularies()].Value; len(list) > 0 {
			if _, err := wire.DecodeVocabularies(list, nil); err != nil {
				t.Fatal(err)
			}
		}
	})
}
