package discovery

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestKVEventsAreAWordOrEndpoints(t *testing.T) {
	for text, want := range map[string]KVEvents{
		"auto":                   {Auto: true},
		"{auto: true}":           {Auto: true},
		"{auto: true, model: m}": {Auto: true, Model: "m"},
		"{endpoint: 'tcp://10.0.0.7:5557', replay: 'tcp://[fd00::7]:5558', topic: kv@, model: m}": {Endpoint: "tcp://10.0.0.7:5557", Replay: "tcp://[fd00::7]:5558", Topic: "kv@", Model: "m"},
		"{endpoint: 'tcp://*:5557', replay: 'tcp://0.0.0.0:5558'}":                                {Endpoint: "tcp://10.0.0.7:5557", Replay: "tcp://10.0.0.7:5558"}, // as the engine is told
	} {
		specs, err := Parse("list", []byte("workers:\n- address: 10.0.0.7:8000\n  kv_events: "+text+"\n"))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if diff := cmp.Diff(want, specs[0].KVEvents); diff != "" || !specs[0].KVEvents.On() {
			t.Errorf("%s: %s", text, diff)
		}
		written, err := json.Marshal(map[string]any{"workers": specs})
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("list", written)
		if err != nil || again[0].KVEvents != want {
			t.Errorf("%s: written back %+v %v", text, again, err)
		}
	}
	for text, want := range map[string]string{
		"yes": "auto", "{port: 5557}": "port", "{replay: 'tcp://a:1'}": "endpoint is missing", "{auto: true, topic: x}": "exclude", "{endpoint: 'ipc:///x'}": "tcp://host:port", "{endpoint: 'tcp://a'}": "no port", "{model: m}": "endpoint is missing",
	} {
		if _, err := Parse("list", []byte("workers:\n- address: 10.0.0.7:8000\n  kv_events: "+text+"\n")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	specs, err := Parse("list", []byte("workers:\n- address: 10.0.0.7:8000\n"))
	if err != nil || specs[0].KVEvents.On() {
		t.Error(err, specs)
	}
}
