package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/warmpath/warmpath/control/cluster"
)

// Gateways count tenants by numbers, which must mean the same at every replica: the
// document "tenants" has them, by name. Who publishes a policy with a new tenant
// adds it there first.
const tenantsKey = "tenants"

// agreeNumbers gives every tenant of the settings its number.
func (s *Service) agreeNumbers(ctx context.Context, d *document) error {
	given, _ := d.admission["tenants"].(map[string]any)
	for {
		numbers, revision, err := s.readNumbers(ctx)
		if err != nil {
			return notAgreed(err)
		}
		before := maps.Clone(numbers)
		for _, name := range slices.Sorted(maps.Keys(given)) {
			tenantNumber(numbers, name, d.settings, given)
		}
		if !maps.Equal(numbers, before) {
			text, err := json.Marshal(numbers)
			if err != nil {
				return fmt.Errorf("write the tenants' numbers: %w", err)
			}
			_, err = s.cluster.Put(ctx, tenantsKey, text, revision)
			if errors.Is(err, cluster.ErrConflict) && ctx.Err() == nil {
				continue
			}
			if err != nil {
				return notAgreed(err)
			}
		}
		s.policyMu.Lock()
		s.quota.numbers = numbers
		s.policyMu.Unlock()
		return nil
	}
}

// numbered tells whether every tenant of a policy has its number. Requires policyMu.
func (s *Service) numbered(d *document) bool {
	given, _ := d.admission["tenants"].(map[string]any)
	for name := range given {
		if _, ok := s.quota.numbers[name]; !ok && name != d.settings.Tenants[0].Name {
			return false
		}
	}
	return true
}

// readNumbers reads the document; without one, what a service that was alone has
// given.
func (s *Service) readNumbers(ctx context.Context) (map[string]int, uint64, error) {
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
