package virtual

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
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

// reportsPerSecond bounds how often control looks at all workers together where nothing else is set.
const reportsPerSecond = 1250

// reportEvery is the time between two reports of one of so many workers: what is set, else as measured
// with few, and longer with more than 250.
func reportEvery(set time.Duration, workers int) time.Duration {
	if set != DefaultDelays().ReportEvery {
		return set
	}
	return max(set, time.Duration(workers)*time.Second/reportsPerSecond)
}

// delayFields are what a file of delays may name.
var delayFields = []delayField{
	milliseconds("report_every_ms", 1, func(d *Delays) *time.Duration { return &d.ReportEvery }),
	milliseconds("report_ms", 0, func(d *Delays) *time.Duration { return &d.Report }),
	milliseconds("books_every_ms", 1, func(d *Delays) *time.Duration { return &d.BooksEvery }),
	milliseconds("books_ms", 0, func(d *Delays) *time.Duration { return &d.Books }),
	milliseconds("ends_every_ms", 1, func(d *Delays) *time.Duration { return &d.EndsEvery }),
	milliseconds("event_ms", 0, func(d *Delays) *time.Duration { return &d.Event }),
	milliseconds("prediction_ms", 0, func(d *Delays) *time.Duration { return &d.Prediction }),
	milliseconds("hop_ms", 0, func(d *Delays) *time.Duration { return &d.Hop }),
	{"event_loss", 0, 1, "a share from 0 to 1", func(d *Delays, share float64) { d.EventLoss = share }},
}

type delayField struct {
	name        string
	least, most float64
	what        string // to give
	set         func(d *Delays, value float64)
}

func milliseconds(name string, least float64, of func(d *Delays) *time.Duration) delayField {
	return delayField{
		name, least, float64(time.Hour / time.Millisecond), fmt.Sprintf("milliseconds from %v to an hour", least),
		func(d *Delays, value float64) { *of(d) = time.Duration(value * float64(time.Millisecond)) },
	}
}

// DelayNames lists what a file of delays may name: milliseconds, and event_loss, a share.
func DelayNames() string {
	names := make([]string, len(delayFields))
	for i := range delayFields {
		names[i] = delayFields[i].name
	}
	return strings.Join(names, ", ")
}

// ReadDelays reads a file of delays; what it doesn't name keeps its default.
func ReadDelays(path string) (Delays, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Delays{}, fmt.Errorf("read the delays: %w", err)
	}
	return readDelays(path, text, DefaultDelays())
}

func readDelays(path string, text []byte, out Delays) (Delays, error) {
	file, err := decodeDelays(text)
	if err != nil {
		return Delays{}, fmt.Errorf("delays %s: %w: give one JSON object, of numbers named %s; those left out keep their default", path, err, DelayNames())
	}
	for _, field := range delayFields {
		value := file[field.name]
		switch {
		case value == nil:
		case *value >= field.least && *value <= field.most:
			field.set(&out, *value)
		default:
			return Delays{}, fmt.Errorf("delays %s: %s is %v: give %s", path, field.name, *value, field.what)
		}
	}
	return out, nil
}

func decodeDelays(text []byte) (file map[string]*float64, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&file); err != nil {
		return nil, err
	}
	if d.More() {
		return nil, errors.New("something follows the object")
	}
	for _, name := range slices.Sorted(maps.Keys(file)) {
		if !slices.ContainsFunc(delayFields, func(f delayField) bool { return f.name == name }) {
			return nil, fmt.Errorf("unknown field %q", name)
		}
	}
	return file, nil
}
