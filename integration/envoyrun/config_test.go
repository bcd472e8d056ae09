package envoyrun

import (
	"encoding/json"
	"path/filepath"
	"testing"
)

func TestEveryDocumentedPortIsReplacedAndNothingListensOutside(t *testing.T) {
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	for _, example := range []string{"envoy.yaml", "envoy-buffer.yaml"} {
		tree, err := readTree(filepath.Join(root, "examples", "envoy", example))
		if err != nil {
			t.Fatal(err)
		}
		ports := map[int]int{ClientPort: 0, AdminPort: 0, ControlPort: 7000}
		for i := range 6 {
			ports[9001+i] = 7001 + i
		}
		replacePorts(tree, ports)
		var seen int
		walk(tree, func(m Tree) {
			if _, ok := m["port_value"]; !ok {
				return
			}
			seen++
			if port, ok := m["port_value"].(int); !ok || port != 0 && (port < 7000 || port > 7006) {
				t.Errorf("%s: port %v was left", example, m["port_value"])
			}
			if m["address"] != "127.0.0.1" {
				t.Errorf("%s: address %v", example, m["address"])
			}
		})
		if seen != 9 {
			t.Errorf("%s: %d ports, want clients, admin, control and six workers", example, seen)
		}
	}
}

func TestAFilterFileIsRenderedAnewAndTheShippedOneStays(t *testing.T) {
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	shipped, err := readFilter(filepath.Join(root, "examples", "envoy", "filter.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	before, _ := json.Marshal(shipped.tree)
	settings := clone(shipped.settings)
	settings["expose_worker"] = true
	data, err := shipped.render(Filter{
		Module: "other.wasm", Settings: settings,
		Wasm: func(w Tree) { delete(w["config"].(Tree), "reload_config") },
	}, 7)
	if err != nil {
		t.Fatal(err)
	}
	var got Tree
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if got["version_info"] != "7" {
		t.Errorf("version %v", got["version_info"])
	}
	if Find(got, "filename", "other.wasm") == nil {
		t.Error("the module's path is not in it")
	}
	var inside Tree
	text := Find(got, "@type", "type.googleapis.com/google.protobuf.StringValue")["value"].(string)
	if err := json.Unmarshal([]byte(text), &inside); err != nil || inside["expose_worker"] != true || inside["hold"] != "headers" {
		t.Errorf("settings %s (%v)", text, err)
	}
	walk(got, func(m Tree) {
		if _, ok := m["reload_config"]; ok {
			t.Error("the edit of the filter is not in it")
		}
	})
	if after, _ := json.Marshal(shipped.tree); string(after) != string(before) {
		t.Error("rendering changed the shipped file's tree")
	}
}

func TestOneFilterIsDropped(t *testing.T) {
	tree := Tree{"hcm": Tree{"stat_prefix": "llm", "http_filters": []any{Tree{"name": "a"}, Tree{"name": "b"}}}}
	DropFilter(tree, "a")
	filters := tree["hcm"].(Tree)["http_filters"].([]any)
	if len(filters) != 1 || filters[0].(Tree)["name"] != "b" {
		t.Errorf("left: %v", filters)
	}
}
