package control

import (
	"context"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/control/parity"
	"github.com/warmpath/warmpath/control/vocabulary"
)

const (
	// parityTimeout bounds the questions to one worker.
	parityTimeout = 30 * time.Second
	// parityAtOnce is how many workers are asked at a time.
	parityAtOnce = 4
	// parityAgain is when a worker that differs, or that can't be asked, is
	// asked again: what stands behind an address may change unseen.
	parityAgain = 5 * time.Minute
	// retryParity and retryParityMost bound the wait after a failed call.
	retryParity     = 2 * time.Second
	retryParityMost = time.Minute
)

// parityBook is what the workers have answered about their tokens.
type parityBook struct {
	mu      sync.Mutex
	answers map[parityKey]*parityAnswer
}

// parityKey names one process: another generation is asked anew.
type parityKey struct {
	address    string
	generation uint64
}

type parityAnswer struct {
	tokenizer *tokenizer
	report    parity.Report
	at        time.Time // of the answer
	next      time.Time // when it is asked again; zero never
	failures  int
}

// verdict is what all workers of a pool have answered.
type verdict struct {
	parity.Outcome
	Worker string // the one that decides
	Detail string
}

// askable tells whether a worker can answer.
func askable(w *discovery.Worker) bool {
	return w.State == discovery.Healthy || w.State == discovery.Draining
}

// verdict sums up a pool: the worst answer of the workers that are up.
func (s *Service) verdict(pool string, t *tokenizer) verdict {
	if t.parity == parityOff {
		return verdict{Outcome: parity.Unverified, Detail: "nobody is asked (parity: off)"}
	}
	v, asked := verdict{Outcome: parity.Same}, 0
	for _, w := range s.fleet.Workers() {
		if w.Pool != pool || !askable(&w) {
			continue
		}
		asked++
		report := s.parity.of(&w, t)
		if report.Outcome <= v.Outcome && asked > 1 {
			continue
		}
		v = verdict{report.Outcome, w.Address, w.Address + ": " + report.Reason}
		if report.Difference != nil {
			v.Detail = report.Difference.String()
		}
	}
	if asked == 0 {
		return verdict{Outcome: parity.Pending, Detail: "no worker is up"}
	}
	return v
}

// of is a worker's answer about a tokenizer.
func (b *parityBook) of(w *discovery.Worker, t *tokenizer) parity.Report {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.answers[parityKey{w.Address, w.Generation}]
	if a == nil || !t.same(a.tokenizer) {
		return parity.Report{Outcome: parity.Pending, Reason: "not asked yet"}
	}
	return a.report
}

// parityLoop asks workers for their tokens until ctx ends.
func (s *Service) parityLoop(ctx context.Context) {
	transport, closing := s.cfg.Transport, func() {}
	if transport == nil {
		t := &http.Transport{MaxIdleConnsPerHost: 1, IdleConnTimeout: 10 * time.Second}
		transport, closing = t, t.CloseIdleConnections
	}
	defer closing()
	client := &http.Client{Transport: transport}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	files := time.NewTicker(s.cfg.ReadInterval)
	defer files.Stop()
	refused := map[string]vocabulary.Stamp{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-files.C:
			s.readVocabulariesAgain(refused)
			continue
		case <-tick.C:
		}
		group, asking := errgroup.WithContext(ctx)
		group.SetLimit(parityAtOnce)
		for _, q := range s.questions(time.Now()) {
			group.Go(func() error {
				s.ask(asking, client, q)
				return nil
			})
		}
		_ = group.Wait() // nobody returns one
	}
}

// question is a worker that is to be asked.
type question struct {
	worker    discovery.Worker
	tokenizer *tokenizer
	models    []string
}

// questions are the workers that are due, and forgets those that have gone.
func (s *Service) questions(now time.Time) []question {
	wanted := map[string]*tokenizer{}
	s.policyMu.Lock()
	for name, p := range s.exact {
		if p.wanted.parity != parityOff {
			wanted[name] = p.wanted
		}
	}
	d := s.policy.Load()
	s.policyMu.Unlock()

	b := &s.parity
	b.mu.Lock()
	defer b.mu.Unlock()
	var due []question
	kept := map[parityKey]*parityAnswer{}
	for _, w := range s.fleet.Workers() {
		key := parityKey{w.Address, w.Generation}
		t, a := wanted[w.Pool], b.answers[key]
		if t == nil {
			continue
		}
		if a != nil {
			kept[key] = a
		}
		fresh := a != nil && t.same(a.tokenizer) && (a.next.IsZero() || now.Before(a.next))
		if fresh || !askable(&w) || w.Generation == 0 {
			continue
		}
		due = append(due, question{w, t, d.parsed.ByName(w.Pool).Models})
	}
	b.answers = kept
	return due
}

// ask asks one worker and takes its answer.
func (s *Service) ask(ctx context.Context, client *http.Client, q question) {
	ctx, cancel := context.WithTimeout(ctx, parityTimeout)
	defer cancel()
	t := q.tokenizer
	c := &parity.Client{URL: "http://" + discovery.Endpoint(q.worker.Address), Token: s.cfg.Health.Token, HTTP: client}
	engine := parity.Engine{Name: t.engine, Template: t.template, Models: q.models}
	report, err := parity.Verify(ctx, c, parity.New(t.vocabulary.Tokens, t.chat), engine, parity.Samples(), time.Now)

	b, now, key := &s.parity, time.Now(), parityKey{q.worker.Address, q.worker.Generation}
	b.mu.Lock()
	a := b.answers[key]
	if a == nil || !t.same(a.tokenizer) {
		a = &parityAnswer{tokenizer: t}
		if b.answers == nil {
			b.answers = map[parityKey]*parityAnswer{}
		}
		b.answers[key] = a
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		a.failures++
		a.next = now.Add(min(retryParity<<min(a.failures-1, 10), retryParityMost))
		// What it answered before stays true of this process.
		if a.at.IsZero() {
			a.report = parity.Report{Outcome: parity.Pending, Reason: err.Error()}
		}
		b.mu.Unlock()
		s.log.Warn("worker not asked for its tokens", "worker", q.worker.Address, "pool", q.worker.Pool, "err", err)
		return
	}
	before := a.report.Outcome
	first := a.at.IsZero()
	a.report, a.at, a.next, a.failures = report, now, time.Time{}, 0
	if report.Outcome == parity.Differs || report.Outcome == parity.Unverified {
		a.next = now.Add(parityAgain)
	}
	b.mu.Unlock()
	if first || before != report.Outcome {
		s.log.Info("worker asked for its tokens", "worker", q.worker.Address, "pool", q.worker.Pool, "outcome", report.Outcome.String(), "samples", report.Compared, "tokens", report.Tokens, "reason", report.Reason)
	}
	s.housekeepExact(now)
}

// workerParity is what the status says about each worker of a pool.
func (s *Service) workerParity(pool string, t *tokenizer) []api.Parity {
	out := []api.Parity{}
	for _, w := range s.fleet.Workers() {
		if w.Pool != pool {
			continue
		}
		report := s.parity.of(&w, t)
		p := api.Parity{Worker: w.Address, Outcome: report.Outcome.String(), Reason: report.Reason, Compared: report.Compared, Tokens: report.Tokens}
		if d := report.Difference; d != nil {
			p.Difference = &api.Difference{Sample: d.Sample, Position: d.Position, At: d.At, Ours: sideOf(d.Ours), Theirs: sideOf(d.Theirs)}
		}
		out = append(out, p)
	}
	return out
}

func sideOf(tokens []parity.Token) []api.Token {
	out := make([]api.Token, len(tokens))
	for i, t := range tokens {
		out[i] = api.Token{ID: t.ID, Text: t.Text}
	}
	return out
}
