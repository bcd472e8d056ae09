package virtual

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Kept is a file of runs that have ended, so that a matrix that was stopped goes on where it was:
// a JSON object a line, the first one naming the program that played them.
type Kept struct {
	file *os.File
	runs map[cell]*Result
}

// cell names one run of a matrix.
type cell struct {
	Scenario string  `json:"scenario"`
	Rate     float64 `json:"rate"`
	Gateways int     `json:"gateways"`
	Requests int     `json:"requests"`
	Policy   string  `json:"policy"`
	Seed     uint64  `json:"seed"`
}

// keptHead is what all runs of a file have in common.
type keptHead struct {
	Program string `json:"program"`
	Delays  Delays `json:"delays"`
}

type keptRun struct {
	cell
	Result   Result   `json:"result"`
	Timeline []Bucket `json:"timeline,omitempty"`
}

// OpenKept opens or makes a file of runs. program names the very build: another one may play
// differently, so its runs don't count, and neither do those with other delays.
func OpenKept(path, program string, delays Delays) (*Kept, error) {
	k, this := &Kept{runs: map[cell]*Result{}}, keptHead{program, delays}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the kept runs: %w", err)
	}
	whole := bytes.LastIndexByte(text, '\n') + 1 // a line that was being written when the machine stopped doesn't count
	for n, line := range bytes.Split(text[:whole], []byte{'\n'}) {
		switch {
		case len(line) == 0:
		case n == 0:
			var head keptHead
			if err := json.Unmarshal(line, &head); err != nil || head != this {
				return nil, fmt.Errorf("the runs in %s were played by another build of warmpath or with other delays, and don't fit to those of this one: give another file, or go on with that build", path)
			}
		default:
			var r keptRun
			if err := json.Unmarshal(line, &r); err != nil {
				return nil, fmt.Errorf("kept runs %s, line %d: %w", path, n+1, err)
			}
			r.Result.Timeline = r.Timeline
			k.runs[r.cell] = &r.Result
		}
	}
	if k.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, fmt.Errorf("keep runs: %w", err)
	}
	if err = k.file.Truncate(int64(whole)); err == nil {
		_, err = k.file.Seek(0, io.SeekEnd)
	}
	if err == nil && whole == 0 {
		err = k.write(this)
	}
	if err != nil {
		k.file.Close()
		return nil, fmt.Errorf("keep runs in %s: %w", path, err)
	}
	return k, nil
}

// Close closes the file.
func (k *Kept) Close() error { return k.file.Close() }

func (k *Kept) write(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = k.file.Write(append(line, '\n'))
	return err
}

// find returns a run that was kept, or nil.
func (k *Kept) find(at cell) *Result {
	if k == nil {
		return nil
	}
	return k.runs[at]
}

// add keeps a run.
func (k *Kept) add(at cell, r *Result) error {
	if k == nil {
		return nil
	}
	if err := k.write(keptRun{at, *r, r.Timeline}); err != nil {
		return fmt.Errorf("keep a run: %w", err)
	}
	return nil
}
