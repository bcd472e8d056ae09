// Package examples holds the shipped examples to each other: what one file
// says of pools, addresses, clusters and tokens, the others must say too.
package examples

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/warmpath/warmpath/control"
	"github.com/warmpath/warmpath/control/discovery"
	filterconfig "github.com/warmpath/warmpath/filter/config"
	"github.com/warmpath/warmpath/integration/modules"
	"github.com/warmpath/warmpath/shared/policy"
)

type object = map[string]any

// pairs are the two ways of holding a request: bootstrap and watched file.
var pairs = []struct{ bootstrap, filter string }{
	{"envoy.yaml", "filter.yaml"},
	{"envoy-buffer.yaml", "filter-buffer.yaml"},
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func readYAML(t *testing.T, path string) object {
	t.Helper()
	var o object
	if err := yaml.UnmarshalStrict(readFile(t, path), &o); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return o
}

// find calls visit for every map below node.
func find(node any, visit func(object)) {
	switch n := node.(type) {
	case object:
		visit(n)
		for _, child := range n {
			find(child, visit)
		}
	case []any:
		for _, child := range n {
			find(child, visit)
		}
	}
}

// settings is the module's JSON inside a watched filter file.
func settings(t *testing.T, path string) []byte {
	t.Helper()
	var text string
	find(readYAML(t, path), func(o object) {
		if o["@type"] == "type.googleapis.com/google.protobuf.StringValue" {
			text, _ = o["value"].(string)
		}
	})
	if text == "" {
		t.Fatalf("%s carries no settings", path)
	}
	return []byte(text)
}

func workers(t *testing.T) []discovery.Spec {
	t.Helper()
	specs, err := discovery.Parse("workers.yaml", readFile(t, "envoy/workers.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return specs
}

func policies(t *testing.T) *policy.Set {
	t.Helper()
	text, err := yaml.YAMLToJSON(readFile(t, "envoy/policy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	set, err := policy.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestTheModuleAcceptsTheShippedSettings(t *testing.T) {
	files := map[string]string{"envoy/filter.yaml": "headers", "envoy/filter-buffer.yaml": "buffer"}
	for path, hold := range files {
		cfg, err := filterconfig.Parse(settings(t, path))
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if cfg.Hold.String() != hold {
			t.Errorf("%s holds by %s, want %s", path, cfg.Hold, hold)
		}
	}
	var plugin struct {
		Spec struct {
			PluginConfig json.RawMessage `json:"pluginConfig"`
		} `json:"spec"`
	}
	first, _, _ := strings.Cut(string(readFile(t, "istio/wasmplugin.yaml")), "\n---\n")
	if err := yaml.Unmarshal([]byte(first), &plugin); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string][]byte{
		"istio/wasmplugin.yaml": plugin.Spec.PluginConfig, "istio/envoyfilter.yaml": settings(t, "istio/envoyfilter.yaml"),
	} {
		if _, err := filterconfig.Parse(text); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestTheControlServiceAcceptsItsFilesAndSharesTheToken(t *testing.T) {
	cfg, err := control.LoadConfig("envoy/control.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{cfg.WorkersFile, cfg.PolicyFile} {
		if _, err := os.Stat(filepath.Join("..", path)); err != nil {
			t.Errorf("control.yaml names %s, seen from the root of the repository: %v", path, err)
		}
	}
	for _, pair := range pairs {
		module, err := filterconfig.Parse(settings(t, "envoy/"+pair.filter))
		if err != nil {
			t.Fatal(err)
		}
		if module.Control.Token != cfg.Token {
			t.Errorf("%s sends another token than control.yaml asks for", pair.filter)
		}
	}
}

// Envoy uses an address only if the pool's cluster lists it.
func TestEveryWorkerIsInTheClusterOfItsPoolAndNoOtherIs(t *testing.T) {
	want := map[string][]string{} // cluster -> addresses
	for _, pool := range policies(t).Pools {
		for _, w := range workers(t) {
			if w.Pool == pool.Name {
				want[pool.Cluster] = append(want[pool.Cluster], w.Address)
			}
		}
	}
	for _, pair := range pairs {
		got := map[string][]string{}
		find(readYAML(t, "envoy/"+pair.bootstrap), func(o object) {
			cluster, ok := o["cluster_name"].(string)
			if !ok || cluster == "warmpath-control" {
				return
			}
			find(o, func(o object) {
				if port, ok := o["port_value"].(float64); ok {
					got[cluster] = append(got[cluster], fmt.Sprintf("%v:%d", o["address"], int(port)))
				}
			})
			slices.Sort(got[cluster])
		})
		for cluster, addresses := range want {
			if !slices.Equal(got[cluster], addresses) {
				t.Errorf("%s: cluster %s lists %v, workers.yaml says %v", pair.bootstrap, cluster, got[cluster], addresses)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s has %d pool clusters, policy.yaml %d pools", pair.bootstrap, len(got), len(want))
		}
	}
}

// A pool without a route of its own would be served by the default cluster.
func TestEveryPoolHasARouteToItsClusterWithTheLongIdleTimeout(t *testing.T) {
	for _, pair := range pairs {
		tree := readYAML(t, "envoy/"+pair.bootstrap)
		for _, pool := range policies(t).Pools {
			var route object
			find(tree, func(o object) {
				match, _ := o["match"].(object)
				headers, _ := match["headers"].([]any)
				for _, h := range headers {
					header := h.(object)
					exact, _ := header["string_match"].(object)
					if header["name"] == "x-warmpath-pool" && exact["exact"] == pool.Name {
						route, _ = o["route"].(object)
					}
				}
			})
			if route["cluster"] != pool.Cluster || route["idle_timeout"] != "900s" || route["timeout"] != "0s" {
				t.Errorf("%s: pool %s has route %v", pair.bootstrap, pool.Name, route)
			}
		}
	}
}

// The two ways differ in how a request is held and in nothing else.
func TestBothWaysShareClustersListenersAndLogging(t *testing.T) {
	a, b := readYAML(t, "envoy/envoy.yaml"), readYAML(t, "envoy/envoy-buffer.yaml")
	for _, key := range []string{"node", "admin", "stats_config"} {
		if x, y := encode(t, a[key]), encode(t, b[key]); x != y {
			t.Errorf("%s differs:\n%s\n%s", key, x, y)
		}
	}
	log := func(o object) (text string) {
		find(o, func(o object) {
			if format, ok := o["json_format"]; ok {
				text = encode(t, format)
			}
		})
		return text
	}
	if log(a) == "" || log(a) != log(b) {
		t.Errorf("the access logs differ:\n%s\n%s", log(a), log(b))
	}
}

func encode(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestTheModuleWithARuleOfItsOwnIsFitToShip(t *testing.T) {
	module, err := modules.Build(t.Context(), "..", t.TempDir(), modules.Custom)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "run", "../build/modcheck", module).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
