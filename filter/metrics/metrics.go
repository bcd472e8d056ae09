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
	"github.com/warmpath/warmpath/shared/quota"
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
	BelowBlockTokens                   // by tier: tokens known at the chosen worker that are less than a block there
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
	Admitted                           // by class: requests that got a slot
	AdmittedAt                         // by level: the same
	Bypassed                           // requests with the bypass's secret
	AdmissionRefused                   // by class and reason: requests that were turned away
	WouldRefuse                        // by class and reason: those that a pool which enforces would turn away or let wait
	QueueAborted                       // by class: the client left while its request waited
	QueueWakes                         // by side: VMs that were told of a free slot
	SlotsOrphaned                      // slots of a VM that crashed or was cut off
	CellRaces                          // changes of a cell that another VM was quicker at
	LeasesInstalled                    // leases that control gave
	LeasesIgnored                      // and those that came too late
	RetriesDenied                      // by reason: requests that were not tried twice
	Excluded                           // requests whose client named workers to leave out that are there
	CopiesBegun                        // copies of hot prefixes that this gateway has begun to make
	CopiesMade                         // of those, computed whole
	CopiesFailed                       // by reason: the others that have ended
	CopySlices                         // requests of the gateway's own, for those, that were answered
	CopyTokens                         // what they had computed
	families
)

// Reasons of CopiesFailed.
const (
	CopyNoCluster = iota // the proxy has no such cluster
	CopyRefused          // the worker, or the proxy for it, answered with an error
	CopyTimeout
	CopyNotExact // the prefix's tokens couldn't be had again, or the engine counted others
	CopyGone     // nobody wants it any more: the worker went, the plan changed, the configuration did
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
	OutcomeError // in this metric alone: an answer to its end that is an error or a redirect
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
	BadAdmission
	BadCell
	BadHomes
	BadCopies
)

// Sides of QueueWakes.
const (
	WakesSent = iota
	WakesTaken
)

// Reasons of RetriesDenied.
const (
	RetryBudgetSpent = iota
	RetryDangerous   // the prompt broke two workers within a minute
	RetryByProxy     // the proxy didn't, though it might have
)

// Refusal is the label of a class and a reason.
func Refusal(class uint8, why quota.Reason) int {
	return int(class)*int(quota.Reasons-1) + int(why-1)
}

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
	// late: defined when there is something to count, so that proxies without
	// admission don't list its metrics.
	late bool
}{
	Lookups:              {name: "lookups", labels: tiers},
	Hits:                 {name: "hits", labels: tiers},
	LookupTokens:         {name: "lookup_tokens", labels: tiers},
	MatchedTokens:        {name: "matched_tokens", labels: tiers},
	ConfirmedTokens:      {name: "confirmed_tokens", labels: tiers},
	CameTrueTokens:       {name: "came_true_tokens", labels: tiers},
	BelowBlockTokens:     {name: "below_block_tokens", labels: tiers},
	NoKey:                {name: "no_key", labels: noKeyReasons()},
	Decisions:            {name: "decisions", labels: whys()},
	Fallback:             {name: "fallback", labels: []string{"no_table", "no_pool", "observe", "off", "endpoint_unknown", "endpoint_fallback", "panic", "no_worker"}},
	Endpoints:            {name: "requests", labels: endpoints()},
	Outcomes:             {name: "outcomes", labels: []string{"complete", "client_abort", "upstream_failure", "refused", "local", "error"}},
	Dispatched:           {name: "dispatched"},
	Released:             {name: "released"},
	Orphaned:             {name: "orphaned"},
	Reroutes:             {name: "reroutes"},
	Refusals:             {name: "refusals"},
	NoWorker:             {name: "no_worker"},
	UsageMissing:         {name: "usage_missing"},
	HoldNeverReleased:    {name: "hold_never_released"},
	HeldAborted:          {name: "held_aborted"},
	Panics:               {name: "panics"},
	CourierTakeovers:     {name: "courier_takeovers"},
	CourierLost:          {name: "courier_lost"},
	PollFailures:         {name: "poll_failures", labels: []string{"inline", "dead", "status", "body", "lost"}},
	BatchFailures:        {name: "batch_failures"},
	Resyncs:              {name: "resyncs"},
	PagesWritten:         {name: "pages_written"},
	PageGets:             {name: "page_gets"},
	PageCacheHits:        {name: "page_cache_hits"},
	ReportsLost:          {name: "reports_lost"},
	RowsFull:             {name: "rows_full"},
	BadData:              {name: "bad_data", labels: []string{"meta", "roster", "loads", "policy", "sets", "row", "lease", "page", "exact", "vocabularies", "caches", "admission", "cell", "homes", "copies"}},
	NoScore:              {name: "no_score"},
	VocabularyLoads:      {name: "vocabulary_loads", labels: []string{"loaded", "refused"}},
	ChatStopped:          {name: "chat_stopped", labels: chatReasons()},
	TokenizedBytes:       {name: "tokenized_bytes", labels: []string{"fresh", "memo"}},
	TokenizedCapped:      {name: "tokenized_capped"},
	GroupDecisions:       {name: "group_decisions", labels: groups},
	GroupLookupTokens:    {name: "group_lookup_tokens", labels: groups},
	GroupMatchedTokens:   {name: "group_matched_tokens", labels: groups},
	GroupConfirmedTokens: {name: "group_confirmed_tokens", labels: groups},
	GroupFirstTokens:     {name: "group_first_tokens", labels: groups},
	GroupTTFTMillis:      {name: "group_ttft_ms", labels: groups},
	VocabularyFetches:    {name: "vocabulary_fetches", labels: []string{"fetched", "inline", "dead", "status", "body", "lost"}},
	Admitted:             {name: "admitted", labels: classes, late: true},
	AdmittedAt:           {name: "admission_level", labels: []string{"leased", "floor", "alone"}, late: true},
	Bypassed:             {name: "bypassed", late: true},
	AdmissionRefused:     {name: "refused", labels: refusals(), late: true},
	WouldRefuse:          {name: "would_refuse", labels: refusals(), late: true},
	QueueAborted:         {name: "queue_aborted", labels: classes, late: true},
	QueueWakes:           {name: "queue_wakes", labels: []string{"sent", "taken"}, late: true},
	SlotsOrphaned:        {name: "slots_orphaned", late: true},
	CellRaces:            {name: "cell_races", late: true},
	LeasesInstalled:      {name: "leases_installed", late: true},
	LeasesIgnored:        {name: "leases_ignored", late: true},
	RetriesDenied:        {name: "retries_denied", labels: []string{"budget", "dangerous", "proxy"}, late: true},
	Excluded:             {name: "excluded", late: true},
	CopiesBegun:          {name: "copies_begun", late: true},
	CopiesMade:           {name: "copies_made", late: true},
	CopiesFailed:         {name: "copies_failed", labels: []string{"no_cluster", "refused", "timeout", "not_exact", "gone"}, late: true},
	CopySlices:           {name: "copy_slices", late: true},
	CopyTokens:           {name: "copy_tokens", late: true},
}

var classes = []string{"p0", "p1", "p2"}

func refusals() []string {
	out := make([]string, 0, len(classes)*int(quota.Reasons-1))
	for _, class := range classes {
		for _, reason := range quota.ReasonNames() {
			out = append(out, class+"."+reason)
		}
	}
	return out
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
	counters []counter
	defined  bool
	dirty    bool
	pools    []*Modes

	decision abi.Metric
	ttft     abi.Metric
	slice    abi.Metric
	waits    [3]abi.Metric // by class; defined with the first wait
	waited   [3]bool
	inUse    [3]abi.Metric // by class, as waiting; defined with the first batch
	waiting  [3]abi.Metric
	gauges   bool
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
		for label := range max(1, len(table[f].labels)) {
			s.define(Family(f), label)
		}
	}
	s.pending = make([]uint64, len(s.counters))
	s.decision, _ = abi.DefineMetric(abi.Histogram, "warmpath.decision_us")
	s.slice, _ = abi.DefineMetric(abi.Histogram, "warmpath.courier_slice_us")
	s.ttft, _ = abi.DefineMetric(abi.Histogram, "warmpath.ttft_ms")
}

func (s *Set) define(f Family, label int) {
	c := counter{family: f, label: label}
	if !table[f].late {
		c.define()
	}
	s.counters = append(s.counters, c)
}

// counter is one of them in the proxy.
type counter struct {
	metric  abi.Metric
	family  Family
	label   int
	defined bool
}

func (c *counter) define() {
	name := "warmpath." + table[c.family].name
	if labels := table[c.family].labels; labels != nil {
		name += "." + labels[c.label]
	}
	c.metric, _ = abi.DefineMetric(abi.Counter, name)
	c.defined = true
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

// QueueWait records the milliseconds that a request of a class waited for its
// slot.
func (s *Set) QueueWait(class int, millis uint64) {
	if !s.defined {
		return
	}
	if !s.waited[class] {
		s.waited[class] = true
		s.waits[class], _ = abi.DefineMetric(abi.Histogram, "warmpath.queue_wait_ms."+classes[class])
	}
	s.waits[class].Record(millis)
}

// Slots records what is in use and waits in the gateway, by class. Only the
// courier calls it: the last VM to record a gauge decides.
func (s *Set) Slots(inUse, waiting [3]uint64) {
	if !s.defined {
		return
	}
	for class, name := range classes {
		if !s.gauges {
			s.inUse[class], _ = abi.DefineMetric(abi.Gauge, "warmpath.slots_in_use."+name)
			s.waiting[class], _ = abi.DefineMetric(abi.Gauge, "warmpath.queue_waiting."+name)
		}
		s.inUse[class].Record(inUse[class])
		s.waiting[class].Record(waiting[class])
	}
	s.gauges = true
}

// Flush hands what was counted since the last Flush to the proxy.
func (s *Set) Flush() {
	if !s.dirty {
		return
	}
	s.dirty = false
	for _, p := range s.pools {
		p.flush()
	}
	for i := range s.pending {
		s.say(i)
	}
}

// Say hands over what was counted of one family without labels: other VMs are about to see what it counts.
func (s *Set) Say(f Family) {
	if s.defined {
		s.say(s.first[f])
	}
}

func (s *Set) say(i int) {
	n := s.pending[i]
	if n == 0 {
		return
	}
	c := &s.counters[i]
	if !c.defined {
		c.define()
	}
	c.metric.Add(int64(n))
	s.pending[i] = 0
}
