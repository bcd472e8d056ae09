package istio

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const examples = "../../examples/istio"

// read returns the documents of a shipped manifest.
func read(t *testing.T, file string) []Object {
	t.Helper()
	manifest, err := os.ReadFile(filepath.Join(examples, file))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := Documents(manifest)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return objects
}

// manifests lists what ships.
func manifests(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(examples, "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no manifests in %s (%v)", examples, err)
	}
	var files []string
	for _, p := range paths {
		files = append(files, filepath.Base(p))
	}
	return files
}

var crds = sync(func(t *testing.T) *CRDs {
	c, err := ReadIstioCRDs()
	if err != nil {
		t.Fatal(err)
	}
	return c
})

// sync reads something once for all tests.
func sync[T any](read func(*testing.T) T) func(*testing.T) T {
	var value T
	var done bool
	return func(t *testing.T) T {
		if !done {
			value, done = read(t), true
		}
		return value
	}
}

// builtin are kinds of Kubernetes itself, which Istio's definitions do not cover.
var builtin = []string{"Service"}

func TestEveryShippedManifestPassesIstiosDefinitions(t *testing.T) {
	for _, file := range manifests(t) {
		for _, object := range read(t, file) {
			t.Run(file+"/"+name(object), func(t *testing.T) {
				known, err := crds(t).Check(object)
				if !known && !slices.Contains(builtin, object["kind"].(string)) {
					t.Fatalf("no definition for %v %v", object["apiVersion"], object["kind"])
				}
				if err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

func TestEveryEnvoyFilterPatchIsAWellFormedEnvoyMessage(t *testing.T) {
	var seen int
	for _, file := range manifests(t) {
		for _, object := range read(t, file) {
			if object["kind"] != "EnvoyFilter" {
				continue
			}
			seen++
			t.Run(file+"/"+name(object), func(t *testing.T) {
				if err := CheckPatches(object); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
	if seen < 3 {
		t.Fatalf("%d EnvoyFilters in the examples, want routing, companions and the module itself", seen)
	}
}

// A check that accepts everything would pass the tests above: each of these
// takes a shipped object, spoils one thing, and names what must be said.
func TestSpoiltManifestsAreRefused(t *testing.T) {
	tests := []struct {
		name, file, kind string
		old, new         string // in the object's JSON
		want             string
	}{
		{"field of a CRD", "wasmplugin.yaml", "WasmPlugin", `"failStrategy":`, `"failStrategie":`, "failStrategie"},
		{"enum of a CRD", "wasmplugin.yaml", "WasmPlugin", `"FAIL_RELOAD"`, `"FAIL_AGAIN"`, "FAIL_AGAIN"},
		{"duration rule", "gateway.yaml", "VirtualService", `"backoff":"5ms"`, `"backoff":"0s"`, "duration"},
		{"type of a CRD", "gateway.yaml", "VirtualService", `"attempts":1`, `"attempts":"one"`, "attempts"},
		{"top level of a patch", "gateway.yaml", "EnvoyFilter", `"load_balancing_policy":`, `"load_balancing_polici":`, "load_balancing_polici"},
		{"inside an Any", "envoyfilter.yaml", "EnvoyFilter", `"allow_on_headers_stop_iteration":`, `"allow_on_header_stop_iteration":`, "allow_on_header_stop_iteration"},
		{"enum inside an Any", "envoyfilter.yaml", "EnvoyFilter", `"FAIL_RELOAD"`, `"FAIL_AGAIN"`, "FAIL_AGAIN"},
		{"Any inside an Any", "gateway.yaml", "EnvoyFilter", `"override_host_sources":`, `"override_sources":`, "override_sources"},
		{"type of an Any", "gateway.yaml", "EnvoyFilter", `early_header_mutation.header_mutation.v3.HeaderMutation`, `early_header_mutation.v3.HeaderMutation`, "early_header_mutation.v3"},
		{"constraint inside an Any", "wasmplugin.yaml", "EnvoyFilter", `"max_request_bytes":5242880`, `"max_request_bytes":0`, "MaxRequestBytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			objects := read(t, tt.file)
			i := slices.IndexFunc(objects, func(o Object) bool { return o["kind"] == tt.kind })
			if i < 0 {
				t.Fatalf("no %s in %s", tt.kind, tt.file)
			}
			data, err := json.Marshal(objects[i])
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(data), tt.old) {
				t.Fatalf("the shipped object has no %s", tt.old)
			}
			spoilt := Object{}
			if err := json.Unmarshal([]byte(strings.Replace(string(data), tt.old, tt.new, 1)), &spoilt); err != nil {
				t.Fatal(err)
			}
			_, err = crds(t).Check(spoilt)
			if err == nil && tt.kind == "EnvoyFilter" {
				err = CheckPatches(spoilt)
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error %v, want one that says %q", err, tt.want)
			}
		})
	}
}

// The module refuses unknown settings, so the two ways must carry settings
// that differ in nothing but how requests are held.
func TestBothWaysCarryTheSameSettingsButForHold(t *testing.T) {
	plugin := read(t, "wasmplugin.yaml")[0]["spec"].(Object)["pluginConfig"].(Object)
	data, err := json.Marshal(read(t, "envoyfilter.yaml")[0])
	if err != nil {
		t.Fatal(err)
	}
	var filter struct {
		Spec struct {
			ConfigPatches []struct {
				Patch struct {
					Value struct {
						TypedConfig struct {
							Config struct {
								Configuration struct {
									Value string `json:"value"`
								} `json:"configuration"`
							} `json:"config"`
						} `json:"typed_config"`
					} `json:"value"`
				} `json:"patch"`
			} `json:"configPatches"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(data, &filter); err != nil {
		t.Fatal(err)
	}
	settings := Object{}
	if err := json.Unmarshal([]byte(filter.Spec.ConfigPatches[0].Patch.Value.TypedConfig.Config.Configuration.Value), &settings); err != nil {
		t.Fatal(err)
	}
	if plugin["hold"] != "buffer" || settings["hold"] != "headers" {
		t.Fatalf("hold is %v in wasmplugin.yaml and %v in envoyfilter.yaml, want buffer and headers", plugin["hold"], settings["hold"])
	}
	settings["hold"] = "buffer"
	a, _ := json.Marshal(plugin)
	b, _ := json.Marshal(settings)
	if string(a) != string(b) {
		t.Fatalf("settings differ beyond hold:\nwasmplugin.yaml  %s\nenvoyfilter.yaml %s", a, b)
	}
}
