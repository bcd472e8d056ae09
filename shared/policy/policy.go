// Package policy is the parsed form of the routing policy: which pool serves a model, and how a
// worker of the pool is chosen.
//
// A policy is written as JSON by the control service, travels as it is in the POLICY section
// and in shared data, and is parsed by every VM with Parse, which refuses what it does not know
// and says where. A request asks the Set for its Pool by model name and hands the Pool to
// route.Choose.
package policy

import "time"

// Mode says how much of a decision is carried out.
type Mode uint8

const (
	// Route steers requests. The default.
	Route Mode = iota
	// Observe computes and counts everything and steers nothing.
	Observe
)

// String returns the name used in the JSON.
func (m Mode) String() string {
	if m == Observe {
		return "observe"
	}
	return "route"
}

// Name is a policy.
type Name uint8

const (
	// Threshold: the least loaded of the workers with the longest match, the ring without one.
	Threshold Name = iota
	// RoundRobin: one after the other.
	RoundRobin
	// SessionHash: consistent hashing of the session key, whatever the load.
	SessionHash
	// LeastLoad: the least loaded worker, whatever the match.
	LeastLoad
	// Random: any worker.
	Random
	// CHWBL: consistent hashing of the prefix with bounded loads.
	CHWBL
	// Cost: the worker where the request, and those that it delays or whose cache it takes, lose
	// the least time. The default.
	Cost
	// Weighted: the most cached share against queue and use, three to one.
	Weighted
	// Custom: the highest score by the function that was built into the module. In a module
	// without one, and in all else that has none, Threshold with its defaults takes its place.
	Custom
)

var names = [...]string{
	Threshold: "threshold", RoundRobin: "round_robin", SessionHash: "session_hash",
	LeastLoad: "least_load", Random: "random", CHWBL: "chwbl", Cost: "cost", Weighted: "weighted",
	Custom: "custom",
}

// DefaultRule is that of a pool whose policy names none: of all, the one with the least mean time
// to the first token in almost every workload at every load (docs/simulator.md).
const DefaultRule = Cost

// String returns the name used in the JSON.
func (n Name) String() string {
	if int(n) < len(names) {
		return names[n]
	}
	return "unknown"
}

// Policy is a choice rule with its parameters. A parameter that a rule does not use is refused
// by Parse when it is written next to it.
type Policy struct {
	Name Name

	// LoadLimit (share of capacity, (0, 1], default 0.85; threshold): a worker at or above it
	// takes no request for its cache. 0.85 leaves room for the requests that other gateways send
	// within one report period; at 0.95 the queue builds before the next report tells.
	LoadLimit float64
	// MinMatchTokens (tokens, 0 to 1,048,576, default 256; threshold): a shorter match is not
	// worth leaving the least loaded worker for. 256 tokens are about 20 ms of prefill on one
	// GPU, the spread of the queueing delay between workers at half load.
	MinMatchTokens int
	// Watermark (share of KV blocks that running requests hold, (0, 1], default 0.98;
	// threshold, least_load, chwbl, cost, weighted, custom): at a worker at or above it a new request
	// waits until a running one ends, so it is left out while others are below. cost leaves nobody out:
	// what a request waits there is priced, and where the pool's mean is at it a second of prefill counts
	// to all requests at a worker. That price begins to rise at 0.7 of it.
	Watermark float64
	// LoadBound (factor, [1.01, 10], default 1.25; threshold, chwbl): how far above the mean
	// number of requests a worker may be before its keys walk to the next one on the ring.
	LoadBound float64
	// HolderBound (factor, [1.1, 100], default 2; threshold): a worker with more than this times
	// the mean number of requests (and two more) takes no request for its cache; the request
	// goes to the next holder, or makes another home for its prefix. Without it a tenant with a
	// sixth of the traffic keeps one worker of 16 at 2.7 times its share until load_limit: in the
	// demo's workload 2 gives a mean TTFT of 96 ms, 1.25 gives 112, 5 gives 418, none 11 s.
	HolderBound float64
	// VirtualNodes (points per worker, 1 to 1,024, default 128; threshold, chwbl,
	// session_hash): more even out the ring's shares (error 1/sqrt(n)) and cost 8 bytes each.
	VirtualNodes int
	// LoadDecay (duration, 100 ms to 10 min, default 5 s, JSON load_decay_ms; threshold,
	// least_load, weighted, custom): after this time without a report a worker counts as loaded as the fleet's
	// mean. 5 s is a few engine queue turnovers and ten missed reports.
	LoadDecay time.Duration
	// MissWeight (factor, [0, 100], default 3; cost): each second of prefill that a worker's cache
	// does not save counts this much more, as it also makes another copy of the prefix and pushes
	// something else out. What the requests at a worker lose by it comes on top, by DecodeWeight. With
	// both at 0 the rule sees only this request's own time, which near saturation was 76 to 286 times
	// worse in the study behind it.
	MissWeight float64
	// DecodeWeight (factor, [0, 10], default 0.13; cost): what a second of decoding counts, this
	// request's own and what it costs those already decoding there, by its decoding as by each
	// second of its prefill.
	// At 0.2 requests leave short queues, and caches, for batches that are short
	// by chance; at 0.1 fewer have their tokens in time near saturation.
	DecodeWeight float64
	// EvictWeight (factor, [0, 100], default 3; cost): what a second of prefill counts that the
	// blocks pushed out had saved somebody, if they were used a moment ago.
	EvictWeight float64
	// TailDecay (duration, 100 ms to 1 h, default 20 s, JSON tail_decay_ms; cost): how fast that
	// fades with the age of the block that goes next: by a factor e in this time. 20 s is the time
	// between two turns of a conversation.
	TailDecay time.Duration
	// SpreadWeight (duration, 0 to 60 s, default 200 ms, JSON spread_weight_ms; cost): what a
	// worker costs more that has had twice the fleet's mean of work lately.
	SpreadWeight time.Duration
	// Sample (share, (0, 1], default 0.5; cost): how many of the holders of the longest match, if
	// there are more than two, and how many of the other workers are looked at. A half at reports
	// every 100 ms, a quarter at 500 ms: with all of them many gateways see the same best worker and
	// herd. With 64 gateways and a prefix that everybody holds a half gives a p50 of 160 ms, all 200.
	Sample float64
	// OutputTokens (tokens, 1 to 1,048,576, default 250; cost): the answer to expect. 250 is the
	// mean of recorded conversations.
	OutputTokens int
	// DecodeStep (duration, 0 to 1 s, default 200 us, JSON decode_step_us; cost): how much one
	// more request in the batch adds to the time of everybody's next token. 50 us of bookkeeping
	// and the reading of 2,000 tokens of context, for a 70B model on two H100.
	DecodeStep time.Duration
	// Ramp (duration, 0 to 10 min, default 60 s, JSON ramp_ms; cost): for how long a worker whose
	// cache was empty (new, returned, all evicted) is priced by how much later a first token comes
	// there, and not for its copies; the price fades into the usual one. After 60 s nearly every
	// conversation has come back a few times; 0 prices it as all others.
	Ramp time.Duration
	// RampFirst (duration, 1 ms to 60 s, default 165 ms, JSON ramp_first_ms; cost): how much later
	// the first token may come there than where most of the prompt is held before that costs more than
	// elsewhere; twice that where all of the pool is young. The price grows with the 16th power. Longer
	// fills the cache sooner and lets more requests wait there. 165 ms are 1,800 tokens of a 70B model on
	// two H100: a common system prompt and a question, or a conversation whose system prompt is there.
	RampFirst time.Duration
	// CopySlice (tokens, 0 or 256 to 8,192, default 768, JSON copy_slice_tokens; cost): where a worker
	// shall hold a hot prefix, a gateway of a pool in exact mode computes it there by requests of its
	// own, each so much more of it than the one before. Who lives there waits for one of them, 70 ms of
	// a 70B model on two H100, and not for the whole prefix in the first hot request, 0.75 s for 8,000
	// tokens. Smaller are gentler and take longer, as each also waits its turn. At 0 the first request
	// computes it.
	CopySlice int
	// Explore (share of the requests, [0, 0.5], default 0; cost, weighted, threshold): so many go
	// to a worker drawn by chance, to learn of it. At 5 % on a hot prefix it cost 1.65 times the mean
	// TTFT and 4 points of hits in the study behind the rule: what it could find, reports tell.
	Explore float64
	// CacheWeight (factor, [0, 100], default 3; weighted): what the cached share of the prompt
	// counts against the load, whose weight is 1.
	CacheWeight float64
	// MaxQueue (share of the batch limit, [0.01, 100], default 1; weighted): the queue that counts
	// as full. It is a share because what is a long queue for an engine that batches 64 is a quiet
	// moment for one that batches 256; a worker whose limit nobody knows counts as one of 64.
	MaxQueue float64
	// QueueBreaker (share of the batch limit, [0.01, 100], default 0.75; weighted): a worker with a
	// longer queue gets nothing for its cache.
	QueueBreaker float64
	// Lease (duration, 1 s to 1 h, default 30 s, JSON lease_ms; all rules): a worker silent for
	// longer is left out. 30 s survives a slow scrape and a control restart.
	Lease time.Duration
}

// Default returns the defaults of a rule.
func Default(name Name) Policy {
	return Policy{
		Name: name, LoadLimit: 0.85, MinMatchTokens: 256, Watermark: 0.98, LoadBound: 1.25, HolderBound: 2,
		VirtualNodes: 128, LoadDecay: 5 * time.Second, Lease: 30 * time.Second,
		MissWeight: 3, DecodeWeight: 0.13, EvictWeight: 3, TailDecay: 20 * time.Second, SpreadWeight: 200 * time.Millisecond,
		Sample: 0.5, OutputTokens: 250, DecodeStep: 200 * time.Microsecond,
		Ramp: time.Minute, RampFirst: 165 * time.Millisecond, CopySlice: 768,
		CacheWeight: 3, MaxQueue: 1, QueueBreaker: 0.75,
	}
}

// ControlGroup is a part of a pool's sessions that is routed by a rule of its own.
type ControlGroup struct {
	// Share of the sessions, 0 (no group) to 0.5.
	Share float64
	// Policy of the group. Its VirtualNodes don't count: the ring is the pool's.
	Policy Policy
}

// Has tells whether a session, or a prefix, belongs to the group. It depends on key and share
// alone, so a conversation stays in its group in every gateway; with a larger share, those in it
// stay. Key 0, a request that nothing is known of, never does.
func (g *ControlGroup) Has(key uint64) bool {
	if key == 0 || g.Share <= 0 {
		return false
	}
	// Mixed, so that the group is spread evenly over the ring, which orders by the same key.
	x := key ^ 0xc0117201_9709b5e7
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return float64((x^x>>31)>>11)/(1<<53) < g.Share
}

// Pool is the workers that serve some models, and how one is chosen.
type Pool struct {
	// Name is [a-z0-9-]{1,40} and part of the fingerprint salt.
	Name string
	// Index is the pool's number in roster records and reports, 0 to 255, unique.
	Index uint8
	// Models are exact names of the base model, which share its cache; "*" takes what no other
	// pool names.
	Models []string
	// Adapters are served beside it, each with a cache of its own. One may be among Models too.
	Adapters []Adapter
	Mode     Mode
	Policy   Policy
	// Control is a share of the sessions that is routed by another rule, to compare with.
	Control ControlGroup
	// RingUnits (units, 1 to 65,536, default 16): the position whose fingerprint is the ring
	// key. 16 units are 256 tokens: beyond most fixed preambles, before most user text.
	RingUnits int
	// UnitBytes is the unit of the approximate mode. Only 64: it is part of the format.
	UnitBytes int
	// Cluster is the Envoy cluster, default "pool-" + Name.
	Cluster string
	// SlowCredit (share, [0, 1], default 0) is what a token that a worker has in slower memory,
	// on CPU or disk, saves of computing it. At 0 nobody asks the table for such.
	SlowCredit float64
	// Exact is how prompts become tokens, nil for a pool in approximate mode. It comes from the
	// EXACT section, see ParseExact.
	Exact *Exact
}

// Adapter is a set of weights over the base model that requests name.
type Adapter struct {
	Name string
	// Generation tells sets of weights apart that had the same name, 0 to MaxGeneration: nothing
	// that was cached under one is found under another.
	Generation uint64
}

// MaxGeneration is the highest generation of an adapter, so that JSON numbers hold any.
const MaxGeneration = 1<<48 - 1

// Generation returns that of an adapter; 0 also where the pool has none of this name.
func (p *Pool) Generation(adapter string) uint64 {
	for i := range p.Adapters {
		if p.Adapters[i].Name == adapter {
			return p.Adapters[i].Generation
		}
	}
	return 0
}

// Canonical returns what a model's name stands for in fingerprints: "" for the base model by any
// of its names, an adapter by its name and generation. A name that only "*" takes stands for
// itself, since nobody knows what it names.
func (p *Pool) Canonical(model string) (adapter string, generation uint64) {
	for i := range p.Adapters {
		if a := &p.Adapters[i]; a.Name == model {
			return a.Name, a.Generation
		}
	}
	for _, m := range p.Models {
		if m == model && m != "*" {
			return "", 0
		}
	}
	return model, 0
}

// Set is the whole policy.
type Set struct {
	// Off makes every pool observe.
	Off   bool
	Pools []Pool
	// Vocabularies are those that the pools use or will use, each once. See ParseExact.
	Vocabularies []Vocabulary
}

// Pool returns the pool that serves a model: by exact name, else the one with "*", else nil.
func (s *Set) Pool(model string) *Pool {
	var rest *Pool
	for i := range s.Pools {
		for j := range s.Pools[i].Adapters {
			if s.Pools[i].Adapters[j].Name == model {
				return &s.Pools[i]
			}
		}
		for _, m := range s.Pools[i].Models {
			switch {
			case m == model && m != "*":
				return &s.Pools[i]
			case m == "*":
				rest = &s.Pools[i]
			}
		}
	}
	return rest
}

// ByIndex returns the pool with an index, or nil.
func (s *Set) ByIndex(index uint8) *Pool {
	for i := range s.Pools {
		if s.Pools[i].Index == index {
			return &s.Pools[i]
		}
	}
	return nil
}

// ByName returns the pool with a name, or nil.
func (s *Set) ByName(name string) *Pool {
	for i := range s.Pools {
		if s.Pools[i].Name == name {
			return &s.Pools[i]
		}
	}
	return nil
}

// Mode returns the mode in force for a pool: Observe while the set is off.
func (s *Set) Mode(p *Pool) Mode {
	if s.Off {
		return Observe
	}
	return p.Mode
}
