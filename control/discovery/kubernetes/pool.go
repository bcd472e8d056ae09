package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/warmpath/warmpath/control/discovery"
)

var poolResource = schema.GroupVersionResource{Group: "inference.networking.k8s.io", Version: "v1", Resource: "inferencepools"}

// inferencePool is what matters of an InferencePool: which pods, and at which
// ports. Several ports are ranks of one engine.
type inferencePool struct {
	selector string
	ports    []uint16
}

// readPool is the only reader of InferencePool objects (GIE v1).
func readPool(u *unstructured.Unstructured) (inferencePool, error) {
	match, _, err := unstructured.NestedStringMap(u.Object, "spec", "selector", "matchLabels")
	if err != nil {
		return inferencePool{}, err
	}
	if len(match) == 0 {
		return inferencePool{}, errors.New("spec.selector.matchLabels is empty")
	}
	out := inferencePool{selector: labels.SelectorFromSet(match).String()}
	ports, _, err := unstructured.NestedSlice(u.Object, "spec", "targetPorts")
	if err != nil {
		return inferencePool{}, err
	}
	for i, p := range ports {
		fields, _ := p.(map[string]any)
		number, ok := fields["number"].(int64)
		if !ok || number < 1 || number > 65535 {
			return inferencePool{}, fmt.Errorf("spec.targetPorts[%d] has no number", i)
		}
		out.ports = append(out.ports, uint16(number))
	}
	if len(out.ports) == 0 {
		return inferencePool{}, errors.New("spec.targetPorts is empty")
	}
	return out, nil
}

// poolFinder lists the pods that an InferencePool selects. When it selects
// others, nothing is told until they are known: the list of before holds.
type poolFinder struct {
	source  *Source
	mirror  *mirror[inferencePool]
	changed func()
	selects chan struct{} // the mirror has changed

	mu       sync.Mutex
	selected *selection // nil before the pool was seen
}

// selection is one state of the pool and the pods that it selects.
type selection struct {
	pool inferencePool
	pods *podFinder
	end  context.CancelFunc
}

func (s *Source) inferencePool(changed func()) *poolFinder {
	p := &poolFinder{source: s, changed: changed, selects: make(chan struct{}, 1)}
	selector := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, s.cfg.InferencePool).String()}
	p.mirror = newMirror(s.client, s.host, poolResource, s.cfg.Namespace, selector, readPool, func() {
		select {
		case p.selects <- struct{}{}:
		default:
		}
		changed()
	})
	return p
}

func (p *poolFinder) run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { p.mirror.run(ctx) })
	defer running.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.selects:
		}
		pools, _, _, _ := p.mirror.state()
		if len(pools) == 0 || !p.changes(&pools[0]) {
			continue
		}
		own, end := context.WithCancel(ctx)
		next := &selection{pools[0], p.source.pods(pools[0].selector, pools[0].ports, p.changed), end}
		running.Go(func() { next.pods.run(own) })
		p.mu.Lock()
		if p.selected != nil {
			p.selected.end()
		}
		p.selected = next
		p.mu.Unlock()
	}
}

// changes tells whether pool selects something else than before.
func (p *poolFinder) changes(pool *inferencePool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.selected == nil || p.selected.pool.selector != pool.selector || !slices.Equal(p.selected.pool.ports, pool.ports)
}

func (p *poolFinder) find() (f discovery.Finding, known bool) {
	pools, broken, known, err := p.mirror.state()
	if err != nil || !known {
		return discovery.Finding{Err: err}, err != nil
	}
	if len(pools)+len(broken) == 0 {
		return discovery.Finding{Skipped: []error{fmt.Errorf("there is no InferencePool %s/%s", p.source.cfg.Namespace, p.source.cfg.InferencePool)}}, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.selected == nil {
		return discovery.Finding{Err: errors.Join(broken...)}, len(broken) > 0
	}
	f, known = p.selected.pods.find()
	f.Skipped = append(broken, f.Skipped...)
	return f, known
}
