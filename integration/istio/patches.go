package istio

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	// Every message that our patches nest in an Any. An unlisted one fails to
	// decode with its name in the error.
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/buffer/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/upstream_codec/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/override_host/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	_ "google.golang.org/protobuf/types/known/wrapperspb"
)

// targets maps applyTo to the Envoy message that a patch's value is.
var targets = map[string]func() proto.Message{
	"CLUSTER":          func() proto.Message { return &clusterv3.Cluster{} },
	"LISTENER":         func() proto.Message { return &listenerv3.Listener{} },
	"NETWORK_FILTER":   func() proto.Message { return &listenerv3.Filter{} },
	"HTTP_FILTER":      func() proto.Message { return &hcmv3.HttpFilter{} },
	"HTTP_ROUTE":       func() proto.Message { return &routev3.Route{} },
	"EXTENSION_CONFIG": func() proto.Message { return &corev3.TypedExtensionConfig{} },
}

// CheckPatches decodes every patch of an EnvoyFilter strictly. Patches that
// are merged into something are parts of messages, so Envoy's constraints
// (required fields, ranges) are checked only below an Any and for whole values.
func CheckPatches(envoyFilter Object) error {
	spec, _ := envoyFilter["spec"].(Object)
	patches, _ := spec["configPatches"].([]any)
	if len(patches) == 0 {
		return errors.New("spec.configPatches is empty")
	}
	var problems []error
	for i, p := range patches {
		if err := checkPatch(p); err != nil {
			problems = append(problems, fmt.Errorf("spec.configPatches[%d]: %w", i, err))
		}
	}
	return errors.Join(problems...)
}

func checkPatch(p any) error {
	entry, _ := p.(Object)
	applyTo, _ := entry["applyTo"].(string)
	target, ok := targets[applyTo]
	if !ok {
		return fmt.Errorf("applyTo %q has no message here: add it to targets", applyTo)
	}
	patch, _ := entry["patch"].(Object)
	value, ok := patch["value"].(Object)
	if !ok {
		return errors.New("patch.value is missing")
	}
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	message := target()
	if err := (protojson.UnmarshalOptions{DiscardUnknown: false}).Unmarshal(data, message); err != nil {
		return fmt.Errorf("decode patch.value as %s: %w", message.ProtoReflect().Descriptor().FullName(), err)
	}
	if operation, _ := patch["operation"].(string); !strings.HasPrefix(operation, "MERGE") {
		if err := constraints(message); err != nil {
			return err
		}
	}
	return checkAnys(message.ProtoReflect())
}

// constraints runs the checks that Envoy generates from its protos.
func constraints(message proto.Message) error {
	if v, ok := message.(interface{ ValidateAll() error }); ok {
		return v.ValidateAll()
	}
	return nil
}

// checkAnys walks a message and checks what is packed in its Anys.
// protojson has decoded them already; here Envoy's constraints are checked,
// which the generated code does not do across an Any.
func checkAnys(m protoreflect.Message) error {
	if packed, ok := m.Interface().(*anypb.Any); ok {
		inner, err := packed.UnmarshalNew()
		if err != nil {
			return fmt.Errorf("unpack %s: %w", packed.GetTypeUrl(), err)
		}
		if !partial[packed.GetTypeUrl()] {
			if err := constraints(inner); err != nil {
				return fmt.Errorf("%s: %w", packed.GetTypeUrl(), err)
			}
		}
		return checkAnys(inner.ProtoReflect())
	}
	var problems []error
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsMap():
			if fd.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, value protoreflect.Value) bool {
					problems = append(problems, checkAnys(value.Message()))
					return true
				})
			}
		case fd.Message() == nil:
		case fd.IsList():
			for i := range v.List().Len() {
				problems = append(problems, checkAnys(v.List().Get(i).Message()))
			}
		default:
			problems = append(problems, checkAnys(v.Message()))
		}
		return true
	})
	return errors.Join(problems...)
}

// partial names what Istio merges below an Any: there, required fields come
// from Istio's own side.
var partial = map[string]bool{
	"type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager": true,
}
