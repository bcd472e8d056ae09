//go:build envoy

package envoy

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/warmpath/warmpath/doctor"
)

var dumpDir = flag.String("dump", "", "write Envoy's configuration dumps here, as doctor/testdata has them")

// doctorFindsItWell: the shipped example passes every check of the proxy, with a
// request through it.
func doctorFindsItWell(r *rig) {
	r.startControl()
	r.waitSteering()
	checks := doctor.Run(r.t.Context(), doctor.Options{
		Control: r.control.URL(), Token: "change-me", EnvoyAdmin: r.proxy.AdminURL, Proxy: r.proxy.ClientURL, Model: "sim",
	})
	seen := map[string]int{}
	for _, c := range checks {
		seen[c.Name]++
		area, _, _ := strings.Cut(c.Name, ".")
		if c.Status == doctor.Fail || c.Status == doctor.Warn && (area == "envoy" || area == "proxy") {
			r.t.Errorf("%+v", c)
		}
	}
	for _, name := range []string{"envoy.module", "envoy.vm_id", "envoy.hold", "envoy.body_limit", "envoy.override_host", "envoy.worker_cluster", "proxy.module", "proxy.steering"} {
		if seen[name] == 0 {
			r.t.Errorf("nobody looked at %s", name)
		}
	}
	if *dumpDir != "" {
		r.recordDump()
	}
}

// doctorFinds wants a check to fail with a remedy that names something.
func (r *rig) doctorFinds(name, word string) {
	r.t.Helper()
	checks := doctor.Run(r.t.Context(), doctor.Options{EnvoyAdmin: r.proxy.AdminURL})
	if !slices.ContainsFunc(checks, func(c doctor.Check) bool {
		return c.Name == name && c.Status == doctor.Fail && strings.Contains(c.Remedy, word)
	}) {
		r.t.Errorf("the doctor doesn't find what is wrong: %+v", checks)
	}
}

// ownPaths are what is of this run in a dump.
var ownPaths = regexp.MustCompile(`"/[^"]*/(filter\.(?:wasm|json))"`)

// recordDump keeps the sections that the doctor reads.
func (r *rig) recordDump() {
	resp, err := http.Get(r.proxy.AdminURL + "/config_dump")
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	var dump struct {
		Configs []map[string]any `json:"configs"`
	}
	if err := json.Unmarshal(ownPaths.ReplaceAll(page, []byte(`"bin/$1"`)), &dump); err != nil {
		r.t.Fatal(err)
	}
	kept := dump.Configs[:0]
	for _, c := range dump.Configs {
		if !strings.HasSuffix(fmt.Sprint(c["@type"]), ".BootstrapConfigDump") {
			kept = append(kept, c)
		}
	}
	dump.Configs = kept
	text, err := json.MarshalIndent(dump, "", " ")
	if err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*dumpDir, r.mode.name+".json"), append(text, '\n'), 0o644); err != nil {
		r.t.Fatal(err)
	}
}
