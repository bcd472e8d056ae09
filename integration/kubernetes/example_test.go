//go:build kube

package kubernetes

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"

	"github.com/warmpath/warmpath/control"
	"github.com/warmpath/warmpath/control/discovery"
)

func example(t *testing.T, name string) []*unstructured.Unstructured {
	t.Helper()
	docs, err := documents(filepath.Join("..", "..", "examples", "kubernetes", name))
	if err != nil {
		t.Fatal(err)
	}
	return docs
}

// applyRBAC puts the example's rights into a namespace of its own and returns a
// kubeconfig of its service account.
func applyRBAC(t *testing.T, ns string, change func(*unstructured.Unstructured)) (kubeconfig string) {
	t.Helper()
	namespace(t, ns)
	for _, u := range example(t, "rbac.yaml") {
		u.SetNamespace(ns)
		if subjects, ok := u.Object["subjects"].([]any); ok {
			subjects[0].(map[string]any)["namespace"] = ns
		}
		change(u)
		if _, err := admin.Resource(resourceOf(u)).Namespace(ns).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Fatalf("create %s: %v", u.GetName(), err)
		}
	}
	token := object(t, `{apiVersion: authentication.k8s.io/v1, kind: TokenRequest, metadata: {name: warmpath-control}, spec: {expirationSeconds: 3600}}`)
	accounts := schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	answer, err := admin.Resource(accounts).Namespace(ns).Create(t.Context(), token, metav1.CreateOptions{}, "token")
	if err != nil {
		t.Fatal(err)
	}
	text, _, err := unstructured.NestedString(answer.Object, "status", "token")
	if err != nil {
		t.Fatal(err)
	}
	if kubeconfig, err = cluster.KubeconfigOf(ns, text); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

func as(t *testing.T, kubeconfig string) dynamic.Interface {
	t.Helper()
	client, err := clientOf(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// kinds are the three ways to find workers, in a namespace.
func kinds(ns, kubeconfig string) map[string]discovery.Kubernetes {
	return map[string]discovery.Kubernetes{
		"pods":           {Namespace: ns, Kubeconfig: kubeconfig, Pods: "app=vllm", Ports: []uint16{8000}},
		"endpointslices": {Namespace: ns, Kubeconfig: kubeconfig, Service: "vllm"},
		"inferencepools": {Namespace: ns, Kubeconfig: kubeconfig, InferencePool: "llama"},
	}
}

func TestTheExamplesRightsSuffice(t *testing.T) {
	ns := "rbac"
	kubeconfig := applyRBAC(t, ns, func(*unstructured.Unstructured) {})
	pod(t, ns, "w", "{app: vllm}")
	status(t, ns, "w", "10.77.6.1", true)
	create(t, endpointSlices, ns, `{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: vllm-1, labels: {kubernetes.io/service-name: vllm}},
		addressType: IPv4, ports: [{port: 8000}], endpoints: [{addresses: [10.77.6.1]}]}`)
	create(t, pools, ns, `{apiVersion: inference.networking.k8s.io/v1, kind: InferencePool, metadata: {name: llama},
		spec: {selector: {matchLabels: {app: vllm}}, targetPorts: [{number: 8000}], endpointPickerRef: {name: epp, port: {number: 9002}}}}`)
	for _, cfg := range kinds(ns, kubeconfig) {
		follow(t, cfg).await("10.77.6.1:8000")
	}
	// In another namespace they are none, and the error says what to do.
	for resource, cfg := range kinds(namespace(t, "elsewhere"), kubeconfig) {
		f := follow(t, cfg)
		f.await(resource + ` in elsewhere: ` + resource)
		for _, part := range []string{"forbidden", "system:serviceaccount:rbac:warmpath-control", "(check RBAC: examples/kubernetes/rbac.yaml)"} {
			if !strings.Contains(f.latest.Err.Error(), part) {
				t.Errorf("%v does not say %q", f.latest.Err, part)
			}
		}
	}
	// Nor does a stranger get in.
	stranger, err := cluster.KubeconfigOf("stranger", "no-such-token")
	if err != nil {
		t.Fatal(err)
	}
	follow(t, kinds(ns, stranger)["pods"]).await("doesn't accept the credentials")
}

// TestTheExampleGivesNoOtherRights asks the API server what the service account
// may do, beyond what everybody may.
func TestTheExampleGivesNoOtherRights(t *testing.T) {
	ns := "rights"
	client := as(t, applyRBAC(t, ns, func(*unstructured.Unstructured) {}))
	everybody := rightsOf(t, as(t, applyRBAC(t, "nobody", func(u *unstructured.Unstructured) {
		if u.GetKind() == "Role" {
			u.Object["rules"] = []any{}
		}
	})), "nobody")
	got := rightsOf(t, client, ns)
	maps.DeleteFunc(got, func(right string, _ bool) bool { return everybody[right] })
	want := []string{"list endpointslices", "list inferencepools", "list pods", "watch endpointslices", "watch inferencepools", "watch pods"}
	if have := slices.Sorted(maps.Keys(got)); !slices.Equal(have, want) {
		t.Errorf("beyond %d rights of everybody it may %v", len(everybody), have)
	}
	for _, resource := range []string{"secrets", "configmaps", "services", "serviceaccounts"} {
		_, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: resource}).Namespace(ns).List(t.Context(), metav1.ListOptions{})
		if !apierrors.IsForbidden(err) {
			t.Errorf("list %s: %v", resource, err)
		}
	}
	if _, err := client.Resource(pods).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("list pods everywhere: %v", err)
	}
}

// rightsOf are what the API server lets a client do in a namespace: "list pods".
func rightsOf(t *testing.T, client dynamic.Interface, ns string) map[string]bool {
	t.Helper()
	review := schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectrulesreviews"}
	answer, err := client.Resource(review).Create(t.Context(), object(t, `{apiVersion: authorization.k8s.io/v1, kind: SelfSubjectRulesReview, spec: {namespace: `+ns+`}}`), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rules, _, err := unstructured.NestedSlice(answer.Object, "status", "resourceRules")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, r := range rules {
		rule := r.(map[string]any)
		for _, resource := range rule["resources"].([]any) {
			for _, verb := range rule["verbs"].([]any) {
				out[fmt.Sprint(verb, " ", resource)] = true
			}
		}
	}
	return out
}

// TestEveryRightOfTheExampleIsNeeded takes one away at a time. An API server of
// today streams its lists, which needs no right to list; one that doesn't is
// played by a client that doesn't ask it to.
func TestEveryRightOfTheExampleIsNeeded(t *testing.T) {
	featurestesting.SetFeatureDuringTest(t, features.WatchListClient, false)
	for resource := range kinds("", "") {
		for _, verb := range []string{"list", "watch"} {
			ns := "without-" + verb + "-" + resource
			kubeconfig := applyRBAC(t, ns, func(u *unstructured.Unstructured) {
				rules, _ := u.Object["rules"].([]any)
				for _, r := range rules {
					if rule := r.(map[string]any); slices.Contains(rule["resources"].([]any), any(resource)) {
						rule["verbs"] = slices.DeleteFunc(rule["verbs"].([]any), func(v any) bool { return v == verb })
					}
				}
			})
			follow(t, kinds(ns, kubeconfig)[resource]).await(`cannot ` + verb + ` resource "` + resource + `"`)
		}
	}
}

// TestTheExamplesAreAccepted sends them as kubectl would, unknown fields
// refused.
func TestTheExamplesAreAccepted(t *testing.T) {
	namespace(t, "llm")
	for _, file := range []string{"rbac.yaml", "control.yaml"} {
		for _, u := range example(t, file) {
			client := admin.Resource(resourceOf(u)).Namespace(u.GetNamespace())
			if _, err := client.Create(t.Context(), u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}); err != nil {
				t.Errorf("%s: %s %s: %v", file, u.GetKind(), u.GetName(), err)
			}
		}
	}
}

// exampleConfig is the ConfigMap's control.yaml.
func exampleConfig(t *testing.T) (cfg control.Config, policy []byte) {
	t.Helper()
	for _, u := range example(t, "control.yaml") {
		if u.GetKind() != "ConfigMap" {
			continue
		}
		data, _, err := unstructured.NestedStringMap(u.Object, "data")
		if err != nil {
			t.Fatal(err)
		}
		// The Secret is a file that isn't here.
		text := strings.Replace(data["control.yaml"], "token_file: /etc/warmpath/token/token", "token: test", 1)
		if cfg, err = control.ParseConfig("control.yaml", []byte(text)); err != nil {
			t.Fatal(err)
		}
		return cfg, []byte(data["policy.yaml"])
	}
	t.Fatal("no ConfigMap in control.yaml")
	return cfg, nil
}
