// Package adapters knows what the workers of each pool serve: their LoRA
// adapters, so that requests that name one go to that pool without a policy that
// lists them, and the names of their base model.
//
// An adapter's way through the package: [Ask] reads it from a worker's
// /v1/models, the [Book] keeps the answer with the process that gave it, and
// [Book.Decide] says which ones a pool serves. A request that names an adapter
// may go to any worker of the pool, and one without it answers 404, which is
// never re-routed. So a pool serves an adapter once every worker that takes
// requests has it. It does so until none has it: a worker that was just started
// and loads its adapters must not take the others' away.
//
// The page also says where an adapter was loaded from. Engines name what they
// cache of it by that path, so [Adapter.Generation] does too.
package adapters

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/policy"
)

const (
	maxAnswer   = 4 << 20
	maxAdapters = 1000 // of one worker
	maxName     = 256
	// retryFirst and retryMost bound the wait after a failed question.
	retryFirst = time.Second
	retryMost  = time.Minute
)

// Adapter is a set of weights that a worker has loaded over its base model.
type Adapter struct {
	Name string `json:"name"`
	// Root is where it came from; "" where the worker doesn't tell.
	Root string `json:"root,omitempty"`
}

// Generation tells what was cached of an adapter from what was cached of another
// one of the same name: it is that of the path, and 0 where nobody tells one.
func (a *Adapter) Generation() uint64 {
	if a.Root == "" || a.Root == a.Name {
		return 0
	}
	return fingerprint.Hash(a.Root) & policy.MaxGeneration
}

// Served is what a worker, or the workers of a pool, serve.
type Served struct {
	// Base are the names of the base model, sorted; none where a worker has
	// several models, of which nobody knows what they share.
	Base []string `json:"base,omitempty"`
	// Adapters are sorted by name, each name once.
	Adapters []Adapter `json:"adapters,omitempty"`
}

// Names are those of the adapters.
func (s *Served) Names() []string {
	out := make([]string, 0, len(s.Adapters))
	for _, a := range s.Adapters {
		out = append(out, a.Name)
	}
	return out
}

// Same tells whether two answers say the same.
func (s Served) Same(t Served) bool {
	return slices.Equal(s.Base, t.Base) && slices.Equal(s.Adapters, t.Adapters)
}

// Ask returns what a worker lists: the names of its base model, and its adapters,
// which are the ones with a parent, as vLLM and SGLang mark them. A worker that
// has no such page serves what nobody knows.
func Ask(ctx context.Context, client *http.Client, address, token string) (Served, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/v1/models", nil)
	if err != nil {
		return Served{}, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return Served{}, fmt.Errorf("list models: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return Served{}, fmt.Errorf("list models: %w", err)
	case resp.StatusCode == http.StatusNotFound:
		return Served{}, nil
	case resp.StatusCode != http.StatusOK:
		return Served{}, fmt.Errorf("list models: /v1/models answers %d", resp.StatusCode)
	}
	return read(body)
}

func read(body []byte) (out Served, err error) {
	var page struct {
		Data []struct {
			ID     string  `json:"id"`
			Root   string  `json:"root"`
			Parent *string `json:"parent"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &page); err != nil {
		return Served{}, fmt.Errorf("list models: read /v1/models: %w", err)
	}
	roots := map[string]bool{}
	for _, m := range page.Data {
		switch {
		case len(m.ID) == 0 || len(m.ID) > maxName:
		case m.Parent != nil && *m.Parent != "" && *m.Parent != m.ID:
			out.Adapters = append(out.Adapters, Adapter{m.ID, m.Root})
		default:
			out.Base = append(out.Base, m.ID)
			roots[cmp.Or(m.Root, m.ID)] = true
		}
	}
	slices.Sort(out.Base)
	out.Base = slices.Compact(out.Base)
	if len(roots) > 1 {
		out.Base = nil
	}
	slices.SortStableFunc(out.Adapters, byName)
	out.Adapters = slices.CompactFunc(out.Adapters, func(a, b Adapter) bool { return a.Name == b.Name })
	if len(out.Adapters) > maxAdapters {
		return Served{}, fmt.Errorf("list models: %d adapters, the limit is %d", len(out.Adapters), maxAdapters)
	}
	return out, nil
}

func byName(a, b Adapter) int { return strings.Compare(a.Name, b.Name) }

// Worker is a process that may be asked.
type Worker struct {
	Address    string
	Generation uint64
	Pool       string
	// Model is a name of the base model that the worker list gives, "" for none.
	Model string
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
	served   Served
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
	serving map[string]Served // by pool
}

// NewBook returns a book whose workers are asked again after every. serving is
// what Decide said last before a restart, nil for nothing.
func NewBook(every time.Duration, serving map[string]Served) *Book {
	return &Book{every: every, answers: map[process]*answer{}, serving: serving}
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
func (b *Book) Answer(w Worker, served Served, err error, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.answers[w.process()]
	if a == nil { // Due forgets it, should it have gone
		a = &answer{}
		b.answers[w.process()] = a
	}
	if a.err = err; err != nil {
		a.next = now.Add(min(retryFirst<<min(a.failures, 10), retryMost))
		a.failures++
		return
	}
	a.known, a.served, a.failures, a.next = true, served, 0, now.Add(b.every)
}

// loads is how many workers of a pool have an adapter.
type loads struct {
	have, taking int
	roots        map[string]int // by where they have it from, those that take requests counting more
}

// poolSays is what the workers of a pool say.
type poolSays struct {
	taking   int
	silent   bool // not all could be asked
	base     []string
	adapters map[string]*loads
}

func (b *Book) hear(workers []Worker) map[string]*poolSays {
	pools := map[string]*poolSays{}
	for i := range workers {
		w := &workers[i]
		p := pools[w.Pool]
		if p == nil {
			p = &poolSays{adapters: map[string]*loads{}}
			pools[w.Pool] = p
		}
		weight := 1
		if w.Takes {
			p.taking++
			weight = len(workers)
		}
		if w.Model != "" {
			p.base = append(p.base, w.Model)
		}
		a := b.answers[w.process()]
		if a == nil || !a.known {
			p.silent = true
			continue
		}
		p.base = append(p.base, a.served.Base...)
		for _, adapter := range a.served.Adapters {
			l := p.adapters[adapter.Name]
			if l == nil {
				l = &loads{roots: map[string]int{}}
				p.adapters[adapter.Name] = l
			}
			l.have++
			l.roots[adapter.Root] += weight
			if w.Takes {
				l.taking++
			}
		}
	}
	return pools
}

// Decide returns what each pool serves. Where workers have an adapter from
// several places, its root is that of the most; while they are as many, it stays.
func (b *Book) Decide(workers []Worker) map[string]Served {
	b.mu.Lock()
	defer b.mu.Unlock()
	serving := map[string]Served{}
	for pool, says := range b.hear(workers) {
		before := b.serving[pool]
		var out Served
		for name, l := range says.adapters {
			at, served := before.find(name)
			if says.taking > 0 && l.taking == says.taking || served {
				out.Adapters = append(out.Adapters, Adapter{name, l.root(at.Root)})
			}
		}
		if out.Base = says.base; says.silent {
			// Nobody says that it is gone while nobody can be asked.
			out.Base = append(out.Base, before.Base...)
			for _, a := range before.Adapters {
				if says.adapters[a.Name] == nil {
					out.Adapters = append(out.Adapters, a)
				}
			}
		}
		slices.Sort(out.Base)
		out.Base = slices.Compact(out.Base)
		slices.SortFunc(out.Adapters, byName)
		serving[pool] = out
	}
	for pool, before := range b.serving {
		if _, heard := serving[pool]; !heard {
			serving[pool] = before // it has no workers now
		}
	}
	b.serving = serving
	return maps.Clone(serving)
}

func (s *Served) find(name string) (Adapter, bool) {
	i, ok := slices.BinarySearchFunc(s.Adapters, name, func(a Adapter, name string) int { return strings.Compare(a.Name, name) })
	if !ok {
		return Adapter{}, false
	}
	return s.Adapters[i], true
}

// root is the one of the most workers, before where it is one of several.
func (l *loads) root(before string) (root string) {
	most := 0
	for r, n := range l.roots {
		if n > most || n == most && (r == before || root != before && r < root) {
			root, most = r, n
		}
	}
	return root
}

// Of returns what a process said last, and why nothing newer is known.
func (b *Book) Of(address string, generation uint64) (Served, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.answers[process{address, generation}]
	switch {
	case a == nil:
		return Served{}, nil
	case a.err != nil:
		return a.served, a.err
	case !a.known:
		return Served{}, errors.New("not asked yet")
	}
	return a.served, nil
}
