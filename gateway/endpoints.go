package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/warmpath/warmpath/replicas"
)

// Endpoints are the workers a gateway may send to, by pool: the counterpart of
// Envoy's clusters. Safe for concurrent use; Set swaps the whole set.
type Endpoints struct {
	known atomic.Pointer[endpointSet]
	next  atomic.Uint64
	tls   atomic.Bool
}

type endpointSet struct {
	pools map[string][]string // pool -> addresses, sorted
	all   []string
	index map[string]string // address -> URL scheme
}

// NewEndpoints returns endpoints with one pool set ("" when pools don't matter).
func NewEndpoints(pool string, addresses ...string) (*Endpoints, error) {
	e := &Endpoints{}
	if err := e.Set(map[string][]string{pool: addresses}); err != nil {
		return nil, err
	}
	return e, nil
}

// TLS says whether workers speak it where their address doesn't (Set): the
// control service's list has bare addresses. It counts from the next Set on.
func (e *Endpoints) TLS(on bool) { e.tls.Store(on) }

// Set replaces every pool. An address is ip:port, or https://ip:port where the
// worker speaks TLS; any other is refused and the old set stays.
func (e *Endpoints) Set(pools map[string][]string) error {
	set := &endpointSet{pools: map[string][]string{}, index: map[string]string{}}
	for pool, addresses := range pools {
		list := make([]string, 0, len(addresses))
		for _, a := range addresses {
			scheme := pick(e.tls.Load(), "https", "http")
			if s, rest, ok := strings.Cut(a, "://"); ok && (s == "http" || s == "https") {
				scheme, a = s, rest
			}
			if _, err := netip.ParseAddrPort(a); err != nil {
				return fmt.Errorf("endpoint %q of pool %q is not ip:port such as 10.0.0.7:8000: the module names workers by address", a, pool)
			}
			if _, twice := set.index[a]; !twice {
				set.index[a] = scheme
				set.all = append(set.all, a)
			}
			list = append(list, a)
		}
		slices.Sort(list)
		set.pools[pool] = slices.Compact(list)
	}
	slices.Sort(set.all)
	e.known.Store(set)
	return nil
}

// Len is the number of distinct endpoints.
func (e *Endpoints) Len() int {
	if set := e.known.Load(); set != nil {
		return len(set.all)
	}
	return 0
}

// endpoint is where an attempt goes.
type endpoint struct{ scheme, address string }

// choose returns the endpoint of one attempt: the first entry of wanted that is
// known and wasn't tried, else the next in turn of the pool that wasn't tried
// (fellBack), else none, with an empty address. A pool that nobody is listed in
// has those that are listed without one, and not another pool's: they would answer
// 404 for a model that they don't serve, and clients take that for the last word.
func (e *Endpoints) choose(wanted []string, pool string, tried []string) (to endpoint, fellBack bool) {
	set := e.known.Load()
	if set == nil {
		return endpoint{}, false
	}
	for _, w := range wanted {
		if scheme, ok := set.index[w]; ok && !slices.Contains(tried, w) {
			return endpoint{scheme, w}, false
		}
	}
	list := set.of(pool)
	turn := e.next.Add(1) // once: others take theirs meanwhile
	for i := range uint64(len(list)) {
		if a := list[(turn+i)%uint64(len(list))]; !slices.Contains(tried, a) {
			return endpoint{set.index[a], a}, true
		}
	}
	return endpoint{}, false
}

// of returns who serves a pool: those that are listed in it, else those that are
// listed without one; of pool "", which nobody knows, everybody.
func (s *endpointSet) of(pool string) []string {
	switch list := s.pools[pool]; {
	case len(list) > 0:
		return list
	case pool == "":
		return s.all
	default:
		return s.pools[""]
	}
}

// parseEndpointHeader reads "best,second"; entries that aren't host:port are
// left out, as Envoy leaves them out.
func parseEndpointHeader(value string) []string {
	var list []string
	for part := range strings.SplitSeq(value, ",") {
		part = strings.TrimSpace(part)
		if host, port, err := net.SplitHostPort(part); err == nil && host != "" && port != "" {
			list = append(list, part)
		}
	}
	return list
}

// Follow keeps the set equal to the control service's worker list until ctx
// ends. The last good list stays while control doesn't answer.
func (e *Endpoints) Follow(ctx context.Context, control *replicas.Set, token string, every time.Duration, log *slog.Logger) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: control}
	failing := false
	for {
		err := e.pull(ctx, client, control.URL(), token)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			log.Warn("worker list not read, the last one stays", "err", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
	}
}

func (e *Endpoints) pull(ctx context.Context, client *http.Client, controlURL, token string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, controlURL+"/v1/workers", nil)
	if err != nil {
		return err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET /v1/workers answered %s", resp.Status)
	}
	var list struct {
		Workers []struct {
			Address string `json:"address"`
			Pool    string `json:"pool"`
		} `json:"workers"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(nil, resp.Body, 4<<20)).Decode(&list); err != nil {
		return fmt.Errorf("decode worker list: %w", err)
	}
	pools := map[string][]string{}
	for _, w := range list.Workers {
		// Data-parallel ranks behind one port are workers of their own: ip:port@rank.
		address, _, _ := strings.Cut(w.Address, "@")
		pools[w.Pool] = append(pools[w.Pool], address)
	}
	return e.Set(pools)
}
