package engine

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"fmt"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/warmpath/warmpath/integration/envoyrun"
)

//go:embed record.py
var recordScript string

// Batch is one message of an engine's publisher.
type Batch struct {
	Sequence uint64  `json:"sequence"`
	Time     float64 `json:"time"` // of the engine's clock, Unix seconds
	Events   []Event `json:"events"`
}

// Event is one event as the engine wrote it; what it left out is empty.
type Event struct {
	Type        string            `json:"type"` // BlockStored, BlockRemoved, AllBlocksCleared
	Hashes      []string          `json:"block_hashes"`
	Parent      *string           `json:"parent_block_hash"`
	Tokens      []uint32          `json:"token_ids"`
	BlockTokens int               `json:"block_size"`
	Adapter     string            `json:"lora_name"`
	ExtraKeys   []json.RawMessage `json:"extra_keys"`
}

// Recorder keeps every batch of one engine, over its restarts.
type Recorder struct {
	cmd  *exec.Cmd
	done chan struct{}

	mu        sync.Mutex
	connects  int
	processes [][]Batch // by process of the engine
	gaps      int
	broken    error
	changed   chan struct{} // closed and replaced at each change
}

// Record follows an engine's events with a subscriber of its own. It returns once
// it is connected.
func Record(p *Process) (*Recorder, error) {
	r := &Recorder{
		cmd:  exec.Command(p.Home.Python, "-c", recordScript, p.Events),
		done: make(chan struct{}), changed: make(chan struct{}), processes: [][]Batch{nil},
	}
	r.cmd.SysProcAttr = envoyrun.DieWithParent()
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := r.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the recorder: %w", err)
	}
	go func() {
		defer close(r.done)
		lines := bufio.NewReaderSize(out, 1<<20)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			r.take(line)
		}
	}()
	if !r.Wait(30*time.Second, func() bool { return r.connects > 0 }) {
		r.Stop()
		return nil, fmt.Errorf("the recorder doesn't reach %s within 30 s", p.Events)
	}
	return r, nil
}

func (r *Recorder) take(line []byte) {
	var told struct {
		Connected bool `json:"connected"`
		Batch
	}
	err := json.Unmarshal(line, &told)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		r.broken = fmt.Errorf("read the recorder's line: %w", err)
	case told.Connected:
		r.connects++
	default:
		now := &r.processes[len(r.processes)-1]
		if n := len(*now); n > 0 && told.Sequence != (*now)[n-1].Sequence+1 {
			if told.Sequence == 0 {
				r.processes = append(r.processes, nil)
				now = &r.processes[len(r.processes)-1]
			} else {
				r.gaps++
			}
		}
		*now = append(*now, told.Batch)
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

// Wait waits until ok, which is asked with the recorder's lock held.
func (r *Recorder) Wait(limit time.Duration, ok func() bool) bool {
	deadline := time.After(limit)
	for {
		r.mu.Lock()
		good, changed := ok(), r.changed
		r.mu.Unlock()
		if good {
			return true
		}
		select {
		case <-changed:
		case <-r.done:
			return false
		case <-deadline:
			return false
		}
	}
}

// Batches are those of the engine's current process.
func (r *Recorder) Batches() ([]Batch, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.processes[len(r.processes)-1]
	switch {
	case r.broken != nil:
		return nil, r.broken
	case r.gaps > 0:
		return nil, fmt.Errorf("the recorder missed batches %d times: nothing can be judged by it", r.gaps)
	case len(now) > 0 && now[0].Sequence != 0:
		return nil, fmt.Errorf("the recorder's first batch is number %d: it came too late", now[0].Sequence)
	}
	return now[:len(now):len(now)], nil
}

// Stop ends the recorder.
func (r *Recorder) Stop() {
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	<-r.done
	_ = r.cmd.Wait()
}
