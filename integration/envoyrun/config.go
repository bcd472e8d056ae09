package envoyrun

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"sigs.k8s.io/yaml"
)

// Root returns the root of this repository: the nearest directory at or above
// the working directory with a go.mod that names the product.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "examples", "envoy", "envoy.yaml")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("find the repository: no examples/envoy/envoy.yaml at or above the working directory (run this inside the repository)")
		}
		dir = parent
	}
}

// Tree is a YAML document as Go values: map[string]any, []any, string, float64, bool, nil.
type Tree = map[string]any

// readTree parses a YAML file; numbers come back as float64, as from JSON.
func readTree(path string) (Tree, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the example: %w", err)
	}
	tree := Tree{}
	if err := yaml.Unmarshal(data, &tree); err != nil {
		return nil, fmt.Errorf("parse %s: %w", path, err)
	}
	return tree, nil
}

// walk calls visit for every map of a tree, outermost first, in the order of
// their keys.
func walk(node any, visit func(Tree)) {
	switch n := node.(type) {
	case Tree:
		visit(n)
		for _, key := range slices.Sorted(maps.Keys(n)) {
			walk(n[key], visit)
		}
	case []any:
		for _, child := range n {
			walk(child, visit)
		}
	}
}

// replacePorts puts other ports in place of the documented ones and binds
// everything to loopback. Port 0 lets Envoy choose.
func replacePorts(tree Tree, ports map[int]int) {
	walk(tree, func(m Tree) {
		port, ok := m["port_value"].(float64)
		if !ok {
			return
		}
		if to, known := ports[int(port)]; known {
			m["port_value"] = to
		}
		if m["address"] == "0.0.0.0" {
			m["address"] = "127.0.0.1"
		}
	})
}

// replaceString puts one string in place of another wherever it stands as a
// whole value, and reports how often it did.
func replaceString(tree Tree, from, to string) (count int) {
	walk(tree, func(m Tree) {
		for key, value := range m {
			if value == from {
				m[key] = to
				count++
			}
		}
	})
	return count
}

// Find returns the first map of the tree in which key has the given value, or nil.
func Find(tree Tree, key string, value any) Tree {
	var found Tree
	walk(tree, func(m Tree) {
		if found == nil && m[key] == value {
			found = m
		}
	})
	return found
}

// DropFilter takes one filter out of the chain of HTTP filters for clients.
func DropFilter(bootstrap Tree, name string) {
	manager := Find(bootstrap, "stat_prefix", "llm")
	filters, _ := manager["http_filters"].([]any)
	manager["http_filters"] = slices.DeleteFunc(filters, func(f any) bool {
		filter, ok := f.(Tree)
		return ok && filter["name"] == name
	})
}

// Filter is what the watched file (filter.yaml) carries: which module, with
// which settings.
type Filter struct {
	Module   string     // path of the .wasm file
	Settings Tree       // the module's JSON configuration
	Wasm     func(Tree) // edits the typed_config of the filter; nil leaves it
}

// filterFile is the shipped watched file, parsed.
type filterFile struct {
	tree     Tree
	settings Tree
}

// modulePath is how the shipped files name the module.
const modulePath = "bin/warmpath.wasm"

// readFilter parses the shipped watched file and the settings inside it.
func readFilter(path string) (*filterFile, error) {
	tree, err := readTree(path)
	if err != nil {
		return nil, err
	}
	holder := Find(tree, "@type", "type.googleapis.com/google.protobuf.StringValue")
	text, ok := holder["value"].(string)
	if !ok {
		return nil, fmt.Errorf("%s: no configuration of type google.protobuf.StringValue", path)
	}
	settings := Tree{}
	if err := json.Unmarshal([]byte(text), &settings); err != nil {
		return nil, fmt.Errorf("%s: the module's configuration is no JSON object: %w", path, err)
	}
	return &filterFile{tree: tree, settings: settings}, nil
}

// render returns the watched file with another module and other settings.
// The version must differ from the last one's for Envoy to look closer.
func (f *filterFile) render(want Filter, version int) ([]byte, error) {
	tree := clone(f.tree)
	settings, err := json.Marshal(want.Settings)
	if err != nil {
		return nil, fmt.Errorf("encode the module's configuration: %w", err)
	}
	holder := Find(tree, "@type", "type.googleapis.com/google.protobuf.StringValue")
	holder["value"] = string(settings)
	tree["version_info"] = fmt.Sprint(version)
	if replaceString(tree, modulePath, want.Module) == 0 {
		return nil, fmt.Errorf("the example names no module %q", modulePath)
	}
	if want.Wasm != nil {
		want.Wasm(Find(tree, "@type", "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm"))
	}
	return json.MarshalIndent(tree, "", " ")
}

// clone copies a tree.
func clone(node Tree) Tree {
	return copyNode(node).(Tree)
}

func copyNode(node any) any {
	switch n := node.(type) {
	case Tree:
		out := make(Tree, len(n))
		for key, value := range n {
			out[key] = copyNode(value)
		}
		return out
	case []any:
		out := make([]any, len(n))
		for i, value := range n {
			out[i] = copyNode(value)
		}
		return out
	default:
		return node
	}
}
