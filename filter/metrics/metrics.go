// Package metrics counts what the module does.
//
// A proxy's wasm metrics have no labels, are shared by all its threads and
// cost a host call each, so a family of counters here is a name with a fixed
// list of label values: "warmpath.no_key.bad_json". A phase adds to a local
// number, Flush hands the sums to the proxy once a tick. Histograms go to the
// proxy at once. Label values come from this table alone and never from a
// client, so the number of metrics is fixed.
package metrics

import (
	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/body"
	"github.com/warmpath/warmpath/shared/route"
	"github.com/warmpath/warmpath/tokenizer/chat"
)

// Family names a group of counters that differ by one label.
type Family uint8

// The families. Those without a label are counted at label 0.
const (
	Lookups              Family = iota // by tier: requests whose prefix was looked up
	Hits                               // by tier: lookups with a match at the chosen worker
	LookupTokens                       // by tier: prompt tokens of lookups
	MatchedTokens                      // by tier: predicted hit tokens at the chosen worker
	ConfirmedTokens                    // by tier: cached_tokens as the engine reported them
	CameTrueTokens                     // by tier: the smaller of predicted and confirmed
	NoKey                              // by reason: requests without a usable prefix
	Decisions                          // by why: what decided
	Fallback                           // by reason: requests that the proxy's own balancer placed
	Endpoints                          // by endpoint: requests seen
	Outcomes                           // by outcome: how dispatched requests ended
	Dispatched                         // claims opened
	Released                           // claims returned; in flight = dispatched - released
	Orphaned                           // of those, claims of a VM that crashed or was cut off
	Reroutes                           // answered by the second choice
	Refusals                           // 429 or 503 by a worker, passed on
	NoWorker                           // 503 by us: nobody can serve
	UsageMissing                       // complete answers without usage
	HoldNeverReleased                  // held, but the body never came: wrong set-up
	HeldAborted                        // the client left while its request was held
	Panics                             // recovered panics
	CourierTakeovers                   // leases taken from an expired courier
	CourierLost                        // leases lost or writes refused to a former courier
	PollFailures                       // by kind: long-polls and page fetches that failed
	BatchFailures                      // batches that control didn't take
	Resyncs                            // comparisons of the whole table
	PagesWritten                       // pages written to shared data
	PageGets                           // pages read from shared data by lookups
	PageCacheHits                      // pages that a VM had at hand
	ReportsLost                        // report records that found no room or were overwritten
	RowsFull                           // VMs without a free slot, workers beyond a row
	NoScore                            // pools with the rule custom in a module without a score, each time a policy comes
	BadData                            // by kind: unreadable values in shared data or from control
	VocabularyLoads                    // by result: vocabularies that a VM copied whole
	VocabularyFetches                  // by result: calls of the courier for a piece of a vocabulary
	ChatStopped                        // by reason: how far the prompts of exact pools could be rendered
	TokenizedBytes                     // by source: bytes of text turned into tokens
	TokenizedCapped                    // prompts of which only a beginning was tokenised
	GroupDecisions                     // by group, where there is a control group: requests decided
	GroupLookupTokens                  // by group: prompt tokens of those that were looked up
	GroupMatchedTokens                 // by group: predicted hit tokens
	GroupConfirmedTokens               // by group: cached_tokens as the engine reported them
	GroupFirstTokens                   // by group: streams whose first token was seen
	GroupTTFTMillis                    // by group: the sum of their times to it, ms
	families
)

// Groups of a pool that has a control group.
const (
	GroupMain = iota
	GroupControl
)

// Label values of the families that take their label from here.
const (
	TierUnder1K = iota // below 1,024 prompt tokens
	Tier1KTo4K
	Tier4KTo16K
	TierOver16K
	Tiers
)

// Reasons of Fallback.
const (
	FallbackNoTable = iota
	FallbackNoPool
	FallbackObserve
	FallbackOff
	FallbackEndpointUnknown
	FallbackEndpoint
	FallbackPanic
	FallbackNoWorker // nobody to name, but the table is too old to refuse
)

// Outcomes as in the done report, less one.
const (
	OutcomeComplete = iota
	OutcomeClientAbort
	OutcomeUpstreamFailure
	OutcomeRefused
	OutcomeLocal
)

// Kinds of PollFailures.
const (
	PollInline = iota // the proxy refused the call
	PollDead          // no answer, or no status
	PollStatus        // an answer other than 200, 204
	PollBody          // an answer that cannot be read
	PollLost          // no callback within the deadline
)

// Kinds of BadData.
const (
	BadMeta = iota
	BadRoster
	BadLoads
	BadPolicy
	BadSets
	BadRow
	BadLease
	BadPage
	BadExact
	BadVocabularies
	BadCaches
)

// Results of VocabularyLoads.
const (
	VocabularyLoaded = iota
	VocabularyRefused
)

// Sources of TokenizedBytes.
const (
	TokenizedFresh = iota
	TokenizedMemo  // known from an earlier request
)

// VocabularyFetched is the good result of VocabularyFetches; the others are the
// kinds of PollFailures, in their order behind it.
const VocabularyFetched = 0

var table = [families]struct {
	name   string
	labels []string
}{
	Lookups:              {"lookups", tiers},
	Hits:                 {"hits", tiers},
	LookupTokens:         {"lookup_tokens", tiers},
	MatchedTokens:        {"matched_tokens", tiers},
	ConfirmedTokens:      {"confirmed_tokens", tiers},
	CameTrueTokens:       {"came_true_tokens", tiers},
	NoKey:                {"no_key", noKeyReasons()},
	Decisions:            {"decisions", whys()},
	Fallback:             {"fallback", []string{"no_table", "no_pool", "observe", "off", "endpoint_unknown", "endpoint_fallback", "panic", "no_worker"}},
	Endpoints:            {"requests", endpoints()},
	Outcomes:             {"outcomes", []string{"complete", "client_abort", "upstream_failure", "refused", "local"}},
	Dispatched:           {"dispatched", nil},
	Released:             {"released", nil},
	Orphaned:             {"orphaned", nil},
	Reroutes:             {"reroutes", nil},
	Refusals:             {"refusals", nil},
	NoWorker:             {"no_worker", nil},
	UsageMissing:         {"usage_missing", nil},
	HoldNeverReleased:    {"hold_never_released", nil},
	HeldAborted:          {"held_aborted", nil},
	Panics:               {"panics", nil},
	CourierTakeovers:     {"courier_takeovers", nil},
	CourierLost:          {"courier_lost", nil},
	PollFailures:         {"poll_failures", []string{"inline", "dead", "status", "body", "lost"}},
	BatchFailures:        {"batch_failures", nil},
	Resyncs:              {"resyncs", nil},
	PagesWritten:         {"pages_written", nil},
	PageGets:             {"page_gets", nil},
	PageCacheHits:        {"page_cache_hits", nil},
	ReportsLost:          {"reports_lost", nil},
	RowsFull:             {"rows_full", nil},
	BadData:              {"bad_data", []string{"meta", "roster", "loads", "policy", "sets", "row", "lease", "page", "exact", "vocabularies", "caches"}},
	NoScore:              {"no_score", nil},
	VocabularyLoads:      {"vocabulary_loads", []string{"loaded", "refused"}},
	ChatStopped:          {"chat_stopped", chatReasons()},
	TokenizedBytes:       {"tokenized_bytes", []string{"fresh", "memo"}},
	TokenizedCapped:      {"tokenized_capped", nil},
	GroupDecisions:       {"group_decisions", groups},
	GroupLookupTokens:    {"group_lookup_tokens", groups},
	GroupMatchedTokens:   {"group_matched_tokens", groups},
	GroupConfirmedTokens: {"group_confirmed_tokens", groups},
	GroupFirstTokens:     {"group_first_tokens", groups},
	GroupTTFTMillis:      {"group_ttft_ms", groups},
	VocabularyFetches:    {"vocabulary_fetches", []string{"fetched", "inline", "dead", "status", "body", "lost"}},
}

var groups = []string{"main", "control"}

var tiers = []string{"lt1k", "1k_4k", "4k_16k", "gt16k"}

// Tier is the label of a prompt length in tokens.
func Tier(promptTokens int) int {
	switch {
	case promptTokens < 1024:
		return TierUnder1K
	case promptTokens < 4096:
		return Tier1KTo4K
	case promptTokens < 16384:
		return Tier4KTo16K
	}
	return TierOver16K
}

func noKeyReasons() []string {
	out := make([]string, body.NumReasons)
	for r := body.Reason(0); r < body.NumReasons; r++ {
		out[r] = r.String()
	}
	return out
}

func chatReasons() []string {
	out := make([]string, chat.NumReasons)
	for r := range out {
		out[r] = chat.Reason(r).String()
	}
	return out
}

func endpoints() []string {
	out := make([]string, 0, 8)
	for e := body.None; e <= body.Models; e++ {
		out = append(out, e.String())
	}
	return out
}

func whys() []string {
	out := make([]string, route.Whys)
	for w := range out {
		out[w] = route.Why(w).String()
	}
	return out
}

// Label is the text of a family's label.
func Label(f Family, label int) string { return table[f].labels[label] }

// Set holds the counters of one VM.
type Set struct {
	first    [families]int // position of a family's label 0
	pending  []uint64
	counters []abi.Metric
	defined  bool
	dirty    bool
	pools    []*Modes

	decision abi.Metric
	ttft     abi.Metric
	slice    abi.Metric
}

// Define asks the proxy for the metrics. It is called when a plugin starts:
// metrics of an earlier phase would be lost in some hosts.
func (s *Set) Define() {
	if s.defined {
		return
	}
	s.defined = true
	for f := range table {
		s.first[f] = len(s.counters)
		name := "warmpath." + table[f].name
		if table[f].labels == nil {
			s.define(name)
			continue
		}
		for _, label := range table[f].labels {
			s.define(name + "." + label)
		}
	}
	s.pending = make([]uint64, len(s.counters))
	s.decision, _ = abi.DefineMetric(abi.Histogram, "warmpath.decision_us")
	s.slice, _ = abi.DefineMetric(abi.Histogram, "warmpath.courier_slice_us")
	s.ttft, _ = abi.DefineMetric(abi.Histogram, "warmpath.ttft_ms")
}

func (s *Set) define(name string) {
	m, _ := abi.DefineMetric(abi.Counter, name)
	s.counters = append(s.counters, m)
}

// Add counts n at a family's label; families without labels have label 0.
func (s *Set) Add(f Family, label int, n uint64) {
	if !s.defined || n == 0 {
		return
	}
	s.pending[s.first[f]+label] += n
	s.dirty = true
}

// Inc counts one at a family's label.
func (s *Set) Inc(f Family, label int) { s.Add(f, label, 1) }

// Decision records the microseconds one decision took.
func (s *Set) Decision(micros uint64) { s.decision.Record(micros) }

// TTFT records the milliseconds from a request's arrival to its first token.
func (s *Set) TTFT(millis uint64) { s.ttft.Record(millis) }

// Slice records the microseconds one slice of the courier's work took.
func (s *Set) Slice(micros uint64) { s.slice.Record(micros) }

// Flush hands what was counted since the last Flush to the proxy.
func (s *Set) Flush() {
	if !s.dirty {
		return
	}
	s.dirty = false
	for _, p := range s.pools {
		p.flush()
	}
	for i, n := range s.pending {
		if n != 0 {
			s.counters[i].Add(int64(n))
			s.pending[i] = 0
		}
	}
}
