package api

// Status is the answer of GET /v1/status. Ages are in seconds; -1 is never.
type Status struct {
	Version  string    `json:"version,omitempty"`
	Started  string    `json:"started"` // RFC 3339
	Learning bool      `json:"learning"`
	Off      bool      `json:"off"`
	Sources  []Source  `json:"sources"`
	Workers  []Worker  `json:"workers"`
	Gateways []Gateway `json:"gateways"`
	Table    Table     `json:"table"`
	Index    Index     `json:"index"`
	Counters Counters  `json:"counters"`
	// Adapters are the generations of those that pools serve, by pool and name.
	Adapters map[string]map[string]uint64 `json:"adapters"`
	// Saved is how the state file is, for a service that has one.
	Saved *Saved `json:"saved,omitempty"`
	// Cluster is how this service and the other replicas stand, for one that isn't alone.
	Cluster *Cluster `json:"cluster,omitempty"`
	// RefsResting are refs of workers that are gone, kept from use until no gateway
	// can mistake them.
	RefsResting int `json:"refs_resting"`
	// Tokenizers are those of the pools that have one.
	Tokenizers []Tokenizer `json:"tokenizers"`
	// Hot are the prefixes that have homes, by pool, hottest first.
	Hot []HotPrefix `json:"hot"`
}

// Cluster is several control services that act as one, as a replica sees it.
type Cluster struct {
	Name  string `json:"name"`
	Leads bool   `json:"leads"`
	// Leader is the name of who leads, empty while nobody does.
	Leader string `json:"leader"`
	Term   string `json:"term,omitempty"`
	// Agreed: this replica has read what all agree on. It doesn't serve before.
	Agreed bool `json:"agreed"`
	// Problem is why documents can't be read or written now: there is no majority.
	Problem string `json:"problem,omitempty"`
	// PolicyProblem is why what another replica was told isn't in force here.
	PolicyProblem string `json:"policy_problem,omitempty"`
	// WorkersProblem is why the workers that another replica was told aren't in force here.
	WorkersProblem string `json:"workers_problem,omitempty"`
	// Servers that keep the documents: inside this process, or external.
	Servers  string    `json:"servers"`
	Replicas []Replica `json:"replicas"`
	// Ledger is the checkpoint, at the leader.
	Ledger *LedgerDocument `json:"ledger,omitempty"`
	// Forwarded are the reports of gateways that the leader answered for this replica,
	// Unanswered those that it didn't; Dropped are messages that came faster than they
	// were taken.
	Forwarded  uint64 `json:"forwarded"`
	Unanswered uint64 `json:"unanswered"`
	Dropped    uint64 `json:"dropped"`
}

// Replica is one that was heard in the last ten minutes.
type Replica struct {
	Name    string  `json:"name"`
	URL     string  `json:"url,omitempty"`
	Version string  `json:"version,omitempty"`
	Age     float64 `json:"age_seconds"` // since it was heard
	Present bool    `json:"present"`
	Leads   bool    `json:"leads"`
	// Wire is the wire version that it speaks, 0 unknown.
	Wire int `json:"wire,omitempty"`
	// Table tells whether its table was the same as that of the replica that was asked, a moment
	// ago; empty for that one, and while it isn't known.
	Table string `json:"table,omitempty"`
}

// Values of Replica.Table. They differ for a moment while something is on its way.
const (
	TableSame    = "same"
	TableDiffers = "differs"
)

// LedgerDocument is what the next leader would go on from.
type LedgerDocument struct {
	Age      float64 `json:"age_seconds"`
	Gateways int     `json:"gateways"`
	// Problem is why it isn't up to date.
	Problem string `json:"problem,omitempty"`
}

// HotPrefix is a prefix that more requests begin with than one worker can serve.
type HotPrefix struct {
	Pool        string   `json:"pool"`
	Fingerprint string   `json:"fingerprint"` // hex
	Tokens      int      `json:"tokens"`      // 16 a unit: in approximate mode an estimate
	Share       float64  `json:"share"`       // of the pool's recent requests
	Homes       []string `json:"homes"`       // addresses of the workers that shall hold it
	// Copies are being made by gateways: their workers become homes when they have one.
	Copies []HotCopy `json:"copies"`
}

// HotCopy is a copy of a hot prefix that is being made.
type HotCopy struct {
	Worker  string `json:"worker"`  // address
	Gateway string `json:"gateway"` // that makes it; empty for one that isn't known any more
}

// Saved is what came of writing the state file and what lies beside it.
type Saved struct {
	Age     float64 `json:"age_seconds"` // of the last whole save
	Seconds float64 `json:"seconds"`     // that it took
	Bytes   int64   `json:"bytes"`       // that it wrote: sources of KV events without news are left out
	// Error is why nothing was saved since.
	Error string `json:"error,omitempty"`
}

// Source is a source of the worker list in the status.
type Source struct {
	Name       string  `json:"name"`
	Listed     bool    `json:"listed"` // it has given a list
	Workers    int     `json:"workers"`
	Age        float64 `json:"age_seconds"` // of the last list that it stood by
	ChangedAge float64 `json:"changed_seconds"`
	// Error is why there is no list since then.
	Error    string  `json:"error,omitempty"`
	ErrorAge float64 `json:"error_seconds"`
	// Skipped is how many it left out; Reasons say why, at most 20.
	Skipped int      `json:"skipped"`
	Reasons []string `json:"reasons,omitempty"`
	// Ignored are settings of listed workers that nobody knows, at most 20.
	Ignored []string `json:"ignored,omitempty"`
}

// Tokenizer is a pool's way from text to tokens in the status.
type Tokenizer struct {
	Pool       string `json:"pool"`
	Vocabulary string `json:"vocabulary"` // hash
	Bytes      int    `json:"bytes"`
	Template   string `json:"template"`
	Engine     string `json:"engine"`
	Mode       string `json:"mode"` // exact, approximate
	// Reason says why the vocabulary is not in force.
	Reason string `json:"reason,omitempty"`
	// FileProblem says why the file that the policy names can't be read again. What was read
	// from it stays good until the service restarts.
	FileProblem string `json:"file_problem,omitempty"`
	// Serving is the hash in force, the one before while another is loading.
	Serving       string   `json:"serving,omitempty"`
	Gateways      int      `json:"gateways"`
	ReadyGateways int      `json:"ready_gateways"`
	Workers       []Parity `json:"workers"`
}

// Parity is what a worker has shown about its tokens.
type Parity struct {
	Worker     string      `json:"worker"`
	Outcome    string      `json:"outcome"`
	Reason     string      `json:"reason,omitempty"`
	Compared   int         `json:"compared"`
	Tokens     int         `json:"tokens"`
	Difference *Difference `json:"difference,omitempty"`
}

// Difference is the first token that is another, with those around it.
type Difference struct {
	Sample   string  `json:"sample"`
	Position int     `json:"position"`
	At       int     `json:"at"` // in ours and theirs
	Ours     []Token `json:"ours"`
	Theirs   []Token `json:"theirs"`
}

// Token is an id with what it stands for.
type Token struct {
	ID   uint32 `json:"id"`
	Text string `json:"text"`
}

// Worker is one worker in the status.
type Worker struct {
	Address       string  `json:"address"`
	Pool          string  `json:"pool"`
	Source        string  `json:"source"`
	Ref           uint16  `json:"ref"`
	Generation    uint64  `json:"generation"`
	State         string  `json:"state"`
	Reason        string  `json:"reason,omitempty"`
	StateSeconds  float64 `json:"state_seconds"`
	LastSeen      float64 `json:"last_seen_seconds"`
	Running       int     `json:"running"`
	Waiting       int     `json:"waiting"`
	KVShare       float64 `json:"kv_share"`
	LoadAge       float64 `json:"load_age_seconds"`
	InFlight      int     `json:"in_flight"`
	Uncached      int     `json:"uncached_tokens"`
	AvoidSeconds  float64 `json:"avoid_seconds"`
	AvoidReason   string  `json:"avoid_reason,omitempty"`
	Trust         float64 `json:"trust"`
	Entries       int     `json:"entries"`
	CoveredTokens float64 `json:"covered_tokens"`
	Capacity      int     `json:"capacity_tokens"`
	MaxRunning    int     `json:"max_running"`
	QueueLimit    int     `json:"queue_limit"`
	BlockTokens   int     `json:"block_tokens"`
	PrefillRate   float64 `json:"prefill_tokens_per_second"`
	DecodeSeconds float64 `json:"decode_seconds_per_token"`
	Drain         bool    `json:"drain"`
	// Truth is where the belief about its cache comes from: events, heartbeats or
	// predictions.
	Truth string `json:"truth"`
	// Degraded lists what is wrong or missing, each with its reason.
	Degraded []string `json:"degraded"`
	// Hints lists settings that would make it better known; nothing is wrong
	// without them.
	Hints []string `json:"hints"`
	// Asked is how many answers could prove something in the last minute, Came how
	// many of them did: what Trust rests on.
	Asked float64 `json:"trust_asked"`
	Came  float64 `json:"trust_came"`
	// Hits is what its dispatches and answers have shown.
	Hits Hits `json:"hits"`
	// EvictShare of its cache goes within EvictSeconds.
	EvictSeconds float64 `json:"evict_seconds"`
	EvictShare   float64 `json:"evict_share"`
	EvictReason  string  `json:"evict_reason,omitempty"`
	// Heartbeats are the worker's, for one that sends them.
	Heartbeats *Heartbeats `json:"heartbeats,omitempty"`
	// Adapters are those that it lists in /v1/models, AdaptersProblem why that may
	// be old.
	Adapters        []string `json:"adapters,omitempty"`
	AdaptersProblem string   `json:"adapters_problem,omitempty"`
	// Events are the worker's KV events, for one that has kv_events.
	Events *Events `json:"events,omitempty"`
}

// Hits of one worker, since its process is known.
type Hits struct {
	Dispatches      uint64 `json:"dispatches"`
	Matched         uint64 `json:"matched"`
	Answers         uint64 `json:"answers"`
	Unnamed         uint64 `json:"unnamed_in_a_row"`
	PromptTokens    uint64 `json:"prompt_tokens"`
	PredictedTokens uint64 `json:"predicted_tokens"`
	CachedTokens    uint64 `json:"cached_tokens"`
}

// Heartbeats is what came of a worker's heartbeats.
type Heartbeats struct {
	Age         float64 `json:"age_seconds"`
	Count       uint64  `json:"count"`
	CompleteAge float64 `json:"complete_age_seconds"` // of the last complete list
	Draining    bool    `json:"draining"`             // they ask for a drain
	// Problem is why the last cache part wasn't taken.
	Problem string `json:"problem,omitempty"`
}

// Events is how a worker's KV events are followed; sums over its ranks.
type Events struct {
	Source         string  `json:"source"` // off, looking, connected, partly, disconnected
	Endpoint       string  `json:"endpoint,omitempty"`
	Problem        string  `json:"problem,omitempty"`
	Age            float64 `json:"age_seconds"` // of the last batch
	Batches        uint64  `json:"batches"`
	Events         uint64  `json:"events"`
	Gaps           uint64  `json:"gaps"`
	Lost           uint64  `json:"lost"`
	Missed         uint64  `json:"missed"`
	Bad            uint64  `json:"bad"`
	Restarts       uint64  `json:"restarts"`
	Reconnects     uint64  `json:"reconnects"`
	FailedReplays  uint64  `json:"failed_replays"`
	Blocks         int     `json:"blocks"`
	Held           int     `json:"held"`
	Slow           int     `json:"slow"`
	BlockTokens    int     `json:"block_tokens"`
	UnknownParents uint64  `json:"unknown_parents"`
	Untranslated   uint64  `json:"untranslated"`
	OtherGroups    uint64  `json:"other_groups"`
	BadShape       uint64  `json:"bad_shape"`
	Bytes          int64   `json:"bytes"`
}

// Gateway is one gateway in the status.
type Gateway struct {
	Name          string  `json:"name"`
	Nonce         string  `json:"nonce"` // hex
	Age           float64 `json:"age_seconds"`
	TableEpoch    uint64  `json:"table_epoch"`
	TableVersion  uint64  `json:"table_version"`
	InFlight      int     `json:"in_flight"`
	VMs           int     `json:"vms"`
	FailedBatches uint64  `json:"failed_batches"`
	// Elsewhere: it reports to another replica, whose table's position this is.
	Elsewhere bool `json:"elsewhere,omitempty"`
}

// Table is the published table in the status.
type Table struct {
	Epoch   uint64 `json:"epoch"`
	Version uint64 `json:"version"`
	Entries int    `json:"entries"`
	Bytes   int    `json:"bytes"`
	Bits    int    `json:"bits"`
	Sets    int    `json:"sets"`
	Dropped uint64 `json:"dropped"`
}

// Index is the truth behind the table.
type Index struct {
	Fingerprints int   `json:"fingerprints"`
	Entries      int   `json:"entries"`
	Bytes        int64 `json:"bytes"`
	Pending      int   `json:"pending"`
}

// Counters since start.
type Counters struct {
	Batches           uint64 `json:"batches"`
	Chunks            uint64 `json:"chunks"`
	BadChunks         uint64 `json:"bad_chunks"`
	Dispatches        uint64 `json:"dispatches"`
	Dones             uint64 `json:"dones"`
	UnknownRef        uint64 `json:"unknown_ref"`
	UnknownRequest    uint64 `json:"unknown_request"`
	Moved             uint64 `json:"moved"`
	Undone            uint64 `json:"undone"`
	Shortfalls        uint64 `json:"shortfalls"`
	UsageMissing      uint64 `json:"usage_missing"`
	Evicted           uint64 `json:"evicted"`
	EvictedBytes      uint64 `json:"evicted_for_bytes"`
	Marks             uint64 `json:"marks"`
	PredictedTokens   uint64 `json:"predicted_tokens"`
	CachedTokens      uint64 `json:"cached_tokens"`
	CameTrueTokens    uint64 `json:"came_true_tokens"`
	MoreTokens        uint64 `json:"more_than_predicted_tokens"`
	Told              uint64 `json:"told"`
	Heartbeats        uint64 `json:"heartbeats"`
	BeatsRepeated     uint64 `json:"heartbeats_repeated"`
	BeatsOld          uint64 `json:"heartbeats_old_generation"`
	BeatsBad          uint64 `json:"heartbeats_bad"`
	BeatsUnlisted     uint64 `json:"heartbeats_unlisted"`
	BeatCachesIgnored uint64 `json:"heartbeat_caches_ignored"`
}

// Readiness is the answer of GET /readyz.
type Readiness struct {
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"`
	// Problem is what doesn't make it unready: the replicas have no majority.
	Problem  string   `json:"problem,omitempty"`
	Healthy  int      `json:"healthy"`
	Total    int      `json:"total"`
	Down     []string `json:"down,omitempty"` // addresses
	Learning bool     `json:"learning"`
}
