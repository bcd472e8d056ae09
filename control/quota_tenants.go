package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/warmpath/warmpath/control/cluster"
	"github.com/warmpath/warmpath/shared/policy"
)

// Gateways count tenants by numbers, which must mean the same at every replica: the
// document "tenants" has them, by name. Who publishes a policy with a new tenant
// adds it there first.
const tenantsKey = "tenants"

// agreeNumbers gives every tenant of the settings its number. Requires policyMu.
func (s *Service) agreeNumbers(ctx context.Context, d *document) error {
	given, _ := d.admission["tenants"].(map[string]any)
	for s.unnumbered(given, d.settings) {
		numbers, revision, err := s.readNumbers(ctx)
		if err != nil {
			return notAgreed(err)
		}
		before := maps.Clone(numbers)
		s.quota.numbers = numbers
		for _, name := range slices.Sorted(maps.Keys(given)) {
			s.tenantNumber(name, d.settings, given)
		}
		if maps.Equal(numbers, before) {
			return nil
		}
		text, err := json.Marshal(numbers)
		if err != nil {
			return fmt.Errorf("write the tenants' numbers: %w", err)
		}
		put, cancel := context.WithTimeout(ctx, documentTime)
		_, err = s.cluster.Put(put, tenantsKey, text, revision)
		cancel()
		switch {
		case errors.Is(err, cluster.ErrConflict):
			s.quota.numbers = map[string]int{} // look again
		case err != nil:
			return notAgreed(err)
		}
	}
	return nil
}

// unnumbered tells whether a tenant has no number yet.
func (s *Service) unnumbered(given map[string]any, a *policy.Admission) bool {
	for name := range given {
		if _, ok := s.quota.numbers[name]; !ok && name != a.Tenants[0].Name {
			return true
		}
	}
	return false
}

// readNumbers reads the document; without one, what a service that was alone has
// given.
func (s *Service) readNumbers(ctx context.Context) (map[string]int, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, documentTime)
	defer cancel()
	e, err := s.cluster.Get(ctx, tenantsKey)
	if errors.Is(err, cluster.ErrNoKey) {
		return s.recall().Tenants, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	numbers := map[string]int{}
	if err := json.Unmarshal(e.Value, &numbers); err != nil {
		return nil, 0, fmt.Errorf("read the tenants' numbers: %w", err)
	}
	return numbers, e.Revision, nil
}
