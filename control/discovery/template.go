package discovery

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Template is what a configuration says about all workers of a source, which
// knows little more than their addresses.
type Template struct {
	Pool                   string   `yaml:"pool"`
	Ranks                  int      `yaml:"ranks"`
	MaxRunning             int      `yaml:"max_running"`
	QueueLimit             int      `yaml:"queue_limit"`
	CapacityTokens         int      `yaml:"capacity_tokens"`
	BlockTokens            int      `yaml:"block_tokens"`
	PrefillTokensPerSecond float64  `yaml:"prefill_tokens_per_second"`
	KVEvents               KVEvents `yaml:"kv_events"`
}

// Spec makes the Spec of the worker at ip and port that is the rank-th rank of
// its engine. In KVEvents the host * stands for ip, and ports are rank higher,
// as engines count them.
func (t *Template) Spec(ip netip.Addr, port uint16, rank int) (Spec, error) {
	s := Spec{
		Address: netip.AddrPortFrom(ip.Unmap(), port).String(), Pool: t.Pool, Ranks: t.Ranks,
		MaxRunning: t.MaxRunning, QueueLimit: t.QueueLimit, CapacityTokens: t.CapacityTokens, BlockTokens: t.BlockTokens,
		PrefillTokensPerSecond: t.PrefillTokensPerSecond, KVEvents: t.KVEvents,
	}
	for _, endpoint := range []*string{&s.KVEvents.Endpoint, &s.KVEvents.Replay} {
		var err error
		if *endpoint, err = endpointAt(*endpoint, ip, rank); err != nil {
			return Spec{}, err
		}
	}
	checked, err := check(s.Address, []Spec{s}, []int{0})
	if err != nil {
		return Spec{}, err
	}
	return checked[0], nil
}

// Check finds what is wrong with t whatever the address.
func (t *Template) Check() error {
	_, err := t.Spec(netip.AddrFrom4([4]byte{192, 0, 2, 1}), 1, 0)
	return err
}

// endpointAt fills ip and rank into tcp://*:port. Other hosts are one machine's
// and stay as they are.
func endpointAt(endpoint string, ip netip.Addr, rank int) (string, error) {
	port, ok := strings.CutPrefix(endpoint, "tcp://*:")
	if !ok {
		return endpoint, nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || int(n)+rank > 65535 {
		return "", fmt.Errorf("kv_events: %q has no port for rank %d", endpoint, rank)
	}
	return "tcp://" + net.JoinHostPort(ip.Unmap().String(), strconv.Itoa(int(n)+rank)), nil
}
