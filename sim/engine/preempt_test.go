package engine

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// stepTo advances an engine until a request has generated so many tokens.
func stepTo(t *testing.T, e *Engine, id uint64, generated int) {
	t.Helper()
	for {
		at, ok := e.NextEvent()
		if !ok {
			t.Fatalf("idle before request %d has %d tokens", id, generated)
		}
		for _, ev := range e.Advance(at) {
			if ev.ID == id && ev.Generated == generated {
				return
			}
		}
		e.check(t)
	}
}

func TestWhoWasAdmittedLastGivesItsBlocksAndWaitsBeforeAllOthers(t *testing.T) {
	e := newEngine(t, func(p *Params) { p.CapacityBlocks = 10 })
	for id := range uint64(3) {
		output := 60 // 4 blocks at first, 8 in the end
		if id == 2 {
			output = 1
		}
		r := request(id, uint32(id), 64, output)
		r.EventTokens = 1
		if err := e.Submit(0, r); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(when string, running, waiting, inUse int, preemptions uint64) {
		t.Helper()
		s := e.Stats(e.now)
		if s.Running != running || s.Waiting != waiting || s.BlocksInUse != inUse || s.Preemptions != preemptions {
			t.Errorf("%s: %d running, %d waiting, %d blocks in use, %d preemptions; want %d, %d, %d, %d",
				when, s.Running, s.Waiting, s.BlocksInUse, s.Preemptions, running, waiting, inUse, preemptions)
		}
	}
	expect("0 runs alone in the step that its coming began", 1, 2, 4, 0)
	stepTo(t, e, 0, 1)
	expect("both fit, though not to their ends; 2 finds no room for its prompt", 2, 1, 9, 0)
	stepTo(t, e, 1, 1)
	expect("each has begun a fifth block", 2, 1, 10, 0)
	stepTo(t, e, 0, 16)
	expect("the last step for which there are blocks", 2, 1, 10, 0)
	stepTo(t, e, 0, 17)
	expect("0 needs a sixth: 1 gives its five", 1, 2, 6, 1)
	if at := e.waiting[0].ID; at != 1 {
		t.Errorf("%d waits first, want 1", at)
	}
	stepTo(t, e, 0, 59)
	expect("0 has eight: no room for the six of 1, and 2 doesn't overtake it", 1, 2, 8, 1)
	stepTo(t, e, 0, 60)
	expect("1 has room for its 80 tokens, and then 2 for its prompt", 2, 0, 9, 1)
	s := e.Stats(e.now)
	if s.ResumedQueriedTokens != 80 || s.ResumedHitTokens != 32 {
		t.Errorf("1 came back with %d of %d tokens: 0 took the places of two of its four full blocks", s.ResumedHitTokens, s.ResumedQueriedTokens)
	}
	events := drain(e)
	e.check(t)
	for id := range uint64(3) {
		var generated []int
		for _, ev := range events {
			if ev.ID == id {
				generated = append(generated, ev.Generated)
			}
		}
		if id == 1 && (generated[0] != 17 || generated[len(generated)-1] != 60) || id == 2 && !slices.Equal(generated, []int{1}) {
			t.Errorf("%d goes on with %v", id, generated)
		}
	}
	s = e.Stats(e.now)
	// The 80th token had not been computed when 1 was preempted.
	if s.RecomputedTokens != 47 || s.Preemptions != 1 || s.Finished != 3 || s.GeneratedTokens != 121 {
		t.Errorf("%+v", s.Counters)
	}
	if s.QueriedTokens != 192 || s.ComputedTokens != 192 || s.HitTokens != 0 {
		t.Errorf("what 1 found of its own counts: %+v", s.Counters)
	}
}

// A dumbEngine is the schedule spelt out, a step at a time, for prompts that
// share nothing and leave nothing.
type dumbEngine struct {
	p                Params
	now              time.Duration
	waiting, running []*dumbRequest
	preemptions      int
}

type dumbRequest struct {
	Request
	computed, generated, blocks int
}

// step plays one step and returns who got a token, or finished its prompt.
func (d *dumbEngine) step() (got []Event) {
	free := d.p.CapacityBlocks
	for _, r := range d.running {
		free -= r.blocks
	}
	var load stepLoad
	budget, preempted := d.p.StepTokens, false
	most := budget // of one prompt
	if d.p.LongPrefillTokens > 0 && len(d.running)+len(d.waiting) > 1 {
		most = d.p.LongPrefillTokens
	}
	chunks := map[*dumbRequest]int{}
	compute := func(r *dumbRequest, n int) {
		more := (r.computed+n+15)/16 - r.blocks
		r.blocks += more
		free -= more
		budget -= n
		chunks[r] = n
		load.requests++
		if r.generated > 0 && n == 1 && r.computed+1 == r.PromptTokens+r.generated {
			load.kvTokens += int64(r.PromptTokens + r.generated)
		} else {
			load.prefillTokens += int64(n)
			load.prefillPairs += pairs(r.computed, n)
		}
	}
	for i := 0; i < len(d.running) && budget > 0; i++ {
		r := d.running[i]
		n := min(budget, most, r.PromptTokens+r.generated-r.computed)
		for i < len(d.running) && (r.computed+n+15)/16-r.blocks > free {
			last := d.running[len(d.running)-1]
			d.running = d.running[:len(d.running)-1]
			free += last.blocks
			last.blocks, last.computed = 0, 0
			d.waiting = append([]*dumbRequest{last}, d.waiting...)
			preempted = true
			d.preemptions++
		}
		if i < len(d.running) {
			compute(r, n)
		}
	}
	for !preempted && budget > 0 && len(d.waiting) > 0 && len(d.running) < d.p.MaxRunning {
		r := d.waiting[0]
		if (r.PromptTokens+r.generated+15)/16 > free {
			break
		}
		d.waiting = d.waiting[1:]
		d.running = append(d.running, r)
		compute(r, min(budget, most, r.PromptTokens+r.generated))
	}
	d.now += d.p.stepTime(load)
	left := d.running[:0:0]
	for _, r := range d.running {
		r.computed += chunks[r]
		if chunks[r] > 0 && r.computed == r.PromptTokens+r.generated {
			if r.OutputTokens > 0 {
				r.generated++
			}
			got = append(got, Event{ID: r.ID, At: d.now, Generated: r.generated})
			if r.generated == r.OutputTokens {
				continue
			}
		}
		left = append(left, r)
	}
	d.running = left
	return got
}

func TestTheScheduleIsTheDumbOne(t *testing.T) {
	preemptions := 0
	rapid.Check(t, func(t *rapid.T) {
		p := drawParams(t)
		p.CapacityBlocks = rapid.IntRange(10, 60).Draw(t, "few blocks")
		p.LongPrefillTokens = rapid.SampledFrom([]int{0, 1, 7, 64}).Draw(t, "long prefill")
		p.MaxQueued = -1
		e, err := New(p)
		if err != nil {
			t.Fatal(err)
		}
		dumb := &dumbEngine{p: p}
		events := rapid.IntRange(0, 3).Draw(t, "event tokens")
		n := rapid.IntRange(1, 12).Draw(t, "requests")
		for id := range uint64(n) {
			prompt := rapid.IntRange(1, 12*p.CapacityBlocks).Draw(t, "prompt")
			r := Request{ID: id, PromptTokens: prompt, EventTokens: events, OutputTokens: rapid.IntRange(0, 4*p.CapacityBlocks).Draw(t, "output")}
			// All are there before the first step is planned.
			e.waiting = append(e.waiting, &sequence{Request: r})
			dumb.waiting = append(dumb.waiting, &dumbRequest{Request: r})
		}
		e.beginStep(0)
		var got []Event
		for {
			at, ok := e.NextEvent()
			if !ok {
				break
			}
			for _, ev := range e.Advance(at) {
				got = append(got, Event{ID: ev.ID, At: ev.At, Generated: ev.Generated})
			}
			e.check(t)
		}
		var want []Event
		for len(dumb.waiting)+len(dumb.running) > 0 {
			want = append(want, dumb.step()...)
		}
		want = slices.DeleteFunc(want, func(ev Event) bool {
			return !slices.ContainsFunc(got, func(g Event) bool { return g.ID == ev.ID && g.Generated == ev.Generated })
		})
		if !slices.Equal(got, want) {
			t.Fatalf("told\n%v\nwant\n%v", got, want)
		}
		s := e.Stats(e.now)
		if int(s.Preemptions) != dumb.preemptions || int(s.Finished) != n {
			t.Fatalf("%d preemptions, want %d; %d of %d finished", s.Preemptions, dumb.preemptions, s.Finished, n)
		}
		preemptions += dumb.preemptions
	})
	if preemptions == 0 {
		t.Error("nothing was ever preempted")
	}
}

func TestMemoryUnderPressureIsConserved(t *testing.T) {
	preemptions := uint64(0)
	rapid.Check(t, func(t *rapid.T) {
		p, ops := drawParams(t), drawOperations(t)
		p.CapacityBlocks = 50
		p.MaxRunning = rapid.IntRange(4, 8).Draw(t, "batch")
		p.MaxQueued = -1
		for i := range ops {
			ops[i].after /= 10
		}
		lazy, e := play(t, p, ops, 0)
		eager, _ := play(t, p, ops, 7*time.Millisecond)
		if !slices.Equal(lazy, eager) {
			t.Fatalf("lazy %+v\neager %+v", lazy, eager)
		}
		preemptions += e.counters.Preemptions
	})
	if preemptions == 0 {
		t.Error("nothing was ever preempted")
	}
}
