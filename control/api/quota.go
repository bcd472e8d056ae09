package api

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// Quota is the answer of GET /v1/quota. Ages are in seconds; -1 is never.
type Quota struct {
	Enabled bool `json:"enabled"`
	// Learning: after a restart, while a gateway of before may hold nobody knows what.
	Learning bool   `json:"learning"`
	Term     string `json:"term,omitempty"`
	// Problem is why there is no more than the settings: the leader didn't answer.
	Problem string `json:"problem,omitempty"`
	// Settings is what the policy has under admission.
	Settings json.RawMessage `json:"settings,omitempty"`
	Pools    []QuotaPool     `json:"pools"`
	Tenants  []QuotaTenant   `json:"tenants"`
	Gateways []QuotaGateway  `json:"gateways"`
}

// QuotaPool is a pool. Slots and PrefillTokens are -1 where there is no limit.
type QuotaPool struct {
	Name            string  `json:"name"`
	Enforced        bool    `json:"enforced"`
	Slots           int64   `json:"slots"`
	TokensPerSecond float64 `json:"tokens_per_second"`
	PrefillTokens   int64   `json:"prefill_tokens"`
	// Debit is the slots that gateways have or may have, Silent those of gateways that are not
	// heard. Settled is false while that is not known.
	Debit   uint64       `json:"debit"`
	Silent  uint64       `json:"silent"`
	Settled bool         `json:"settled"`
	Classes []QuotaClass `json:"classes"`
	// Open is how far the controller lets the classes below P0: 1 as configured, 0 their floors.
	Open    float64       `json:"open"`
	History []QuotaMoment `json:"history,omitempty"`
}

// QuotaClass is a class in a pool.
type QuotaClass struct {
	Class         string  `json:"class"`
	Share         float64 `json:"share"` // in force
	Part          float64 `json:"part"`  // of the pool at the moment, in slots
	InUse         uint64  `json:"in_use"`
	Waiting       uint64  `json:"waiting"`
	OldestMillis  uint32  `json:"oldest_wait_ms"`
	PrefillTokens uint64  `json:"prefill_tokens"`
	WaitingTokens uint64  `json:"waiting_tokens"`
	Refused       uint64  `json:"refused"`
	TTFTP99Millis uint32  `json:"ttft_p99_ms"` // of the last second with any, 0 for none
	Objective     int64   `json:"objective_ttft_ms"`
}

// QuotaMoment is one second of a pool: its controller's input and answer.
type QuotaMoment struct {
	Age       float64    `json:"age_seconds"`
	P99Millis [3]uint32  `json:"ttft_p99_ms"`
	Count     [3]uint64  `json:"ttft_count"`
	Shares    [3]float64 `json:"shares"`
	Lend      float64    `json:"lend"`
	InUse     [3]uint64  `json:"in_use"`
	Waiting   [3]uint64  `json:"waiting"`
}

// QuotaTenant is a tenant that has something in use, or limits. Limits are 0 where there are
// none.
type QuotaTenant struct {
	Name     string  `json:"name"`
	Weight   float64 `json:"weight"`
	InUse    uint64  `json:"in_use"`
	Waiting  uint64  `json:"waiting"`
	Gateways int     `json:"gateways"` // that have something of its limits

	Concurrency       int     `json:"concurrency"`
	Debit             uint64  `json:"debit"`
	RequestsPerMinute int     `json:"requests_per_minute"`
	RequestsLeft      float64 `json:"requests_left"`
	TokensPerMinute   int     `json:"uncached_tokens_per_minute"`
	TokensLeft        float64 `json:"tokens_left"`
}

// QuotaGateway is a process of a gateway.
type QuotaGateway struct {
	Name  string             `json:"name"`
	Nonce string             `json:"nonce"` // hex
	State string             `json:"state"` // live, silent, unknown
	Age   float64            `json:"age_seconds"`
	Pools []QuotaGatewayPool `json:"pools"`
}

// QuotaGatewayPool is what a gateway has in a pool, in slots.
type QuotaGatewayPool struct {
	Pool    string `json:"pool"`
	Granted uint32 `json:"granted"`
	Floor   uint32 `json:"floor"`
	InUse   uint32 `json:"in_use"`
	Waiting uint32 `json:"waiting"`
	Debit   uint32 `json:"debit"`
}

// QuotaChange is the answer of PUT /v1/quota: what is another than before, and of a dry run what
// that would have done.
type QuotaChange struct {
	DryRun  bool           `json:"dry_run"`
	Changes []QuotaSetting `json:"changes"`
	Effect  *QuotaEffect   `json:"effect,omitempty"`
}

// QuotaEffect is what settings would have done to what was asked for in the last Seconds, ten minutes
// at most. What would have been refused is an estimate: each limit is replayed alone.
type QuotaEffect struct {
	Seconds int `json:"seconds"`
	// Problem is why nothing is known.
	Problem string              `json:"problem,omitempty"`
	Tenants []QuotaTenantEffect `json:"tenants"`
	Classes []QuotaClassEffect  `json:"classes"`
	// Unknown are tenants that would be limited and of which nobody knows what they ask for: gateways
	// report those with limits alone.
	Unknown []string `json:"unknown"`
}

// QuotaTenantEffect is a limit that a tenant would have met.
type QuotaTenantEffect struct {
	Tenant string `json:"tenant"`
	Limit  string `json:"limit"` // concurrency, requests_per_minute, uncached_tokens_per_minute
	Value  int    `json:"value"`
	// Asked is the most that was asked for, at once or in a minute; Over the seconds in which that
	// was more than the limit.
	Asked float64 `json:"asked"`
	Over  int     `json:"over_seconds"`
	// Of so many Requests about Refused would have been refused; WereRefused were.
	Requests    float64 `json:"requests"`
	Refused     float64 `json:"refused"`
	WereRefused float64 `json:"were_refused"`
}

// QuotaClassEffect is a class that would have had to wait in a pool, or was.
type QuotaClassEffect struct {
	Pool     string  `json:"pool"`
	Class    string  `json:"class"`
	Enforced bool    `json:"enforced"` // false: it would only be counted
	Limit    string  `json:"limit"`    // slots or prefill_tokens
	Value    float64 `json:"value"`    // of the whole pool
	Asked    float64 `json:"asked"`    // the most by this class
	Short    int     `json:"short_seconds"`
	WasShort int     `json:"was_short_seconds"` // with the settings in force
	Missing  float64 `json:"missing"`           // share of all that was asked for
}

// QuotaSetting is one setting that changes; null where there was, or is, none.
type QuotaSetting struct {
	Place  string `json:"place"`
	Before any    `json:"before"`
	After  any    `json:"after"`
}

func (h *handler) quota(w http.ResponseWriter, r *http.Request) {
	history, err := flagOf(r, "history")
	if err != nil {
		h.fail(w, err)
		return
	}
	h.answer(w, http.StatusOK, h.c.Quota(history))
}

func (h *handler) putQuota(w http.ResponseWriter, r *http.Request) {
	dry, err := flagOf(r, "dry_run")
	var body []byte
	if err == nil {
		body, err = h.body(w, r, h.MaxDocumentBytes, yamlType, jsonType)
	}
	var change QuotaChange
	if err == nil {
		change, err = h.c.PutQuota(body, dry)
	}
	if err != nil {
		h.fail(w, err)
		return
	}
	h.answer(w, http.StatusOK, change)
}

// flagOf reads a boolean of the query.
func flagOf(r *http.Request, name string) (bool, error) {
	given := r.URL.Query().Get(name)
	if given == "" {
		return false, nil
	}
	on, err := strconv.ParseBool(given)
	if err != nil {
		return false, badRequest(name+" is "+strconv.Quote(given), "use true or false")
	}
	return on, nil
}
