package control

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/control/index"
)

// maxHolders bounds an answer: a page more is not begun behind so many.
const maxHolders = 20_000

// Entries are the entries of up to pages pages of the published table, from page
// first on, with who is believed to hold them now.
func (s *Service) Entries(epoch uint64, first, pages int) (api.Entries, error) {
	out := api.Entries{Entries: []api.Entry{}}
	addresses := addressesOf(s.fleet.Workers())
	holders := 0
	for page := first; ; page++ {
		fingerprints, at, total, err := s.table.Fingerprints(epoch, page)
		if err != nil {
			return api.Entries{}, err
		}
		epoch = at
		out.Epoch, out.Pages = at, total
		s.index.Entries(fingerprints, func(e *index.Entry) {
			out.Entries = append(out.Entries, entryOf(e, addresses))
			holders += len(e.Holders)
		})
		if page+1 == total {
			return out, nil
		}
		if page+1 == first+pages || holders > maxHolders {
			next := page + 1
			out.Next = &next
			return out, nil
		}
	}
}

// Top are the hottest entries of a pool, or of all.
func (s *Service) Top(pool string, limit int) ([]api.Entry, error) {
	if _, ok := s.policy.Load().poolIndex(pool); pool != "" && !ok {
		return nil, &api.Failure{Status: http.StatusNotFound, Code: "no_such_pool", Message: fmt.Sprintf("no pool %q", pool), Remedy: "GET /v1/policy lists the pools"}
	}
	addresses := addressesOf(s.fleet.Workers())
	out := []api.Entry{}
	for _, e := range s.index.Top(pool, limit) {
		out = append(out, entryOf(&e, addresses))
	}
	return out, nil
}

func addressesOf(workers []discovery.Worker) map[uint16]string {
	out := map[uint16]string{}
	for i := range workers {
		out[workers[i].Ref] = workers[i].Address
	}
	return out
}

func entryOf(e *index.Entry, addresses map[uint16]string) api.Entry {
	out := api.Entry{
		Fingerprint: fmt.Sprintf("%016x", e.Fingerprint), Pool: e.Pool, Units: e.Units, Tokens: e.Tokens,
		Heat: e.Heat, PoolSize: e.PoolSize, Holders: make([]api.Holder, 0, len(e.Holders)),
	}
	for _, h := range e.Holders {
		out.Holders = append(out.Holders, api.Holder{Worker: addresses[h.Ref], Ref: h.Ref, Proof: h.Proof.String()})
	}
	slices.SortFunc(out.Holders, func(a, b api.Holder) int { return int(a.Ref) - int(b.Ref) })
	return out
}
