package calibration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/warmpath/warmpath/sim/engine"
)

// pressure is what vLLM 0.32 did with requests that 48 blocks of 16 tokens are too few for;
// record_preemption.py made it.
const pressure = "testdata/preemption.jsonl"

type recordedRequest struct {
	ID, Step, Stream, Shared, Prompt, Output int
	Cancel                                   int // the step before which its client goes away, 0 for never
}

type recordedSetting struct {
	Blocks     int `json:"blocks"`
	MaxRunning int `json:"max_running"`
	StepTokens int `json:"step_tokens"`
	Requests   []recordedRequest
}

// recordedStep is what one step was decided to do, and who got a token of it.
type recordedStep struct {
	Step                     int
	Computed                 [][2]int
	Preempted                []int
	Blocks, Running, Waiting int
	Got                      []int
}

type recordedCounters struct {
	Steps            int
	Preemptions      uint64
	Queries          uint64
	Hits             uint64
	PreemptedQueries uint64 `json:"preempted_queries"`
	PreemptedHits    uint64 `json:"preempted_hits"`
}

// readPressure returns every step of the recording, those that have no line included.
func readPressure(t *testing.T) (setting recordedSetting, steps []recordedStep, counters recordedCounters) {
	t.Helper()
	data, err := os.ReadFile(pressure)
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

// sequence makes a recorded request: the first shared tokens are its stream's, the others its own.
func sequence(r recordedRequest) engine.Request {
	tokens := make([]uint32, r.Prompt+r.Output)
	for i := range tokens {
		tokens[i] = uint32(r.ID)<<16 | uint32(i)
		if i < r.Shared {
			tokens[i] = uint32(r.Stream)<<24 | uint32(i)
		}
	}
	return engine.Request{
		ID: uint64(r.ID), PromptTokens: r.Prompt, OutputTokens: r.Output, EventTokens: 1,
		Blocks: engine.AppendBlockHashes(nil, engine.RootHash(""), tokens),
	}
}

func TestTheModelSchedulesAndPreemptsAsVLLMDid(t *testing.T) {
	setting, steps, counters := readPressure(t)
	p := engine.DefaultParams()
	p.CapacityBlocks, p.MaxRunning, p.StepTokens = setting.Blocks, setting.MaxRunning, setting.StepTokens
	e, err := engine.New(p)
	if err != nil {
		t.Fatal(err)
	}
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
	preemptions := uint64(0)
	for i, want := range steps {
		s := e.Stats(now)
		preemptions += uint64(len(want.Preempted))
		if s.Running != want.Running || s.Waiting != want.Waiting || s.BlocksInUse != want.Blocks || s.Preemptions != preemptions {
			t.Fatalf("step %d: the model has %d running, %d waiting, %d blocks in use and %d preemptions; vLLM had %d, %d, %d and %d",
				i, s.Running, s.Waiting, s.BlocksInUse, s.Preemptions, want.Running, want.Waiting, want.Blocks, preemptions)
		}
		come(i + 1)
		at, ok := e.NextEvent()
		if !ok {
			t.Fatalf("step %d: the model has nothing to do, vLLM computed %v", i, want.Computed)
		}
		now = at
		var got []int
		for _, ev := range e.Advance(now) {
			got = append(got, int(ev.ID))
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
	}
	s := e.Stats(now)
	if _, busy := e.NextEvent(); busy || s.Running+s.Waiting+s.BlocksInUse != 0 {
		t.Errorf("the model isn't done: %+v", s)
	}
	got := recordedCounters{int(s.Steps), s.Preemptions, s.QueriedTokens, s.HitTokens, s.ResumedQueriedTokens, s.ResumedHitTokens}
	if got != counters {
		t.Errorf("counters %+v, vLLM had %+v", got, counters)
	}
	if counters.Preemptions < 5 || counters.PreemptedHits == 0 {
		t.Errorf("the recording shows too little: %+v", counters)
	}
}
