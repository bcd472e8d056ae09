//go:build envoy

package conformance

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/integration/envoybin"
)

var (
	rewrite   = flag.Bool("rewrite", false, "write what the first Envoy does into the scenario files")
	only      = flag.String("only", "", "play the scenarios whose names match this regular expression")
	tableFile = flag.String("table", "", "write the table of scenarios and versions here, as Markdown")
)

// reference is the release that hostsim follows.
const reference = "1.40.0"

// TestEnvoyDoesWhatTheScenariosSay plays every scenario on each release that
// ENVOY names, and on hostsim.
func TestEnvoyDoesWhatTheScenariosSay(t *testing.T) {
	list := os.Getenv("ENVOY")
	if list == "" {
		list = reference
	}
	versions, err := envoybin.ParseVersions(list)
	if err != nil {
		t.Fatal(err)
	}
	all := scenarios(t)
	sim := newSim(t)
	table := map[string]map[string]string{}
	for i, version := range versions {
		t.Run(version, func(t *testing.T) {
			results := playOn(t, version, all, *rewrite && i == 0)
			for name, verdict := range results {
				if table[name] == nil {
					table[name] = map[string]string{}
				}
				table[name][version] = verdict
			}
		})
		if *rewrite && i == 0 {
			all = scenarios(t)
		}
	}
	differences := 0
	for _, sc := range all {
		if table[sc.Name] == nil {
			continue
		}
		verdict := "ok"
		if got, err := sim.Play(context.Background(), sc); err != nil {
			verdict = "ERROR"
			t.Errorf("hostsim: %v", err)
		} else if d := diff(sc, got); d != "" {
			verdict = "DIFFERS"
			t.Errorf("hostsim (+) differs from Envoy (-):\n%s", d)
		}
		if verdict != "ok" {
			differences++
		}
		table[sc.Name]["hostsim"] = verdict
	}
	text := markdown(all, append(versions, "hostsim"), table)
	fmt.Print(text)
	fmt.Printf("\n%d scenarios, hostsim differs in %d\n", len(table), differences)
	if *tableFile != "" {
		if err := os.WriteFile(*tableFile, []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// playOn plays scenarios on one release and returns the verdict of each.
func playOn(t *testing.T, version string, all []*Scenario, rewrite bool) map[string]string {
	ctx := context.Background()
	binary, err := envoybin.Install(ctx, version)
	if err != nil {
		t.Fatal(err)
	}
	e, err := StartEnvoy(ctx, binary, built)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { e.Stop() }()
	e.Recording = rewrite
	wanted, err := regexp.Compile(*only)
	if err != nil {
		t.Fatal(err)
	}
	verdicts := map[string]string{}
	for _, sc := range all {
		if !wanted.MatchString(sc.Name) {
			continue
		}
		begin := time.Now()
		got, err := e.Play(ctx, sc)
		if e.Dead() { // crashed: the others need a fresh one
			e.Stop()
			if e, err = StartEnvoy(ctx, binary, built); err != nil {
				t.Fatal(err)
			}
			e.Recording = rewrite
			err = fmt.Errorf("%s: it has crashed Envoy %s", sc.Name, version)
		}
		if testing.Verbose() {
			t.Logf("%s: %s", sc.Name, time.Since(begin).Round(time.Millisecond))
		}
		if err != nil {
			verdicts[sc.Name] = "ERROR"
			t.Error(err)
			continue
		}
		if rewrite {
			if err := os.WriteFile(filepath.Join("testdata", sc.Name+".txt"), []byte(got.Format()), 0o644); err != nil {
				t.Fatal(err)
			}
			verdicts[sc.Name] = "ok"
			continue
		}
		d, known := diff(sc, got), sc.Differs(version)
		switch {
		case d == "" && known == "":
			verdicts[sc.Name] = "ok"
		case d != "" && known != "":
			verdicts[sc.Name] = "differs: " + known
		case d == "":
			verdicts[sc.Name] = "ok, though said to differ"
			t.Errorf("%s: Envoy %s is said to differ (%s) but does not", sc.Name, version, known)
		default:
			verdicts[sc.Name] = "DIFFERS"
			t.Errorf("Envoy %s (+) differs from the scenario (-):\n%s", version, d)
		}
	}
	return verdicts
}

func markdown(all []*Scenario, columns []string, table map[string]map[string]string) string {
	var b strings.Builder
	b.WriteString("\n| scenario | " + strings.Join(columns, " | ") + " |\n|---" + strings.Repeat("|---", len(columns)) + "|\n")
	for _, sc := range all {
		if table[sc.Name] == nil {
			continue
		}
		b.WriteString("| " + strings.ReplaceAll(sc.Name, "_", " "))
		for _, c := range columns {
			b.WriteString(" | " + table[sc.Name][c])
		}
		b.WriteString(" |\n")
	}
	return b.String()
}
