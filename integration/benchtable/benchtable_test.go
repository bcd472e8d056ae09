package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/table"
)

// start puts the guest into two VMs and fills its table.
func start(t *testing.T, way string, entries int) *bench {
	t.Helper()
	ctx := t.Context()
	b, err := newBuilder(ctx, options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.close)
	module, err := b.guest(ctx, entries)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorkload(entries)
	p, err := startWazero(ctx, module, settings(w.bits, way), 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	x := &bench{
		o: options{Requests: 100, Rate: 1000, Changes: 1000, Alone: 200 * time.Millisecond}, w: w, p: p,
		c: &cell{Host: hostWazero, Way: way, VMs: 2, Entries: entries}, connections: 4,
	}
	for _, step := range []func(context.Context) error{x.settle, x.fill} {
		if err := step(ctx); err != nil {
			t.Fatal(err)
		}
	}
	return x
}

// TestBothWaysAnswerAsTheOracle holds the two tables to a map, before and
// after changes of every kind: a comparison of wrong tables would say nothing.
func TestBothWaysAnswerAsTheOracle(t *testing.T) {
	for _, way := range []string{wayPages, wayCopy} {
		t.Run(way, func(t *testing.T) {
			b := start(t, way, 5000)
			ctx := t.Context()
			if err := b.check(ctx); err != nil || b.c.Wrong != 0 {
				t.Fatalf("%d wrong answers, %v", b.c.Wrong, err)
			}
			known := b.w.known()
			removed := 0
			for range 30 {
				changes := b.w.someChanges(50)
				if err := b.change(ctx, changes); err != nil {
					t.Fatal(err)
				}
				if err := b.caughtUp(ctx); err != nil {
					t.Fatal(err)
				}
				for ; len(changes) > 0; changes = changes[table.EntryBytes:] {
					e := table.DecodeEntry(changes)
					known[e.Fingerprint] = e.Refs
					if e.Count() == 0 {
						removed++
						delete(known, e.Fingerprint)
					}
				}
			}
			if removed == 0 {
				t.Fatal("nothing was removed")
			}
			if err := pause(ctx, 250*time.Millisecond); err != nil { // the life of a cached page
				t.Fatal(err)
			}
			hits := 0
			for i := range 400 {
				got, err := b.lookup(ctx, i, b.w.lookups[i])
				if err != nil {
					t.Fatal(err)
				}
				hash, longest := b.w.oracle(known, b.w.lookups[i])
				// Changes of single entries break what is true of real ones, that a
				// worker which holds a position holds all before it. Only the search
				// in pages uses that, for workers behind the longest match.
				if got.longest != longest || way == wayCopy && got.hash != hash {
					t.Fatalf("lookup %d: longest %d, want %d; %d matches", i, got.longest, longest, got.matches)
				}
				if longest > 0 {
					hits++
				}
			}
			if hits < 200 || hits == 400 {
				t.Errorf("%d of 400 lookups hit: the workload has no misses or few hits", hits)
			}
		})
	}
}

func TestEveryFigureOfACellIsMeasured(t *testing.T) {
	b := start(t, wayPages, 5000)
	for _, step := range []func(context.Context) error{b.nothing, b.lookups, b.alone, b.lag} {
		if err := step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	c := b.c
	if c.LookupP50Micros <= 0 || c.LookupP99Micros < c.LookupP50Micros || c.RequestMicros <= 0 || c.NothingMicros <= 0 ||
		c.ResidentBytes <= 0 || c.LagMaxMillis < c.LagP50Millis || c.LagP50Millis <= 0 || c.ColdLagMaxMillis <= 0 {
		t.Errorf("%+v", c)
	}
	var out bytes.Buffer
	printCells(&out, []*cell{c})
	if !strings.Contains(out.String(), "5000  wazero    2  pages") {
		t.Error(out.String())
	}
}

func TestTheLeastTimeOfTheRoundsCounts(t *testing.T) {
	c := &cell{LookupP50Micros: 5, RequestMicros: 90, TableBytes: 1, Wrong: 2}
	c.keepLeast(&cell{LookupP50Micros: 7, RequestMicros: 80, TableBytes: 2})
	if c.LookupP50Micros != 5 || c.RequestMicros != 80 || c.TableBytes != 2 || c.Wrong != 2 {
		t.Errorf("%+v", c)
	}
}

func TestWrongFlagsAreToldByName(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-hosts nginx", "-hosts"}, {"-vms 0", "-vms"}, {"-vms two", "-vms"}, {"-entries 5", "-entries"}, {"-rounds 0", "-rounds"},
	} {
		var progress bytes.Buffer
		if code := run(strings.Fields(c.args), &bytes.Buffer{}, &progress); code != 2 || !strings.Contains(progress.String(), c.want) {
			t.Errorf("%s: exit code %d, %q", c.args, code, progress.String())
		}
	}
	if cells := plan(options{Hosts: []string{"wazero", "envoy"}, VMs: []int{2, 8}, Entries: []int{1000}}); len(cells) != 8 {
		t.Errorf("%d cells", len(cells))
	}
}

// TestOrdersReachTheChild shows that the options survive the way to the
// process of a cell.
func TestOrdersReachTheChild(t *testing.T) {
	text, err := json.Marshal(order{Options: options{Rate: 7, Alone: time.Second}, Module: "m", Entries: 1000, Way: wayCopy, VMs: 3})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := measureChild(t.Context(), string(text)); err == nil || !strings.Contains(err.Error(), "read the guest") {
		t.Errorf("a missing module: %v", err)
	}
}
