package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/control"
	"github.com/warmpath/warmpath/doctor"
)

func TestDoctorPrintsWhatToChangeAndFailsWhenSomethingDoes(t *testing.T) {
	s, addresses := runControl(t, control.Config{}, 1)
	code, out, errs := warmpath("doctor", "--control", s.URL())
	if code != 1 || !strings.Contains(out, "FAIL") || !strings.Contains(out, "control.gateways") || !strings.Contains(out, "-> see that the module is loaded") || !strings.Contains(errs, "some checks failed") {
		t.Errorf("%d %s\n%s", code, out, errs)
	}
	if strings.Contains(out, "control.reachable") {
		t.Error("what is fine is listed without --all")
	}
	code, out, _ = warmpath("doctor", "--control", s.URL(), "--all")
	if code != 1 || !strings.Contains(out, "control.reachable") || !strings.Contains(out, addresses[0]) {
		t.Errorf("%d %s", code, out)
	}
	code, out, _ = warmpath("doctor", "--control", s.URL(), "--json")
	var found struct {
		Checks []doctor.Check `json:"checks"`
	}
	if err := json.Unmarshal([]byte(out), &found); code != 1 || err != nil || !doctor.Failed(found.Checks) {
		t.Errorf("%d %v %s", code, err, out)
	}
	if code, _, errs := warmpath("doctor", "--control", ""); code != 1 || !strings.Contains(errs, "nothing to look at") {
		t.Errorf("%d %s", code, errs)
	}
}

func TestWhatIsTheSameAtSeveralTargetsIsOneLine(t *testing.T) {
	var out strings.Builder
	c := doctor.Check{Name: "engine.kv_events", Status: doctor.Warn, Seen: "off", Remedy: "turn them on"}
	a, b := c, c
	a.Target, b.Target = "a:1", "b:1"
	fine := doctor.Check{Name: "engine.reachable", Target: "a:1", Status: doctor.OK, Seen: "200"}
	if err := printChecks(&out, []doctor.Check{a, fine, b}, false); err != nil {
		t.Fatal(err)
	}
	want := "WARN  engine.kv_events  a:1 and 1 more  off\n                                        -> turn them on\n1 ok, 2 warnings, 0 failed\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
