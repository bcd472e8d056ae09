package virtual

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestAFileOfDelaysChangesWhatItNames(t *testing.T) {
	read := func(text string) (Delays, error) {
		path := filepath.Join(t.TempDir(), "delays.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return ReadDelays(path)
	}
	want := DefaultDelays()
	if got, err := read("{}"); err != nil || got != want {
		t.Errorf("%+v, %v, want the defaults %+v", got, err, want)
	}
	want.EndsEvery, want.Hop, want.EventLoss = 100*time.Millisecond, 0, 0.25
	if got, err := read(`{"ends_every_ms": 100, "hop_ms": 0, "event_loss": 0.25}`); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	for text, says := range map[string]string{
		`{"ends_every_ms": 0}`:     "ends_every_ms is 0: give milliseconds from 1 to an hour",
		`{"books_every_ms": 0.5}`:  "books_every_ms is 0.5: give milliseconds from 1 to an hour",
		`{"prediction_ms": -1}`:    "prediction_ms is -1: give milliseconds from 0 to an hour",
		`{"report_ms": 3600001}`:   "report_ms is 3.600001e+06: give milliseconds from 0 to an hour",
		`{"event_loss": 1.5}`:      "event_loss is 1.5: give a share from 0 to 1",
		`{"ends_every": 100}`:      `unknown field "ends_every": give one JSON object, of numbers named report_every_ms`,
		`{"ends_every_ms": "100"}`: "give one JSON object, of numbers named",
		``:                         "give one JSON object, of numbers named",
		`{} {"hop_ms": 2}`:         "something follows the object: give one JSON object",
	} {
		if _, err := read(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
}

// TestEveryNamedDelayCanBeGiven, and each sets another one.
func TestEveryNamedDelayCanBeGiven(t *testing.T) {
	names := strings.Split(DelayNames(), ", ")
	if n := reflect.TypeFor[Delays]().NumField(); len(names) != n {
		t.Errorf("%d names for %d delays: %v", len(names), n, names)
	}
	set := map[Delays]string{{}: "nothing"}
	for _, name := range names {
		got, err := readDelays("test", []byte(`{"`+name+`": 1}`), Delays{})
		if err != nil || set[got] != "" {
			t.Errorf("%s: %v; sets the same as %s", name, err, set[got])
		}
		set[got] = name
	}
}

// TestManyWorkersAreLookedAtLessOften, as control does unless it is told otherwise.
func TestManyWorkersAreLookedAtLessOften(t *testing.T) {
	const usual = 200 * time.Millisecond
	for _, c := range []struct {
		set     time.Duration
		workers int
		want    time.Duration
	}{{usual, 16, usual}, {usual, 250, usual}, {usual, 500, 400 * time.Millisecond}, {usual, 2000, 1600 * time.Millisecond}, {time.Second, 2000, time.Second}} {
		if got := reportEvery(c.set, c.workers); got != c.want {
			t.Errorf("%d workers, set to %v: %v, want %v", c.workers, c.set, got, c.want)
		}
	}
}
