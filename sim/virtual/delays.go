package virtual

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"
)

// measured is what "make bench-delays" printed: the delays of a live system with the intervals that
// it is shipped with.
//
//go:embed measured.json
var measured []byte

// hop is the time from a choice to the engine's queue, on one machine.
const hop = time.Millisecond

// DefaultDelays are those that were measured on a live system.
func DefaultDelays() Delays {
	d, err := readDelays("sim/virtual/measured.json", measured, Delays{Hop: hop})
	if err != nil {
		panic(err) // it is built in
	}
	return d
}

// DelayNames are what a file of delays may name: milliseconds, and event_loss, a share.
const DelayNames = "report_every_ms, report_ms, books_every_ms, books_ms, ends_every_ms, event_ms, prediction_ms, hop_ms, event_loss"

// ReadDelays reads a file of delays; what it doesn't name keeps its default.
func ReadDelays(path string) (Delays, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Delays{}, fmt.Errorf("read the delays: %w", err)
	}
	return readDelays(path, text, DefaultDelays())
}

func readDelays(path string, text []byte, out Delays) (Delays, error) {
	var file struct {
		ReportEvery *float64 `json:"report_every_ms"`
		Report      *float64 `json:"report_ms"`
		BooksEvery  *float64 `json:"books_every_ms"`
		Books       *float64 `json:"books_ms"`
		EndsEvery   *float64 `json:"ends_every_ms"`
		Event       *float64 `json:"event_ms"`
		Prediction  *float64 `json:"prediction_ms"`
		Hop         *float64 `json:"hop_ms"`
		EventLoss   *float64 `json:"event_loss"`
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(&file)
	if err == nil && d.More() {
		err = errors.New("something follows the object")
	}
	if err != nil {
		return Delays{}, fmt.Errorf("delays %s: %w: give one JSON object, of numbers named %s; those left out keep their default", path, err, DelayNames)
	}
	for _, field := range []struct {
		name  string
		value *float64
		to    *time.Duration
		least float64
	}{
		{"report_every_ms", file.ReportEvery, &out.ReportEvery, 1},
		{"report_ms", file.Report, &out.Report, 0},
		{"books_every_ms", file.BooksEvery, &out.BooksEvery, 1},
		{"books_ms", file.Books, &out.Books, 0},
		{"ends_every_ms", file.EndsEvery, &out.EndsEvery, 1},
		{"event_ms", file.Event, &out.Event, 0},
		{"prediction_ms", file.Prediction, &out.Prediction, 0},
		{"hop_ms", file.Hop, &out.Hop, 0},
	} {
		if field.value == nil {
			continue
		}
		if !(*field.value >= field.least && *field.value <= 3.6e6) {
			return Delays{}, fmt.Errorf("delays %s: %s is %v: give milliseconds from %v to an hour", path, field.name, *field.value, field.least)
		}
		*field.to = time.Duration(*field.value * float64(time.Millisecond))
	}
	if file.EventLoss != nil {
		if !(*file.EventLoss >= 0 && *file.EventLoss <= 1) {
			return Delays{}, fmt.Errorf("delays %s: event_loss is %v: give a share from 0 to 1", path, *file.EventLoss)
		}
		out.EventLoss = *file.EventLoss
	}
	return out, nil
}
