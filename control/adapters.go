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

	askServedTries = 5
	askServedEvery = time.Second
)

// adaptersLoop asks workers what they serve until ctx ends, and publishes it with
// the policy.
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
				served, err := adapters.Ask(asking, client, discovery.Endpoint(w.Address), s.cfg.Health.Token)
				if ctx.Err() == nil {
					s.adapters.Answer(w, served, err, time.Now())
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
			out = append(out, adapters.Worker{Address: w.Address, Generation: w.Generation, Pool: w.Pool, Model: w.KVEvents.Model, Takes: w.State == discovery.Healthy})
		}
	}
	return out
}

// askServed asks the worker of a feed what it serves, again while it can't be
// reached: its events name an adapter, and only the worker says whose weights go
// by that name.
func (s *Service) askServed(ctx context.Context, client *http.Client, k *feedKey) {
	if s.cfg.Discovery.AdaptersInterval < 0 {
		return
	}
	w := adapters.Worker{Address: k.address, Generation: k.generation, Pool: k.pool}
	for try := range askServedTries {
		if try > 0 {
			select {
			case <-ctx.Done():
				return
			case <-time.After(askServedEvery):
			}
		}
		served, err := adapters.Ask(ctx, client, discovery.Endpoint(k.address), s.cfg.Health.Token)
		if ctx.Err() != nil {
			return
		}
		if s.adapters.Answer(w, served, err, time.Now()); err == nil {
			return
		}
		s.log.Debug("worker doesn't say what it serves", "worker", k.address, "err", err)
	}
}

// publishAdapters puts what pools serve now in force.
func (s *Service) publishAdapters(serving map[string]adapters.Served) {
	s.policyMu.Lock()
	defer s.policyMu.Unlock()
	if maps.EqualFunc(serving, s.adapted, adapters.Served.Same) {
		return
	}
	s.adapted = serving
	d := s.policy.Load()
	s.log.Info("models and adapters changed", "pools", fmt.Sprint(serving))
	s.table.SetPolicy(s.policyText(d), s.exactSection(d), d.off)
	kick(s.saveSoon)
}

// policyText is the POLICY section: the policy, and what the workers of its pools
// serve. Names that the policy itself says something about stay as it says.
// Requires policyMu.
func (s *Service) policyText(d *document) []byte {
	text, set, err := d.withServed(s.adapted, s.tiered)
	if err != nil {
		s.log.Warn("adapters are left out of the policy", "err", err)
		base := maps.Clone(s.adapted)
		for pool, served := range base {
			base[pool] = adapters.Served{Base: served.Base}
		}
		if text, set, err = d.withServed(base, s.tiered); err != nil {
			text, set = d.text, d.parsed
		}
	}
	s.inForce = set
	return text
}

// withServed is d.text with what the workers of its pools serve: adapters with
// their generations, for a pool with "*" the names of its base model, and the
// credit of slower memory where they use any. A name that another pool names is
// left out; of two pools with the same adapter the first has it.
func (d *document) withServed(serving map[string]adapters.Served, tiered map[string]bool) ([]byte, *policy.Set, error) {
	named := map[string]int{} // the pool that a name is of
	for i := range d.parsed.Pools {
		for _, m := range d.parsed.Pools[i].Models {
			named[m] = i
		}
		for _, a := range d.parsed.Pools[i].Adapters {
			named[a.Name] = i
		}
	}
	take := func(pool int, name string) bool {
		if of, ok := named[name]; ok && of != pool {
			return false
		}
		named[name] = pool
		return true
	}
	pools := slices.Clone(d.pools)
	changed := false
	for i, pool := range pools {
		own := d.parsed.ByName(fmt.Sprint(pool["name"]))
		models, generations := slices.Clone(own.Models), map[string]uint64{}
		for _, a := range own.Adapters {
			generations[a.Name] = a.Generation
		}
		served := serving[own.Name]
		if slices.Contains(models, "*") {
			for _, name := range served.Base {
				if _, adapter := generations[name]; !adapter && !slices.Contains(models, name) && take(i, name) {
					models = append(models, name)
				}
			}
		}
		for _, a := range served.Adapters {
			if generations[a.Name] == 0 && take(i, a.Name) {
				generations[a.Name] = a.Generation()
			}
		}
		_, said := pool["slow_credit"]
		credit := tiered[own.Name] && !said
		if len(models) == len(own.Models) && len(served.Adapters) == 0 && !credit {
			continue
		}
		pools[i] = maps.Clone(pool)
		pools[i]["models"], pools[i]["adapters"] = models, generations
		if credit {
			pools[i]["slow_credit"] = slowCredit
		}
		changed = true
	}
	if !changed {
		return d.text, d.parsed, nil
	}
	text := marshalPolicy(d.off, routed(pools))
	set, err := policy.Parse(text)
	if err == nil && len(text) > maxPolicyBytes {
		err = fmt.Errorf("the policy with them has %d bytes, the limit is %d", len(text), maxPolicyBytes)
	}
	return text, set, err
}

// generations are those of the adapters of a worker's pool as they are at this
// worker: while a fleet changes over to other weights, some workers have them
// and others don't. What the worker has said counts before it is published: blocks
// that are stored in between would be taken for other weights'. Where the policy
// says a generation it is everybody's.
// Requires policyMu.
func (s *Service) generations(address string, generation uint64, pool string) map[string]uint64 {
	p := s.inForce.ByName(pool)
	if p == nil {
		return nil
	}
	out := make(map[string]uint64, len(p.Adapters))
	for _, a := range p.Adapters {
		out[a.Name] = a.Generation
	}
	served, _ := s.adapters.Of(address, generation) // an older answer is the best there is
	own := s.policy.Load().parsed.ByName(pool)
	for _, a := range served.Adapters {
		if own.Generation(a.Name) == 0 {
			out[a.Name] = a.Generation()
		}
	}
	return out
}

// adapterStatus is what the status says about a worker's adapters.
func (s *Service) adapterStatus(w *discovery.Worker) (names []string, problem string) {
	served, err := s.adapters.Of(w.Address, w.Generation)
	if err != nil {
		return served.Names(), err.Error()
	}
	s.policyMu.Lock()
	defer s.policyMu.Unlock()
	at := s.generations(w.Address, w.Generation, w.Pool)
	if pool := s.inForce.ByName(w.Pool); pool != nil {
		for _, a := range pool.Adapters {
			if at[a.Name] != a.Generation {
				problem = fmt.Sprintf("adapter %s was loaded from another path than at most workers: nothing cached of it is found here; give it a generation in the policy if the weights are the same", a.Name)
			}
		}
	}
	return served.Names(), problem
}

// adaptersInForce are the generations of the adapters that pools serve, by pool
// and name.
func (s *Service) adaptersInForce() map[string]map[string]uint64 {
	s.policyMu.Lock()
	defer s.policyMu.Unlock()
	out := map[string]map[string]uint64{}
	for i := range s.inForce.Pools {
		p := &s.inForce.Pools[i]
		for _, a := range p.Adapters {
			if out[p.Name] == nil {
				out[p.Name] = map[string]uint64{}
			}
			out[p.Name][a.Name] = a.Generation
		}
	}
	return out
}
