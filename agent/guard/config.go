package guard

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Limits of a gate. Zero values take the defaults.
type Limits struct {
	// MaxRunning is the engine's batch limit. 0: as many as it was seen to run at
	// once.
	MaxRunning int
	// EngineQueue is how many may wait in the engine's own queue, which knows no
	// class and sends nobody elsewhere: enough that a place which comes free is
	// taken at once. 8. P2 may use half.
	EngineQueue int
	// PrefillAhead is how long the prompts at the engine may take together. 1 s. P2
	// may use half.
	PrefillAhead time.Duration
	// LongPromptTokens and more wait while running requests hold MemoryHigh of the
	// KV cache, or would with them, until they hold less than MemoryLow. 2,048
	// tokens (four bytes each), 0.90, 0.80.
	LongPromptTokens      int
	MemoryHigh, MemoryLow float64
	// QueueRequests and QueueBytes bound each class' queue, in requests and in what
	// is held of their bodies. 256, 64 MiB.
	QueueRequests int
	QueueBytes    int64
	// QueueWait is how long P0, P1 and P2 may wait. 1 s, 5 s, 20 s.
	QueueWait [classes]time.Duration
}

func (l Limits) withDefaults() Limits {
	l.EngineQueue = cmp.Or(l.EngineQueue, 8)
	l.PrefillAhead = cmp.Or(l.PrefillAhead, time.Second)
	l.LongPromptTokens = cmp.Or(l.LongPromptTokens, 2048)
	l.MemoryHigh = cmp.Or(l.MemoryHigh, 0.9)
	l.MemoryLow = cmp.Or(l.MemoryLow, l.MemoryHigh-0.1)
	l.QueueRequests = cmp.Or(l.QueueRequests, 256)
	l.QueueBytes = cmp.Or(l.QueueBytes, 64<<20)
	for c, wait := range [classes]time.Duration{time.Second, 5 * time.Second, 20 * time.Second} {
		l.QueueWait[c] = cmp.Or(l.QueueWait[c], wait)
	}
	return l
}

func (l *Limits) check() error {
	switch {
	case min(l.MaxRunning, l.EngineQueue, l.LongPromptTokens, l.QueueRequests) < 0 || l.QueueBytes < 0 || l.PrefillAhead < 0:
		return fmt.Errorf("limits must not be negative")
	case l.MemoryHigh > 1 || l.MemoryLow < 0 || l.MemoryLow > l.MemoryHigh:
		return fmt.Errorf("memory marks %g and %g: give shares of the cache, the lower one at most the other", l.MemoryHigh, l.MemoryLow)
	case min(l.QueueWait[p0], l.QueueWait[p1], l.QueueWait[p2]) < 0:
		return fmt.Errorf("queue waits must not be negative")
	}
	return nil
}

// Config of a Guard. Only Engine has no default.
type Config struct {
	Engine string // http://127.0.0.1:8000
	Limits Limits
	// ClassHeader names the header that says the class of a request, p0, p1, p2 or
	// 0, 1, 2; others are P1. Only who stands in front may set it: X-Vllm-Priority
	// where the policy has engine_priority_header. Empty: all are P1.
	ClassHeader string
	// TenantHeader names the header that says whose a request is. Within a class
	// tenants share fairly. Only a digest of the value is kept. Empty: all are
	// one's.
	TenantHeader string
	// MetricsPath of the engine: there the guard's metrics stand behind the
	// engine's. "/metrics".
	MetricsPath string
	// TokenTimeout bounds the silence within an answer; an engine that dies may
	// leave its sockets open. 60 s.
	TokenTimeout time.Duration
	Transport    http.RoundTripper // nil: one of its own
	Logger       *slog.Logger
}

func (c Config) withDefaults() (Config, *url.URL, error) {
	engine, err := url.Parse(c.Engine)
	if err != nil || engine.Scheme != "http" && engine.Scheme != "https" || engine.Host == "" || strings.Trim(engine.Path, "/") != "" {
		return c, nil, fmt.Errorf("engine %q is not a URL without a path, such as http://127.0.0.1:8000", c.Engine)
	}
	c.Limits = c.Limits.withDefaults()
	if err := c.Limits.check(); err != nil {
		return c, nil, err
	}
	c.MetricsPath = cmp.Or(c.MetricsPath, "/metrics")
	c.TokenTimeout = cmp.Or(c.TokenTimeout, time.Minute)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, engine, nil
}
