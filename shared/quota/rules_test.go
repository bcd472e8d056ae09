package quota

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var (
	chaosSeed = flag.Uint64("chaos.seed", 0, "first seed of the chaos")
	chaosRuns = flag.Uint64("chaos.runs", 0, "runs of the chaos of a minute each; 0: a thousand, a hundred with -short")
	takeOut   = flag.Bool("rules", false, "take the rules out one at a time, and say how many runs of the chaos break then")
)

// rule is one that keeps the limits, with the edit that takes it out.
type rule struct {
	name   string
	edits  []edit
	tests  string // that find it, "" the chaos
	folder string // of the package whose tests do, from here; "" this one
}

type edit struct{ file, before, after string }

const chaosTests = "TestTheLimitHoldsWhateverIsLostLateOrRestarted"

// rules are what the limits stand on. docs/admission.md has how many of 1,000 runs break without each
// (go test ./shared/quota -run TestEveryRuleIsNeeded -rules -timeout 1h).
var rules = []rule{
	// Gateways that are silent.
	{name: "a silent gateway may have what it had beyond its lease", edits: []edit{{
		"ledger.go", "\tif g.live(now) {\n\t\treturn false\n\t}\n\tif g.succeeded", "\tif g.live(now) {\n\t\treturn false\n\t}\n\tif true {\n\t\treturn true\n\t}\n\tif g.succeeded",
	}}},
	{name: "a silent gateway's slots stay debited", edits: []edit{{
		"ghosts.go", "\t\tdefault:\n\t\t\ttotal += h.debit()", "\t\tdefault:\n\t\t\tif g.live(now) {\n\t\t\t\ttotal += h.debit()\n\t\t\t}",
	}}},
	{name: "a gateway whose lease is over still has its floor", edits: []edit{
		{"ledger.go", "\tif now <= g.floorEnd {\n\t\treturn false\n\t}\n", ""},
		{"ledger.go", "&& now > g.floorEnd && !g.floorsOver {", "&& !g.floorsOver {"},
		{"ledger.go", "uint64(max(h.held, h.heldFloor, h.inUse))", "uint64(max(h.held, h.inUse))"},
	}},
	{name: "a process has ended when a successor has reported ten times, seconds after its lease", edits: []edit{{
		"ledger.go", "now > other.expires+successorGrace", "true",
	}, {"ledger.go", "g.succeeded >= successorReports", "g.succeeded > 0"}}},
	{name: "the workers' counts are watched for three seconds", edits: []edit{
		{"ghosts.go", "ghostWindow  = 3_000_000_000", "ghostWindow  = 0"},
		{"ghosts.go", "ghostSamples = 6", "ghostSamples = 1"},
	}},
	{name: "of the workers' counts the most is taken, of the reports the least", edits: []edit{{
		"ghosts.go", "bound := uint32(sub(uint64(x.most), least))", "bound := uint32(sub(uint64(atWorkers), inUse))",
	}}},

	// Messages.
	{name: "a lease that may not have arrived counts beside the one before", edits: []edit{{
		"ledger.go", "h.held, h.heldFloor = max(h.held, h.granted), max(h.heldFloor, h.floor)", "h.held, h.heldFloor = h.granted, h.floor",
	}}},
	{name: "a report older than the last one is nothing", edits: []edit{{
		"ledger.go", "if g == nil || u.Sequence <= g.usage {", "if g == nil {",
	}}},
	{name: "a gateway takes the answer to the batch under way alone", edits: []edit{{
		"chaos_test.go", "if g.dead || !g.outstanding || g.sequence != sequence {", "if g.dead {",
	}}},
	{name: "what is in use beyond the lease is debited", edits: []edit{{
		"ledger.go", "uint64(max(h.held, h.heldFloor, h.inUse))", "uint64(max(h.held, h.heldFloor))",
	}}},
	{name: "the classes of a gateway are bounded together", edits: []edit{{
		"grant.go", "return inUse < int64(total) && (class == 0 || used[class] < granted[class] || above < uncovered)",
		"return used[class] < granted[class] || class == 0 && used[class] < total",
	}}},

	// Leaders that change.
	{name: "a ledger without a memory follows one that it doesn't know", edits: []edit{{
		"ledger.go", "term: term, started: now, anonymous: anonymous,", "term: term, started: now, anonymous: anonymous && term == 0,",
	}}},
	{name: "nobody gets more before all who are remembered have reported, or are bounded", edits: []edit{{
		"ghosts.go", "\t\tcase g.unknown && !h.covered:\n\t\t\treturn 0, false", "\t\tcase g.unknown && !h.covered:",
	}}},
	{name: "and so for the slots of tenants", edits: []edit{{
		"tenants.go", "if a.debit < limit && !unsettled {", "if a.debit < limit {",
	}}},
	{name: "who gets its first lease is written down before", edits: []edit{{
		"chaos_test.go", "\t\t\t\tc.joining[g.nonce] = g.name\n\t\t\t\treturn\n", "\t\t\t\tc.joining[g.nonce] = g.name\n",
	}}},
	{name: "a new ledger takes over what gateways show to hold", edits: []edit{{
		"ledger.go", "\t\th.held = r.Slots\n\t\tif !ours {\n\t\t\th.heldFloor = max(h.heldFloor, r.Slots)\n\t\t}\n", "",
	}}},
	{name: "the floors of who was granted some by a ledger before stay debited", tests: ".", edits: []edit{{
		"ghosts.go", "\tif unknownFloors {\n\t\tbound += uint64(p.floors(l.admission))\n\t}\n", "\t_ = unknownFloors\n",
	}}},

	// Clocks.
	{name: "durations have a margin for clocks", tests: ".", edits: []edit{
		{"ledger.go", "return d.Nanoseconds() + d.Nanoseconds()/clockMargin", "return d.Nanoseconds()"},
		{"lease.go", "return n - n/clockMargin", "return n"},
	}},
	{name: "leases count from the sending of the batch", folder: "../../filter/admission", edits: []edit{{
		"courier.go", "g.install.header, g.install.sent = header, sent", "g.install.header, g.install.sent = header, now",
	}}},
	{name: "credit is what was spent since the process began", tests: "TestRatesHoldWhateverIsLostOrLate", edits: []edit{{
		"tenants.go", "d.held = max(d.held, d.granted)", "d.held = d.granted",
	}}},

	// What VMs book ahead.
	{name: "what a VM books ahead is in use for everybody", folder: "../../filter/admission", edits: []edit{{
		"poolcell.go", "addUse(&u, &s.Booked, &s.Tokens)", "addUse(&u, &s.InUse, &s.Prefill)",
	}}},
	{name: "what is booked ahead goes with the lease that it was booked of", folder: "../../filter/admission", edits: []edit{{
		"ahead.go", "return g.inForce(a.term, a.sequence, now)", "return true",
	}}},
	{name: "a VM that stood still has booked nothing", folder: "../../filter/admission", edits: []edit{{
		"ahead.go", "if now-g.tickedAt > int64(trustTick) || now < g.tickedAt {", "if false {",
	}}},
	{name: "half of the lease is booked ahead at most", folder: "../../filter/admission", edits: []edit{{
		"ahead.go", "limit >= leastPlenty && 2*n <= uint64(limit)", "true",
	}}},
	{name: "what is booked ahead of a tenant's slots is in use for everybody", folder: "../../filter/admission", edits: []edit{{
		"tenantahead.go", "\ts.Booked += a.slots\n", "",
	}}},
	{name: "what is booked ahead of a tenant's rates is spent for everybody", folder: "../../filter/admission", edits: []edit{{
		"tenantahead.go", "\tc.SpentRequests += a.requests\n\tc.SpentTokens += a.tokens\n", "",
	}}},
	{name: "what is booked ahead of a tenant goes with its lease", folder: "../../filter/admission", edits: []edit{{
		"tenantahead.go", "own.waiting == 0 && g.orphanUntil == 0 && g.inForce(a.term, a.sequence, now)", "own.waiting == 0 && g.orphanUntil == 0",
	}}},
}

// TestEveryRuleIsNeeded takes the rules out one at a time: the tests must find it. Without -rules it
// only looks whether the edits still fit the code.
func TestEveryRuleIsNeeded(t *testing.T) {
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			overlay := r.overlay(t)
			if !*takeOut {
				return
			}
			args := []string{"test", "-count=1", "-overlay", overlay}
			switch {
			case r.folder != "":
				args = append(args, r.folder, "-rapid.nofailfile")
			case r.tests != "":
				args = append(args, "-short", "-run", r.tests, "-skip", "TestEveryRuleIsNeeded", ".")
			default:
				args = append(args, "-run", chaosTests, ".", "-args", "-chaos.seed", fmt.Sprint(*chaosSeed), "-chaos.runs", fmt.Sprint(*chaosRuns))
			}
			out, err := exec.Command("go", args...).CombinedOutput()
			if bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]")) {
				t.Fatalf("%s", out)
			}
			broken := bytes.Count(out, []byte("--- FAIL: "+chaosTests+"/"))
			switch {
			case r.folder != "" || r.tests != "":
				t.Logf("found: %v, by %s", err != nil, failed(out))
			default:
				t.Logf("%d of the runs break", broken)
			}
			if err == nil {
				t.Errorf("nothing is found without it\n%.2000s", out)
			}
		})
	}
}

// failed are the names of the tests that failed.
func failed(out []byte) string {
	var names []string
	for _, line := range strings.Split(string(out), "\n") {
		if name, ok := strings.CutPrefix(line, "--- FAIL: "); ok {
			names = append(names, strings.Fields(name)[0])
		}
	}
	return strings.Join(names, ", ")
}

// overlay writes the edited files, and what go build has to take them for.
func (r *rule) overlay(t *testing.T) string {
	t.Helper()
	folder, replace := t.TempDir(), map[string]string{}
	for _, e := range r.edits {
		path, err := filepath.Abs(filepath.Join(r.folder, e.file))
		if err != nil {
			t.Fatal(err)
		}
		from := path
		if edited := replace[path]; edited != "" {
			from = edited
		}
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), e.before); n != 1 {
			t.Fatalf("%s has the code %d times: %s", e.file, n, e.before)
		}
		replace[path] = filepath.Join(folder, e.file)
		if err := os.WriteFile(replace[path], []byte(strings.Replace(string(text), e.before, e.after, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
