package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/dynamic"

	"github.com/warmpath/warmpath/control/discovery"
)

const (
	// gather is how long a change waits for those that come with it: a rollout
	// changes many objects at once.
	gather = 20 * time.Millisecond
	// breath is how many times as long as a list took to make and to take in nothing
	// is done then: a large fleet's pods never rest, and cost a tenth of a core.
	breath = 9
	// sayAgain is how often a list is told again while the watches are in order,
	// so that its age tells whether they are.
	sayAgain = 10 * time.Second
)

// Source follows the workers of one configuration entry.
type Source struct {
	cfg    discovery.Kubernetes
	client dynamic.Interface
	host   string
}

// New returns a source for cfg. It does not talk to the API server yet.
func New(cfg discovery.Kubernetes) (*Source, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	if _, err := labels.Parse(cfg.Pods); err != nil {
		return nil, discovery.Problem{Source: "discovery.kubernetes", Field: "pods", What: err.Error(), Remedy: "write a label selector, as kubectl -l takes it"}
	}
	if cfg.Pool == "" && discovery.ValidPool(cfg.InferencePool) {
		cfg.Pool = cfg.InferencePool
	}
	client, host, err := connect(&cfg)
	if err != nil {
		return nil, err
	}
	return &Source{cfg: cfg, client: client, host: host}, nil
}

// Name implements discovery.Source.
func (s *Source) Name() string { return s.cfg.String() }

// finder knows the list of one kind of source. known is false while it doesn't.
type finder interface {
	run(ctx context.Context)
	find() (f discovery.Finding, known bool)
}

// Run implements discovery.Source.
func (s *Source) Run(ctx context.Context, tell func(discovery.Finding)) error {
	wake := make(chan struct{}, 1)
	changed := func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	var f finder
	switch {
	case s.cfg.Service != "":
		f = s.service(changed)
	case s.cfg.InferencePool != "":
		f = s.inferencePool(changed)
	default:
		f = s.pods(s.cfg.Pods, s.cfg.Ports, changed)
	}
	return follow(ctx, f, wake, tell)
}

// follow runs f and tells what it finds after each wake.
func follow(ctx context.Context, f finder, wake <-chan struct{}, tell func(discovery.Finding)) error {
	var running sync.WaitGroup
	running.Go(func() { f.run(ctx) })
	defer running.Wait()
	again := time.NewTicker(sayAgain)
	defer again.Stop()
	var gathered <-chan time.Time // nil while nothing has changed
	var next time.Time            // not before
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
			if gathered == nil {
				gathered = time.After(max(gather, time.Until(next)))
			}
			continue
		case <-gathered:
			gathered = nil
		case <-again.C:
		}
		begin := time.Now()
		if finding, known := f.find(); known {
			tell(finding)
		}
		next = time.Now().Add(breath * time.Since(begin))
	}
}

// podFinder lists the pods of a label selector.
type podFinder struct {
	mirror   *mirror[pod]
	template discovery.Template
	ports    []uint16
}

func (s *Source) pods(selector string, ports []uint16, changed func()) *podFinder {
	return &podFinder{newMirror(s.client, s.host, podResource, s.cfg.Namespace, metav1.ListOptions{LabelSelector: selector}, readPod, changed), s.cfg.Template, ports}
}

func (p *podFinder) run(ctx context.Context) { p.mirror.run(ctx) }

func (p *podFinder) find() (f discovery.Finding, known bool) {
	pods, broken, known, err := p.mirror.state()
	if err != nil || !known {
		return discovery.Finding{Err: err}, err != nil
	}
	f.Skipped = broken
	if len(pods)+len(broken) == 0 {
		f.Skipped = append(f.Skipped, errors.New("no pod matches the selector"))
	}
	var specs []discovery.Spec
	for i := range pods {
		own, err := pods[i].workers(p.template, p.ports)
		if err != nil {
			f.Skipped = append(f.Skipped, err)
		}
		if len(own) > 0 {
			f.Ignored = append(f.Ignored, unknown("pod "+pods[i].name, pods[i].settings, podSettings)...)
		}
		specs = append(specs, own...)
	}
	unique(&f, specs)
	return f, true
}

// serviceFinder lists the endpoints of a Service.
type serviceFinder struct {
	mirror *mirror[slice]
	cfg    discovery.Kubernetes
}

func (s *Source) service(changed func()) *serviceFinder {
	selector := metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=" + s.cfg.Service}
	return &serviceFinder{newMirror(s.client, s.host, sliceResource, s.cfg.Namespace, selector, readSlice, changed), s.cfg}
}

func (p *serviceFinder) run(ctx context.Context) { p.mirror.run(ctx) }

func (p *serviceFinder) find() (f discovery.Finding, known bool) {
	all, broken, known, err := p.mirror.state()
	if err != nil || !known {
		return discovery.Finding{Err: err}, err != nil
	}
	specs, skipped := sliceWorkers(all, p.cfg.Template, p.cfg.Port)
	f.Skipped = append(broken, skipped...)
	for i := range all {
		f.Ignored = append(f.Ignored, unknown("endpointslice "+all[i].name, all[i].settings, settingNames)...)
	}
	if len(all)+len(broken) == 0 {
		f.Skipped = append(f.Skipped, fmt.Errorf("no EndpointSlice: is there a Service %s/%s?", p.cfg.Namespace, p.cfg.Service))
	}
	unique(&f, specs)
	return f, true
}

// unique takes specs over, each address once. Two pods have the same address
// while one of them is on its way out.
func unique(f *discovery.Finding, specs []discovery.Spec) {
	at := map[string]int{}
	for _, spec := range specs {
		i, known := at[spec.Address]
		if !known {
			at[spec.Address] = len(f.Workers)
			f.Workers = append(f.Workers, spec)
			continue
		}
		if f.Workers[i].Drain {
			f.Workers[i], spec = spec, f.Workers[i]
		}
		f.Skipped = append(f.Skipped, fmt.Errorf("%s has another worker: %s", spec.Address, cmp.Or(spec.Note, "both serve")))
	}
}
