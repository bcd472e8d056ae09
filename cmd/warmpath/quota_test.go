package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/control"
	"github.com/warmpath/warmpath/control/api"
)

// settingsFile writes settings of admission.
func settingsFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "admission.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestQuotaIsSetShownAndWatched(t *testing.T) {
	s, _ := runControl(t, control.Config{}, 2)
	ask := func(args ...string) (int, string, string) {
		return warmpath(append(append([]string{"quota"}, args...), "--control", s.URL())...)
	}
	if code, out, errs := ask("show"); code != 0 || !strings.Contains(out, "no admission") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if code, _, errs := ask("watch", "--count", "1"); code == 0 || !strings.Contains(errs, "quota set") {
		t.Errorf("%d %s", code, errs)
	}
	file := settingsFile(t, "tenants: {acme: {concurrency: 3}}\n")
	code, out, errs := ask("set", file, "--dry-run")
	if code != 0 || !strings.Contains(out, "admission.tenants.acme.concurrency") || !strings.Contains(out, "would change") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if q := s.Quota(false); q.Enabled {
		t.Error("a dry run changed something")
	}
	if code, out, errs := ask("set", file); code != 0 || !strings.Contains(out, "1 setting changed") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if code, out, errs := ask("set", file); code != 0 || !strings.Contains(out, "nothing changed") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if code, out, errs := ask("show"); code != 0 || !strings.Contains(out, "POOL") || !strings.Contains(out, "p1") || !strings.Contains(out, "refuses nobody") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	code, out, errs = ask("show", "--json")
	var q api.Quota
	if err := json.Unmarshal([]byte(out), &q); code != 0 || err != nil || !q.Enabled || len(q.Pools) != 1 {
		t.Errorf("%d %v %s%s", code, err, out, errs)
	}
	if code, out, errs := ask("watch", "--count", "2", "--interval", "100ms", "--pool", q.Pools[0].Name); code != 0 || strings.Count(out, "\n") != 3 {
		t.Errorf("%d %s%s", code, out, errs)
	}
}

func TestQuotaSaysWhatToDo(t *testing.T) {
	s, _ := runControl(t, control.Config{}, 1)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"set", settingsFile(t, "tenants:\n  acme: {concurrency: 0}\n")}, "admission.yaml:2:10: admission.tenants.acme.concurrency: out of range: 0 (give a number from 1"},
		{[]string{"set", settingsFile(t, "tenats: {}")}, "unknown key"},
		{[]string{"set", settingsFile(t, "- a\n")}, "not an object"},
		{[]string{"set", "nowhere.yaml"}, "nowhere.yaml"},
		{[]string{"set", settingsFile(t, strings.Repeat("#", 1<<20+1))}, "at most 1048576 bytes"},
		{[]string{"watch", "--interval", "1ms"}, "100ms or more"},
	} {
		code, _, errs := warmpath(append(append([]string{"quota"}, c.args...), "--control", s.URL())...)
		if code == 0 || !strings.Contains(errs, c.want) {
			t.Errorf("%v: %d, want %q: %s", c.args, code, c.want, errs)
		}
	}
	if code, _, errs := warmpath("quota", "show", "--control", "http://127.0.0.1:1"); code == 0 || !strings.Contains(errs, "is it running") {
		t.Errorf("%d %s", code, errs)
	}
}

func TestTheAdmissionScenariosAreListedAndPlayed(t *testing.T) {
	if code, out, errs := warmpath("sim", "admission", "--list"); code != 0 || !strings.Contains(out, "stampede") || !strings.Contains(out, "nodes") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if code, _, errs := warmpath("sim", "admission", "nope"); code == 0 || !strings.Contains(errs, "stampede") {
		t.Errorf("%d %s", code, errs)
	}
	folder := t.TempDir()
	code, out, errs := warmpath("sim", "admission", "quota", "--charts", folder)
	if code != 0 || !strings.Contains(out, "holds") || strings.Contains(out, "MISSED") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if files, _ := filepath.Glob(filepath.Join(folder, "quota-quota-*.svg")); len(files) != 3 {
		t.Errorf("%v", files)
	}
}

func TestADryRunIsPrintedForPeople(t *testing.T) {
	var out strings.Builder
	err := printChange(&out, &api.QuotaChange{
		DryRun: true, Changes: []api.QuotaSetting{{Place: "admission.tenants.acme.concurrency", Before: 9, After: 3}},
		Effect: &api.QuotaEffect{
			Seconds: 600, Unknown: []string{"nova"},
			Tenants: []api.QuotaTenantEffect{{Tenant: "acme", Limit: "concurrency", Value: 3, Asked: 7, Over: 35, Requests: 1000, Refused: 120, WereRefused: 4}},
			Classes: []api.QuotaClassEffect{{Pool: "chat", Class: "p1", Limit: "slots", Value: 8, Asked: 12, Short: 60, Missing: 0.25}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1 setting would change", "last 600 s", "3 at once", "about 120 (12 %)", "chat*", "25.0 %", "refuses nobody", "not known", "nova"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	out.Reset()
	if err := printChange(&out, &api.QuotaChange{DryRun: true, Effect: &api.QuotaEffect{Problem: "nothing yet"}}); err != nil || !strings.Contains(out.String(), "nothing yet") {
		t.Error(err, out.String())
	}
}

func TestWatchCountsWhatWasRefusedSinceTheLineBefore(t *testing.T) {
	at := func(refused uint64) *api.Quota {
		class := func(n uint64) api.QuotaClass { return api.QuotaClass{Refused: n} }
		return &api.Quota{Enabled: true, Pools: []api.QuotaPool{{Name: "chat", Settled: true, Enforced: true, Classes: []api.QuotaClass{class(refused), class(0), class(2 * refused)}}}}
	}
	var out strings.Builder
	if err := printWatch(&out, at(50), at(43), "", false); err != nil || !strings.Contains(out.String(), " 7/0/14 ") || !strings.Contains(out.String(), "refuses") {
		t.Error(err, out.String())
	}
	out.Reset()
	if err := printWatch(&out, at(50), nil, "", false); err != nil || !strings.Contains(out.String(), " 0/0/0 ") {
		t.Error(err, out.String())
	}
}

func TestTheHistoryIsATimeLine(t *testing.T) {
	q := &api.Quota{Enabled: true, Pools: []api.QuotaPool{{Name: "chat"}}}
	for n := range 25 {
		q.Pools[0].History = append(q.Pools[0].History, api.QuotaMoment{
			Age: float64(24 - n), P99Millis: [3]uint32{uint32(1000 + n)}, Count: [3]uint64{2, 1}, Shares: [3]float64{0.8, 0.2}, Lend: 0.5,
		})
	}
	var out strings.Builder
	if err := printHistory(&out, q); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 4 || strings.Join(strings.Fields(lines[1]), " ") != "chat 15 20/10/0 1009 ms 0.50 80/20/0 0/0/0 0/0/0" || !strings.Contains(lines[3], "10/5/0") {
		t.Errorf("%s", out.String())
	}
}
