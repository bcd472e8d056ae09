//go:build kube

package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/control/discovery/kubernetes"
)

// gieModule has the InferencePool's definition.
const gieModule = "sigs.k8s.io/gateway-api-inference-extension@v1.5.0"

var (
	cluster *Cluster
	admin   dynamic.Interface
)

func TestMain(m *testing.M) {
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runAll(m *testing.M) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	bin, err := Build(ctx, func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) })
	if err != nil {
		return 1, err
	}
	dir, err := os.MkdirTemp("", "warmpath-kubernetes-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	begin := time.Now()
	if cluster, err = Start(ctx, bin, dir); err != nil {
		return 1, err
	}
	defer cluster.Stop()
	fmt.Fprintf(os.Stderr, "API server ready after %.1f s\n", time.Since(begin).Seconds())
	if admin, err = clientOf(cluster.Kubeconfig); err != nil {
		return 1, err
	}
	if err := define(ctx, filepath.Join("config", "crd", "bases", "inference.networking.k8s.io_inferencepools.yaml")); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

func clientOf(kubeconfig string) (dynamic.Interface, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg.QPS, cfg.Burst = 1000, 1000
	return dynamic.NewForConfig(cfg)
}

// define installs a definition of gieModule and waits until it is served.
func define(ctx context.Context, path string) error {
	dir, err := ModuleDir(ctx, gieModule)
	if err != nil {
		return err
	}
	docs, err := documents(filepath.Join(dir, path))
	if err != nil {
		return err
	}
	for _, crd := range docs {
		if _, err := admin.Resource(resourceOf(crd)).Create(ctx, crd, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("define %s: %w", crd.GetName(), err)
		}
	}
	for ctx.Err() == nil {
		if _, err = admin.Resource(pools).Namespace("default").List(ctx, metav1.ListOptions{}); err == nil {
			return nil
		}
		pause(ctx, 50*time.Millisecond)
	}
	return fmt.Errorf("InferencePools aren't served: %w", err)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

var (
	pods           = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	endpointSlices = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
	pools          = schema.GroupVersionResource{Group: "inference.networking.k8s.io", Version: "v1", Resource: "inferencepools"}
)

// documents reads the objects of a manifest.
func documents(path string) ([]*unstructured.Unstructured, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parse(data)
}

func parse(data []byte) (out []*unstructured.Unstructured, err error) {
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		u := &unstructured.Unstructured{}
		if err := decoder.Decode(&u.Object); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		if len(u.Object) > 0 {
			out = append(out, u)
		}
	}
}

// resourceOf is the plural of a kind, as all kinds here form it.
func resourceOf(u *unstructured.Unstructured) schema.GroupVersionResource {
	gvk := u.GroupVersionKind()
	return gvk.GroupVersion().WithResource(strings.ToLower(gvk.Kind) + "s")
}

// namespace makes a namespace of the test's own.
func namespace(t *testing.T, name string) string {
	t.Helper()
	ns := object(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+name+"}}")
	if _, err := admin.Resource(resourceOf(ns)).Create(t.Context(), ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	return name
}

func object(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	docs, err := parse([]byte(manifest))
	if err != nil || len(docs) != 1 {
		t.Fatalf("%d documents, %v", len(docs), err)
	}
	return docs[0]
}

// create makes an object and returns it as the server has it.
func create(t *testing.T, gvr schema.GroupVersionResource, ns, manifest string) *unstructured.Unstructured {
	t.Helper()
	u, err := admin.Resource(gvr).Namespace(ns).Create(t.Context(), object(t, manifest), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// patch merges into an object, or into its status.
func patch(t *testing.T, gvr schema.GroupVersionResource, ns, name, manifest string, subresource ...string) {
	t.Helper()
	text, err := yaml.YAMLToJSON([]byte("{" + manifest + "}"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Resource(gvr).Namespace(ns).Patch(t.Context(), name, types.MergePatchType, text, metav1.PatchOptions{}, subresource...); err != nil {
		t.Fatalf("patch %s: %v", name, err)
	}
}

// pod makes a pod on a node that doesn't exist.
func pod(t *testing.T, ns, name, labels string) *unstructured.Unstructured {
	t.Helper()
	return create(t, pods, ns, `{apiVersion: v1, kind: Pod, metadata: {name: `+name+`, labels: `+labels+`},
		spec: {nodeName: none, containers: [{name: engine, image: x, ports: [{containerPort: 8000}]}]}}`)
}

// status writes what a kubelet would.
func status(t *testing.T, ns, name, ip string, ready bool) {
	t.Helper()
	condition := map[bool]string{true: "True", false: "False"}[ready]
	patch(t, pods, ns, name, `status: {phase: Running, podIP: `+ip+`, podIPs: [{ip: `+ip+`}], conditions: [{type: Ready, status: "`+condition+`", message: "probe says `+condition+`"}]}`, "status")
}

// end begins or, without grace, finishes the deletion of a pod.
func end(t *testing.T, ns, name string, grace int64) {
	t.Helper()
	if err := admin.Resource(pods).Namespace(ns).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
		t.Fatal(err)
	}
}

// follower is a source with what it found.
type follower struct {
	t      *testing.T
	found  chan discovery.Finding
	latest discovery.Finding
	cancel context.CancelFunc
	done   chan error
}

func follow(t *testing.T, cfg discovery.Kubernetes) *follower {
	t.Helper()
	if cfg.Kubeconfig == "" {
		cfg.Kubeconfig = cluster.Kubeconfig
	}
	source, err := kubernetes.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &follower{t: t, found: make(chan discovery.Finding, 1000), cancel: cancel, done: make(chan error, 1)}
	go func() { f.done <- source.Run(ctx, func(d discovery.Finding) { f.found <- d }) }()
	t.Cleanup(f.stop)
	return f
}

func (f *follower) stop() {
	if f.cancel == nil {
		return
	}
	f.cancel()
	f.cancel = nil
	if err := <-f.done; err != nil {
		f.t.Error(err)
	}
}

// show writes a finding shortly; an error by its text.
func show(d discovery.Finding) string {
	if d.Err != nil {
		return d.Err.Error()
	}
	var out []string
	for _, s := range d.Workers {
		text := s.Address
		if s.Drain {
			text += " drained"
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// await returns how long it took until the source found want: a list as show
// writes it, or a part of an error.
func (f *follower) await(want string) time.Duration {
	f.t.Helper()
	begin := time.Now()
	for deadline := time.After(30 * time.Second); ; {
		select {
		case f.latest = <-f.found:
			if got := show(f.latest); got == want || f.latest.Err != nil && want != "" && strings.Contains(got, want) {
				return time.Since(begin)
			}
		case <-deadline:
			f.t.Fatalf("found %s (left out: %v), want %s", show(f.latest), f.latest.Skipped, want)
		}
	}
}

// times are latencies of one kind.
type times []time.Duration

func (d times) String() string {
	s := slices.Clone(d)
	slices.Sort(s)
	return fmt.Sprintf("median %v, worst %v of %d", s[len(s)/2].Round(time.Millisecond/10), s[len(s)-1].Round(time.Millisecond/10), len(s))
}

func (d times) worst() time.Duration { return slices.Max(d) }
