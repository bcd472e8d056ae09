package control

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/control/cluster"
	"github.com/warmpath/warmpath/shared/wire"
)

// Several services act as one when Config.NATS says so. What they agree on is five
// documents beside the leader's lease: the policy that was put (policy_agreed.go),
// the numbers of its tenants (quota_tenants.go), the workers that were put and
// drained (workers_agreed.go), their references (members.go) and the ledger's
// checkpoint (quota_lead.go). The leader alone grants leases; gateways
// talk to any replica, which asks the leader for them.
//
// A service without NATS is alone: it leads, and all of that is its own.

// openCluster joins the other replicas, where there are to be any.
func (s *Service) openCluster() error {
	if s.cfg.NATS == nil {
		return nil
	}
	cfg := *s.cfg.NATS
	cfg.Log, cfg.Version, cfg.Wire = s.log, s.cfg.Version, wire.Version
	if cfg.URL == "" {
		cfg.URL = s.URL()
	}
	if s.cfg.transport != nil {
		s.cluster = cluster.New(cfg, s.cfg.transport)
		return nil
	}
	c, err := cluster.Open(context.Background(), cfg)
	if err != nil {
		return fmt.Errorf("join the other replicas: %w", err)
	}
	s.cluster = c
	if others := cfg.Servers() != 1; others || cfg.Embedded.Listen != "" {
		s.startSharing(c, c.Self().Nonce, others)
	}
	return nil
}

// closeCluster leaves them.
func (s *Service) closeCluster() {
	if s.cluster != nil {
		s.cluster.Close()
	}
}

// alone tells whether there can't be others.
func (s *Service) alone() bool { return s.cfg.NATS == nil }

// runCluster takes part until ctx ends.
func (s *Service) runCluster(ctx context.Context, group *errgroup.Group) {
	group.Go(func() error { return s.cluster.Run(ctx, s.handlers()) })
	group.Go(func() error { return s.answerOthers(ctx) })
	group.Go(func() error { s.ledgerLoop(ctx); return nil })
	group.Go(func() error { s.documentsLoop(ctx); return nil })
	group.Go(func() error { s.membersLoop(ctx); return nil })
	group.Go(func() error { s.workersLoop(ctx); return nil })
	group.Go(func() error { return s.plansLoop(ctx) })
}

// decodeDocument reads what the replicas agreed on into doc, and refuses another
// version than the one this program reads; version is doc's.
func decodeDocument(text []byte, doc any, version *int, reads int) error {
	err := json.Unmarshal(text, doc)
	if err == nil && *version != reads {
		err = fmt.Errorf("version %d, this program reads %d: upgrade it", *version, reads)
	}
	return err
}

// clusterStatus is nil for a service that is alone.
func (s *Service) clusterStatus(now time.Time) *api.Cluster {
	if s.cluster == nil {
		return nil
	}
	out := &api.Cluster{
		Name: s.cluster.Self().Name, Leads: s.cluster.Leads(), Agreed: s.agreed.Load(), Servers: "external", Replicas: []api.Replica{},
		Forwarded: s.quota.forwarded.Load(), Unanswered: s.quota.unanswered.Load(), Dropped: s.dropped(),
	}
	if n := s.cfg.NATS.Servers(); n > 0 {
		out.Servers = fmt.Sprintf("%d inside", n)
	}
	leader, term, led := s.cluster.Leader()
	if led {
		out.Leader, out.Term = leader.Name, strconv.FormatUint(term, 10)
	}
	if err := s.cluster.Problem(); err != nil {
		out.Problem = err.Error()
	}
	s.policyMu.Lock()
	if err := s.agreements.problem; err != nil {
		out.PolicyProblem = err.Error()
	}
	s.policyMu.Unlock()
	s.workers.problemMu.Lock()
	if err := s.workers.problem; err != nil {
		out.WorkersProblem = err.Error()
	}
	s.workers.problemMu.Unlock()
	tables := s.tablesOfOthers(now)
	for _, p := range s.cluster.Peers() {
		out.Replicas = append(out.Replicas, api.Replica{
			Name: p.Name, URL: p.URL, Version: p.Version, Wire: int(p.Wire), Age: p.Age.Seconds(), Present: p.Present,
			Leads: led && p.Nonce == leader.Nonce, Table: tables[p.Nonce],
		})
	}
	out.Ledger = s.ledger.status(now)
	return out
}
