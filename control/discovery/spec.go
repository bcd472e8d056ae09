package discovery

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Limits of one list. They are far above any fleet that one table serves and
// keep a mistaken file (a log, a dump) from becoming a roster.
const (
	MaxListBytes = 4 << 20
	MaxWorkers   = 1000
)

// Spec is what an operator says about one worker.
type Spec struct {
	// Address is ip:port, canonical after Parse ("127.0.0.1:9001", "[::1]:9001"), for
	// one of several data-parallel ranks behind it with its number ("10.0.0.7:8000@1").
	// A name is refused: the proxy's override host takes addresses only.
	Address string `yaml:"address" json:"address"`
	// Ranks of a data-parallel engine behind the address; each becomes a worker, and
	// requests choose theirs by header. 0 and 1: the address is one worker.
	Ranks int `yaml:"ranks" json:"ranks,omitempty"`
	// Pool is the name of the pool the worker serves; "default" when empty.
	Pool string `yaml:"pool" json:"pool"`
	// MaxRunning is the number of sequences the engine runs at once; 0 unknown.
	MaxRunning int `yaml:"max_running" json:"max_running,omitempty"`
	// QueueLimit is the number of requests the engine lets wait; 0 unknown.
	QueueLimit int `yaml:"queue_limit" json:"queue_limit,omitempty"`
	// CapacityTokens is the size of the prefix cache in tokens. 0 means unknown:
	// DefaultCapacityTokens is assumed.
	CapacityTokens int `yaml:"capacity_tokens" json:"capacity_tokens,omitempty"`
	// CapacityAssumed: CapacityTokens is the default, because nobody said better.
	CapacityAssumed bool `yaml:"-" json:"-"`
	// BlockTokens is the engine's cache block in tokens; DefaultBlockTokens when 0.
	BlockTokens int `yaml:"block_tokens" json:"block_tokens,omitempty"`
	// BlockAssumed: BlockTokens is the default, because nobody said better.
	BlockAssumed bool `yaml:"-" json:"-"`
	// PrefillTokensPerSecond is the starting point of the learned rate; 0 unknown.
	PrefillTokensPerSecond float64 `yaml:"prefill_tokens_per_second" json:"prefill_tokens_per_second,omitempty"`
	// Generation names the process behind the address (a pod uid's hash, say).
	// 0 means: take the process start time from the worker's metrics, or count.
	Generation uint64 `yaml:"generation" json:"generation,omitempty"`
	// KVEvents says where the engine tells what it stores; the zero value: nowhere.
	KVEvents KVEvents `yaml:"kv_events" json:"kv_events,omitzero"`
	// Drain keeps new requests away; running ones finish.
	Drain bool `yaml:"drain" json:"drain,omitempty"`
	// Source is the name of the source that lists it; Lists fills it in.
	Source string `yaml:"-" json:"-"`
	// Incarnation names what stands behind the address, as the source knows it (a
	// pod's uid). Another one is another worker from the moment it is listed. The
	// process start time counts beside it. 0 unknown.
	Incarnation uint64 `yaml:"-" json:"-"`
	// Note is why the source says Drain, for people.
	Note string `yaml:"-" json:"-"`
}

// Defaults of a Spec.
const (
	DefaultPool           = "default"
	DefaultBlockTokens    = 16
	DefaultCapacityTokens = 256 << 10
)

// Problem is one thing wrong in a list.
type Problem struct {
	Source string // file name or "body"
	Line   int    // 0 when unknown
	Field  string // "workers[2].address"
	What   string
	Remedy string
}

func (p Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.Source)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	b.WriteString(": ")
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	b.WriteString(p.What)
	if p.Remedy != "" {
		b.WriteString(" (" + p.Remedy + ")")
	}
	return b.String()
}

type list struct {
	Workers []Spec `yaml:"workers"`
}

// Parse reads a worker list (YAML, and so JSON) and returns it checked and
// canonical, or every problem it has (joined; each a Problem). An empty list is
// legal only when it is spelled out (`workers: []`): an empty file is more
// likely a broken write than a fleet of none.
func Parse(source string, data []byte) ([]Spec, error) {
	if len(data) > MaxListBytes {
		return nil, Problem{Source: source, What: fmt.Sprintf("%d bytes, the limit is %d", len(data), MaxListBytes), Remedy: "a worker list is a few hundred bytes a worker; check the path"}
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, Problem{Source: source, What: yamlText(err), Remedy: "the file must be YAML with one key, workers"}
	}
	node := workersNode(&doc)
	if node == nil {
		return nil, Problem{Source: source, Line: doc.Line, What: "no key workers", Remedy: "write `workers:` and one item per worker, or `workers: []` for none"}
	}
	var l list
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&l); err != nil {
		return nil, Problem{Source: source, What: yamlText(err), Remedy: "known keys of a worker: address, ranks, pool, max_running, queue_limit, capacity_tokens, block_tokens, prefill_tokens_per_second, generation, kv_events, drain"}
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, Problem{Source: source, What: "more than one YAML document", Remedy: "keep one document, without a second ---"}
	}
	lines := make([]int, len(l.Workers))
	for i := range lines {
		if i < len(node.Content) {
			lines[i] = node.Content[i].Line
		}
	}
	return check(source, l.Workers, lines)
}

// Check validates a list that was built in memory; see Parse.
func Check(specs []Spec) ([]Spec, error) {
	return check("workers", specs, make([]int, len(specs)))
}

func check(source string, in []Spec, lines []int) ([]Spec, error) {
	if len(in) > MaxWorkers {
		return nil, Problem{Source: source, What: fmt.Sprintf("%d workers, the limit is %d", len(in), MaxWorkers), Remedy: "split the fleet over several deployments"}
	}
	out := make([]Spec, len(in))
	seen := make(map[string]int, len(in))
	whole := make(map[string]bool, len(in)) // by ip:port: listed without a rank
	var problems []error
	for i, s := range in {
		bad := func(field, what, remedy string) {
			problems = append(problems, Problem{
				Source: source, Line: lines[i],
				Field: fmt.Sprintf("workers[%d].%s", i, field), What: what, Remedy: remedy,
			})
		}
		addr, err := canonicalAddress(s.Address)
		if err != nil {
			bad("address", err.Error(), "write ip:port, for example 10.0.0.7:8000 or [fd00::7]:8000; the proxy can't be pointed at a name")
		} else if first, dup := seen[addr]; dup {
			bad("address", fmt.Sprintf("%s is listed already as workers[%d]", addr, first), "one item per address; several ranks of one engine have a port each")
		} else if one := RankOf(addr) < 0 && s.Ranks < 2; mixed(whole, Endpoint(addr), one) {
			bad("address", Endpoint(addr)+" is listed with ranks and without", "list the ranks, or the address")
		} else {
			seen[addr], whole[Endpoint(addr)] = i, one
			s.Address = addr
			if err := s.checkRanks(); err != nil {
				bad("ranks", err.Error(), "write the engine's --data-parallel-size; leave the key out when every rank has a port of its own")
			}
		}
		if s.Pool == "" {
			s.Pool = DefaultPool
		}
		if !ValidPool(s.Pool) {
			bad("pool", fmt.Sprintf("%q is not a pool name", s.Pool), "1 to 40 of a-z, 0-9 and -")
		}
		s.CapacityAssumed = s.CapacityAssumed || s.CapacityTokens == 0
		s.BlockAssumed = s.BlockAssumed || s.BlockTokens == 0
		for _, f := range []struct {
			name  string
			value *int
			max   int
			zero  int
		}{
			{"max_running", &s.MaxRunning, 65535, 0},
			{"queue_limit", &s.QueueLimit, 65535, 0},
			{"capacity_tokens", &s.CapacityTokens, 1 << 31, DefaultCapacityTokens},
			{"block_tokens", &s.BlockTokens, 65535, DefaultBlockTokens},
		} {
			if *f.value < 0 || *f.value > f.max {
				bad(f.name, fmt.Sprintf("%d is outside 0..%d", *f.value, f.max), "leave the key out when you don't know it")
			}
			if *f.value == 0 {
				*f.value = f.zero
			}
		}
		if r := s.PrefillTokensPerSecond; !(r >= 0 && r <= 1e9) {
			bad("prefill_tokens_per_second", fmt.Sprintf("%v is outside 0..1e9", r), "leave the key out: the rate is learned")
		}
		if err := s.KVEvents.check(); err != nil {
			bad("kv_events", err.Error(), "write auto, or endpoint: tcp://host:port with replay and topic where the engine has them")
		} else if host, _, err := net.SplitHostPort(Endpoint(addr)); err == nil {
			s.KVEvents.reachAt(host)
		}
		out[i] = s
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return out, nil
}

// ValidPool reports whether name may name a pool: [a-z0-9-]{1,40}.
func ValidPool(name string) bool {
	if len(name) == 0 || len(name) > 40 {
		return false
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// mixed tells whether an ip:port is listed as one worker and by ranks.
func mixed(whole map[string]bool, endpoint string, one bool) bool {
	was, listed := whole[endpoint]
	return listed && was != one
}

func canonicalAddress(s string) (string, error) {
	if s == "" {
		return "", errors.New("missing")
	}
	rank := ""
	if endpoint, text, ranked := strings.Cut(s, "@"); ranked {
		var err error
		if rank, err = canonicalRank(text); err != nil {
			return "", fmt.Errorf("%q: %w", s, err)
		}
		s = endpoint
	}
	ap, err := netip.ParseAddrPort(s)
	if err != nil {
		return "", fmt.Errorf("%q is not ip:port", s)
	}
	switch {
	case ap.Port() == 0:
		return "", fmt.Errorf("%q has port 0", s)
	case ap.Addr().Zone() != "":
		return "", fmt.Errorf("%q has a zone", s)
	case ap.Addr().IsUnspecified() || ap.Addr().IsMulticast():
		return "", fmt.Errorf("%q can't be connected to", s)
	}
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()).String() + rank, nil
}

func workersNode(doc *yaml.Node) *yaml.Node {
	if doc.Kind != yaml.DocumentNode || len(doc.Content) == 0 {
		return nil
	}
	m := doc.Content[0]
	if m.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == "workers" && m.Content[i+1].Kind == yaml.SequenceNode {
			return m.Content[i+1]
		}
	}
	return nil
}

func yamlText(err error) string {
	return strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " ")
}
