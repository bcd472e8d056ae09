package heartbeat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/warmpath/warmpath/shared/fingerprint"
)

// Bounds of one heartbeat.
const (
	MaxBytes       = 8 << 20
	MaxPrefixes    = 4096
	MaxTokens      = 1 << 20 // of all prefixes
	MaxPaths       = 4096
	MaxCheckpoints = 1 << 16 // of all paths, and of removed
	MaxNotice      = 10 * time.Minute
	MaxAge         = time.Minute

	maxName    = 255
	maxSalt    = 1024
	maxReason  = 200
	maxTokenID = math.MaxInt32
	maxCount   = 65535
	maxStarted = 1 << 52
)

// Error names the field that is wrong and what can be done about it.
type Error struct {
	Field  string // "cache.prefixes[2].tokens[17]"; empty for the body as a whole
	What   string
	Remedy string
}

func (e *Error) Error() string {
	if e.Field == "" {
		return e.What
	}
	return e.Field + ": " + e.What
}

// The JSON form. Pointers tell what is missing from what is zero.
type body struct {
	Worker    *string   `json:"worker"`
	Sequence  *uint64   `json:"sequence"`
	StartedMS *uint64   `json:"started_ms,omitempty"`
	State     *string   `json:"state,omitempty"`
	Load      *load     `json:"load,omitempty"`
	Engine    *engine   `json:"engine,omitempty"`
	Cache     *cache    `json:"cache,omitempty"`
	Eviction  *eviction `json:"eviction,omitempty"`
}

type load struct {
	AgeMS       float64 `json:"age_ms,omitempty"`
	Running     int     `json:"running,omitempty"`
	Waiting     int     `json:"waiting,omitempty"`
	KVShare     float64 `json:"kv_share,omitempty"`
	Utilization float64 `json:"utilization,omitempty"`
}

type engine struct {
	MaxRunning     int   `json:"max_running,omitempty"`
	QueueLimit     int   `json:"queue_limit,omitempty"`
	CapacityTokens int   `json:"capacity_tokens,omitempty"`
	BlockTokens    int   `json:"block_tokens,omitempty"`
	PrefixCaching  *bool `json:"prefix_caching,omitempty"`
}

type cache struct {
	Complete bool           `json:"complete,omitempty"`
	Cleared  bool           `json:"cleared,omitempty"`
	Prefixes []prefix       `json:"prefixes,omitempty"`
	Paths    [][]checkpoint `json:"paths,omitempty"`
	Removed  []string       `json:"removed,omitempty"`
}

type prefix struct {
	Model     string  `json:"model,omitempty"`
	CacheSalt string  `json:"cache_salt,omitempty"`
	Tokens    []int64 `json:"tokens"`
}

type checkpoint struct {
	Fingerprint string `json:"fingerprint"`
	Units       int64  `json:"units"`
}

type eviction struct {
	InMS   float64  `json:"in_ms,omitempty"`
	ForMS  *float64 `json:"for_ms"`
	Share  *float64 `json:"share,omitempty"`
	Reason string   `json:"reason,omitempty"`
}

// Decode reads a heartbeat. An error is an *Error. The worker's address is as
// given: the fleet knows its canonical form.
func Decode(data []byte) (*Heartbeat, error) {
	if len(data) > MaxBytes {
		return nil, &Error{What: fmt.Sprintf("%d bytes, the limit is %d", len(data), MaxBytes), Remedy: "send what is held in several heartbeats, without complete"}
	}
	var b body
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&b); err != nil {
		return nil, jsonError(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, &Error{What: "something follows the JSON object", Remedy: "send one object"}
	}
	var c checker
	h := c.heartbeat(&b)
	if c.err != nil {
		return nil, c.err
	}
	return h, nil
}

// jsonError says in the words of the body what encoding/json says of its types.
func jsonError(err error) *Error {
	const remedy = "see POST /v1/heartbeat in /openapi.yaml"
	var kind *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &kind):
		return &Error{Field: kind.Field, What: "a JSON " + kind.Value + " doesn't fit here", Remedy: remedy}
	case errors.As(err, &syntax):
		return &Error{What: fmt.Sprintf("not JSON at byte %d: %s", syntax.Offset, syntax), Remedy: "send one JSON object"}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &Error{What: "the JSON object isn't complete", Remedy: "send one JSON object"}
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		if unquoted, err := strconv.Unquote(name); err == nil {
			name = unquoted
		}
		return &Error{Field: name, What: "no such field", Remedy: remedy}
	}
	return &Error{What: err.Error(), Remedy: remedy}
}

// checker keeps the first thing that is wrong.
type checker struct{ err *Error }

func (c *checker) bad(field, what, remedy string) {
	if c.err == nil {
		c.err = &Error{field, what, remedy}
	}
}

func (c *checker) count(field string, v int) int {
	return c.within(field, v, maxCount)
}

func (c *checker) within(field string, v, most int) int {
	if v < 0 || v > most {
		c.bad(field, fmt.Sprintf("%d is outside 0..%d", v, most), "leave the field out when you don't know it")
	}
	return v
}

func (c *checker) share(field string, v float64) float64 {
	if !(v >= 0 && v <= 1) {
		c.bad(field, fmt.Sprintf("%v is outside 0..1", v), "a share of 1, not percent")
	}
	return v
}

func (c *checker) millis(field string, v float64, most time.Duration) time.Duration {
	if !(v >= 0 && v <= float64(most.Milliseconds())) {
		c.bad(field, fmt.Sprintf("%v is outside 0..%d ms", v, most.Milliseconds()), "give milliseconds from now")
		return 0
	}
	return time.Duration(v * float64(time.Millisecond))
}

func (c *checker) text(field, v string, most int) string {
	if len(v) > most || strings.ContainsFunc(v, unicode.IsControl) {
		c.bad(field, fmt.Sprintf("over %d bytes, or with control characters", most), "")
	}
	return v
}

func (c *checker) heartbeat(b *body) *Heartbeat {
	h := &Heartbeat{}
	if b.Worker == nil || *b.Worker == "" {
		c.bad("worker", "missing", "give ip:port as GET /v1/workers shows it")
	} else {
		h.Worker = c.text("worker", *b.Worker, maxName)
	}
	if b.Sequence == nil {
		c.bad("sequence", "missing", "give a number that rises with every heartbeat, for example the time in milliseconds")
	} else {
		h.Sequence = *b.Sequence
	}
	if b.StartedMS != nil {
		if h.StartedMillis = *b.StartedMS; h.StartedMillis == 0 || h.StartedMillis > maxStarted {
			c.bad("started_ms", fmt.Sprintf("%d is no time", h.StartedMillis), "Unix milliseconds of the engine's start, or leave it out")
		}
	}
	switch {
	case b.State == nil || *b.State == "serving":
	case *b.State == "draining":
		h.Draining = true
	default:
		c.bad("state", strconv.Quote(*b.State)+" is no state", "serving or draining")
	}
	if l := b.Load; l != nil {
		h.Load = &Load{
			Age: c.millis("load.age_ms", l.AgeMS, MaxAge), Running: c.count("load.running", l.Running), Waiting: c.count("load.waiting", l.Waiting),
			KVShare: c.share("load.kv_share", l.KVShare), Utilization: c.share("load.utilization", l.Utilization),
		}
	}
	if e := b.Engine; e != nil {
		h.Engine = Engine{
			MaxRunning: c.count("engine.max_running", e.MaxRunning), QueueLimit: c.count("engine.queue_limit", e.QueueLimit),
			CapacityTokens: c.within("engine.capacity_tokens", e.CapacityTokens, 1<<31), BlockTokens: c.count("engine.block_tokens", e.BlockTokens),
			PrefixCaching: e.PrefixCaching,
		}
	}
	if b.Cache != nil {
		h.Cache = c.cache(b.Cache)
	}
	if e := b.Eviction; e != nil {
		h.Eviction = c.eviction(e)
	}
	return h
}

func (c *checker) eviction(e *eviction) *Eviction {
	out := &Eviction{In: c.millis("eviction.in_ms", e.InMS, MaxNotice), Share: 1, Reason: c.text("eviction.reason", e.Reason, maxReason)}
	if e.ForMS == nil {
		c.bad("eviction.for_ms", "missing", "how long it will take, in milliseconds; 0 takes the notice back")
	} else {
		out.For = c.millis("eviction.for_ms", *e.ForMS, MaxNotice)
	}
	if e.Share != nil {
		if out.Share = c.share("eviction.share", *e.Share); out.Share == 0 {
			c.bad("eviction.share", "0 is no eviction", "the share of the cache that goes, above 0; or for_ms 0 to take a notice back")
		}
	}
	return out
}

func (c *checker) cache(b *cache) *Cache {
	out := &Cache{Complete: b.Complete, Cleared: b.Cleared}
	if len(b.Prefixes) > MaxPrefixes {
		c.bad("cache.prefixes", fmt.Sprintf("%d, the limit is %d", len(b.Prefixes), MaxPrefixes), "send the most used ones")
	}
	if len(b.Paths) > MaxPaths {
		c.bad("cache.paths", fmt.Sprintf("%d, the limit is %d", len(b.Paths), MaxPaths), "send the most used ones")
	}
	if len(b.Removed) > MaxCheckpoints {
		c.bad("cache.removed", fmt.Sprintf("%d, the limit is %d", len(b.Removed), MaxCheckpoints), "send complete instead")
	}
	if c.err != nil {
		return out
	}
	if b.Complete && len(b.Removed) > 0 {
		c.bad("cache.removed", "given beside complete", "what a complete list lacks is removed anyway")
	}
	tokens := 0
	for i := range b.Prefixes {
		at := fmt.Sprintf("cache.prefixes[%d]", i)
		if tokens += len(b.Prefixes[i].Tokens); tokens > MaxTokens {
			c.bad(at+".tokens", fmt.Sprintf("over %d tokens in all prefixes together", MaxTokens), "send them in several heartbeats, without complete")
			return out
		}
		out.Prefixes = append(out.Prefixes, c.prefix(at, &b.Prefixes[i]))
	}
	positions := 0
	for i, path := range b.Paths {
		at := fmt.Sprintf("cache.paths[%d]", i)
		if positions += len(path); positions > MaxCheckpoints {
			c.bad(at, fmt.Sprintf("over %d checkpoints in all paths together", MaxCheckpoints), "send them in several heartbeats, without complete")
			return out
		}
		out.Paths = append(out.Paths, c.path(at, path))
	}
	for i, text := range b.Removed {
		out.Removed = append(out.Removed, c.fingerprint(fmt.Sprintf("cache.removed[%d]", i), text))
	}
	return out
}

func (c *checker) prefix(at string, p *prefix) Prefix {
	out := Prefix{Model: c.text(at+".model", p.Model, maxName), CacheSalt: p.CacheSalt, Tokens: make([]uint32, len(p.Tokens))}
	if len(p.CacheSalt) > maxSalt {
		c.bad(at+".cache_salt", fmt.Sprintf("over %d bytes", maxSalt), "")
	}
	if len(p.Tokens) == 0 {
		c.bad(at+".tokens", "missing", "the token ids from the start of the prompt")
	}
	for i, id := range p.Tokens {
		if id < 0 || id > maxTokenID {
			c.bad(fmt.Sprintf("%s.tokens[%d]", at, i), fmt.Sprintf("%d is no token id", id), "")
			break
		}
		out.Tokens[i] = uint32(id)
	}
	return out
}

func (c *checker) path(at string, path []checkpoint) []fingerprint.Checkpoint {
	if len(path) == 0 || len(path) > fingerprint.MaxCheckpoints {
		c.bad(at, fmt.Sprintf("%d checkpoints, 1 to %d make a path", len(path), fingerprint.MaxCheckpoints), "")
	}
	out := make([]fingerprint.Checkpoint, 0, len(path))
	last := int64(0)
	for i, p := range path {
		field := fmt.Sprintf("%s[%d]", at, i)
		if p.Units <= last || p.Units > 1<<24 {
			c.bad(field+".units", fmt.Sprintf("%d after %d", p.Units, last), "positions rise along a path, in units of 16 tokens, up to 16777216")
		}
		last = p.Units
		out = append(out, fingerprint.Checkpoint{Fingerprint: c.fingerprint(field+".fingerprint", p.Fingerprint), End: uint32(p.Units)})
	}
	return out
}

// fingerprint reads 16 hexadecimal digits: a JSON number loses bits in many
// writers.
func (c *checker) fingerprint(field, text string) uint64 {
	v, err := strconv.ParseUint(text, 16, 64)
	if err != nil || len(text) != 16 || v == 0 {
		c.bad(field, strconv.Quote(text[:min(len(text), 40)])+" is no fingerprint", "16 hexadecimal digits, not all zero")
	}
	return v
}
