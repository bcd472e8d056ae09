package kubernetes

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/warmpath/warmpath/control/discovery"
)

var sliceResource = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}

// slice is what matters of an EndpointSlice.
type slice struct {
	name      string
	settings  map[string]string // labels of the Service, copied by Kubernetes
	ports     map[string]uint16 // by name
	endpoints []endpoint
}

type endpoint struct {
	ip     netip.Addr
	target string // name of the pod, for people
	uid    string // of the pod; "" nobody knows
	drain  string
}

// readSlice is the only reader of EndpointSlice objects.
func readSlice(u *unstructured.Unstructured) (slice, error) {
	var s discoveryv1.EndpointSlice
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &s); err != nil {
		return slice{}, err
	}
	out := slice{name: s.Name, settings: settingsOf(s.Labels, s.Annotations), ports: map[string]uint16{}}
	if s.AddressType == discoveryv1.AddressTypeFQDN {
		return slice{}, errors.New("it has names, and a proxy can only be pointed at addresses")
	}
	for _, p := range s.Ports {
		if p.Port != nil {
			out.ports[deref(p.Name, "")] = uint16(*p.Port)
		}
	}
	for _, e := range s.Endpoints {
		if len(e.Addresses) == 0 {
			continue
		}
		// Consumers of the API take the first of several.
		ip, err := netip.ParseAddr(e.Addresses[0])
		if err != nil {
			return slice{}, err
		}
		at := endpoint{ip: ip, target: ip.String()}
		if e.TargetRef != nil {
			at.target, at.uid = e.TargetRef.Name, string(e.TargetRef.UID)
		}
		// Unknown means ready, and serving means ready but for terminating.
		ready := deref(e.Conditions.Ready, true)
		switch {
		case deref(e.Conditions.Terminating, false):
			at.drain = "pod " + at.target + " is terminating"
		case !deref(e.Conditions.Serving, ready):
			at.drain = "pod " + at.target + " is not ready"
		}
		out.endpoints = append(out.endpoints, at)
	}
	return out, nil
}

func deref[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// port finds the port that the configuration names, or the only one.
func (s *slice) port(wanted string) (uint16, error) {
	if wanted == "" && len(s.ports) == 1 {
		for _, port := range s.ports {
			return port, nil
		}
	}
	for name, port := range s.ports {
		if wanted != "" && (name == wanted || strconv.Itoa(int(port)) == wanted) {
			return port, nil
		}
	}
	if wanted == "" {
		return 0, fmt.Errorf("endpointslice %s: it has %d ports: say which one with port", s.name, len(s.ports))
	}
	return 0, fmt.Errorf("endpointslice %s: no port %q", s.name, wanted)
}

// sliceWorkers are the endpoints of all slices of a Service. An endpoint may be
// in two slices while Kubernetes moves it, and a pod has one in each IP family:
// it is one worker, at its IPv4 address if it has one.
func sliceWorkers(all []slice, t discovery.Template, port string) (specs []discovery.Spec, skipped []error) {
	type claim struct {
		uid  string
		port uint16
	}
	at := map[claim]int{} // index into specs
	for _, s := range all {
		number, err := s.port(port)
		if err != nil {
			if len(s.endpoints) > 0 {
				skipped = append(skipped, err)
			}
			continue
		}
		own := t
		for name, value := range s.settings {
			if err = apply(&own, name, value); err != nil {
				err = fmt.Errorf("endpointslice %s: %s%s: %w", s.name, Prefix, name, err)
				break
			}
		}
		if err != nil {
			skipped = append(skipped, err)
			continue
		}
		for _, e := range s.endpoints {
			spec, err := own.Spec(e.ip, number, 0)
			if err != nil {
				skipped = append(skipped, fmt.Errorf("endpointslice %s: %w", s.name, err))
				continue
			}
			spec.Drain, spec.Note, spec.Incarnation = e.drain != "", e.drain, incarnation(e.uid, 0)
			key := claim{cmp.Or(e.uid, spec.Address), number}
			i, known := at[key]
			switch {
			case !known:
				at[key] = len(specs)
				specs = append(specs, spec)
			case e.ip.Is4() && !isIPv4(specs[i].Address) || spec.Address == specs[i].Address && spec.Drain:
				specs[i] = spec
			}
		}
	}
	return specs, skipped
}

func isIPv4(address string) bool {
	ap, err := netip.ParseAddrPort(address)
	return err == nil && ap.Addr().Is4()
}
