package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/warmpath/warmpath/sim/virtual"
)

func TestTheSimulatorReadsWhatIsMeasured(t *testing.T) {
	path := filepath.Join(t.TempDir(), "delays.json")
	text, err := json.Marshal(delays{ReportEvery: 500, Report: 218.2, BooksEvery: 60, Books: 33.5, EndsEvery: 120, Event: 41, Prediction: 180.9})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	want := virtual.DefaultDelays()
	want.ReportEvery, want.Report = 500*time.Millisecond, 218200*time.Microsecond
	want.BooksEvery, want.Books = 60*time.Millisecond, 33500*time.Microsecond
	want.EndsEvery = 120 * time.Millisecond
	want.Event, want.Prediction = 41*time.Millisecond, 180900*time.Microsecond
	if got, err := virtual.ReadDelays(path); err != nil || got != want {
		t.Errorf("%+v, want %+v: %v", got, want, err)
	}
}
