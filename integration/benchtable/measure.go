package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/warmpath/warmpath/shared/table"
)

const (
	// changeInterval is how often the control service publishes changes.
	changeInterval = 50 * time.Millisecond
	// hurriedInterval is it while changes arrive alone: more of them stand out
	// better against the noise of the machine, a batch is as large as before.
	hurriedInterval = 20 * time.Millisecond
	// checked is how many answers are compared with the oracle's.
	checked = 300
	// markers is how often the lag of a change is measured.
	markers = 6
)

// cell is what was measured of one way, host, number of VMs and table size.
type cell struct {
	Host    string `json:"host"`
	Way     string `json:"way"`
	VMs     int    `json:"vms"` // that take requests
	Ticking int    `json:"vms_ticking"`
	Entries int    `json:"entries"`

	LookupP50Micros float64 `json:"lookup_p50_us"`
	LookupP99Micros float64 `json:"lookup_p99_us"`
	// RequestMicros is all CPU time of the process per lookup, with one change
	// arriving per lookup at the default rates; NothingMicros is that of a
	// request without lookup and changes.
	RequestMicros float64 `json:"cpu_us_per_request"`
	NothingMicros float64 `json:"cpu_us_per_request_without_lookup"`
	// ChangeMicros is the CPU time of an entry change in all VMs together.
	ChangeMicros float64 `json:"cpu_us_per_change"`
	BaseMillis   float64 `json:"cpu_ms_to_fill"`
	// TableBytes is the growth of the resident memory by table and traffic.
	TableBytes    int64  `json:"table_bytes"`
	ResidentBytes int64  `json:"resident_bytes"`
	VMBytes       uint64 `json:"vm_linear_bytes,omitempty"`
	// Lag is from sending a change until a VM sees it, over all VMs; cold: of
	// an entry that the VM has not looked for in the last 200 ms.
	LagP50Millis     float64 `json:"lag_p50_ms,omitempty"`
	LagMaxMillis     float64 `json:"lag_max_ms,omitempty"`
	ColdLagMaxMillis float64 `json:"cold_lag_max_ms,omitempty"`
	Wrong            int     `json:"answers_unlike_oracle"`
}

// bench is one cell being measured.
type bench struct {
	o           options
	w           *workload
	p           proxy
	c           *cell
	connections int
	sequence    uint64
}

// measureProxy measures a cell in a host that has just started.
func measureProxy(ctx context.Context, o options, w *workload, p proxy, c *cell) error {
	b := &bench{o: o, w: w, p: p, c: c, connections: 2 * c.VMs}
	steps := []func(context.Context) error{b.settle, b.fill, b.check, b.nothing, b.lookups, b.alone}
	if c.Host == hostWazero {
		steps = append(steps, b.lag) // its VMs can be asked one by one
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// settle waits until all VMs tick.
func (b *bench) settle(ctx context.Context) error {
	want := uint64(b.c.VMs)
	if b.c.Host == hostEnvoy {
		want++
	}
	b.c.Ticking = int(want)
	return b.wait(ctx, "benchtable.vms", want)
}

func (b *bench) wait(ctx context.Context, counter string, want uint64) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		got, err := b.p.counter(ctx, counter)
		if err != nil {
			return err
		}
		if got >= want {
			return nil
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("wait for %s: %d of %d: %w", counter, got, want, err)
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// change sends one batch of entry changes.
func (b *bench) change(ctx context.Context, entries []byte) error {
	b.sequence++
	body := binary.LittleEndian.AppendUint64(make([]byte, 0, 8+len(entries)), b.sequence)
	_, err := b.p.post(ctx, 0, "/changes", append(body, entries...))
	return err
}

// caughtUp waits until every VM has all changes.
func (b *bench) caughtUp(ctx context.Context) error {
	want := b.sequence
	if b.c.Way == wayCopy {
		want *= uint64(b.c.Ticking)
	}
	return b.wait(ctx, "benchtable.applied", want)
}

// spent measures the CPU time of the process during f.
func (b *bench) spent(f func() error) (time.Duration, error) {
	before, err := b.p.cpu()
	if err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	after, err := b.p.cpu()
	return after - before, err
}

// fill loads the table.
func (b *bench) fill(ctx context.Context) error {
	before, err := b.p.resident()
	if err != nil {
		return err
	}
	used, err := b.spent(func() error {
		for i, batch := range b.w.batches() {
			if err := b.change(ctx, batch); err != nil {
				return err
			}
			if i%8 == 7 {
				if err := b.caughtUp(ctx); err != nil {
					return err
				}
			}
		}
		return b.caughtUp(ctx)
	})
	if err != nil {
		return fmt.Errorf("fill the table: %w", err)
	}
	b.c.BaseMillis = float64(used.Microseconds()) / 1000
	b.c.TableBytes = -before
	return nil
}

// check compares answers with the oracle's. Pages may have had no room for a
// few entries of a million, so a wrong answer is counted, many are an error.
func (b *bench) check(ctx context.Context) error {
	known := b.w.known()
	for i := range checked {
		body := b.w.lookups[i%len(b.w.lookups)]
		got, err := b.lookup(ctx, i, body)
		if err != nil {
			return err
		}
		if hash, longest := b.w.oracle(known, body); got.longest != longest || got.hash != hash {
			b.c.Wrong++
		}
	}
	if b.c.Wrong > checked/20 {
		return fmt.Errorf("%d of %d answers are unlike the oracle's", b.c.Wrong, checked)
	}
	return nil
}

func (b *bench) lookup(ctx context.Context, connection int, body []byte) (answer, error) {
	reply, err := b.p.post(ctx, connection, "/lookup", body)
	if err != nil {
		return answer{}, err
	}
	return decodeAnswer(reply)
}

// load sends n requests at the rate over all connections, and the changes
// beside them if asked to.
func (b *bench) load(ctx context.Context, n int, path string, changes bool) (*hdrhistogram.Histogram, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		wg, feeder sync.WaitGroup
		mu         sync.Mutex
		failure    error
		next       atomic.Int64
		took       = hdrhistogram.New(1, int64(time.Second), 3)
	)
	fail := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if failure == nil {
			failure = err
		}
		cancel()
	}
	if changes {
		feeder.Go(func() {
			if err := b.feed(ctx, changeInterval); err != nil && ctx.Err() == nil {
				fail(err)
			}
		})
	}
	began := time.Now()
	gap := time.Second / time.Duration(b.o.Rate)
	for connection := range b.connections {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := pause(ctx, time.Until(began.Add(time.Duration(i)*gap))); err != nil {
					return
				}
				reply, err := b.p.post(ctx, connection, path, b.w.lookups[i%len(b.w.lookups)])
				if err == nil {
					var a answer
					if a, err = decodeAnswer(reply); err == nil {
						mu.Lock()
						_ = took.RecordValue(min(max(int64(a.took), 1), int64(time.Second))) // within its bounds
						mu.Unlock()
						continue
					}
				}
				fail(err)
				return
			}
		})
	}
	wg.Wait()
	cancel()
	feeder.Wait()
	return took, failure
}

// batchSize is the changes of one interval at their rate.
func (b *bench) batchSize() int { return b.o.Changes * int(changeInterval/time.Millisecond) / 1000 }

// feed sends a batch of changes every interval until ctx ends.
func (b *bench) feed(ctx context.Context, interval time.Duration) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	n := b.batchSize()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		// A batch once begun is finished, so that none is missing in the copies.
		if err := b.change(context.WithoutCancel(ctx), b.w.someChanges(n)); err != nil {
			return err
		}
	}
}

func perRequest(used time.Duration, n int) float64 {
	return float64(used.Nanoseconds()) / 1000 / float64(n)
}

func (b *bench) nothing(ctx context.Context) error {
	n := max(b.o.Requests/2, 1)
	used, err := b.spent(func() error {
		_, err := b.load(ctx, n, "/nothing", false)
		return err
	})
	b.c.NothingMicros = perRequest(used, n)
	return err
}

func (b *bench) lookups(ctx context.Context) error {
	var took *hdrhistogram.Histogram
	used, err := b.spent(func() (err error) {
		took, err = b.load(ctx, b.o.Requests, "/lookup", true)
		return err
	})
	if err != nil {
		return err
	}
	b.c.RequestMicros = perRequest(used, b.o.Requests)
	b.c.LookupP50Micros = float64(took.ValueAtQuantile(50)) / 1000
	b.c.LookupP99Micros = float64(took.ValueAtQuantile(99)) / 1000
	resident, err := b.p.resident()
	b.c.TableBytes += resident
	b.c.ResidentBytes = resident
	b.c.VMBytes = b.p.vmBytes()
	return err
}

// alone measures changes without requests, against ticks without changes.
func (b *bench) alone(ctx context.Context) error {
	if err := b.caughtUp(ctx); err != nil {
		return err
	}
	idle, err := b.spent(func() error { return pause(ctx, b.o.Alone) })
	if err != nil {
		return err
	}
	before := b.sequence
	busy, err := b.spent(func() error {
		ctx, cancel := context.WithTimeout(ctx, b.o.Alone)
		defer cancel()
		return b.feed(ctx, hurriedInterval)
	})
	if err != nil {
		return err
	}
	batches := int(b.sequence - before)
	if changes := batches * b.batchSize(); changes > 0 {
		b.c.ChangeMicros = perRequest(busy-idle, changes)
	}
	return b.caughtUp(ctx)
}

// lag measures how long a change takes to be seen by every VM.
func (b *bench) lag(ctx context.Context) error {
	all := hdrhistogram.New(1, int64(10*time.Second), 3)
	for range markers {
		if err := b.mark(ctx, true, all); err != nil {
			return err
		}
	}
	b.c.LagP50Millis = float64(all.ValueAtQuantile(50)) / 1e6
	b.c.LagMaxMillis = float64(all.Max()) / 1e6
	cold := hdrhistogram.New(1, int64(10*time.Second), 3)
	for range markers {
		if err := b.mark(ctx, false, cold); err != nil {
			return err
		}
	}
	b.c.ColdLagMaxMillis = float64(cold.Max()) / 1e6
	return nil
}

// mark sends one new entry and asks every VM for it until it is there. Looked
// for before, its page is in every VM's cache.
func (b *bench) mark(ctx context.Context, before bool, lags *hdrhistogram.Histogram) error {
	e := table.Entry{Fingerprint: rand.Uint64() | 1, Refs: [table.InlineRefs]uint16{1}}
	body := encodePrompt([]checkpoint{{fingerprint: e.Fingerprint, end: 5, turn: true}})
	for vm := 0; before && vm < b.c.VMs; vm++ {
		if _, err := b.lookup(ctx, vm, body); err != nil {
			return err
		}
	}
	// Anywhere in the lifetime of the cached page, and of the tick.
	if err := pause(ctx, time.Duration(rand.IntN(150))*time.Millisecond); err != nil {
		return err
	}
	sent := time.Now()
	if err := b.change(ctx, encodeEntries([]table.Entry{e})); err != nil {
		return err
	}
	waiting := make([]int, b.c.VMs)
	for vm := range waiting {
		waiting[vm] = vm
	}
	for len(waiting) > 0 {
		var still []int
		for _, vm := range waiting {
			a, err := b.lookup(ctx, vm, body)
			if err != nil {
				return err
			}
			if a.longest == 0 {
				still = append(still, vm)
				continue
			}
			if err := lags.RecordValue(int64(time.Since(sent))); err != nil {
				return errors.New("a change was not seen within 10 s")
			}
		}
		waiting = still
		if len(waiting) > 0 {
			if err := pause(ctx, 2*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}
