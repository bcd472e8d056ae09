package calibration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/warmpath/warmpath/sim/engine"
)

type recordedRequest struct {
	ID, Step, Stream, Shared, Prompt, Output int
	Cancel                                   int // the step before which its client goes away, 0 for never
}

type recordedSetting struct {
	Blocks     int `json:"blocks"`
	MaxRunning int `json:"max_running"`
	StepTokens int `json:"step_tokens"`
	// Of one prompt, while others run or wait; 0 for no bound.
	LongPrefill int `json:"long_prefill"`
	Requests    []recordedRequest
}

// recordedStep is what one step was decided to do, and who got a token of it.
type recordedStep struct {
	Step                     int
	Computed                 [][2]int
	Preempted                []int
	Blocks, Running, Waiting int
	Stored, Removed          []int // blocks, numbered as they first come
	Got                      []int
}

type recordedCounters struct {
	Steps            int
	Preemptions      uint64
	Queries          uint64
	Hits             uint64
	PreemptedQueries uint64      `json:"preempted_queries"`
	PreemptedHits    uint64      `json:"preempted_hits"`
	Cached           map[int]int // tokens that a request found in the cache, by its ID
}

// readSchedule returns every step of a recording, which record.py made, those that have no line included.
func readSchedule(t *testing.T, name string) (setting recordedSetting, steps []recordedStep, counters recordedCounters) {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name + ".jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var lines [][]byte
	for in := bufio.NewScanner(bytes.NewReader(data)); in.Scan(); {
		lines = append(lines, bytes.Clone(in.Bytes()))
	}
	read := func(line []byte, into any) {
		if err := json.Unmarshal(line, into); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	read(lines[0], &setting)
	read(lines[len(lines)-1], &counters)
	for _, line := range lines[1 : len(lines)-1] {
		var s recordedStep
		read(line, &s)
		for len(steps) > 0 && len(steps) < s.Step {
			same := steps[len(steps)-1]
			same.Step++
			steps = append(steps, same)
		}
		steps = append(steps, s)
	}
	for len(steps) < counters.Steps {
		steps = append(steps, steps[len(steps)-1])
	}
	return setting, steps, counters
}

// sequence makes a recorded request: the first shared tokens are its stream's, the others its own. To
// the same prompt there is the same answer.
func sequence(r recordedRequest) engine.Request {
	tokens := make([]uint32, r.Prompt+r.Output)
	for i := range tokens {
		tokens[i] = uint32(r.ID)<<16 | uint32(i)
		if i < r.Shared || r.Shared == r.Prompt {
			tokens[i] = uint32(r.Stream)<<24 | uint32(i)
		}
	}
	return engine.Request{
		ID: uint64(r.ID), PromptTokens: r.Prompt, OutputTokens: r.Output, EventTokens: 1,
		Blocks: engine.AppendBlockHashes(nil, engine.RootHash(""), tokens),
	}
}

// copies counts how often each block is there, as vLLM tells of each.
type copies map[int]int

// came returns which of the blocks that were stored had not been there.
func (c copies) came(stored []int) (first []int) {
	for _, b := range stored {
		if c[b]++; c[b] == 1 {
			first = append(first, b)
		}
	}
	return first
}

// went returns which of the blocks that were removed are not there any more.
func (c copies) went(removed []int) (last []int) {
	for _, b := range removed {
		if c[b]--; c[b] == 0 {
			last = append(last, b)
		}
	}
	return last
}

func TestTheModelSchedulesAsVLLMDid(t *testing.T) {
	for _, r := range []struct {
		name  string
		shows func(c recordedCounters, twice, removed int) bool
	}{
		{"pressure", func(c recordedCounters, _, removed int) bool {
			return c.Preemptions >= 5 && c.PreemptedHits > 0 && removed >= 50
		}},
		{"siblings", func(c recordedCounters, twice, removed int) bool {
			return c.Cached[2] >= 592 && twice >= 5 && removed >= 50
		}},
		{"slices", func(c recordedCounters, twice, removed int) bool {
			return c.Cached[2] < 592 && twice >= 50 && removed >= 50
		}},
	} {
		t.Run(r.name, func(t *testing.T) {
			setting, steps, counters := readSchedule(t, r.name)
			if twice, removed := playSchedule(t, setting, steps, counters); !r.shows(counters, twice, removed) {
				t.Errorf("the recording shows too little: %+v, %d blocks stored that were there, %d removed", counters, twice, removed)
			}
		})
	}
}

// playSchedule holds the model to a recording, step by step. It returns how many blocks vLLM stored that
// were there, and how many it removed.
func playSchedule(t *testing.T, setting recordedSetting, steps []recordedStep, counters recordedCounters) (twice, removed int) {
	p := engine.DefaultParams()
	p.CapacityBlocks, p.MaxRunning, p.StepTokens, p.LongPrefillTokens = setting.Blocks, setting.MaxRunning, setting.StepTokens, setting.LongPrefill
	e, err := engine.New(p)
	if err != nil {
		t.Fatal(err)
	}
	var stored, gone []int // what the model has told since the step before
	numbers := map[engine.BlockHash]int{}
	e.Watch(func(h engine.BlockHash, there bool) {
		if _, known := numbers[h]; !known {
			numbers[h] = len(numbers)
		}
		if there {
			stored = append(stored, numbers[h])
		} else {
			gone = append(gone, numbers[h])
		}
	})
	now := time.Duration(0)
	// What comes before a step has to be there when the step before it ends.
	come := func(step int) {
		for _, r := range setting.Requests {
			if r.Step == step {
				if err := e.Submit(now, sequence(r)); err != nil {
					t.Fatal(err)
				}
			}
			if r.Cancel == step && step > 0 && !e.Cancel(now, uint64(r.ID)) {
				t.Fatalf("step %d: no request %d to cancel", step, r.ID)
			}
		}
	}
	come(0)
	there, cached := copies{}, map[int]int{}
	preemptions := uint64(0)
	for i, want := range steps {
		s := e.Stats(now)
		preemptions += uint64(len(want.Preempted))
		if s.Running != want.Running || s.Waiting != want.Waiting || s.BlocksInUse != want.Blocks || s.Preemptions != preemptions {
			t.Fatalf("step %d: the model has %d running, %d waiting, %d blocks in use and %d preemptions; vLLM had %d, %d, %d and %d",
				i, s.Running, s.Waiting, s.BlocksInUse, s.Preemptions, want.Running, want.Waiting, want.Blocks, preemptions)
		}
		// The model tells what goes when it plans a step, and what comes when the step is over.
		removed += len(want.Removed)
		if want := there.went(want.Removed); !slices.Equal(gone, want) {
			t.Fatalf("step %d: the model removed blocks %v, vLLM %v", i, gone, want)
		}
		gone = gone[:0]
		come(i + 1)
		at, ok := e.NextEvent()
		if !ok {
			t.Fatalf("step %d: the model has nothing to do, vLLM computed %v", i, want.Computed)
		}
		now = at
		var got []int
		for _, ev := range e.Advance(now) {
			got = append(got, int(ev.ID))
			cached[int(ev.ID)] = ev.CachedTokens
		}
		slices.Sort(got)
		for _, r := range setting.Requests {
			if r.Cancel == i+1 { // here it was gone before the step's end, there after it
				want.Got = slices.DeleteFunc(slices.Clone(want.Got), func(id int) bool { return id == r.ID })
			}
		}
		if !slices.Equal(got, want.Got) {
			t.Fatalf("step %d: tokens for %v, vLLM had some for %v", i, got, want.Got)
		}
		first := there.came(want.Stored)
		twice += len(want.Stored) - len(first)
		if !slices.Equal(stored, first) {
			t.Fatalf("step %d: the model stored blocks %v, vLLM %v", i, stored, first)
		}
		stored = stored[:0]
	}
	s := e.Stats(now)
	if _, busy := e.NextEvent(); busy || s.Running+s.Waiting+s.BlocksInUse != 0 {
		t.Errorf("the model isn't done: %+v", s)
	}
	got := recordedCounters{int(s.Steps), s.Preemptions, s.QueriedTokens, s.HitTokens, s.ResumedQueriedTokens, s.ResumedHitTokens, cached}
	if !reflect.DeepEqual(got, counters) {
		t.Errorf("counters %+v, vLLM had %+v", got, counters)
	}
	return twice, removed
}
