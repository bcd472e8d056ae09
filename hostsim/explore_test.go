package hostsim

import (
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"
)

// counters starts two VMs that each count up a shared key at every request,
// plays one request in each by every schedule, and returns the sums.
func counters(t *testing.T, how string, schedules iter.Seq[*Schedule]) (sums map[string]int, runs int) {
	t.Helper()
	h := newTestHost(t, Options{Log: func(LogEntry) {}})
	m := compileGuest(t, h)
	sums = map[string]int{}
	var vms [2]*VM
	var plugins [2]*Plugin
	for i := range vms {
		vms[i], plugins[i] = startGuest(t, h, VMConfig{Name: fmt.Sprintf("w%d", i), Module: m, VMID: "c"},
			PluginConfig{Configuration: []byte("request_headers.end: sadd n" + how)})
	}
	for s := range schedules {
		runs++
		if err := h.SetSharedData("c", "n", []byte("10")); err != nil {
			t.Fatal(err)
		}
		x := NewExplorer(h, s)
		for i := range vms {
			x.Go(vms[i], func() { plugins[i].NewStream(&Recorder{}).RequestHeaders(postHeaders(), true) })
		}
		h.Run()
		x.Close()
		if err := x.Err(); err != nil {
			t.Fatal(err)
		}
		v, _, _ := h.SharedData("c", "n")
		sums[string(v)]++
	}
	return sums, runs
}

func TestABlindWriteLosesAnUpdateInSomeInterleaving(t *testing.T) {
	sums, _ := counters(t, "", EverySchedule(0, 1000))
	if sums["11"] != 0 {
		t.Errorf("without a switch inside a callback an update was lost: %v", sums)
	}
	sums, runs := counters(t, "", EverySchedule(1, 1000))
	if sums["11"] == 0 || sums["12"] == 0 || runs == 1000 {
		t.Errorf("with one switch: %v in %d runs; want both outcomes and an end", sums, runs)
	}
	if sums, _ := counters(t, "", RandomSchedules(1, 50)); sums["11"] == 0 || sums["12"] == 0 {
		t.Errorf("by chance: %v; want both outcomes", sums)
	}
}

func TestACompareAndSetLosesNoUpdateInAnyInterleaving(t *testing.T) {
	sums, runs := counters(t, " cas", EverySchedule(3, 10_000))
	if len(sums) != 1 || sums["12"] != runs || runs < 10 || runs == 10_000 {
		t.Errorf("%v in %d runs; want 12 in every one", sums, runs)
	}
}

func TestTheSameScheduleGivesTheSameSteps(t *testing.T) {
	var first string
	for range 3 {
		h := newTestHost(t, Options{Log: func(LogEntry) {}})
		x := NewExplorer(h, RandomSchedule(7))
		var steps []string
		x.Stall = func(s Step) time.Duration { steps = append(steps, s.String()); return 0 }
		for i := range 3 {
			vm, p := startGuest(t, h, VMConfig{Name: fmt.Sprintf("w%d", i), VMID: "c"},
				PluginConfig{Configuration: []byte("request_headers.end: sadd n; sadd m")})
			x.Go(vm, func() { p.NewStream(&Recorder{}).RequestHeaders(postHeaders(), true) })
		}
		h.Run()
		x.Close()
		got := strings.Join(steps, "\n")
		if first == "" {
			first = got
		}
		if len(steps) != 12 || got != first {
			t.Fatalf("steps:\n%s\nfirst:\n%s", got, first)
		}
	}
}

func TestAStalledCallbackGoesOnWhenTheClockHasMoved(t *testing.T) {
	h := newTestHost(t, Options{Log: func(LogEntry) {}})
	var vms [2]*VM
	var plugins [2]*Plugin
	for i := range vms {
		vms[i], plugins[i] = startGuest(t, h, VMConfig{Name: fmt.Sprintf("w%d", i), VMID: "c"},
			PluginConfig{Configuration: []byte("request_headers.end: sadd n")})
	}
	var w0First *Schedule
	for w0First = range EverySchedule(0, 1) {
	}
	x := NewExplorer(h, w0First)
	stalled := false
	x.Stall = func(s Step) time.Duration {
		if s.Call == "proxy_set_shared_data" && s.VM == "w0" && !stalled {
			stalled = true
			return 5 * time.Second
		}
		return 0
	}
	sinks := [2]*Recorder{{}, {}}
	for i := range vms {
		x.Go(vms[i], func() { plugins[i].NewStream(sinks[i]).RequestHeaders(postHeaders(), true) })
	}
	h.Advance(4 * time.Second)
	if sinks[0].RequestEnded || !sinks[1].RequestEnded {
		t.Fatalf("after 4 s: w0 ended %t, w1 %t; want only w1", sinks[0].RequestEnded, sinks[1].RequestEnded)
	}
	h.Advance(2 * time.Second)
	if !sinks[0].RequestEnded {
		t.Fatal("the stalled callback did not go on")
	}
	if v, _, _ := h.SharedData("c", "n"); string(v) != "1" {
		t.Errorf("n = %q; the old write comes last", v)
	}
	x.Close()
}

func TestABrokenInvariantNamesTheScheduleAndTheLastSteps(t *testing.T) {
	h := newTestHost(t, Options{Log: func(LogEntry) {}})
	vm, p := startGuest(t, h, VMConfig{Name: "w", VMID: "c"}, PluginConfig{Configuration: []byte("request_headers.end: sadd n; sadd n")})
	x := NewExplorer(h, RandomSchedule(3))
	broken := errors.New("n is set")
	x.Invariant = func() error {
		if _, _, ok := h.SharedData("c", "n"); ok {
			return broken
		}
		return nil
	}
	x.Go(vm, func() { p.NewStream(&Recorder{}).RequestHeaders(postHeaders(), true) })
	h.Run()
	x.Close()
	err := x.Err()
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "RandomSchedule(3), step 3") || !strings.Contains(err.Error(), "w set_shared_data n") {
		t.Fatalf("Err() = %v", err)
	}
}

func TestARunWithoutAnEndIsStopped(t *testing.T) {
	h := newTestHost(t, Options{Log: func(LogEntry) {}})
	vm, p := startGuest(t, h, VMConfig{Name: "w", VMID: "c"}, PluginConfig{Configuration: []byte("request_headers.end: sadd n")})
	x := NewExplorer(h, RandomSchedule(3))
	x.MaxSteps = 100
	var again func()
	again = func() {
		p.NewStream(&Recorder{}).RequestHeaders(postHeaders(), true)
		if x.Err() == nil {
			x.Go(vm, again)
		}
	}
	x.Go(vm, again)
	h.Run()
	x.Close()
	if err := x.Err(); err == nil || !strings.Contains(err.Error(), "no end after 100 steps") {
		t.Fatalf("Err() = %v", err)
	}
}
