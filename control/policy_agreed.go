package control

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/control/cluster"
)

// What people switch at one replica is in force at all: the document "policy" says
// what was changed over the policy that each replica has by itself, from its file,
// its configuration, or derived from the worker list. Who edits that has the last
// word: a policy that was put, and modes, count as long as the policy that they were
// put over is the same.
const (
	policyKey     = "policy"
	policyVersion = 1
	// noMajority is the code of a refusal.
	noMajority = "no_majority"
)

// agreement is the document.
type agreement struct {
	Version int `json:"version"`
	// Over identifies the policy that Policy and Modes were put over.
	Over string `json:"over"`
	// Policy is in the place of that one, as written; absent: that one counts.
	Policy string `json:"policy,omitempty"`
	// Modes of pools that were switched.
	Modes map[string]string `json:"modes,omitempty"`
	Off   bool              `json:"off"`
}

func (a *agreement) put(policy []byte) { a.Policy, a.Modes = string(policy), nil }

// agreedBook is what a replica keeps of the document. Under policyMu.
type agreedBook struct {
	agreement
	revision uint64
	local    *document // what counts without
	over     string    // identifies it
	problem  error     // why what another replica was told isn't in force here
}

// overOf identifies a policy that was written; empty for a derived one.
func overOf(text []byte) string {
	if text == nil {
		return ""
	}
	return hex.EncodeToString(binarySum(text))
}

func binarySum(text []byte) []byte {
	h := xxhash.New()
	_, _ = h.Write(text) // never fails
	return h.Sum(nil)
}

// written is the policy as its author may write it back: without what was learned,
// and what was switched.
func (d *document) written() []byte {
	whole := map[string]any{"off": false}
	pools := make([]map[string]any, 0, len(d.pools))
	for _, p := range d.withTokenizers() {
		p = maps.Clone(p)
		if !d.fixed[fmt.Sprint(p["name"])] {
			delete(p, "ring_units")
		}
		pools = append(pools, p)
	}
	whole["pools"] = pools
	if d.admission != nil {
		whole["admission"] = d.admission
	}
	return marshal(whole)
}

// rings are the discriminating positions in force, by pool.
func (d *document) rings() map[string]int {
	units := map[string]int{}
	for i := range d.parsed.Pools {
		units[d.parsed.Pools[i].Name] = d.parsed.Pools[i].RingUnits
	}
	return units
}

// compose makes the policy in force of the replica's own and what was agreed.
func (s *Service) compose(a *agreement) (*document, error) {
	d := s.agreements.local
	if a.Over == s.agreements.over {
		var err error
		if a.Policy != "" {
			if d, err = parsePolicy("policy", s.policyDir(), []byte(a.Policy), &s.vocabularies); err != nil {
				return nil, err
			}
		}
		for pool, mode := range a.Modes {
			if d.parsed.ByName(pool) == nil {
				continue // its workers are gone
			}
			if d, err = d.withMode(pool, mode); err != nil {
				return nil, err
			}
		}
	}
	if a.Off && !d.off {
		return d.withOff(true)
	}
	return d, nil
}

// setLocal takes over a policy that this replica has by itself.
func (s *Service) setLocal(d *document, text []byte) error {
	s.policyMu.Lock()
	s.agreements.local, s.agreements.over = d, overOf(text)
	if !s.agreed.Load() {
		defer s.policyMu.Unlock()
		return s.takeDocument(d)
	}
	a, revision, same := s.agreements.agreement, s.agreements.revision, s.agreements.Over == s.agreements.over
	s.policyMu.Unlock()
	if same {
		return s.apply(&a, revision)
	}
	// Whoever edited the file has the last word.
	return s.agree(func(*agreement) {})
}

// apply puts an agreement in force, unless a newer one is. It may wait for numbers of
// tenants.
func (s *Service) apply(a *agreement, revision uint64) error {
	ctx, cancel := context.WithTimeout(context.Background(), documentTime)
	defer cancel()
	for {
		d, err := s.applyNumbered(a, revision)
		if err != nil || d == nil {
			return err
		}
		if err := s.agreeNumbers(ctx, d); err != nil {
			return err
		}
	}
}

// applyNumbered returns the policy if tenants of it have no numbers yet.
func (s *Service) applyNumbered(a *agreement, revision uint64) (*document, error) {
	s.policyMu.Lock()
	defer s.policyMu.Unlock()
	if revision < s.agreements.revision {
		return nil, nil
	}
	d, err := s.compose(a)
	if err != nil {
		return nil, err
	}
	// What the index has learned outlives a change of the policy.
	learned, err := d.withRing(s.policy.Load().rings())
	switch {
	case err != nil:
		return nil, err
	case learned != nil:
		d = learned
	}
	if !s.numbered(d) {
		return d, nil
	}
	if err := s.setDocument(d); err != nil {
		return nil, err
	}
	s.agreements.agreement, s.agreements.revision, s.offHeld = *a, revision, a.Off
	kick(s.saveSoon)
	return nil, nil
}

// agree changes the document, and puts it in force here.
func (s *Service) agree(edit func(*agreement)) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*documentTime)
	defer cancel()
	for {
		a, revision, err := s.readAgreement(ctx)
		if err != nil {
			return notAgreed(err)
		}
		if err := s.edited(a, edit); err != nil {
			return err
		}
		text, err := json.Marshal(a)
		if err != nil {
			return fmt.Errorf("write the policy's document: %w", err)
		}
		revision, err = s.cluster.Put(ctx, policyKey, text, revision)
		switch {
		case err == nil:
			return s.apply(a, revision)
		case !errors.Is(err, cluster.ErrConflict) || ctx.Err() != nil:
			return notAgreed(err)
		}
	}
}

// edited makes an edit over the policy that this replica has, and refuses what can't
// be in force here.
func (s *Service) edited(a *agreement, edit func(*agreement)) error {
	s.policyMu.Lock()
	defer s.policyMu.Unlock()
	if a.Over != s.agreements.over {
		a.Over, a.Policy, a.Modes = s.agreements.over, "", nil
	}
	edit(a)
	_, err := s.compose(a)
	return err
}

func (s *Service) readAgreement(ctx context.Context) (*agreement, uint64, error) {
	e, err := s.cluster.Get(ctx, policyKey)
	if errors.Is(err, cluster.ErrNoKey) {
		s.policyMu.Lock()
		defer s.policyMu.Unlock()
		return &agreement{Version: policyVersion, Over: s.agreements.over, Off: s.offHeld}, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	a, err := decodeAgreement(e.Value)
	return a, e.Revision, err
}

func decodeAgreement(text []byte) (*agreement, error) {
	var a agreement
	if err := decodeDocument(text, &a, &a.Version, policyVersion); err != nil {
		return nil, fmt.Errorf("read the policy's document: %w", err)
	}
	return &a, nil
}

// policyChanged hears of a change of the document.
func (s *Service) policyChanged(e cluster.Entry) {
	s.policyMu.Lock()
	known := e.Revision <= s.agreements.revision
	s.policyMu.Unlock()
	if known {
		return
	}
	a, err := decodeAgreement(e.Value)
	if err == nil {
		err = s.apply(a, e.Revision)
	}
	if err != nil {
		s.log.Error("what another replica was told isn't in force here", "err", err)
	}
	s.policyMu.Lock()
	s.agreements.problem = err
	s.policyMu.Unlock()
}

// notAgreed is for who asked for a change that couldn't be agreed on.
func notAgreed(err error) error {
	if errors.Is(err, cluster.ErrNotReady) || errors.Is(err, context.DeadlineExceeded) {
		return &api.Failure{Status: http.StatusServiceUnavailable, Code: noMajority, Message: "the replicas can't agree now: " + err.Error(), Remedy: "see GET /v1/status for who is missing; nothing was changed"}
	}
	return fmt.Errorf("agree with the other replicas: %w", err)
}

// documentsLoop reads the documents as soon as they can be read, and follows them.
func (s *Service) documentsLoop(ctx context.Context) {
	begin := time.Now()
	again := time.NewTimer(0)
	defer again.Stop()
	for before := ""; ; {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
		err := s.firstDocuments(ctx)
		if err == nil {
			break
		}
		if text := err.Error(); text != before && time.Since(begin) > time.Second {
			s.log.Info("waiting for the other replicas", "err", err)
			before = text
		}
		again.Reset(documentFirst)
	}
	kick(s.urgent)
	var watches sync.WaitGroup
	for key, changed := range map[string]func(cluster.Entry){
		membersKey: s.membersChanged, workersKey: s.workersChanged, policyKey: s.policyChanged,
	} {
		watches.Go(func() { _ = s.cluster.Watch(ctx, key, changed) }) // only ctx ends it
	}
	watches.Wait()
}

// documentFirst is how often documents are looked for at first.
const documentFirst = 20 * time.Millisecond

// firstDocuments takes over what was agreed on before.
func (s *Service) firstDocuments(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, documentTime)
	defer cancel()
	if err := s.cluster.Problem(); err != nil {
		return err
	}
	if err := s.firstMembers(ctx); err != nil {
		return err
	}
	if err := s.firstWorkers(ctx); err != nil {
		return err
	}
	numbers, _, err := s.readNumbers(ctx)
	if err != nil {
		return err
	}
	a, revision, err := s.readAgreement(ctx)
	if err != nil {
		return err
	}
	s.policyMu.Lock()
	s.quota.numbers = numbers
	same := a.Over == s.agreements.over
	s.agreed.Store(true)
	s.policyMu.Unlock()
	if same && revision != 0 {
		err = s.apply(a, revision)
	} else {
		err = s.agree(func(*agreement) {})
	}
	if err != nil {
		s.agreed.Store(false)
	}
	return err
}

// agreeOff switches the fleet off or on. Without a majority it does so at this
// replica alone: who calls for it has a reason.
func (s *Service) agreeOff(off bool) error {
	err := s.agree(func(a *agreement) { a.Off = off })
	var f *api.Failure
	if !errors.As(err, &f) || f.Code != noMajority {
		return err
	}
	s.policyMu.Lock()
	here, revision := s.agreements.agreement, s.agreements.revision
	s.policyMu.Unlock()
	here.Off = off
	if err := s.apply(&here, revision); err != nil {
		return err
	}
	return &api.Failure{Status: f.Status, Code: f.Code, Message: f.Message + "; this replica alone was switched", Remedy: "switch the others by themselves, or see GET /v1/status for who is missing"}
}

// agreeMode switches a pool.
func (s *Service) agreeMode(pool, mode string) error {
	if _, err := s.policy.Load().withMode(pool, mode); err != nil {
		return err
	}
	return s.agree(func(a *agreement) {
		modes := maps.Clone(a.Modes)
		if modes == nil {
			modes = map[string]string{}
		}
		modes[pool] = mode
		a.Modes = modes
	})
}
