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

// TestRanksBehindOnePortAreOneCache: two data-parallel ranks publish at a port
// each, and the worker's entries are what either of them holds.
func TestRanksBehindOnePortAreOneCache(t *testing.T) {
	p := newProcess(t, Options{Name: "ranks", Blocks: blocks, Ranks: 2, ReplayBatches: replayBatches})
	if err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := &worker{Process: p}
	r := &rig{t: t, front: "ranks", workers: []*worker{w}}
	r.startControl()
	startGateway(r)
	r.waitExact()
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
	holds := func(what string, want [2]bool) {
		t.Helper()
		r.eventually(5*time.Second, what, func() error {
			has := r.published()[r.status(w).Ref]
			if got := [2]bool{has[names[0]], has[names[1]]}; got != want {
				return fmt.Errorf("the prompts of the ranks are in the table: %v, want %v", got, want)
			}
			return nil
		})
	}
	holds("each rank's prompt is there", [2]bool{true, true})
	if _, err := p.Post(t.Context(), "/reset_prefix_cache", nil); err != nil {
		t.Fatal(err)
	}
	// A rank tells of it with its next step.
	r.askRank(w, 0, ids(words, 40))
	holds("the first rank's went with its reset", [2]bool{false, true})
	r.askRank(w, 1, ids(words, 40))
	holds("the other's with the other's", [2]bool{false, false})

	for _, c := range doctor.Run(t.Context(), doctor.Options{Engines: []string{p.URL()}, Probe: true}) {
		switch {
		case c.Name == "engine.data_parallel" && c.Status != doctor.Warn, c.Name == "engine.cached_tokens" && c.Status != doctor.OK, c.Status == doctor.Fail:
			t.Errorf("%+v", c)
		}
	}
}
