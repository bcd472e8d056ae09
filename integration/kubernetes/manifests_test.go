//go:build kube

package kubernetes

import (
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestTheAPIServerTakesEveryExample as kubectl apply --server-side --dry-run=server
// gives it, and as kubectl create --validate=strict does: no field is unknown to it,
// and none has a value that it would refuse.
func TestTheAPIServerTakesEveryExample(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "examples", "kubernetes", "*.yaml"))
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	namespace(t, "llm")
	kinds := map[string]int{}
	for _, file := range files {
		for _, u := range example(t, filepath.Base(file)) {
			what := filepath.Base(file) + ": " + u.GetKind() + " " + u.GetName()
			kinds[u.GetKind()]++
			if u.GetNamespace() != "llm" {
				t.Errorf("%s: in namespace %q", what, u.GetNamespace())
				continue
			}
			client := admin.Resource(resourceOf(u)).Namespace("llm")
			if _, err := client.Create(t.Context(), u.DeepCopy(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}); err != nil {
				t.Errorf("%s: create: %v", what, err)
			}
			if _, err := client.Apply(t.Context(), u.GetName(), u.DeepCopy(), metav1.ApplyOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: "test"}); err != nil {
				t.Errorf("%s: apply: %v", what, err)
			}
		}
	}
	t.Log(kinds)
	if kinds["StatefulSet"] == 0 || kinds["PodDisruptionBudget"] == 0 {
		t.Error("the replicas' StatefulSet was not among them: the test tests little")
	}
	// It does refuse what is wrong.
	for _, u := range example(t, "control-replicas.yaml") {
		if u.GetKind() == "StatefulSet" {
			u.Object["spec"].(map[string]any)["podManagmentPolicy"] = "Parallel"
			if _, err := admin.Resource(resourceOf(u)).Namespace("llm").Create(t.Context(), u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}); err == nil {
				t.Error("a field that doesn't exist was taken")
			}
		}
	}
}
