// Package config reads the module's plugin configuration.
//
// The proxy hands the module one JSON string. Parse checks its nesting before
// any recursive reader sees it, fills in the defaults, refuses unknown keys and
// values outside their bounds, and answers either a whole Config or an error
// that names the key and the remedy. A plugin context that refuses its
// configuration leaves the proxy on the one before.
package config

import (
	"strconv"
	"time"

	"github.com/tidwall/gjson"

	"github.com/warmpath/warmpath/shared/policy"
)

// MaxBytes bounds the configuration's size. Everything that grows with the
// fleet comes from the control service, so a larger one is a mistake.
const MaxBytes = 256 << 10

const maxDepth = 32

// Hold says how a request is kept back until its body has been read.
type Hold uint8

const (
	// HoldHeaders stops at the headers. The proxy needs
	// allow_on_headers_stop_iteration; request headers stay editable until
	// the request is released.
	HoldHeaders Hold = iota
	// HoldBuffer lets the headers go and stops at the body. The chain needs
	// the buffer and header_mutation filters after this one; the choice
	// travels as filter state wasm.gw.dest and wasm.gw.pool.
	HoldBuffer
)

// String is the value of the configuration key.
func (h Hold) String() string {
	if h == HoldBuffer {
		return "buffer"
	}
	return "headers"
}

// Control tells how the courier reaches the control service.
type Control struct {
	Cluster string // name of the proxy's cluster
	// Authority is the :authority of the calls, by which a proxy that hashes chooses
	// one of several control services. Empty: one for each gateway, and another
	// after a failure.
	Authority string
	Token     string // bearer token; empty sends none
	// BatchInterval is the least time between two batches that say everything.
	BatchInterval time.Duration
	// NewsInterval is the least time from one batch to the next that tells of
	// dispatches.
	NewsInterval time.Duration
	// PollWait is how long control may keep a long-poll open. It is below the
	// 30 s after which a table without news counts as old.
	PollWait time.Duration
	// Timeout ends a call that the control service never answers. It is
	// longer than PollWait.
	Timeout time.Duration
}

// Config is one plugin configuration, complete and within its bounds.
type Config struct {
	// Deployment separates fleets that share a proxy: it is part of every
	// shared-data key.
	Deployment string
	// Gateway names this proxy towards control. Empty: the proxy's node id.
	Gateway string
	Control Control
	Hold    Hold
	// WorkerCluster is the proxy's cluster with a pool's workers, for the requests that the module makes
	// itself: {pool} stands for the pool's name. Empty: it makes none.
	WorkerCluster string
	// BodyCapBytes is the largest body that is held and read. A larger one
	// passes unread and is routed by load.
	BodyCapBytes int
	// Tick is how often a VM renews its row and does deferred work.
	Tick time.Duration
	// SessionHeader is the lower-case request header that names a session.
	SessionHeader string
	// ExposeWorker puts x-warmpath-worker on every response; otherwise only
	// refusals carry it.
	ExposeWorker bool
	// Explain puts x-warmpath-explain on every response: how the prompt was
	// read and why its worker was chosen. It shows workers' addresses.
	Explain bool
	// Static is the policy in use until control has answered, nil without.
	Static *policy.Set
}

// Default is the configuration of an empty string.
func Default() *Config {
	return &Config{
		Deployment: "default",
		Control: Control{
			Cluster:       "warmpath-control",
			BatchInterval: 250 * time.Millisecond,
			NewsInterval:  25 * time.Millisecond,
			PollWait:      10 * time.Second,
			Timeout:       15 * time.Second,
		},
		WorkerCluster: "pool-{pool}",
		BodyCapBytes:  4 << 20,
		Tick:          100 * time.Millisecond,
		SessionHeader: "x-session-id",
	}
}

// Error tells which key of the configuration is wrong and what would be right.
type Error struct {
	Key    string // dotted path, empty for the document itself
	Detail string // what was found, and the remedy
}

// Error is one line: place, finding, remedy.
func (e *Error) Error() string {
	if e.Key == "" {
		return "plugin configuration: " + e.Detail
	}
	return "plugin configuration: " + e.Key + ": " + e.Detail
}

// Parse reads one plugin configuration. An empty one is the default.
func Parse(raw []byte) (*Config, error) {
	cfg := Default()
	if len(raw) > MaxBytes {
		return nil, &Error{Detail: strconv.Itoa(len(raw)) + " bytes are more than " + strconv.Itoa(MaxBytes) +
			"; keep worker lists in the control service"}
	}
	if blank(raw) {
		return cfg, nil
	}
	if at, deep := tooDeep(raw); deep {
		return nil, &Error{Detail: "nested deeper than " + strconv.Itoa(maxDepth) + " at byte " + strconv.Itoa(at)}
	}
	if !gjson.ValidBytes(raw) {
		return nil, &Error{Detail: "not valid JSON; check quotes and commas"}
	}
	doc := gjson.ParseBytes(raw)
	if !doc.IsObject() {
		return nil, &Error{Detail: "must be a JSON object"}
	}
	var err error
	doc.ForEach(func(key, value gjson.Result) bool {
		err = cfg.set(key.String(), value)
		return err == nil
	})
	if err != nil {
		return nil, err
	}
	if cfg.Control.Timeout <= cfg.Control.PollWait {
		return nil, &Error{
			Key:    "control.timeout_ms",
			Detail: "must be longer than control.poll_wait_ms (" + millis(cfg.Control.PollWait) + "), or every quiet poll ends as a failure",
		}
	}
	return cfg, nil
}

func (c *Config) set(key string, v gjson.Result) (err error) {
	switch key {
	case "deployment":
		c.Deployment, err = name(key, v, 40)
	case "gateway":
		c.Gateway, err = text(key, v, 128)
	case "control":
		if !v.IsObject() {
			return &Error{Key: key, Detail: "must be an object"}
		}
		v.ForEach(func(k, value gjson.Result) bool {
			err = c.Control.set(k.String(), value)
			return err == nil
		})
	case "hold":
		switch v.Str {
		case "headers":
			c.Hold = HoldHeaders
		case "buffer":
			c.Hold = HoldBuffer
		default:
			return &Error{Key: key, Detail: `must be "headers" or "buffer", not ` + found(v)}
		}
	case "worker_cluster":
		c.WorkerCluster, err = text(key, v, 256)
	case "body_cap_bytes":
		c.BodyCapBytes, err = number(key, v, 1<<10, 64<<20)
	case "tick_ms":
		c.Tick, err = duration(key, v, 10, 1000)
	case "session_header":
		c.SessionHeader, err = header(key, v)
	case "expose_worker":
		c.ExposeWorker, err = boolean(key, v)
	case "explain":
		c.Explain, err = boolean(key, v)
	case "static":
		set, perr := policy.Parse([]byte(v.Raw))
		if perr != nil {
			return &Error{Key: key, Detail: perr.Error()}
		}
		c.Static = set
	default:
		return &Error{Key: key, Detail: "unknown key; known are deployment, gateway, control, hold, worker_cluster, body_cap_bytes, " +
			"tick_ms, session_header, expose_worker, explain, static"}
	}
	return err
}

func (c *Control) set(key string, v gjson.Result) (err error) {
	path := "control." + key
	switch key {
	case "cluster":
		c.Cluster, err = filled(path, v, 256)
	case "authority":
		c.Authority, err = filled(path, v, 256)
	case "token":
		c.Token, err = text(path, v, 4096)
	case "batch_interval_ms":
		c.BatchInterval, err = duration(path, v, 20, 10_000)
	case "news_interval_ms":
		c.NewsInterval, err = duration(path, v, 5, 10_000)
	case "poll_wait_ms":
		c.PollWait, err = duration(path, v, 100, 25_000)
	case "timeout_ms":
		c.Timeout, err = duration(path, v, 200, 600_000)
	default:
		return &Error{Key: path, Detail: "unknown key; known are cluster, authority, token, batch_interval_ms, news_interval_ms, poll_wait_ms, timeout_ms"}
	}
	return err
}
