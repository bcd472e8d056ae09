package kubernetes

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/warmpath/warmpath/control/discovery"
)

// object reads a manifest.
func object(t testing.TB, manifest string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &u.Object); err != nil {
		t.Fatal(err)
	}
	// Numbers as the API machinery has them.
	text, err := u.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if err := u.UnmarshalJSON(text); err != nil {
		t.Fatal(err)
	}
	return u
}

const podManifest = `
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: llm, uid: uid-%s, labels: {app: vllm}, annotations: {}}
spec:
  containers:
  - {name: proxy, image: x, ports: [{containerPort: 15000}]}
  - {name: engine, image: x, ports: [{containerPort: 8000}]}
status:
  phase: Running
  podIP: %s
  conditions: [{type: Ready, status: "True"}]
  containerStatuses:
  - {name: engine, restartCount: 0, image: x, imageID: x, ready: true}
  - {name: proxy, restartCount: 0, image: x, imageID: x, ready: true}
`

// podAt is a pod that serves, changed by pairs of path and value.
func podAt(t testing.TB, name, ip string, changes ...any) *unstructured.Unstructured {
	t.Helper()
	u := object(t, fmt.Sprintf(podManifest, name, name, ip))
	for i := 0; i < len(changes); i += 2 {
		if err := unstructured.SetNestedField(u.Object, changes[i+1], strings.Split(changes[i].(string), "|")...); err != nil {
			t.Fatal(err)
		}
	}
	return u
}

// show writes a list shortly: address pool drained.
func show(specs []discovery.Spec) string {
	var out []string
	for _, s := range specs {
		text := s.Address + " " + s.Pool
		if s.Drain {
			text += " drained"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func TestWhatAPodSaysOfItsWorkers(t *testing.T) {
	tpl := discovery.Template{Pool: "chat", MaxRunning: 32, KVEvents: discovery.KVEvents{Endpoint: "tcp://*:5557"}}
	note := func(name, value string) []any { return []any{"metadata|annotations|" + Prefix + name, value} }
	for name, c := range map[string]struct {
		changes []any
		want    string
		note    string
		err     string
	}{
		"ready":             {nil, "10.77.0.1:8000 chat", "", ""},
		"terminating":       {[]any{"metadata|deletionTimestamp", "2026-11-30T00:00:00Z"}, "10.77.0.1:8000 chat drained", "pod a is terminating", ""},
		"not ready":         {[]any{"status|conditions", []any{map[string]any{"type": "Ready", "status": "False", "message": "containers with unready status: [engine]"}}}, "10.77.0.1:8000 chat drained", "pod a is not ready: containers with unready status: [engine]", ""},
		"no condition yet":  {[]any{"status|conditions", []any{}}, "10.77.0.1:8000 chat drained", "pod a is not ready", ""},
		"no address yet":    {[]any{"status|podIP", ""}, "", "", ""},
		"failed":            {[]any{"status|phase", "Failed"}, "", "", ""},
		"succeeded":         {[]any{"status|phase", "Succeeded"}, "", "", ""},
		"loopback":          {[]any{"status|podIP", "127.0.0.1"}, "127.0.0.1:8000 chat", "", ""},
		"pool by label":     {[]any{"metadata|labels|" + Prefix + "pool", "code"}, "10.77.0.1:8000 code", "", ""},
		"annotation wins":   {append(note("pool", "other"), "metadata|labels|"+Prefix+"pool", "code"), "10.77.0.1:8000 other", "", ""},
		"ranks":             {note("ports", "8000, 8001"), "10.77.0.1:8000 chat, 10.77.0.1:8001 chat", "", ""},
		"drained by people": {note("drain", "true"), "10.77.0.1:8000 chat drained", "pod a has warmpath.dev/drain", ""},
		"not drained":       {note("drain", "false"), "10.77.0.1:8000 chat", "", ""},
		"not ours":          {note("something-else", "x"), "10.77.0.1:8000 chat", "", ""},
		"bad pool":          {note("pool", "Not a pool"), "", "", `workers[0].pool: "Not a pool" is not a pool name`},
		"bad number":        {note("max-running", "many"), "", "", `pod a: warmpath.dev/max-running: "many" is not a number of 0 to 65535`},
		"bad port":          {note("ports", "http"), "", "", `pod a: warmpath.dev/ports: "http" is not a port`},
		"no port":           {note("ports", " "), "", "", "names no port"},
		"bad events":        {note("kv-events", "maybe"), "", "", "is neither auto nor a mapping"},
	} {
		p, err := readPod(podAt(t, "a", "10.77.0.1", c.changes...))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		specs, err := p.workers(tpl, []uint16{8000})
		switch {
		case c.err == "" && (err != nil || show(specs) != c.want):
			t.Errorf("%s: %s, %v", name, show(specs), err)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: %s, %v", name, show(specs), err)
		case c.note != "" && specs[0].Note != c.note:
			t.Errorf("%s: note %q", name, specs[0].Note)
		}
	}
}

func TestASettingThatNobodyKnowsIsNamedWithThoseThatThereAre(t *testing.T) {
	p, err := readPod(podAt(t, "a", "10.77.0.1", "metadata|annotations|"+Prefix+"max-runing", "64", "metadata|annotations|"+Prefix+"ports", "8000"))
	if err != nil {
		t.Fatal(err)
	}
	got := unknown("pod "+p.name, p.settings, podSettings)
	if len(got) != 1 || got[0].Error() != "pod a: warmpath.dev/max-runing is ignored: no such setting; there are dp-rank, drain, ports, block-tokens, capacity-tokens, kv-events, max-running, model, pool, prefill-tokens-per-second, queue-limit, ranks" {
		t.Errorf("%v", got)
	}
	for _, name := range settingNames {
		if err := apply(&discovery.Template{}, name, "\x00"); err == nil && name != "model" && name != "pool" {
			t.Errorf("nobody reads %s", name)
		}
	}
}

func TestEverySettingOfAPodArrives(t *testing.T) {
	var changes []any
	for name, value := range map[string]string{
		"pool": "code", "max-running": "64", "queue-limit": "256", "capacity-tokens": "192000", "block-tokens": "32",
		"prefill-tokens-per-second": "20000", "ports": "9000,9001", "dp-rank": "4", "model": "Qwen/Qwen3-32B",
		"kv-events": `{endpoint: "tcp://*:5557", replay: "tcp://*:6557", topic: kv}`,
	} {
		changes = append(changes, "metadata|annotations|"+Prefix+name, value)
	}
	p, err := readPod(podAt(t, "a", "10.77.0.1", changes...))
	if err != nil {
		t.Fatal(err)
	}
	specs, err := p.workers(discovery.Template{}, []uint16{8000})
	if err != nil || len(specs) != 2 {
		t.Fatalf("%v %v", specs, err)
	}
	for i, s := range specs {
		if want := (discovery.KVEvents{Endpoint: fmt.Sprintf("tcp://10.77.0.1:%d", 5561+i), Replay: fmt.Sprintf("tcp://10.77.0.1:%d", 6561+i), Topic: "kv", Model: "Qwen/Qwen3-32B"}); s.KVEvents != want {
			t.Errorf("%+v", s.KVEvents)
		}
		if s.Address != fmt.Sprintf("10.77.0.1:%d", 9000+i) || s.Pool != "code" || s.MaxRunning != 64 || s.QueueLimit != 256 || s.CapacityTokens != 192000 || s.CapacityAssumed || s.BlockTokens != 32 || s.PrefillTokensPerSecond != 20000 {
			t.Errorf("%+v", s)
		}
	}
}

func TestAnIncarnationIsAPodAndTheRestartsOfItsEngine(t *testing.T) {
	of := func(changes ...any) uint64 {
		t.Helper()
		p, err := readPod(podAt(t, "a", "10.77.0.1", changes...))
		if err != nil {
			t.Fatal(err)
		}
		specs, err := p.workers(discovery.Template{}, []uint16{8000})
		if err != nil || len(specs) != 1 || specs[0].Incarnation == 0 {
			t.Fatalf("%v %v", specs, err)
		}
		return specs[0].Incarnation
	}
	restarts := func(engine, proxy int64) []any {
		return []any{"status|containerStatuses", []any{
			map[string]any{"name": "engine", "restartCount": engine}, map[string]any{"name": "proxy", "restartCount": proxy},
		}}
	}
	first := of()
	if of(restarts(0, 3)...) != first {
		t.Error("a restart of the proxy beside it made another worker")
	}
	if of(restarts(1, 0)...) == first {
		t.Error("a restart of the engine changed nothing")
	}
	if of("metadata|uid", "another") == first {
		t.Error("another pod at the same address changed nothing")
	}
	if of("metadata|deletionTimestamp", "2026-11-30T00:00:00Z") != first {
		t.Error("a pod that ends is another worker")
	}
}

const sliceManifest = `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %s, namespace: llm, labels: {kubernetes.io/service-name: vllm}}
addressType: %s
ports: [{name: http, port: 8000}, {name: metrics, port: 9000}]
endpoints:
`

func readSlices(t *testing.T, manifests ...string) []slice {
	t.Helper()
	var out []slice
	for i, m := range manifests {
		family := "IPv4"
		if strings.Contains(m, "fd00") {
			family = "IPv6"
		}
		s, err := readSlice(object(t, fmt.Sprintf(sliceManifest, fmt.Sprint("vllm-", i), family)+m))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	return out
}

func TestConditionsOfAnEndpoint(t *testing.T) {
	for conditions, want := range map[string]string{
		"{}":             "10.77.0.1:8000 chat",
		"{ready: true}":  "10.77.0.1:8000 chat",
		"{ready: false}": "10.77.0.1:8000 chat drained",
		"{ready: true, serving: true, terminating: false}":   "10.77.0.1:8000 chat",
		"{ready: false, serving: true, terminating: true}":   "10.77.0.1:8000 chat drained",
		"{ready: false, serving: false, terminating: true}":  "10.77.0.1:8000 chat drained",
		"{ready: false, serving: false, terminating: false}": "10.77.0.1:8000 chat drained",
		// publishNotReadyAddresses
		"{ready: true, serving: true, terminating: true}": "10.77.0.1:8000 chat drained",
	} {
		all := readSlices(t, "- {addresses: [10.77.0.1], conditions: "+conditions+", targetRef: {kind: Pod, name: a, uid: u}}")
		specs, skipped := sliceWorkers(all, discovery.Template{Pool: "chat"}, "http")
		if show(specs) != want || len(skipped) > 0 {
			t.Errorf("%s: %s, %v", conditions, show(specs), skipped)
		}
	}
}

func TestAnEndpointInSeveralSlicesIsOneWorker(t *testing.T) {
	all := readSlices(t,
		"- {addresses: ['fd00::1'], targetRef: {kind: Pod, name: a, uid: ua}}\n- {addresses: ['fd00::3'], targetRef: {kind: Pod, name: c, uid: uc}}",
		"- {addresses: [10.77.0.1], targetRef: {kind: Pod, name: a, uid: ua}}\n- {addresses: [10.77.0.2], conditions: {ready: true}}",
		"- {addresses: [10.77.0.2], conditions: {ready: true}}\n- {addresses: [10.77.0.1, 10.77.9.9], targetRef: {kind: Pod, name: a, uid: ua}}")
	specs, skipped := sliceWorkers(all, discovery.Template{}, "8000")
	if show(specs) != "10.77.0.1:8000 default, [fd00::3]:8000 default, 10.77.0.2:8000 default" || len(skipped) > 0 {
		t.Errorf("%s, %v", show(specs), skipped)
	}
	if specs[0].Incarnation == 0 || specs[2].Incarnation != 0 {
		t.Errorf("incarnations %d and %d", specs[0].Incarnation, specs[2].Incarnation)
	}
}

func TestAServiceWithSeveralPortsNeedsOneToBeNamed(t *testing.T) {
	all := readSlices(t, "- {addresses: [10.77.0.1]}")
	for port, want := range map[string]string{
		"": "endpointslice vllm-0: it has 2 ports: say which one with port", "grpc": `endpointslice vllm-0: no port "grpc"`,
	} {
		if specs, skipped := sliceWorkers(all, discovery.Template{}, port); len(specs) > 0 || len(skipped) != 1 || skipped[0].Error() != want {
			t.Errorf("%q: %s %v", port, show(specs), skipped)
		}
	}
	names := strings.Replace(fmt.Sprintf(sliceManifest, "names", "FQDN"), "endpoints:", "endpoints: [{addresses: [a.test]}]", 1)
	if _, err := readSlice(object(t, names)); err == nil {
		t.Error("names were taken for addresses")
	}
}

func TestTwoPodsAtOneAddressAreTheOneThatServes(t *testing.T) {
	var f discovery.Finding
	unique(&f, []discovery.Spec{
		{Address: "10.77.0.1:8000", Drain: true, Note: "pod old is terminating", Incarnation: 1},
		{Address: "10.77.0.1:8000", Incarnation: 2},
		{Address: "10.77.0.1:8000", Drain: true, Note: "pod older is terminating", Incarnation: 3},
	})
	if len(f.Workers) != 1 || f.Workers[0].Incarnation != 2 || fmt.Sprint(f.Skipped) != "[10.77.0.1:8000 has another worker: pod old is terminating 10.77.0.1:8000 has another worker: pod older is terminating]" {
		t.Errorf("%+v", f)
	}
}

const poolManifest = `
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: llama, namespace: llm}
spec:
  selector: {matchLabels: {app: vllm}}
  targetPorts: [{number: 8000}, {number: 8001}]
  endpointPickerRef: {name: epp, port: {number: 9002}}
`

func TestAnInferencePoolSaysWhichPodsAtWhichPorts(t *testing.T) {
	p, err := readPool(object(t, poolManifest))
	if err != nil || p.selector != "app=vllm" || fmt.Sprint(p.ports) != "[8000 8001]" {
		t.Errorf("%+v %v", p, err)
	}
	for cut, want := range map[string]string{
		"{app: vllm}":      "spec.selector.matchLabels is empty",
		"{number: 8000}, ": "",
		"number: 8001":     "spec.targetPorts[1] has no number",
		"matchLabels":      "spec.selector.matchLabels is empty",
	} {
		p, err := readPool(object(t, strings.Replace(poolManifest, cut, map[string]string{"{app: vllm}": "{}", "number: 8001": "n: 1", "matchLabels": "others"}[cut], 1)))
		if (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("without %s: %+v %v", cut, p, err)
		}
	}
}
