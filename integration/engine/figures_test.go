//go:build engine

package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/table"
)

// What the figures must be.
const (
	medianLimit = 300 * time.Millisecond
	worstLimit  = time.Second
	trueShare   = 0.99
)

func figures(r *rig) {
	m := map[string]any{}
	measured[r.front] = m
	if r.shared != nil {
		r.measureFreshness(m)
	}
	r.measurePredictions(m)
}

// sighting is when a checkpoint of a worker was first seen in the gateway's table.
type sighting struct {
	ref  uint16
	seen time.Time
}

// measureFreshness sends prompts past the gateway, so that only events can tell of
// them, and times each from the engine's own stamp until the gateway's table has
// it.
func (r *rig) measureFreshness(m map[string]any) {
	const prompt = 3 * BlockTokens
	words := rand.New(rand.NewPCG(rand.Uint64(), 0))
	var mu sync.Mutex
	wanted := map[uint64]*sighting{}
	stop := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			meta, err := table.DecodeMeta(r.shared(keys.Meta()))
			if err != nil {
				continue
			}
			mu.Lock()
			for fp, s := range wanted {
				if !s.seen.IsZero() {
					continue
				}
				page := table.Page(r.shared(keys.Page(meta.Bits, table.PageIndex(fp, meta.Bits))))
				if e, ok := page.Lookup(fp); ok && e.Holds(s.ref) {
					s.seen = time.Now()
				}
			}
			mu.Unlock()
		}
	})
	var chain fingerprint.Chain
	salt := fingerprint.Salt(pool, "", 0, "", fingerprint.Exact)
	name := func(tokens []uint32) uint64 {
		chain.Reset(salt)
		chain.WriteTokens(tokens[:64])
		return chain.Fingerprint()
	}
	refs := []uint16{r.status(r.workers[0]).Ref, r.status(r.workers[1]).Ref}
	before := r.counts()
	for i := range *events {
		tokens := ids(words, prompt+1)
		mu.Lock()
		wanted[name(tokens)] = &sighting{ref: refs[i%2]}
		mu.Unlock()
		if err := r.complete(r.workers[i%2], tokens); err != nil {
			r.t.Fatal(err)
		}
	}
	r.eventually(10*time.Second, "every event is in the gateway's table", func() error {
		mu.Lock()
		defer mu.Unlock()
		missing := 0
		for _, s := range wanted {
			if s.seen.IsZero() {
				missing++
			}
		}
		if missing > 0 {
			return fmt.Errorf("%d of %d are missing", missing, len(wanted))
		}
		return nil
	})
	close(stop)
	watching.Wait()
	var took []time.Duration
	for i, w := range r.workers {
		batches, err := w.recorder.Batches()
		if err != nil {
			r.t.Fatal(err)
		}
		for _, b := range batches[before[i]:] {
			for _, e := range b.Events {
				if e.Type != "BlockStored" || e.Parent != nil {
					continue
				}
				if s := wanted[name(e.Tokens)]; s != nil {
					took = append(took, s.seen.Sub(time.UnixMicro(int64(b.Time*1e6))))
				}
			}
		}
	}
	if len(took) != *events {
		r.t.Fatalf("%d events for %d prompts", len(took), *events)
	}
	slices.Sort(took)
	median, worst := took[len(took)/2], took[len(took)-1]
	m["events"] = len(took)
	m["event_to_table_median_ms"] = millis(median)
	m["event_to_table_p99_ms"] = millis(took[len(took)*99/100])
	m["event_to_table_worst_ms"] = millis(worst)
	if median > medianLimit || worst > worstLimit {
		r.t.Errorf("an event is usable after %v in the median, %v at worst; the limits are %v and %v", median, worst, medianLimit, worstLimit)
	}
}

func millis(d time.Duration) float64 { return float64(d.Round(100*time.Microsecond)) / 1e6 }

// step is the distance of scheduled checkpoints around a position in tokens.
func step(tokens int) int {
	units := uint32(tokens / fingerprint.UnitTokens)
	return int(fingerprint.NextScheduled(units)-units) * fingerprint.UnitTokens
}

// outcome is what was predicted of one request, and what the engine answered; tokens.
type outcome struct {
	prompt, predicted, cached int
	explained                 string
}

// converse lets clients hold conversations until so many requests are answered.
func (r *rig) converse(requests int) (outcomes []outcome) {
	const clients, turns, think = 4, 5, 400 * time.Millisecond
	var mu sync.Mutex
	var talking sync.WaitGroup
	for c := range clients {
		talking.Go(func() {
			for n := c; ; n += clients {
				t := newTalk(seed(r, 1000+n), 60+n%7*60)
				t.messages[0] = newTalk(seed(r, 900+n%5), 120).messages[0] // five system prompts are shared
				for range turns {
					a, err := r.ask(t.request)
					if err != nil || !a.exact {
						r.t.Errorf("a request failed: %v %s", err, a.explained)
						return
					}
					mu.Lock()
					outcomes = append(outcomes, outcome{a.prompt, a.predicted, a.cached, a.explained})
					enough := len(outcomes) >= requests
					mu.Unlock()
					if enough {
						return
					}
					t.heard(a.text)
					t.question()
					<-time.After(think)
				}
			}
		})
	}
	talking.Wait()
	return outcomes
}

// measurePredictions lets clients hold conversations that together are larger
// than both caches, and compares what the table promised with what the engines
// answer.
func (r *rig) measurePredictions(m map[string]any) {
	started := time.Now()
	outcomes := r.converse(*requests)
	if r.t.Failed() {
		return
	}
	r.comeTrue(m, outcomes)
	r.close(m)
	m["seconds"] = time.Since(started).Seconds()
	r.agree(reported)
}

// comeTrue compares what was predicted with what came of it.
func (r *rig) comeTrue(m map[string]any, outcomes []outcome) {
	came, within, worst := 0, 0, 0
	var prompt, predicted, cached int
	var untrue []string
	for _, o := range outcomes {
		if o.predicted > o.cached && len(untrue) < 5 {
			untrue = append(untrue, fmt.Sprintf("%d of %d: %s", o.cached, o.prompt, o.explained))
		}
		prompt, predicted, cached = prompt+o.prompt, predicted+o.predicted, cached+o.cached
		if o.predicted <= o.cached {
			came++
			worst = max(worst, o.cached-o.predicted)
			if o.cached-o.predicted < step(o.cached) {
				within++
			}
		}
	}
	n := len(outcomes)
	m["requests"] = n
	m["predicted_at_most_confirmed_share"] = float64(came) / float64(n)
	m["shortfall_below_one_step_share"] = float64(within) / float64(came)
	m["shortfall_worst_tokens"] = worst
	m["prompt_tokens"], m["predicted_tokens"], m["cached_tokens"] = prompt, predicted, cached
	m["fleet_hit_ratio"] = float64(cached) / float64(prompt)
	if float64(came) < trueShare*float64(n) {
		r.t.Errorf("of %d predictions %d came true; of those that didn't:\n%s", n, came, strings.Join(untrue, "\n"))
	}
}

// close: what came true was no less than what the engine had by a step.
func (r *rig) close(m map[string]any) {
	if share := m["shortfall_below_one_step_share"].(float64); share < trueShare {
		r.t.Errorf("of those that came true %.4f were within one step of what the engine had; the worst by %d tokens", share, m["shortfall_worst_tokens"])
	}
}
