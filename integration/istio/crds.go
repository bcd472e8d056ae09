// Package istio checks examples/istio the way a cluster would, without one.
//
// A manifest travels like this: it is split into documents; each document of
// an Istio kind is checked against that kind's CustomResourceDefinition as the
// istio.io/api module carries it (unknown fields, types, enums, patterns, CEL
// rules), with the code of the Kubernetes API server; then every patch of an
// EnvoyFilter is decoded into the Envoy message that its applyTo names, down
// through every nested Any, and checked by Envoy's own constraints. A misspelt
// field fails at whichever level it stands.
//
// The module is apart from the product's so that Kubernetes and Envoy protos
// do not become its dependencies.
package istio

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	// Its manifests are read, see ReadIstioCRDs; the import keeps the module in go.mod.
	_ "istio.io/api/annotation"
)

// Object is one document of a manifest.
type Object = map[string]any

// Documents splits a manifest into its documents. Duplicate keys are refused.
func Documents(manifest []byte) ([]Object, error) {
	reader := utilyaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(manifest)))
	defer reader.Close()
	var objects []Object
	buffer := make([]byte, len(manifest)+1)
	for {
		n, err := reader.Read(buffer)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read document %d: %w", len(objects)+1, err)
		}
		object := Object{}
		if err := yaml.UnmarshalStrict(buffer[:n], &object); err != nil {
			return nil, fmt.Errorf("parse document %d: %w", len(objects)+1, err)
		}
		if len(object) > 0 {
			objects = append(objects, object)
		}
	}
}

// name is how messages call an object: kind/name.
func name(o Object) string {
	metadata, _ := o["metadata"].(Object)
	return fmt.Sprintf("%v/%v", o["kind"], metadata["name"])
}

// CRDs holds the schemas of a set of CustomResourceDefinitions.
type CRDs struct {
	kinds map[string]*kind // "networking.istio.io/v1/VirtualService"
}

// kind is one version of one definition, ready to check objects.
type kind struct {
	structural *schema.Structural
	values     validation.SchemaValidator
	rules      *cel.Validator
}

// ReadIstioCRDs reads the definitions out of the istio.io/api module that this
// module's go.mod pins.
func ReadIstioCRDs() (*CRDs, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "istio.io/api").Output()
	if err != nil {
		return nil, fmt.Errorf("find the module istio.io/api (go mod download istio.io/api): %w", err)
	}
	path := filepath.Join(strings.TrimSpace(string(out)), "kubernetes", "customresourcedefinitions.gen.yaml")
	manifest, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read Istio's definitions: %w", err)
	}
	documents, err := Documents(manifest)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	crds := &CRDs{kinds: map[string]*kind{}}
	for _, document := range documents {
		if err := crds.add(document); err != nil {
			return nil, fmt.Errorf("%s: %w", name(document), err)
		}
	}
	return crds, nil
}

// add takes every version of one definition in.
func (c *CRDs) add(document Object) error {
	data, err := yaml.Marshal(document)
	if err != nil {
		return err
	}
	var external apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(data, &external); err != nil {
		return fmt.Errorf("decode the definition: %w", err)
	}
	for _, version := range external.Spec.Versions {
		var internal apiextensions.CustomResourceValidation
		if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(version.Schema, &internal, nil); err != nil {
			return fmt.Errorf("convert the schema of %s: %w", version.Name, err)
		}
		structural, err := schema.NewStructural(internal.OpenAPIV3Schema)
		if err != nil {
			return fmt.Errorf("read the schema of %s: %w", version.Name, err)
		}
		values, _, err := validation.NewSchemaValidator(internal.OpenAPIV3Schema)
		if err != nil {
			return fmt.Errorf("compile the schema of %s: %w", version.Name, err)
		}
		key := external.Spec.Group + "/" + version.Name + "/" + external.Spec.Names.Kind
		c.kinds[key] = &kind{
			structural: structural,
			values:     values,
			rules:      cel.NewValidator(structural, true, celconfig.PerCallLimit),
		}
	}
	return nil
}

// Check checks one object as an API server with strict field validation would.
// known is false when no definition covers the object's kind.
func (c *CRDs) Check(o Object) (known bool, err error) {
	k, known := c.kinds[fmt.Sprintf("%v/%v", o["apiVersion"], o["kind"])]
	if !known {
		return false, nil
	}
	var problems []error
	unknown := pruning.PruneWithOptions(copyObject(o), k.structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	for _, path := range unknown {
		problems = append(problems, fmt.Errorf("unknown field %q", path))
	}
	for _, e := range validation.ValidateCustomResource(nil, o, k.values) {
		problems = append(problems, e)
	}
	if k.rules != nil {
		failed, _ := k.rules.Validate(context.Background(), field.NewPath(""), k.structural, o, nil, celconfig.RuntimeCELCostBudget)
		for _, e := range failed {
			problems = append(problems, e)
		}
	}
	return true, errors.Join(problems...)
}

// copyObject lets pruning, which edits, work on a copy.
func copyObject(o Object) Object {
	return copyValue(o).(Object)
}

func copyValue(v any) any {
	switch v := v.(type) {
	case Object:
		out := make(Object, len(v))
		for key, value := range v {
			out[key] = copyValue(value)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, value := range v {
			out[i] = copyValue(value)
		}
		return out
	}
	return v
}
