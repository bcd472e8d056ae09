package kubernetes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/warmpath/warmpath/control/discovery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is a fake API server and a source that follows it.
type cluster struct {
	t       *testing.T
	client  *fake.FakeDynamicClient
	watched chan string // resource of each watch that began
	found   chan discovery.Finding

	mu       sync.Mutex
	fail     error // of every call
	watchers []watch.Interface
}

func startCluster(t *testing.T, cfg discovery.Kubernetes, objects ...runtime.Object) *cluster {
	t.Helper()
	cfg.Namespace = "llm"
	if err := cfg.Check(); err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, watched: make(chan string, 100), found: make(chan discovery.Finding, 100)}
	c.client = fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		podResource: "PodList", sliceResource: "EndpointSliceList", poolResource: "InferencePoolList",
	}, objects...)
	c.client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		err := c.failing()
		return err != nil, nil, err
	})
	c.client.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		if err := c.failing(); err != nil {
			return true, nil, err
		}
		gvr := action.GetResource()
		w, err := c.client.Tracker().Watch(gvr, action.GetNamespace())
		if err != nil {
			return true, nil, err
		}
		c.mu.Lock()
		c.watchers = append(c.watchers, w)
		c.mu.Unlock()
		c.watched <- gvr.Resource
		return true, w, nil
	})
	source := &Source{cfg: cfg, client: c.client, host: "https://fake"}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- source.Run(ctx, func(f discovery.Finding) { c.found <- f }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return c
}

func (c *cluster) failing() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fail
}

// breakWith makes every call fail and ends the watches; nil mends it.
func (c *cluster) breakWith(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail = err
	if err != nil {
		for _, w := range c.watchers {
			w.Stop()
		}
		c.watchers = nil
	}
}

// watching waits until a watch of the resource runs: the fake tells only of what
// happens then.
func (c *cluster) watching(resource string) {
	c.t.Helper()
	for {
		select {
		case r := <-c.watched:
			if r == resource {
				return
			}
		case <-time.After(20 * time.Second):
			c.t.Fatal("no watch of", resource)
		}
	}
}

// await waits for a list (or error) that reads as want.
func (c *cluster) await(want string) discovery.Finding {
	c.t.Helper()
	last := "nothing"
	for {
		select {
		case f := <-c.found:
			if last = show(f.Workers); f.Err != nil {
				last = f.Err.Error()
			}
			if last == want || f.Err != nil && want != "" && strings.Contains(last, want) {
				return f
			}
		case <-time.After(20 * time.Second):
			c.t.Fatalf("found %s, want %s", last, want)
		}
	}
}

func (c *cluster) put(gvr schema.GroupVersionResource, u *unstructured.Unstructured) {
	c.t.Helper()
	resource := c.client.Resource(gvr).Namespace("llm")
	_, err := resource.Update(c.t.Context(), u, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = resource.Create(c.t.Context(), u, metav1.CreateOptions{})
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) remove(gvr schema.GroupVersionResource, name string) {
	c.t.Helper()
	if err := c.client.Resource(gvr).Namespace("llm").Delete(c.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func TestPodsComeDrainAndGo(t *testing.T) {
	c := startCluster(t, discovery.Kubernetes{Pods: "app=vllm", Ports: []uint16{8000}}, podAt(t, "a", "10.77.0.1"))
	c.await("10.77.0.1:8000 default")
	c.watching("pods")
	c.put(podResource, podAt(t, "b", "10.77.0.2"))
	c.await("10.77.0.1:8000 default, 10.77.0.2:8000 default")
	c.put(podResource, podAt(t, "b", "10.77.0.2", "metadata|deletionTimestamp", "2026-11-30T00:00:00Z"))
	c.await("10.77.0.1:8000 default, 10.77.0.2:8000 default drained")
	c.remove(podResource, "b")
	c.await("10.77.0.1:8000 default")
	c.put(podResource, podAt(t, "bad", "10.77.0.3", "metadata|annotations|"+Prefix+"pool", "NO"))
	if f := c.await("10.77.0.1:8000 default"); len(f.Skipped) != 1 || !strings.Contains(f.Skipped[0].Error(), "pod bad") {
		t.Errorf("skipped %v", f.Skipped)
	}
	c.remove(podResource, "bad")
	c.remove(podResource, "a")
	if f := c.await(""); len(f.Skipped) != 1 || f.Skipped[0].Error() != "no pod matches the selector" {
		t.Errorf("skipped %v", f.Skipped)
	}
}

// restless always has another list.
type restless struct{}

func (restless) run(ctx context.Context) { <-ctx.Done() }

func (restless) find() (discovery.Finding, bool) { return discovery.Finding{}, true }

// TestAListIsToldWhilePodsKeepChanging: statuses of a large fleet never rest.
func TestAListIsToldWhilePodsKeepChanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for work, want := range map[time.Duration]int{0: 49, 10 * time.Millisecond: 10} {
			ctx, cancel := context.WithCancel(t.Context())
			wake, told := make(chan struct{}), 0
			go func() {
				defer cancel()
				for end := time.Now().Add(time.Second); time.Now().Before(end); {
					time.Sleep(time.Millisecond)
					wake <- struct{}{}
				}
			}()
			if err := follow(ctx, restless{}, wake, func(discovery.Finding) { told++; time.Sleep(work) }); err != nil {
				t.Fatal(err)
			}
			if told < want-1 || told > want+1 {
				t.Errorf("told %d times in a second of changes, each %v of work", told, work)
			}
		}
		// Without changes the list is told again, so that its age tells.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute+time.Second)
		defer cancel()
		told := 0
		if err := follow(ctx, restless{}, nil, func(discovery.Finding) { told++ }); err != nil {
			t.Fatal(err)
		}
		if told != 6 {
			t.Errorf("told %d times in a quiet minute", told)
		}
	})
}

func TestAnAPIServerThatIsAwayIsNamedAndItsReturnBringsTheListBack(t *testing.T) {
	c := startCluster(t, discovery.Kubernetes{Pods: "app=vllm", Ports: []uint16{8000}}, podAt(t, "a", "10.77.0.1"))
	c.await("10.77.0.1:8000 default")
	c.watching("pods")
	c.breakWith(errors.New("connection refused"))
	c.await("pods in llm: connection refused (is the API server at https://fake well?)")
	c.put(podResource, podAt(t, "b", "10.77.0.2")) // nobody is told
	c.breakWith(nil)
	c.await("10.77.0.1:8000 default, 10.77.0.2:8000 default")
}

func TestALackOfRightsSaysWhereToLook(t *testing.T) {
	c := startCluster(t, discovery.Kubernetes{Pods: "app=vllm", Ports: []uint16{8000}})
	c.breakWith(apierrors.NewForbidden(podResource.GroupResource(), "", errors.New(`User "system:serviceaccount:llm:warmpath" cannot list resource "pods"`)))
	c.await(`kubernetes: list pods in llm: pods is forbidden: User "system:serviceaccount:llm:warmpath" cannot list resource "pods" (check RBAC: examples/kubernetes/rbac.yaml)`)
	c.breakWith(nil)
	c.await("")
}

func TestEndpointsOfAServiceComeAndGo(t *testing.T) {
	endpoints := func(list string) *unstructured.Unstructured {
		return object(t, strings.Replace(strings.Replace(sliceManifest, "%s", "vllm-0", 1), "%s", "IPv4", 1)+list)
	}
	c := startCluster(t, discovery.Kubernetes{Service: "vllm", Port: "http", Template: discovery.Template{Pool: "chat"}})
	if f := c.await(""); len(f.Skipped) != 1 || f.Skipped[0].Error() != "no EndpointSlice: is there a Service llm/vllm?" {
		t.Errorf("skipped %v", f.Skipped)
	}
	c.watching("endpointslices")
	c.put(sliceResource, endpoints("- {addresses: [10.77.0.1], targetRef: {kind: Pod, name: a, uid: u1}}"))
	first := c.await("10.77.0.1:8000 chat")
	c.put(sliceResource, endpoints("- {addresses: [10.77.0.1], targetRef: {kind: Pod, name: a, uid: u1}, conditions: {ready: false, serving: true, terminating: true}}"))
	c.await("10.77.0.1:8000 chat drained")
	c.put(sliceResource, endpoints("- {addresses: [10.77.0.1], targetRef: {kind: Pod, name: a, uid: u2}}"))
	if second := c.await("10.77.0.1:8000 chat"); second.Workers[0].Incarnation == first.Workers[0].Incarnation {
		t.Error("another pod at the same address is taken for the same worker")
	}
	c.remove(sliceResource, "vllm-0")
	c.await("")
}

func TestAnInferencePoolIsFollowedWithWhatItSelects(t *testing.T) {
	other := podAt(t, "b", "10.77.0.2", "metadata|labels|app", "sglang")
	c := startCluster(t, discovery.Kubernetes{InferencePool: "llama"}, podAt(t, "a", "10.77.0.1"), other)
	if f := c.await(""); len(f.Skipped) != 1 || f.Skipped[0].Error() != "there is no InferencePool llm/llama" {
		t.Errorf("skipped %v", f.Skipped)
	}
	c.watching("inferencepools")
	pool := object(t, poolManifest)
	c.put(poolResource, pool)
	c.await("10.77.0.1:8000 default, 10.77.0.1:8001 default")
	c.watching("pods")

	edit := func(change func(spec map[string]any)) {
		pool = pool.DeepCopy()
		change(pool.Object["spec"].(map[string]any))
		c.put(poolResource, pool)
	}
	edit(func(spec map[string]any) { spec["targetPorts"] = []any{map[string]any{"number": int64(9000)}} })
	c.await("10.77.0.1:9000 default")
	edit(func(spec map[string]any) {
		spec["selector"] = map[string]any{"matchLabels": map[string]any{"app": "sglang"}}
	})
	c.await("10.77.0.2:9000 default")
	// A pool that can't be read keeps what it selected, and says so.
	edit(func(spec map[string]any) { delete(spec, "targetPorts") })
	for f := c.await("10.77.0.2:9000 default"); len(f.Skipped) == 0; f = c.await("10.77.0.2:9000 default") {
	}
	c.remove(poolResource, "llama")
	c.await("")
}

func TestAKubeconfigIsReadAndAMissingOneNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://10.0.0.1:6443'}}]\nusers: [{name: u, user: {token: t}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := discovery.Kubernetes{Namespace: "llm", InferencePool: "llama", Kubeconfig: path, Context: "x"}
	s, err := New(cfg)
	if err != nil || s.host != "https://10.0.0.1:6443" || s.Name() != "kubernetes inferencepool llm/llama in x" || s.cfg.Pool != "llama" {
		t.Errorf("%+v %v", s, err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for want, bad := range map[string]discovery.Kubernetes{
		"read kubeconfig":    {Namespace: "llm", Service: "vllm", Kubeconfig: path + ".none"},
		"name a kubeconfig":  {Namespace: "llm", Service: "vllm"},
		"namespace: missing": {Service: "vllm", Kubeconfig: path},
		"2 of pods, service": {Namespace: "llm", Service: "vllm", Pods: "a=b", Ports: []uint16{1}, Kubeconfig: path},
		"ports: missing":     {Namespace: "llm", Pods: "a=b", Kubeconfig: path},
		"given without pods": {Namespace: "llm", Service: "vllm", Ports: []uint16{1}, Kubeconfig: path},
		"given without serv": {Namespace: "llm", Pods: "a=b", Ports: []uint16{1}, Port: "http", Kubeconfig: path},
		"label selector, as": {Namespace: "llm", Pods: "a=b=c", Ports: []uint16{1}, Kubeconfig: path},
		"is not a pool name": {Namespace: "llm", Pods: "a=b", Ports: []uint16{1}, Kubeconfig: path, Template: discovery.Template{Pool: "A"}},
	} {
		if _, err := New(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
