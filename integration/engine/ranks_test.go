//go:build engine

package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/doctor"
	"github.com/warmpath/warmpath/shared/fingerprint"
)

// askRank sends a prompt of tokens to one of the ranks behind an engine's port.
func (r *rig) askRank(w *worker, rank int, prompt []uint32) {
	r.t.Helper()
	body, err := json.Marshal(map[string]any{"model": ModelName, "prompt": prompt, "max_tokens": 1})
	if err != nil {
		r.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, w.URL()+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-data-parallel-rank", strconv.Itoa(rank))
	resp, err := client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		r.t.Fatalf("rank %d answers %d", rank, resp.StatusCode)
	}
}

// TestRanksBehindOnePort: two data-parallel ranks behind one HTTP port, first as
// one worker, then each as a worker of its own that requests name by header.
func TestRanksBehindOnePort(t *testing.T) {
	p := newProcess(t, Options{Name: "ranks", Blocks: blocks, Ranks: 2, ReplayBatches: replayBatches})
	if err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := &worker{Process: p}
	for _, c := range []struct {
		name  string
		ranks int
		start func(*rig)
		body  func(*rig)
	}{
		{"ranks-as-one", 0, startGateway, ranksAsOne},
		{"ranks", p.Ranks, startGateway, ranksByHeader},
		{"ranks-envoy", p.Ranks, startEnvoy, ranksByHeader},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &rig{t: t, front: c.name, workers: []*worker{w}, ranks: c.ranks}
			r.startControl()
			c.start(r)
			r.waitExact()
			c.body(r)
		})
	}
}

// talkRanks measures what comes true of what is predicted.
func (r *rig) talkRanks() map[string]any {
	m := map[string]any{}
	measured[r.front] = m
	r.comeTrue(m, r.converse(min(*requests, 200)))
	return m
}

// ranksByHeader: each rank is a worker of its own, which holds what that rank
// reports; requests meet the rank that they were sent to.
func ranksByHeader(r *rig) {
	workers := r.control.Status().Workers
	if len(workers) != 2 || workers[0].Address != r.workers[0].Address+"@0" || workers[1].Address != r.workers[0].Address+"@1" {
		r.t.Fatalf("%+v", workers)
	}
	used := map[string]int{}
	for n := range 6 {
		talk := newTalk(seed(r, 300+n), 150)
		first := r.mustAsk(talk.request)
		r.settled()
		talk.heard(first.text)
		talk.question()
		second := r.mustAsk(talk.request)
		used[second.chosen]++
		if second.chosen != first.chosen || second.predicted == 0 || second.cached < second.predicted {
			r.t.Errorf("first at %s; then %d of %d predicted tokens were cached at %s", first.chosen, second.cached, second.predicted, second.chosen)
		}
	}
	if len(used) != 2 {
		r.t.Errorf("ranks in use: %v", used)
	}
	r.close(r.talkRanks())
}

// ranksAsOne: the ranks publish at a port each. What both hold the worker holds;
// what one of them holds is worth a part, and nobody counts on it.
func ranksAsOne(r *rig) {
	t, w, p := r.t, r.workers[0], r.workers[0].Process
	if events := r.status(w).Events; strings.Count(events.Endpoint, "tcp://") != 2 {
		t.Errorf("%+v", events)
	}

	words := rand.New(rand.NewPCG(rand.Uint64(), 0))
	var prompts [2][]uint32
	var names [2]uint64
	for rank := range prompts {
		prompts[rank] = ids(words, 100)
		r.askRank(w, rank, prompts[rank])
		var chain fingerprint.Chain
		chain.Reset(fingerprint.Salt(pool, "", 0, "", fingerprint.Exact))
		chain.WriteTokens(prompts[rank][:64])
		names[rank] = chain.Fingerprint()
	}
	const nothing, part, all = "nothing", "a part", "all"
	has := func(what string, want ...string) {
		t.Helper()
		r.eventually(10*time.Second, what, func() error {
			table := r.published()[r.status(w).Ref]
			for i, name := range names {
				got := nothing
				switch {
				case table[name] && table[fingerprint.Slow(name)]:
					got = "both"
				case table[name]:
					got = all
				case table[fingerprint.Slow(name)]:
					got = part
				}
				if got != want[i] {
					return fmt.Errorf("%s of the ranks has prompt %d, want %s", got, i, want[i])
				}
			}
			return nil
		})
	}
	has("each prompt is at a rank", part, part)
	r.askRank(w, 1, prompts[0])
	has("the first prompt is at both ranks", all, part)
	if _, err := p.Post(t.Context(), "/reset_prefix_cache", nil); err != nil {
		t.Fatal(err)
	}
	// A rank tells of it with its next step.
	r.askRank(w, 0, ids(words, 40))
	has("the first rank's went with its reset", part, part)
	r.askRank(w, 1, ids(words, 40))
	has("the other's with the other's", nothing, nothing)
	r.talkRanks()

	for _, c := range doctor.Run(t.Context(), doctor.Options{Engines: []string{p.URL()}, Probe: true}) {
		switch {
		case c.Name == "engine.data_parallel" && c.Status != doctor.Warn, c.Name == "engine.cached_tokens" && c.Status != doctor.OK, c.Status == doctor.Fail:
			t.Errorf("%+v", c)
		}
	}
}
