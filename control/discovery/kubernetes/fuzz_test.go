package kubernetes

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/warmpath/warmpath/control/discovery"
)

const sliceObject = `{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"s","namespace":"llm","labels":{"warmpath.dev/pool":"code"}},
	"addressType":"IPv4","ports":[{"name":"http","port":8000}],
	"endpoints":[{"addresses":["10.77.0.1"],"conditions":{"ready":true,"serving":true},"targetRef":{"kind":"Pod","name":"a","uid":"u"}}]}`

const poolObject = `{"apiVersion":"inference.networking.k8s.io/v1","kind":"InferencePool","metadata":{"name":"p","namespace":"llm"},
	"spec":{"selector":{"matchLabels":{"app":"vllm"}},"targetPorts":[{"number":8000},{"number":8001}]}}`

// FuzzObjects: whatever an API server gives out as a Pod, an EndpointSlice or an
// InferencePool, what is made of it is a worker list that stands by itself.
func FuzzObjects(f *testing.F) {
	pod, err := podAt(f, "a", "10.77.0.1", "metadata|annotations|"+Prefix+"ports", "8000,8001", "metadata|annotations|"+Prefix+"kv-events", `{endpoint: "tcp://*:5557"}`,
		"metadata|annotations|"+Prefix+"ranks", "2").MarshalJSON()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(pod)
	f.Add([]byte(sliceObject))
	f.Add([]byte(poolObject))
	f.Fuzz(func(t *testing.T, data []byte) {
		var u unstructured.Unstructured
		if u.UnmarshalJSON(data) != nil {
			return
		}
		check := func(what string, specs []discovery.Spec) {
			for i := range specs {
				if _, err := discovery.Check(specs[i : i+1]); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
		}
		tpl := discovery.Template{Pool: "chat", KVEvents: discovery.KVEvents{Endpoint: "tcp://*:5557"}}
		if p, err := readPod(&u); err == nil {
			specs, _ := p.workers(tpl, []uint16{8000})
			check(fmt.Sprintf("pod %q", p.name), specs)
		}
		if s, err := readSlice(&u); err == nil {
			specs, _ := sliceWorkers([]slice{s}, tpl, "")
			check(fmt.Sprintf("slice %q", s.name), specs)
		}
		if p, err := readPool(&u); err == nil && (p.selector == "" || len(p.ports) == 0) {
			t.Fatalf("%+v", p)
		}
	})
}
