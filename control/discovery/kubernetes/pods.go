package kubernetes

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
	"go.yaml.in/yaml/v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/warmpath/warmpath/control/discovery"
)

var podResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// Prefix of the annotations and labels that set a worker up. An annotation wins
// over the label of the same name, both over the source's configuration.
const Prefix = "warmpath.dev/"

// settingNames are the settings that apply sets; pods have podSettings too.
var (
	settingNames = []string{"block-tokens", "capacity-tokens", "kv-events", "max-running", "model", "pool", "prefill-tokens-per-second", "queue-limit", "ranks"}
	podSettings  = append([]string{"dp-rank", "drain", "ports"}, settingNames...)
)

// unknown are the settings of an object that nobody knows: mistyped, mostly.
func unknown(object string, settings map[string]string, known []string) (out []error) {
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if !slices.Contains(known, name) {
			out = append(out, fmt.Errorf("%s: %s%s is ignored: no such setting; there are %s", object, Prefix, name, strings.Join(known, ", ")))
		}
	}
	return out
}

// pod is what matters of a Pod.
type pod struct {
	name, uid string
	ip        netip.Addr // the primary one; invalid before there is one
	over      bool       // succeeded or failed
	drain     string     // why no new requests go there; "" they do
	settings  map[string]string
	ports     map[uint16]int // container ports -> index of the container
	restarts  []int32        // of each container
}

// readPod is the only reader of Pod objects.
func readPod(u *unstructured.Unstructured) (pod, error) {
	var p corev1.Pod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &p); err != nil {
		return pod{}, err
	}
	out := pod{
		name: p.Name, uid: string(p.UID), over: p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
		settings: settingsOf(p.Labels, p.Annotations), ports: map[uint16]int{}, restarts: make([]int32, len(p.Spec.Containers)),
	}
	if p.Status.PodIP != "" {
		var err error
		if out.ip, err = netip.ParseAddr(p.Status.PodIP); err != nil {
			return pod{}, err
		}
	}
	ready := corev1.PodCondition{Status: corev1.ConditionUnknown}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			ready = c
		}
	}
	switch {
	case p.DeletionTimestamp != nil:
		out.drain = "pod " + p.Name + " is terminating"
	case ready.Status != corev1.ConditionTrue:
		out.drain = "pod " + p.Name + " is not ready"
		if detail := cmp.Or(ready.Message, ready.Reason); detail != "" {
			out.drain += ": " + detail
		}
	}
	for i, c := range p.Spec.Containers {
		for _, port := range c.Ports {
			out.ports[uint16(port.ContainerPort)] = i
		}
		for _, s := range p.Status.ContainerStatuses {
			if s.Name == c.Name {
				out.restarts[i] = s.RestartCount
			}
		}
	}
	return out, nil
}

// settingsOf joins what begins with Prefix, without it.
func settingsOf(labels, annotations map[string]string) map[string]string {
	out := map[string]string{}
	for _, from := range []map[string]string{labels, annotations} {
		for key, value := range from {
			if name, ok := strings.CutPrefix(key, Prefix); ok {
				out[name] = value
			}
		}
	}
	return out
}

// workers are the pod's engines: one for each port, each a rank of its own.
func (p *pod) workers(t discovery.Template, ports []uint16) ([]discovery.Spec, error) {
	if p.over || !p.ip.IsValid() {
		return nil, nil
	}
	rank, drain := 0, p.drain
	for name, value := range p.settings {
		var err error
		switch name {
		case "ports":
			ports, err = readPorts(value)
		case "dp-rank":
			rank, err = readNumber(value, 65535)
		case "drain":
			var on bool
			if on, err = strconv.ParseBool(value); on {
				drain = cmp.Or(drain, "pod "+p.name+" has "+Prefix+"drain")
			}
		default:
			err = apply(&t, name, value)
		}
		if err != nil {
			return nil, fmt.Errorf("pod %s: %s%s: %w", p.name, Prefix, name, err)
		}
	}
	var out []discovery.Spec
	for i, port := range ports {
		s, err := t.Spec(p.ip, port, rank+i)
		if err != nil {
			return nil, fmt.Errorf("pod %s: %w", p.name, err)
		}
		s.Drain, s.Note, s.Incarnation = drain != "", drain, p.incarnation(port)
		out = append(out, s)
	}
	return out, nil
}

// apply sets one field of t.
func apply(t *discovery.Template, name, value string) (err error) {
	switch name {
	case "pool":
		t.Pool = value
	case "model":
		t.KVEvents.Model = value
	case "max-running":
		t.MaxRunning, err = readNumber(value, 65535)
	case "queue-limit":
		t.QueueLimit, err = readNumber(value, 65535)
	case "ranks":
		t.Ranks, err = readNumber(value, discovery.MaxRanks)
	case "capacity-tokens":
		t.CapacityTokens, err = readNumber(value, 1<<31)
	case "block-tokens":
		t.BlockTokens, err = readNumber(value, 65535)
	case "prefill-tokens-per-second":
		t.PrefillTokensPerSecond, err = strconv.ParseFloat(value, 64)
	case "kv-events":
		model := t.KVEvents.Model
		t.KVEvents = discovery.KVEvents{}
		err = yaml.Unmarshal([]byte(value), &t.KVEvents)
		t.KVEvents.Model = cmp.Or(t.KVEvents.Model, model)
	}
	return err
}

func readNumber(text string, most int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > most {
		return 0, fmt.Errorf("%q is not a number of 0 to %d", text, most)
	}
	return n, nil
}

func readPorts(text string) ([]uint16, error) {
	var out []uint16
	for _, field := range strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == ' ' }) {
		n, err := readNumber(field, 65535)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("%q is not a port", field)
		}
		out = append(out, uint16(n))
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%q names no port", text)
	}
	return out, nil
}

// incarnation is another one after each restart of the container behind port:
// the one that declares it, or the only one.
func (p *pod) incarnation(port uint16) uint64 {
	restarts := int32(0)
	if i, declared := p.ports[port]; declared {
		restarts = p.restarts[i]
	} else if len(p.restarts) == 1 {
		restarts = p.restarts[0]
	}
	return incarnation(p.uid, restarts)
}

func incarnation(uid string, restarts int32) uint64 {
	if uid == "" {
		return 0
	}
	return xxhash.Sum64(binary.LittleEndian.AppendUint32([]byte(uid), uint32(restarts))) | 1
}
