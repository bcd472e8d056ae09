// Package adapters knows which LoRA adapters the workers of each pool serve, so
// that requests that name one go to that pool without a policy that lists them.
//
// An adapter's way through the package: [Ask] reads it from a worker's
// /v1/models, the [Book] keeps the answer with the process that gave it, and
// [Book.Decide] says which names a pool serves. A request that names an adapter
// may go to any worker of the pool, and one without it answers 404, which is
// never re-routed. So a pool serves an adapter once every worker that takes
// requests has it. It does so until none has it: a worker that was just started
// and loads its adapters must not take the others' away.
package adapters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	maxAnswer   = 4 << 20
	maxAdapters = 1000 // of one worker
	// retryFirst and retryMost bound the wait after a failed question.
	retryFirst = time.Second
	retryMost  = time.Minute
)

// ErrNoList says that a worker doesn't tell what it serves.
var ErrNoList = errors.New("it has no /v1/models")

// Ask returns the names of the adapters that a worker lists. A worker that has no
// such page has none.
func Ask(ctx context.Context, client *http.Client, address, token string) ([]string, error) {
	_, names, err := Models(ctx, client, address, token)
	if errors.Is(err, ErrNoList) {
		return nil, nil
	}
	return names, err
}

// Models returns the names that a worker lists, each kind sorted: those of its
// base model, and its adapters, which are the ones with a parent, as vLLM and
// SGLang mark them.
func Models(ctx context.Context, client *http.Client, address, token string) (base, adapted []string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/v1/models", nil)
	if err != nil {
		return nil, nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, nil, fmt.Errorf("list models: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("list models: %w", err)
	case resp.StatusCode == http.StatusNotFound:
		return nil, nil, ErrNoList
	case resp.StatusCode != http.StatusOK:
		return nil, nil, fmt.Errorf("list models: /v1/models answers %d", resp.StatusCode)
	}
	var page struct {
		Data []struct {
			ID     string  `json:"id"`
			Parent *string `json:"parent"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &page); err != nil {
		return nil, nil, fmt.Errorf("list models: read /v1/models: %w", err)
	}
	for _, m := range page.Data {
		switch {
		case len(m.ID) == 0 || len(m.ID) > 256:
		case m.Parent != nil && *m.Parent != "" && *m.Parent != m.ID:
			adapted = append(adapted, m.ID)
		default:
			base = append(base, m.ID)
		}
	}
	slices.Sort(base)
	slices.Sort(adapted)
	base, adapted = slices.Compact(base), slices.Compact(adapted)
	if len(adapted) > maxAdapters {
		return nil, nil, fmt.Errorf("list models: %d adapters, the limit is %d", len(adapted), maxAdapters)
	}
	return base, adapted, nil
}

// Worker is a process that may be asked.
type Worker struct {
	Address    string
	Generation uint64
	Pool       string
	// Takes says that new requests go there.
	Takes bool
}

// process is who answers.
type process struct {
	address    string
	generation uint64
}

func (w *Worker) process() process { return process{w.Address, w.Generation} }

type answer struct {
	known    bool
	names    []string
	err      error
	next     time.Time
	failures int
}

// Book keeps the answers. Methods are safe for concurrent use; time comes from
// the caller.
type Book struct {
	mu      sync.Mutex
	every   time.Duration
	answers map[process]*answer
	serving map[string][]string // by pool, sorted
}

// NewBook returns a book whose workers are asked again after every.
func NewBook(every time.Duration) *Book {
	return &Book{every: every, answers: map[process]*answer{}, serving: map[string][]string{}}
}

// Due returns who is to be asked now: new processes at once. It forgets those
// that are not among workers.
func (b *Book) Due(workers []Worker, now time.Time) (due []Worker) {
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := make(map[process]*answer, len(workers))
	for _, w := range workers {
		a := b.answers[w.process()]
		if a == nil {
			a = &answer{}
		}
		kept[w.process()] = a
		if !now.Before(a.next) {
			due = append(due, w)
		}
	}
	b.answers = kept
	return due
}

// Answer takes what a worker said. After an error what it said before holds.
func (b *Book) Answer(w Worker, names []string, err error, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.answers[w.process()]
	if a == nil {
		return // it has gone meanwhile
	}
	if a.err = err; err != nil {
		a.next = now.Add(min(retryFirst<<min(a.failures, 10), retryMost))
		a.failures++
		return
	}
	a.known, a.names, a.failures, a.next = true, names, 0, now.Add(b.every)
}

// count is how many workers of a pool have an adapter.
type count struct{ have, taking int }

// Decide returns the adapters that each pool serves, by name.
func (b *Book) Decide(workers []Worker) map[string][]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	counts := map[string]map[string]*count{} // pool, adapter
	taking, silent := map[string]int{}, map[string]bool{}
	for _, w := range workers {
		if counts[w.Pool] == nil {
			counts[w.Pool] = map[string]*count{}
		}
		a := b.answers[w.process()]
		if w.Takes {
			taking[w.Pool]++
		}
		if a == nil || !a.known {
			silent[w.Pool] = true
			continue
		}
		for _, name := range a.names {
			c := counts[w.Pool][name]
			if c == nil {
				c = &count{}
				counts[w.Pool][name] = c
			}
			c.have++
			if w.Takes {
				c.taking++
			}
		}
	}
	serving := map[string][]string{}
	for pool, names := range counts {
		for name, c := range names {
			if taking[pool] > 0 && c.taking == taking[pool] || slices.Contains(b.serving[pool], name) {
				serving[pool] = append(serving[pool], name)
			}
		}
	}
	// Nobody says that it is gone while nobody can be asked.
	for pool, names := range b.serving {
		for _, name := range names {
			if counts[pool][name] == nil && (silent[pool] || counts[pool] == nil) {
				serving[pool] = append(serving[pool], name)
			}
		}
	}
	for _, names := range serving {
		slices.Sort(names)
	}
	b.serving = serving
	return maps.Clone(serving)
}

// Of returns what a process said last, and why nothing newer is known.
func (b *Book) Of(address string, generation uint64) (names []string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.answers[process{address, generation}]
	switch {
	case a == nil:
		return nil, nil
	case a.err != nil:
		return a.names, a.err
	case !a.known:
		return nil, errors.New("not asked yet")
	}
	return a.names, nil
}
