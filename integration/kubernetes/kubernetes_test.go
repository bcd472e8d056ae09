//go:build kube

package kubernetes

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/warmpath/warmpath/control/discovery"
)

// soon is what a change may take from the write to the list.
const soon = time.Second

func TestPodsComeDrainAndGoWithinASecond(t *testing.T) {
	ns := namespace(t, "pods")
	f := follow(t, discovery.Kubernetes{Namespace: ns, Pods: "app=vllm", Ports: []uint16{8000}})
	f.await("")
	pod(t, ns, "other", "{app: another}")
	status(t, ns, "other", "10.77.9.9", true)
	all := map[string]times{}
	timed := func(what, want string, change func()) {
		t.Helper()
		begin := time.Now()
		change()
		f.await(want)
		all[what] = append(all[what], time.Since(begin))
	}
	for i := range 40 {
		name, ip := fmt.Sprint("w", i), fmt.Sprint("10.77.1.", i)
		at := ip + ":8000"
		pod(t, ns, name, "{app: vllm}")
		timed("comes", at, func() { status(t, ns, name, ip, true) })
		timed("isn't ready", at+" drained", func() { status(t, ns, name, ip, false) })
		if note := f.latest.Workers[0].Note; note != "pod "+name+" is not ready: probe says False" {
			t.Errorf("note %q", note)
		}
		timed("is ready again", at, func() { status(t, ns, name, ip, true) })
		timed("is relabelled", "", func() { patch(t, pods, ns, name, "metadata: {labels: {app: another}}") })
		timed("comes back", at, func() { patch(t, pods, ns, name, "metadata: {labels: {app: vllm}}") })
		timed("terminates", at+" drained", func() { end(t, ns, name, 60) })
		timed("is gone", "", func() { end(t, ns, name, 0) })
	}
	for what, d := range all {
		t.Logf("a pod %s: %v", what, d)
		if d.worst() > soon {
			t.Errorf("a pod %s: %v", what, d)
		}
	}
}

func TestEndpointsOfAServiceComeDrainAndGoWithinASecond(t *testing.T) {
	ns := namespace(t, "slices")
	f := follow(t, discovery.Kubernetes{Namespace: ns, Service: "vllm", Port: "http"})
	f.await("")
	create(t, endpointSlices, ns, `{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: other, labels: {kubernetes.io/service-name: other}},
		addressType: IPv4, ports: [{name: http, port: 8000}], endpoints: [{addresses: [10.77.9.9]}]}`)
	create(t, endpointSlices, ns, `{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: vllm-1, labels: {kubernetes.io/service-name: vllm}},
		addressType: IPv4, ports: [{name: http, port: 8000}, {name: metrics, port: 9000}], endpoints: []}`)
	var all times
	timed := func(want, endpoints string) {
		t.Helper()
		begin := time.Now()
		patch(t, endpointSlices, ns, "vllm-1", "endpoints: "+endpoints)
		f.await(want)
		all = append(all, time.Since(begin))
	}
	for i := range 30 {
		target := fmt.Sprintf("targetRef: {kind: Pod, name: w, uid: u%d}", i)
		timed("10.77.2.1:8000", "[{addresses: [10.77.2.1], conditions: {ready: true, serving: true}, "+target+"}]")
		timed("10.77.2.1:8000 drained", "[{addresses: [10.77.2.1], conditions: {ready: false, serving: true, terminating: true}, "+target+"}]")
		timed("10.77.2.2:8000", "[{addresses: [10.77.2.2], conditions: {ready: true}}]")
		timed("", "[]")
	}
	t.Logf("an endpoint changes: %v", all)
	if all.worst() > soon {
		t.Errorf("an endpoint changes: %v", all)
	}
}

// TestARolloutOfManyPodsIsFollowed replaces 200 pods at once.
func TestARolloutOfManyPodsIsFollowed(t *testing.T) {
	ns := namespace(t, "rollout")
	f := follow(t, discovery.Kubernetes{Namespace: ns, Pods: "app=vllm", Ports: []uint16{8000}})
	f.await("")
	const n, atOnce = 200, 16
	subnet := map[string]string{"a": "10.77.7.", "b": "10.77.8."}
	// all does something to every pod of a revision, several at a time.
	all := func(revision string, do func(name, ip string)) {
		group, limit := sync.WaitGroup{}, make(chan struct{}, atOnce)
		for i := range n {
			limit <- struct{}{}
			group.Go(func() {
				defer func() { <-limit }()
				do(fmt.Sprint(revision, i), fmt.Sprint(subnet[revision], i))
			})
		}
		group.Wait()
	}
	addresses := func(revision string) string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprint(subnet[revision], i, ":8000"))
		}
		slices.Sort(out)
		return strings.Join(out, ", ")
	}
	for _, revision := range []string{"a", "b"} {
		begin := time.Now()
		all(revision, func(name, ip string) {
			pod(t, ns, name, "{app: vllm}")
			status(t, ns, name, ip, true)
		})
		if revision == "b" {
			all("a", func(name, _ string) { end(t, ns, name, 0) })
		}
		written := time.Since(begin)
		took := f.await(addresses(revision))
		t.Logf("revision %s: written in %v, the list was whole %v later", revision, written.Round(time.Millisecond), took.Round(time.Millisecond/10))
		if took > 3*soon { // the test reads every list of hundreds, too
			t.Errorf("the list was whole %v after the last write", took)
		}
	}
}

// TestAPodThatComesBackUnderItsNameIsAnotherWorker: the same name, the same
// address, another uid.
func TestAPodThatComesBackUnderItsNameIsAnotherWorker(t *testing.T) {
	ns := namespace(t, "uids")
	f := follow(t, discovery.Kubernetes{Namespace: ns, Pods: "app=vllm", Ports: []uint16{8000}})
	seen := map[uint64]bool{}
	for range 5 {
		pod(t, ns, "vllm-0", "{app: vllm}")
		status(t, ns, "vllm-0", "10.77.3.1", true)
		f.await("10.77.3.1:8000")
		seen[f.latest.Workers[0].Incarnation] = true
		end(t, ns, "vllm-0", 0)
		f.await("")
	}
	if len(seen) != 5 || seen[0] {
		t.Errorf("incarnations %v", seen)
	}
}

func TestAnInferencePoolSelectsLive(t *testing.T) {
	ns := namespace(t, "gie")
	f := follow(t, discovery.Kubernetes{Namespace: ns, InferencePool: "llama"})
	f.await("")
	for name, ip := range map[string]string{"a": "10.77.4.1", "b": "10.77.4.2", "c": "10.77.4.3"} {
		pod(t, ns, name, map[string]string{"a": "{app: vllm}", "b": "{app: vllm}", "c": "{app: sglang}"}[name])
		status(t, ns, name, ip, true)
	}
	var all times
	timed := func(want string, change func()) {
		t.Helper()
		begin := time.Now()
		change()
		f.await(want)
		all = append(all, time.Since(begin))
	}
	for range 5 {
		timed("10.77.4.1:8000, 10.77.4.2:8000", func() {
			create(t, pools, ns, `{apiVersion: inference.networking.k8s.io/v1, kind: InferencePool, metadata: {name: llama},
				spec: {selector: {matchLabels: {app: vllm}}, targetPorts: [{number: 8000}], endpointPickerRef: {name: epp, port: {number: 9002}}}}`)
		})
		if pool := f.latest.Workers[0].Pool; pool != "llama" {
			t.Errorf("pool %q", pool)
		}
		timed("10.77.4.3:8000", func() { patch(t, pools, ns, "llama", "spec: {selector: {matchLabels: {app: sglang}}}") })
		timed("10.77.4.3:8000, 10.77.4.3:8001", func() { patch(t, pools, ns, "llama", "spec: {targetPorts: [{number: 8000}, {number: 8001}]}") })
		timed("10.77.4.3:8000 drained, 10.77.4.3:8001 drained", func() { status(t, ns, "c", "10.77.4.3", false) })
		timed("10.77.4.3:8000, 10.77.4.3:8001", func() { status(t, ns, "c", "10.77.4.3", true) })
		timed("", func() {
			if err := admin.Resource(pools).Namespace(ns).Delete(t.Context(), "llama", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Logf("an InferencePool changes: %v", all)
	if all.worst() > soon {
		t.Errorf("an InferencePool changes: %v", all)
	}
}

// TestAnAPIServerRestartLosesNothing kills the API server under the watches.
func TestAnAPIServerRestartLosesNothing(t *testing.T) {
	ns := namespace(t, "restart")
	byPods := follow(t, discovery.Kubernetes{Namespace: ns, Pods: "app=vllm", Ports: []uint16{8000}})
	bySlices := follow(t, discovery.Kubernetes{Namespace: ns, Service: "vllm"})
	for i := range 3 {
		name := fmt.Sprint("w", i)
		pod(t, ns, name, "{app: vllm}")
		status(t, ns, name, fmt.Sprint("10.77.5.", i), true)
	}
	create(t, endpointSlices, ns, `{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: vllm-1, labels: {kubernetes.io/service-name: vllm}},
		addressType: IPv4, ports: [{port: 8000}], endpoints: [{addresses: [10.77.5.0]}]}`)
	before := "10.77.5.0:8000, 10.77.5.1:8000, 10.77.5.2:8000"
	byPods.await(before)
	bySlices.await("10.77.5.0:8000")

	lists := discovery.NewLists("pods")
	if _, _, err := lists.Tell("pods", byPods.latest, time.Now()); err != nil {
		t.Fatal(err)
	}
	cluster.StopAPIServer()
	t.Logf("its end is told after %v", byPods.await("can the API server at https://127.0.0.1"))
	bySlices.await("can the API server at https://127.0.0.1")
	if joined, changed, err := lists.Tell("pods", byPods.latest, time.Now()); changed || err != nil {
		t.Errorf("the end of the API server changed the list to %v, %v", joined, err)
	}
	begin := time.Now()
	if err := cluster.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	ready := time.Now()
	// What happens before the watches are back must not be missed.
	end(t, ns, "w1", 0)
	status(t, ns, "w2", "10.77.5.2", false)
	patch(t, endpointSlices, ns, "vllm-1", "endpoints: [{addresses: [10.77.5.7]}]")
	byPods.await("10.77.5.0:8000, 10.77.5.2:8000 drained")
	bySlices.await("10.77.5.7:8000")
	t.Logf("the API server was ready after %v, lists of now %v later", ready.Sub(begin).Round(time.Millisecond), time.Since(ready).Round(time.Millisecond))
	if since := time.Since(ready); since > 5*time.Second {
		t.Errorf("lists of now came %v after the API server", since)
	}
}
