package control

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/warmpath/warmpath/control/discovery/adapters"
)

const (
	askNamesTries = 5
	askNamesEvery = time.Second
)

// baseNames are the names under which clients ask for the base model behind a
// worker: those of the pool that the engine serves as such, all that it does for
// a pool with "*". An adapter's name among them would claim the base model's
// blocks for it. An engine that doesn't tell is believed to serve the pool's.
func (f *feed) baseNames(ctx context.Context, s *Service, client *http.Client, ofPool []string) []string {
	wanted := slices.DeleteFunc(slices.Clone(ofPool), func(m string) bool { return m == "*" })
	served, err := askNames(ctx, client, f.key.address, s.cfg.Health.Token)
	if err != nil || len(served) == 0 {
		if err != nil && ctx.Err() == nil && !errors.Is(err, adapters.ErrNoList) {
			s.log.Warn("worker's models unknown, its events count for all of the pool's", "worker", f.key.address, "err", err)
		}
		return wanted[:min(len(wanted), maxModels)]
	}
	names := slices.DeleteFunc(slices.Clone(wanted), func(m string) bool {
		return m != f.key.events.Model && !slices.Contains(served, m)
	})
	if len(wanted) < len(ofPool) { // "*"
		for _, m := range served {
			if !slices.Contains(names, m) {
				names = append(names, m)
			}
		}
	}
	if len(names) == 0 {
		s.log.Warn("worker serves no base model of its pool: its events count for its adapters alone", "worker", f.key.address, "serves", served, "pool", wanted)
	}
	return names[:min(len(names), maxModels)]
}

// askNames asks again while the engine can't be reached.
func askNames(ctx context.Context, client *http.Client, address, token string) (names []string, err error) {
	for try := range askNamesTries {
		if try > 0 {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(askNamesEvery):
			}
		}
		if names, _, err = adapters.Models(ctx, client, address, token); err == nil || errors.Is(err, adapters.ErrNoList) {
			return names, err
		}
	}
	return nil, err
}
