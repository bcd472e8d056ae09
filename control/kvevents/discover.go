package kvevents

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

// MaxRanks bounds what one engine may announce.
const MaxRanks = 64

// Discover asks an engine where its ranks publish (GET /kv_event_sources) and
// returns them by rank. address is the worker's ip:port; endpoints that are
// bound to every interface are reached there.
func Discover(ctx context.Context, client *http.Client, address, token string) ([]Endpoint, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/kv_event_sources", nil)
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask for event sources: %w", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("ask for event sources: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET /kv_event_sources answers %d: start the engine with KV events on, or name kv_events.endpoint", res.StatusCode)
	}
	return parseSources(body, address)
}

func parseSources(body []byte, address string) ([]Endpoint, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	var ranks map[string]struct {
		Enabled   bool   `json:"enable_kv_cache_events"`
		Publisher string `json:"publisher"`
		Endpoint  string `json:"endpoint"`
		Replay    string `json:"replay_endpoint"`
		Topic     string `json:"topic"`
	}
	if err := json.Unmarshal(body, &ranks); err != nil {
		return nil, fmt.Errorf("read event sources: %w", err)
	}
	if len(ranks) > MaxRanks {
		return nil, fmt.Errorf("%d event sources, at most %d are followed", len(ranks), MaxRanks)
	}
	type ranked struct {
		rank int
		Endpoint
	}
	var found []ranked
	for name, r := range ranks {
		rank, err := strconv.Atoi(name)
		if err != nil || rank < 0 {
			return nil, fmt.Errorf("read event sources: %q is no rank", name)
		}
		if !r.Enabled || r.Publisher != "zmq" {
			continue
		}
		e := Endpoint{Topic: r.Topic}
		if e.Events, err = Reachable(r.Endpoint, host); err != nil {
			return nil, fmt.Errorf("event source of rank %d: %w", rank, err)
		}
		if r.Replay != "" {
			if e.Replay, err = Reachable(r.Replay, host); err != nil {
				return nil, fmt.Errorf("replay of rank %d: %w", rank, err)
			}
		}
		found = append(found, ranked{rank, e})
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no rank publishes KV events: start the engine with enable_kv_cache_events and publisher zmq")
	}
	slices.SortFunc(found, func(a, b ranked) int { return cmp.Compare(a.rank, b.rank) })
	out := make([]Endpoint, len(found))
	for i := range found {
		out[i] = found[i].Endpoint
		out[i].Rank = found[i].rank
	}
	return out, nil
}

// Reachable puts host where an endpoint is bound to every interface, as engines
// are told theirs.
func Reachable(endpoint, host string) (string, error) {
	if err := CheckEndpoint(endpoint); err != nil {
		return "", err
	}
	u, _ := url.Parse(endpoint)
	if h := u.Hostname(); h == "*" || net.ParseIP(h).IsUnspecified() {
		return "tcp://" + net.JoinHostPort(host, u.Port()), nil
	}
	return endpoint, nil
}

// CheckEndpoint says what is wrong with an endpoint, nil when nothing is.
func CheckEndpoint(endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "tcp" || u.Hostname() == "" || u.Path != "" {
		return fmt.Errorf("%q is not tcp://host:port", endpoint)
	}
	if port, err := strconv.Atoi(u.Port()); err != nil || port < 1 || port > 65535 {
		return fmt.Errorf("%q has no port", endpoint)
	}
	return nil
}
