package control

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/control/discovery/adapters"
	"github.com/warmpath/warmpath/shared/policy"
)

const (
	adaptersTimeout = 3 * time.Second // of one question
	adaptersAtOnce  = 8
)

// adaptersLoop asks workers for their adapters until ctx ends, and publishes
// them as models of their pools.
func (s *Service) adaptersLoop(ctx context.Context) {
	if s.cfg.Discovery.AdaptersInterval < 0 {
		return
	}
	transport, closing := s.cfg.Transport, func() {}
	if transport == nil {
		t := &http.Transport{MaxIdleConnsPerHost: 1, IdleConnTimeout: 5 * time.Second}
		transport, closing = t, t.CloseIdleConnections
	}
	defer closing()
	client := &http.Client{Transport: transport, Timeout: adaptersTimeout}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		group, asking := errgroup.WithContext(ctx)
		group.SetLimit(adaptersAtOnce)
		for _, w := range s.adapters.Due(s.adapterWorkers(), time.Now()) {
			group.Go(func() error {
				names, err := adapters.Ask(asking, client, w.Address, s.cfg.Health.Token)
				if ctx.Err() == nil {
					s.adapters.Answer(w, names, err, time.Now())
				}
				return nil
			})
		}
		_ = group.Wait() // nobody returns one
		s.publishAdapters(s.adapters.Decide(s.adapterWorkers()))
	}
}

// adapterWorkers are the workers that can say which adapters they have.
func (s *Service) adapterWorkers() []adapters.Worker {
	var out []adapters.Worker
	for _, w := range s.fleet.Workers() {
		if askable(&w) && w.Generation != 0 {
			out = append(out, adapters.Worker{Address: w.Address, Generation: w.Generation, Pool: w.Pool, Takes: w.State == discovery.Healthy})
		}
	}
	return out
}

// publishAdapters puts the adapters that pools serve now in force.
func (s *Service) publishAdapters(serving map[string][]string) {
	s.policyMu.Lock()
	defer s.policyMu.Unlock()
	if maps.EqualFunc(serving, s.adapted, slices.Equal[[]string]) {
		return
	}
	s.adapted = serving
	d := s.policy.Load()
	s.log.Info("adapters changed", "pools", fmt.Sprint(serving))
	s.table.SetPolicy(s.policyText(d), s.exactSection(d), d.off)
}

// policyText is the POLICY section: the policy, and the adapters that workers
// have among the models of their pools. Names that the policy itself says
// something about stay as it says. Requires policyMu.
func (s *Service) policyText(d *document) []byte {
	if len(s.adapted) == 0 {
		return d.text
	}
	text, err := d.withModels(s.adapted)
	if err != nil {
		s.log.Warn("adapters are left out of the policy", "err", err)
		return d.text
	}
	return text
}

// withModels is d.text with further models of pools. A name that leads to the
// pool already, or that another pool names, is left out; of two pools with the
// same adapter the first has it.
func (d *document) withModels(further map[string][]string) ([]byte, error) {
	named := map[string]bool{}
	for i := range d.parsed.Pools {
		for _, m := range d.parsed.Pools[i].Models {
			named[m] = true
		}
	}
	pools := slices.Clone(d.pools)
	changed := false
	for i, pool := range pools {
		own := d.parsed.ByName(fmt.Sprint(pool["name"]))
		models := slices.Clone(own.Models)
		for _, name := range further[own.Name] {
			if !named[name] && d.parsed.Pool(name) != own {
				named[name] = true
				models = append(models, name)
			}
		}
		if len(models) > len(own.Models) {
			pools[i] = maps.Clone(pool)
			pools[i]["models"] = models
			changed = true
		}
	}
	if !changed {
		return d.text, nil
	}
	text := marshalPolicy(d.off, pools)
	if _, err := policy.Parse(text); err != nil {
		return nil, err
	}
	if len(text) > maxPolicyBytes {
		return nil, fmt.Errorf("the policy with them has %d bytes, the limit is %d", len(text), maxPolicyBytes)
	}
	return text, nil
}

// adapterStatus is what the status says about a worker's adapters.
func (s *Service) adapterStatus(w *discovery.Worker) (names []string, problem string) {
	names, err := s.adapters.Of(w.Address, w.Generation)
	if err != nil {
		problem = err.Error()
	}
	return names, problem
}

// adaptersInForce are the adapters that pools serve.
func (s *Service) adaptersInForce() map[string][]string {
	s.policyMu.Lock()
	defer s.policyMu.Unlock()
	out := map[string][]string{}
	maps.Copy(out, s.adapted)
	return out
}
