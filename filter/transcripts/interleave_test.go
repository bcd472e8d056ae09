package transcripts

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/hostsim"
	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
)

// interleaved plays random work with several VMs inside their callbacks at once
// and callbacks that stand still for seconds anywhere between two host calls.
type interleaved struct {
	*proxy
	x      *hostsim.Explorer
	rng    *rand.Rand
	sent   int
	routed int    // of them, to a worker of ours
	epoch  uint64 // of the courier's record, never falls
	meta   table.Meta
}

// interleave starts a proxy whose VMs are interleaved by a seed. One step in
// stalls stands still, for up to longest.
func interleave(t *testing.T, seed uint64, workers, stalls int, longest time.Duration) *interleaved {
	p := start(t, modules.full, `{}`, workers)
	i := &interleaved{proxy: p, rng: rand.New(rand.NewPCG(seed, 2))}
	i.x = hostsim.NewExplorer(p.host, hostsim.RandomSchedule(seed))
	i.x.Invariant = i.invariant
	i.x.Stall = func(hostsim.Step) time.Duration {
		if i.rng.IntN(stalls) > 0 {
			return 0
		}
		return time.Duration(i.rng.Int64N(int64(longest)))
	}
	return i
}

// invariant is what no interleaving may break, at any step.
func (i *interleaved) invariant() error {
	keys := wire.NewKeys("default")
	if value, _, ok := i.host.SharedData(vmID, keys.Courier()); ok {
		record, err := wire.DecodeCourier(value)
		if err != nil {
			return err
		}
		if record.Epoch < i.epoch {
			return fmt.Errorf("the courier's epoch fell from %d to %d", i.epoch, record.Epoch)
		}
		i.epoch = record.Epoch
	}
	if value, _, ok := i.host.SharedData(vmID, keys.Meta()); ok {
		m, err := table.DecodeMeta(value)
		if err != nil {
			return err
		}
		// A courier that has written late knew of more than its successor, who writes the version that
		// it began with once more and compares the whole table then.
		late, _, _ := i.host.SharedData(vmID, keys.Late())
		if m.Epoch == i.meta.Epoch && m.Version < i.meta.Version && len(late) == 0 {
			return fmt.Errorf("the table's version fell from %d to %d", i.meta.Version, m.Version)
		}
		i.meta = m
	}
	owners := map[uint64]uint16{}
	for slot := range uint16(8) {
		value, _, ok := i.host.SharedData(vmID, keys.Row(slot))
		if !ok {
			continue
		}
		row, err := wire.DecodeRow(value, nil)
		if err != nil {
			return err
		}
		if other, twice := owners[row.Nonce]; twice && row.TickUnixNanos != 0 {
			return fmt.Errorf("one VM has slots %d and %d", other, slot)
		}
		if row.TickUnixNanos != 0 {
			owners[row.Nonce] = slot
		}
	}
	return nil
}

// request plays one request in a VM; its callbacks are interleaved like all
// others. Most are answered, some at once.
func (i *interleaved) request() {
	vm := i.rng.IntN(len(i.fleet.Workers))
	body := chat("m", 300+i.rng.IntN(3000), fmt.Sprint(i.sent))
	i.sent++
	wait := time.Duration(i.rng.IntN(4)) * 100 * time.Millisecond
	abort := i.rng.IntN(4) == 0
	i.x.Go(i.fleet.Workers[vm], func() {
		e := i.send(vm, post("/v1/chat/completions"), body, 0)
		if e.endpoint() != "" {
			i.routed++
		}
		end := func() {
			if abort {
				e.Close()
				return
			}
			best, _, _ := strings.Cut(e.endpoint(), ",")
			e.answer(best, 200, 1, "application/json", `{"usage":{"prompt_tokens":500,"completion_tokens":3}}`)
		}
		if wait == 0 {
			end()
			return
		}
		i.clock.(hostsim.Clock).AfterFunc(wait, func() { i.x.Go(i.fleet.Workers[vm], end) })
	})
}

// finish lets everything come to rest and checks what must hold then.
func (i *interleaved) finish(longest time.Duration) error {
	i.control.dead = ""
	i.x.Stall = nil
	i.advance(longest + 20*time.Second)
	if err := i.x.Err(); err != nil {
		return err
	}
	i.x.Close()
	if err := i.sameTable(); err != nil {
		return err
	}
	if a, b := i.counter("dispatched"), i.counter("released"); a != b {
		return fmt.Errorf("%d claims opened, %d returned", a, b)
	}
	for slot, lines := range i.rows() {
		if len(lines) != 0 {
			return fmt.Errorf("slot %d still has %v in flight", slot, lines)
		}
	}
	if n := i.counter("panics"); n != 0 {
		return fmt.Errorf("%d panics: %v", n, i.logs)
	}
	if i.sent > 0 && i.x.Steps() < 10*i.sent {
		return errors.New("hardly any step was taken: the test tests nothing")
	}
	return nil
}

// TestWhateverTheInterleavingTheTableConvergesAndNothingLeaks: couriers race
// for the lease, stand still in the middle of a page, of a claim, of a renewal,
// and wake up after another has taken over; requests are routed meanwhile.
func TestWhateverTheInterleavingTheTableConvergesAndNothingLeaks(t *testing.T) {
	const longest = 6 * time.Second // three leases, four lives of a row
	for seed := range uint64(*interleavings) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			i := interleave(t, seed, 3, 150, longest)
			for range 25 {
				switch i.rng.IntN(8) {
				case 0, 1:
					for range 1 + i.rng.IntN(20) {
						i.control.put(table.Entry{Fingerprint: i.rng.Uint64(), Refs: [6]uint16{1, 2}})
					}
				case 2:
					i.control.remove(1 + i.rng.IntN(10))
				case 3:
					if i.rng.IntN(3) == 0 {
						i.control.epoch++
						i.control.bits = 6 + 2*uint8(i.rng.IntN(2))
					}
				case 4, 5:
					i.request()
				default:
					i.advance(time.Duration(1+i.rng.IntN(800)) * time.Millisecond)
				}
				if err := i.x.Err(); err != nil {
					t.Fatal(err)
				}
			}
			if err := i.finish(longest); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// interleavings is how many seeds are tried: `make explore` tries a thousand.
var interleavings = flag.Int("interleavings", 20, "how many interleavings of the VMs' callbacks to try")

// TestAWriteThatComesTooLateIsRepaired: a courier stands still between the look
// at a page and its write, for longer than its lease. Its successor finds
// nothing to change on that page; then the page is written after all.
func TestAWriteThatComesTooLateIsRepaired(t *testing.T) {
	i := interleave(t, 1, 2, 1, 0)
	stalled := false
	entry := table.Entry{Fingerprint: 5 << 58, Refs: [6]uint16{1, 2}}
	page := wire.NewKeys("default").Page(6, 5)
	i.x.Stall = func(s hostsim.Step) time.Duration {
		if s.Key == page && s.Call == "proxy_set_shared_data" && !stalled {
			stalled = true
			return 5 * time.Second
		}
		return 0
	}
	i.advance(time.Second)
	i.control.put(entry)
	i.advance(100 * time.Millisecond)
	if !stalled {
		t.Fatal("the page was not written")
	}
	i.control.remove(1)
	i.control.epoch++ // changes can't be told: the successor compares digests
	i.advance(4 * time.Second)
	if err := i.sameTable(); err != nil {
		t.Fatalf("the successor: %v", err)
	}
	late := false
	for range 200 {
		i.advance(10 * time.Millisecond)
		_, entries := i.stored()
		late = late || len(entries) > 0
	}
	if !late {
		t.Fatal("the late write did not come: the test tests nothing")
	}
	if err := i.finish(0); err != nil {
		t.Fatal(err)
	}
}

// TestARowSweptDuringItsRenewalIsCountedOnce: a VM with a request in flight
// stands still between the look at its row and its write, until the courier has
// counted that request as gone.
func TestARowSweptDuringItsRenewalIsCountedOnce(t *testing.T) {
	i := interleave(t, 1, 2, 1, 0)
	i.x.Stall = nil
	i.advance(time.Second)
	var e *exchange
	i.x.Go(i.fleet.Workers[1], func() { e = i.send(1, post("/v1/chat/completions"), chat("m", 2000, "x"), 0) })
	i.advance(time.Second)
	before := i.counter("orphaned")
	stalled := false
	i.x.Stall = func(s hostsim.Step) time.Duration {
		if s.VM == "worker_1" && s.Call == "proxy_set_shared_data" && strings.Contains(s.Key, ".row.") && !stalled {
			stalled = true
			return 5 * time.Second
		}
		return 0
	}
	i.advance(4 * time.Second)
	if got := i.counter("orphaned") - before; got != 1 {
		t.Fatalf("%d requests were counted as gone, want 1", got)
	}
	i.advance(2 * time.Second)
	i.x.Go(i.fleet.Workers[1], func() { e.Close() })
	i.sent = 0
	if err := i.finish(0); err != nil {
		t.Fatal(err)
	}
}
