// Package route chooses the worker of a request.
//
// A request travels through it like this: the caller builds a View of the pool (policy,
// workers with their last reports and its own books, ring) and a Request (length, matches from
// the table, keys); Choose drops the workers that cannot take it, brings every report to now,
// applies the pool's rule, and writes the best and the second best worker into a Decision. The
// filter, the simulator, explain and replay call this one function. It is pure: the same
// arguments and the same state of the Rand give the same Decision, whatever the order of the
// workers.
package route

import (
	"time"

	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/ring"
	"github.com/warmpath/warmpath/shared/table"
)

// State is what control knows about a worker's readiness.
type State uint8

// The states, with the numbers of the load record.
const (
	// Unknown: not heard from yet, or its source is silent. Takes requests: unknown is not none.
	Unknown State = 0
	// Healthy takes requests.
	Healthy State = 1
	// Draining finishes what it has and takes nothing new.
	Draining State = 2
	// Down takes nothing.
	Down State = 3
)

// String returns the state in lower case.
func (s State) String() string {
	switch s {
	case Healthy:
		return "healthy"
	case Draining:
		return "draining"
	case Down:
		return "down"
	}
	return "unknown"
}

// Never is the Age of a worker that has not reported: it counts as loaded as the fleet's mean
// and has no lease to lose.
const Never = time.Duration(-1)

// Worker is one candidate as of View.At.
type Worker struct {
	// Ref names the worker and its generation, > 0.
	Ref     uint16
	State   State
	Address string // host:port
	// AddressKey is ring.Key(Address). 0 makes Choose compute it.
	AddressKey uint64
	// Rank is the data-parallel rank + 1 of a worker that shares its port with others: what is
	// before the @ of its Address. 0 for one that has its port for itself.
	Rank uint8
	// Load is the share of capacity in use, >= 0: see LoadOf.
	Load float64
	// Watermark is the share of KV blocks that running requests hold, 0 to 1.
	Watermark float64
	// Running and Waiting requests as reported; MaxRunning and QueueLimit are the engine's
	// limits, 0 for not known.
	Running, Waiting, MaxRunning, QueueLimit int
	// InFlight counts the requests of the whole fleet that were sent there and not answered, as
	// far as this gateway knows; exact for its own.
	InFlight int
	// UncachedTokens of those requests whose first token has not been seen.
	UncachedTokens int
	// PrefillRate in tokens/s, 0 for not known.
	PrefillRate float64
	// DecodeSeconds is the time of one output token at the batch that runs there, 0 for not known.
	DecodeSeconds float64
	// FreeTokens is the room in the KV cache that a request can take without pushing a cached
	// block out. It counts with TailAge only.
	FreeTokens int
	// TailAge is how long the block that would go next has not been used, 0 for not known.
	TailAge time.Duration
	// RecentTokens is the uncached work that was sent there lately, old work fading away. Any
	// unit will do: it is compared with the pool's mean.
	RecentTokens float64
	// CacheAge is how long before View.At the worker's cache was known to be empty: it joined,
	// came back, or dropped all. 0 for not known, or long ago.
	CacheAge time.Duration
	// Trust in what the table says about the worker, 0 to 1.
	Trust float64
	// Age of the report at View.At, or Never.
	Age time.Duration
	// BlockTokens is the engine's cache block in tokens, 0 for 16.
	BlockTokens int
	// AvoidFor is how long from View.At the worker is to be avoided (it failed or refused); 0
	// for not at all. A mark is a duration and not a flag, so none can stay for ever.
	AvoidFor time.Duration
	// EvictShare of what the worker holds is about to go, or is going, for EvictFor from View.At:
	// in the last moment a match there is worth less and less, and at the end by that much. 0 for
	// nothing announced.
	EvictShare float64
	EvictFor   time.Duration
}

// LoadOf returns the load of a worker: the largest of running/max_running,
// waiting/queue_limit and the running KV share, where the requests dispatched since the
// report (own) count as running. A limit of 0 leaves its term out. Set it as Worker.Load.
func LoadOf(w *Worker, kvShare float64, own int) float64 {
	load := max(kvShare, 0)
	if w.MaxRunning > 0 {
		load = max(load, float64(w.Running+max(own, 0))/float64(w.MaxRunning))
	}
	if w.QueueLimit > 0 {
		load = max(load, float64(w.Waiting)/float64(w.QueueLimit))
	}
	return load
}

// Home is a prefix that is hot and the workers that shall hold it. Control plans them.
type Home struct {
	// Fingerprint of the prefix at its end, Units long.
	Fingerprint uint64
	Units       uint32
	// Refs of the workers, ascending.
	Refs []uint16
}

// View is what a gateway knows about a pool.
type View struct {
	Pool    *policy.Pool
	Workers []Worker // any order; refs unique
	Ring    *ring.Ring
	// Homes of the pool's hot prefixes, any order.
	Homes []Home
	// Score decides under the rule custom. Without one that rule is threshold.
	Score Score
	// Fresh tells that the table is up to date. While it is not, no worker is dropped for its
	// lease (all reports are old then, and unknown is not none), and trust in matches sinks to 0
	// over a minute.
	Fresh bool
	// At is the time the Ages and AvoidFors refer to, on the clock of Choose's now.
	At time.Duration
}

// Request is what is known about a request.
type Request struct {
	// PromptTokens counts the prompt, exactly or at 4 bytes a token; 0 for not known.
	PromptTokens int
	// Matches from table.Lookup, any order. Refs that are not in the View are ignored.
	Matches []table.Match
	// SlowMatches are the longest prefixes that workers have in any memory, some of it not the
	// GPU's: what is beyond the worker's match counts by the pool's SlowCredit.
	SlowMatches []table.Match
	// Sent is what AddSent has added to Matches.
	Sent []Sent
	// Checkpoints of the prompt, ascending: its hot prefix is found by them, and where an answer
	// follows a match. nil for not known.
	Checkpoints []fingerprint.Checkpoint
	// Exact: they are over the engine's own tokens, and the table knows what engines generate from
	// their events. Nothing is guessed of answers then.
	Exact bool
	// RingKey is Chain.RingKey, SessionKey a hash of the session's name; 0 for none.
	RingKey, SessionKey uint64
	// Exclude lists workers that must not be chosen.
	Exclude []uint16
	// Sequence counts the pool's requests (round robin).
	Sequence uint64
}

// Why is the reason for the best choice.
type Why uint8

// The reasons. Their String is used in metrics and in the decision header.
const (
	WhyNone       Why = iota // nobody can take the request
	WhyHolder                // holds the longest usable match
	WhyNextHolder            // holders of longer matches were over the limit
	WhySpill                 // all holders were over the limit: the ring
	WhyRing                  // nobody holds enough: the ring
	WhyShort                 // prompt or match below min_match_tokens: least load
	WhyNoKey                 // no text to key on: least load
	WhyLeastLoad             // rule least_load
	WhyRoundRobin            // rule round_robin
	WhySession               // rule session_hash
	WhyRandom                // rule random, or session_hash without a session key
	WhyHash                  // rule chwbl
	WhyCost                  // rule cost: a worker with a usable match
	WhyCostMiss              // rule cost: a worker without one
	WhyScore                 // rule weighted
	WhyCustom                // rule custom
	WhyExplore               // by chance: the setting explore
)

var whys = [...]string{
	"none", "holder", "next_holder", "spill", "ring", "short", "no_key", "least_load",
	"round_robin", "session", "random", "hash", "cost", "cost_miss", "score",
	"custom", "explore",
}

// Whys is the number of reasons: every Why is below it.
const Whys = len(whys)

// String returns the reason in snake case.
func (w Why) String() string {
	if int(w) < len(whys) {
		return whys[w]
	}
	return "unknown"
}

// Left is the reason why a worker was left out.
type Left uint8

// The reasons, strongest first.
const (
	LeftNot       Left = iota // it was a candidate
	LeftExcluded              // named by the request
	LeftDown                  // state
	LeftDraining              // state
	LeftSilent                // no report within the lease
	LeftAvoid                 // failed or refused a moment ago
	LeftWatermark             // no KV blocks to spare
	LeftLoad                  // as a holder over load_limit or holder_bound
)

var lefts = [...]string{"", "excluded", "down", "draining", "silent", "avoid", "watermark", "load"}

// String returns the reason in a word, "" for LeftNot.
func (l Left) String() string {
	if int(l) < len(lefts) {
		return lefts[l]
	}
	return "unknown"
}

// Candidate is one worker as the decision saw it.
type Candidate struct {
	Ref            uint16
	Left           Left
	MatchedTokens  int     // usable match, whole blocks and what slow ones are worth, before trust
	CreditedTokens int     // after trust: what counted
	Load           float64 // brought to now
	ReportedLoad   float64
	Watermark      float64 // brought to now
	UncachedTokens int
	InFlight       int
	Age            time.Duration // of the report now, or Never
	Home           bool          // of the request's hot prefix
	SentAgo        time.Duration // since the gateway itself sent it a part of the prompt, 0 for not lately
	// Terms is what the rules cost, weighted and custom made of it.
	Terms Terms
}

// Terms are the parts of a worker's cost in seconds, or of its score. Seen is false for a worker
// that was not drawn.
type Terms struct {
	Seen                                 bool
	Wait, Miss, Decode, Evict, Spread    float64 // cost: Cost is their sum
	Cost                                 float64
	CachedShare, Queue, Utilization, Sum float64 // weighted: Sum is the score; custom: Sum alone

	// Miss is Own, the seconds of prefill that the cache doesn't save there, at Prefill each, and the
	// four parts below. HeldUp is how many requests a second of prefill there is taken to hold up.
	Own, Prefill, HeldUp float64
	// Home is for the copy that a home is to get, Sibling for what another worker is just computing,
	// Young for a cache that was empty just now, Gone for one that is about to be: seconds, and 0 for
	// what isn't so there.
	Home, Sibling, Young, Gone float64
	// Youth is how young it is, 1 just now and 0 once the ramp is over; Later by how many seconds the
	// first token comes later there than where most of the prompt is held, of Allowed ones, or, where it
	// holds as much itself, than where it comes first; Detour what it costs that another young worker is
	// the prefix's own.
	Youth, Later, Allowed, Detour float64
}

// Price is what a second of prefill costs under the rule cost: Base, and Each for every request that
// it holds up.
type Price struct {
	Base, Each float64
	// Memory is the share of KV blocks that requests hold, the pool's mean of recent reports. Tight is
	// how far it raises Each from half of decode_weight (0) to 1.
	Memory, Tight float64
}

// Decision is the result. The caller owns it and passes it again and again: its memory is
// reused, and after the first few calls nothing allocates.
type Decision struct {
	// Best and Second are refs, 0 for none. Second is never Best, nor another rank behind Best's
	// port, and of Best's rank where there is one: a header says the rank for both.
	Best, Second uint16
	// Ranked: Best has a rank, and Second the same or none is named, so the header may say it.
	Ranked bool
	// MatchedTokens is the usable match at Best, SlowTokens that of it which slow ones are worth.
	// HeldTokens is that of it which Best holds, in whole blocks: without the slow ones, and
	// without what was only sent there.
	MatchedTokens, HeldTokens, SlowTokens int
	Why                                   Why
	// Control tells that the rule of the pool's control group decided.
	Control bool
	// Explain, set by the caller, asks for Candidates.
	Explain bool
	// Candidates holds one record per worker in the order of View.Workers, only with Explain.
	Candidates []Candidate
	// Price is that of a second of prefill, only with Explain and under the rule cost.
	Price Price

	facts Facts
	turns []turn
	seen  []seen
	index []int32 // by ref: index in View.Workers + 1 as of some call, 0 = none
	order []int32
}

const (
	// sameLevel: matches within a sixteenth of the longest are one level. Block rounding and
	// small differences in trust must not outvote load.
	sameLevel = 1.0 / 16
	// evictNotice is how long before its end an announced eviction makes what is computed there dearer:
	// a conversation comes back after some ten seconds, and finds it gone.
	evictNotice = 10 * time.Second
	// evictLast is how long before its end a match there begins to be worth less. Who leaves has to
	// compute its prompt anew at a worker that others need, who stays has a hit and computes it later,
	// if at all, where room has just been made. In the simulator's evictions-announced 225 requests had
	// a first token after 130 ms or more if all stayed, 327 if three of five left at once.
	evictLast = 200 * time.Millisecond
	// staleTrust is the time in which trust in a table that is no longer updated reaches 0.
	staleTrust = time.Minute
)

// Rand is a small seeded generator (SplitMix64: Steele, Lea, Flood 2014). Not safe for
// concurrent use.
type Rand struct{ state uint64 }

// NewRand returns a generator; equal seeds give equal sequences.
func NewRand(seed uint64) *Rand { return &Rand{state: seed} }

// Uint64 returns 64 random bits.
func (r *Rand) Uint64() uint64 {
	r.state += 0x9e3779b97f4a7c15
	x := r.state
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// IntN returns a number in [0, n), n > 0. The bias is below n/2^64.
func (r *Rand) IntN(n int) int {
	return int(r.Uint64() % uint64(n))
}

// Float64 returns a number in [0, 1).
func (r *Rand) Float64() float64 { return float64(r.Uint64()>>11) / (1 << 53) }

// usable returns the tokens of a match that save work: whole blocks, and at least one token is
// always left to compute.
func usable(units uint32, promptTokens, block int) int {
	match := int(units) * fingerprint.UnitTokens
	if promptTokens > 0 {
		match = min(match, promptTokens-1)
	}
	if block <= 0 {
		block = fingerprint.UnitTokens
	}
	return max(match, 0) / block * block
}
