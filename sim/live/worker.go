// Package live serves simulated engines over HTTP as an OpenAI-compatible
// worker would.
//
// A request travels so: its body is read whole and parsed (package dialect)
// into prompts of tokens (package text); the answer's length is fixed, the
// hashes of all its blocks are computed, and the sequence goes to the worker's
// engine (package engine) at the engine's present time. The handler then waits.
// A single timer per worker fires at the engine's next event and wakes the
// handlers concerned, which write the first token, further tokens in pieces of
// Config.EventTokens, and the end with usage. A client that leaves cancels its
// sequence.
//
// The engine's clock runs Config.TimeScale times faster than the wall's, so a
// few minutes of a fleet's life pass in seconds while the order and distance
// of events stay what they were.
package live

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmpath/warmpath/sim/engine"
	"github.com/warmpath/warmpath/sim/pace"
	"github.com/warmpath/warmpath/sim/text"
)

// Config of a worker. The zero value of each field means its default.
type Config struct {
	// Name identifies the worker in x-sim-worker, system_fingerprint and
	// metrics. Default: its address.
	Name string
	// Listener to serve on; the worker closes it. Default: 127.0.0.1, any port.
	Listener net.Listener
	// Engine parameters. Default: engine.DefaultParams.
	Engine engine.Params
	// TimeScale is how many engine seconds pass in one real second. Default 1.
	TimeScale float64
	// Clock is engine time where it is shared with others; TimeScale then only
	// shows. Default: a clock of its own that runs TimeScale times as fast.
	Clock *pace.Clock
	// EventTokens is how many output tokens one server-sent event carries after
	// the first, which is always sent alone. Default 1; negative: all the rest
	// in one event at the end, which costs the least CPU.
	EventTokens int
	// Models that are served; another name gets 404. Default: any name.
	Models []string
	// MaxModelTokens bounds prompt and answer together. Default 131,072.
	MaxModelTokens int
	// AnswerTokens is the mean length of an answer that is not bounded by
	// max_tokens with ignore_eos. Default 200.
	AnswerTokens int
	// RefusalStatus is answered when the queue is full: 503 (default, as vLLM
	// does, without Retry-After) or 429.
	RefusalStatus int
	// AlwaysUsage puts usage into every stream, as some engines do, not only
	// with stream_options.include_usage.
	AlwaysUsage bool
	// Tokenizer makes the worker count and cache a model's own tokens, and
	// answer /tokenize. Default: the pseudo tokens of package text.
	Tokenizer *Tokenizer
}

func (c *Config) setDefaults() error {
	if c.Engine == (engine.Params{}) {
		c.Engine = engine.DefaultParams()
	}
	if c.TimeScale == 0 {
		c.TimeScale = 1
	}
	if c.EventTokens == 0 {
		c.EventTokens = 1
	}
	if c.MaxModelTokens == 0 {
		c.MaxModelTokens = 131_072
	}
	if c.AnswerTokens == 0 {
		c.AnswerTokens = 200
	}
	if c.RefusalStatus == 0 {
		c.RefusalStatus = http.StatusServiceUnavailable
	}
	switch {
	case !(c.TimeScale > 0):
		return fmt.Errorf("live: TimeScale is %v: want above 0", c.TimeScale)
	case c.MaxModelTokens < 1 || c.AnswerTokens < 1:
		return errors.New("live: MaxModelTokens and AnswerTokens must be positive")
	case c.RefusalStatus != http.StatusServiceUnavailable && c.RefusalStatus != http.StatusTooManyRequests:
		return fmt.Errorf("live: RefusalStatus is %d: want 503 or 429", c.RefusalStatus)
	}
	if c.Clock == nil {
		c.Clock = pace.NewClock(c.TimeScale)
	}
	return nil
}

// A Worker is one running engine behind HTTP.
type Worker struct {
	config  Config
	address string
	exact   *exact // nil without a Tokenizer

	mu      sync.Mutex // guards what follows
	server  *http.Server
	serving sync.WaitGroup
	lifted  chan struct{} // closed when the fault ends

	driver  atomic.Pointer[driver]
	fault   atomic.Int32
	started atomic.Int64 // Unix nanoseconds of the process's (re)start
	replies atomic.Uint64
}

// Start serves a worker until Close.
func Start(c Config) (*Worker, error) {
	if err := c.setDefaults(); err != nil {
		return nil, err
	}
	l := c.Listener
	if l == nil {
		var err error
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return nil, fmt.Errorf("live: listen: %w", err)
		}
	}
	w := &Worker{config: c, address: l.Addr().String(), lifted: make(chan struct{})}
	if c.Name == "" {
		w.config.Name = w.address
	}
	if c.Tokenizer != nil {
		w.exact = newExact(c.Tokenizer)
	}
	if err := w.renew(); err != nil {
		l.Close()
		return nil, err
	}
	w.serve(l)
	return w, nil
}

// renew gives the worker an engine with an empty cache, as a new process has.
func (w *Worker) renew() error {
	d, err := newDriver(w.config.Engine, w.config.Clock)
	if err != nil {
		return err
	}
	w.started.Store(time.Now().UnixNano())
	if old := w.driver.Swap(d); old != nil {
		old.close()
	}
	return nil
}

func (w *Worker) serve(l net.Listener) {
	server := &http.Server{
		Handler:           w,
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	w.server = server
	w.serving.Add(1)
	go func() {
		defer w.serving.Done()
		_ = server.Serve(l) // always ErrServerClosed or a closed listener
	}()
}

// Name of the worker.
func (w *Worker) Name() string { return w.config.Name }

// Address is its host:port; it stays the same over Restart.
func (w *Worker) Address() string { return w.address }

// URL is "http://" and the address.
func (w *Worker) URL() string { return "http://" + w.address }

// Stats of the engine.
func (w *Worker) Stats() engine.Stats { return w.driver.Load().stats() }

// Now is the engine's time.
func (w *Worker) Now() time.Duration {
	d := w.driver.Load()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now()
}

// Close ends the worker, its connections and its timer.
func (w *Worker) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lift()
	err := w.server.Close()
	w.serving.Wait()
	w.driver.Load().close()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("live: close worker %s: %w", w.config.Name, err)
	}
	return nil
}

// Restart makes a new process of the worker on the same address: connections
// are reset, the cache is empty, metrics start at 0, the fault is gone.
func (w *Worker) Restart() error {
	if err := w.SetFault(Down); err != nil {
		return err
	}
	if err := w.renew(); err != nil {
		return err
	}
	return w.SetFault(Healthy)
}

// ClearCache drops every block that is not in use.
func (w *Worker) ClearCache() {
	d := w.driver.Load()
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	d.engine.ClearCache(now)
	d.deliver(now)
}

// PrefixBlocks are the blocks that a system prompt fills at the start of a
// chat without tools, for Holds and Residency.
func PrefixBlocks(systemPrompt string) []engine.BlockHash {
	var r text.Rendering
	r.Message("system", systemPrompt)
	return engine.AppendBlockHashes(nil, engine.RootHash(""), r.Tokens)
}

// Holds counts how many of the blocks are in the worker's cache from the first
// on.
func (w *Worker) Holds(blocks []engine.BlockHash) int {
	d := w.driver.Load()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.engine.Holds(blocks)
}
