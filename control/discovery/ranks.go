package discovery

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/warmpath/warmpath/control/kvevents"
)

// A data-parallel engine keeps a prefix cache per rank. Where the ranks share one
// HTTP port a request says which it is for (X-data-parallel-rank), so each is a
// worker of its own, whose address ends in @rank: 10.0.0.7:8000@1.

// MaxRanks bounds the ranks behind one port.
const MaxRanks = kvevents.MaxRanks

// Endpoint is the ip:port where the worker of an address is reached.
func Endpoint(address string) string {
	endpoint, _, _ := strings.Cut(address, "@")
	return endpoint
}

// RankOf is the data-parallel rank in a worker's address, -1 for a worker that has
// its port for itself.
func RankOf(address string) int {
	_, text, ranked := strings.Cut(address, "@")
	if !ranked {
		return -1
	}
	rank, _ := strconv.Atoi(text) // canonicalAddress has read it
	return rank
}

// canonicalRank is the end of an address that names a rank.
func canonicalRank(text string) (string, error) {
	rank, err := strconv.Atoi(text)
	if err != nil || rank < 0 || rank >= MaxRanks {
		return "", fmt.Errorf("%q is not a rank of 0 to %d", text, MaxRanks-1)
	}
	return "@" + strconv.Itoa(rank), nil
}

// checkRanks finds what is wrong with Ranks.
func (s *Spec) checkRanks() error {
	switch {
	case s.Ranks < 0 || s.Ranks > MaxRanks:
		return fmt.Errorf("%d is outside 0..%d", s.Ranks, MaxRanks)
	case s.Ranks > 1 && RankOf(s.Address) >= 0:
		return errors.New("the address names one rank already")
	}
	_, err := s.rank(max(s.Ranks, 1) - 1)
	return err
}

// perRank is one spec for each rank behind the address.
func (s *Spec) perRank() []Spec {
	if s.Ranks < 2 {
		return []Spec{*s}
	}
	out := make([]Spec, s.Ranks)
	for r := range out {
		out[r], _ = s.rank(r) // checkRanks has tried the last
	}
	return out
}

// rank is the spec of one of several ranks, which publishes at the port of the
// first + its number.
func (s *Spec) rank(r int) (Spec, error) {
	if s.Ranks < 2 {
		return *s, nil
	}
	one := *s
	one.Ranks, one.Address = 0, s.Address+"@"+strconv.Itoa(r)
	for _, e := range []*string{&one.KVEvents.Endpoint, &one.KVEvents.Replay} {
		if *e == "" {
			continue
		}
		host, port, err := net.SplitHostPort(strings.TrimPrefix(*e, "tcp://"))
		if err != nil {
			return Spec{}, err
		}
		n, err := strconv.Atoi(port)
		if err != nil || n+r > 65535 {
			return Spec{}, fmt.Errorf("%s has no port for rank %d", *e, r)
		}
		*e = "tcp://" + net.JoinHostPort(host, strconv.Itoa(n+r))
	}
	return one, nil
}
