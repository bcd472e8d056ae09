package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/control"
	"github.com/warmpath/warmpath/control/api"
)

// warmTable is a control service of two workers of which the first was sent a
// prompt.
func warmTable(t *testing.T) (s *control.Service, addresses []string, entries int) {
	t.Helper()
	s, addresses = runControl(t, control.Config{}, 2)
	e := explained(t, "--control", s.URL(), "--body", requestFile(t, "m"))
	for _, w := range s.Status().Workers {
		if w.Address == addresses[0] {
			tell(t, s, w.Ref, e)
		}
	}
	return s, addresses, len(e.Checkpoints)
}

func TestTableShowTellsWhatEachWorkerHoldsAndWhyItIsBelieved(t *testing.T) {
	s, addresses, entries := warmTable(t)
	code, out, errs := warmpath("table", "show", "--json", "--control", s.URL())
	var sum tableSummary
	if err := json.Unmarshal([]byte(out), &sum); code != 0 || err != nil {
		t.Fatal(code, err, errs)
	}
	if len(sum.Pools) != 1 || sum.Pools[0].Entries != entries || sum.Pools[0].Workers != 2 || sum.Table.Entries != entries {
		t.Errorf("%d entries expected: %+v, %+v", entries, sum.Pools, sum.Table)
	}
	for _, w := range sum.Workers {
		if (w.Entries == entries) != (w.Address == addresses[0]) || w.Truth != "predictions" {
			t.Errorf("%+v", w)
		}
	}
	code, out, errs = warmpath("table", "show", "--control", s.URL())
	if code != 0 || !strings.Contains(out, addresses[0]) || !strings.Contains(out, "predictions") || !strings.Contains(out, "GATEWAY") {
		t.Errorf("%d %s\n%s", code, out, errs)
	}
	if strings.Contains(out, "switched off") {
		t.Errorf("%s", out)
	}
	if err := s.SetOff(true); err != nil {
		t.Fatal(err)
	}
	if _, out, _ = warmpath("table", "show", "--control", s.URL()); !strings.Contains(out, "switched off") {
		t.Errorf("%s", out)
	}
	if code, _, errs = warmpath("table", "show", "--pool", "nope", "--control", s.URL()); code != 1 || !strings.Contains(errs, "leave --pool out") {
		t.Errorf("%d %s", code, errs)
	}
}

func TestTableTopNamesTheHolders(t *testing.T) {
	s, addresses, _ := warmTable(t)
	code, out, errs := warmpath("table", "top", "-n", "3", "--control", s.URL())
	if lines := strings.Split(strings.TrimSpace(out), "\n"); code != 0 || len(lines) != 4 || !strings.Contains(lines[1], addresses[0]) || !strings.Contains(lines[1], "1 of 2") {
		t.Errorf("%d %s\n%s", code, out, errs)
	}
	for _, c := range [][2]string{{"--limit=2000", "send 1 to 1000"}, {"--pool=nope", "GET /v1/policy lists the pools"}} {
		if code, _, errs := warmpath("table", "top", c[0], "--control", s.URL()); code != 1 || !strings.Contains(errs, c[1]) {
			t.Errorf("%s: %d %s", c[0], code, errs)
		}
	}
}

func TestAnExportComparedWithItsTableIsTheSameUntilSomethingChanges(t *testing.T) {
	s, addresses, entries := warmTable(t)
	code, export, errs := warmpath("table", "export", "--control", s.URL())
	if n := strings.Count(export, "\n"); code != 0 || n != entries {
		t.Fatalf("%d: %d lines, %d entries: %s", code, n, entries, errs)
	}
	file := filepath.Join(t.TempDir(), "export.ndjson")
	if err := os.WriteFile(file, []byte(export), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := warmpath("table", "diff", file, s.URL()); code != 0 || !strings.Contains(out, "0 only in A") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	// The first line goes, the second gets another holder.
	lines := strings.SplitAfter(export, "\n")
	changed := strings.Join(lines[1:], "")
	changed = strings.Replace(changed, addresses[0], "10.9.9.9:1", 1)
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := warmpath("table", "diff", "--json", file, s.URL())
	var d tableDiff
	if err := json.Unmarshal([]byte(out), &d); code != 1 || err != nil || !strings.Contains(errs, "the tables differ") {
		t.Fatal(code, err, errs)
	}
	want := []workerDiff{{addresses[0], entries - 2, 0, 2}, {"10.9.9.9:1", 0, 1, 0}}
	if d.Same != entries-2 || d.OnlyA != 0 || d.OnlyB != 1 || d.OtherHolders != 1 || len(d.Entries) != 2 {
		t.Errorf("%+v", d)
	}
	if diff := cmp.Diff(want, d.Workers); diff != "" {
		t.Error(diff)
	}
	if !slices.ContainsFunc(d.Entries, func(e entryDiff) bool { return e.A == nil && slices.Equal(e.B, addresses[:1]) }) {
		t.Errorf("%+v", d.Entries)
	}
	if code, out, _ := warmpath("table", "diff", "-n", "1", file, s.URL()); code != 1 || !strings.Contains(out, "and 1 more") || !strings.Contains(out, "10.9.9.9:1") {
		t.Errorf("%d %s", code, out)
	}
}

func TestTableSaysWhatToDoWhenItCannotAnswer(t *testing.T) {
	secret, _ := runControl(t, control.Config{Token: "secret"}, 0)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }))
	defer other.Close()
	moved := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusConflict) }))
	defer moved.Close()
	file := filepath.Join(t.TempDir(), "no.ndjson")
	if err := os.WriteFile(file, []byte(`{"fingerprint":"00"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"is --control its address?", []string{"show", "--control", "http://127.0.0.1:1"}},
		{"environment variable", []string{"show", "--control", secret.URL()}},
		{"is that a control service", []string{"top", "--control", other.URL}},
		{"the export is not whole", []string{"export", "--control", moved.URL}},
		{"URL of a control service, or a file", []string{"diff", "nowhere", "nobody"}},
		{"was it written by warmpath table export?", []string{"diff", file, file}},
		{"unknown command", []string{"shwo"}},
	} {
		if code, _, errs := warmpath(append([]string{"table"}, c.args...)...); code != 1 || !strings.Contains(errs, c.want) {
			t.Errorf("%v: %d %s", c.args, code, errs)
		}
	}
}

func TestHintsAreListedOnceAndDegradeNobody(t *testing.T) {
	w := func(address string, degraded ...string) api.Worker {
		return api.Worker{Address: address, Pool: "p", Degraded: degraded, Hints: []string{"set it"}}
	}
	sum, err := summarize(&api.Status{Workers: []api.Worker{w("c"), w("a", "asleep"), w("b")}}, "")
	if err != nil || sum.Pools[0].Degraded != 1 {
		t.Fatal(err, sum.Pools)
	}
	var out strings.Builder
	if err := sum.print(&out); err != nil || !strings.HasSuffix(out.String(), "\n\ndegraded:\n  a: asleep\n\nhints:\n  a and 2 more: set it\n") {
		t.Errorf("%v %s", err, out.String())
	}
}

func TestAWorkersEventsAreToldInItsRow(t *testing.T) {
	w := api.Worker{Truth: "events", Events: &api.Events{Source: "connected", Events: 12, Held: 7, Blocks: 8, Gaps: 1, Lost: 2, Age: 0.25}}
	if got, want := eventsText(&w), "12\t7 of 8 blocks\t1 (2 lost)\t300ms"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for text, got := range map[string]string{"999": countText(999), "1.5k": countText(1500), "2.0 MiB": bytesText(2 << 20), "never": ageText(-1), "1m5s": ageText(65), "-": shareText(1, 0)} {
		if got != text {
			t.Errorf("%q, want %q", got, text)
		}
	}
}
