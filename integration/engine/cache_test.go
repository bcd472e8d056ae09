//go:build engine

package engine

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// reported bounds the time after which no prediction is left that the engine
// hasn't confirmed: the control service gives an answered prompt 30 s.
const reported = 75 * time.Second

// workBefore has each engine store a prompt that nobody has told of but itself.
func (r *rig) workBefore() {
	r.t.Helper()
	for i, w := range r.workers {
		if err := r.complete(w, ids(rand.New(rand.NewPCG(seed(r, 50), uint64(i))), 500)); err != nil {
			r.t.Fatal(err)
		}
	}
}

// knownByReplay: engines that have worked before the control service started.
func knownByReplay(r *rig) {
	r.agree(reported)
	for _, w := range r.workers {
		e := r.status(w).Events
		if e.Lost != 0 || e.Missed != 0 || e.Bad != 0 || e.UnknownParents != 0 {
			r.t.Errorf("engine %s: %+v", w.Name, e)
		}
		if e.Endpoint == "" || w.events == nil && e.Endpoint != w.Events {
			r.t.Errorf("engine %s publishes at %s, followed is %s", w.Name, w.Events, e.Endpoint)
		}
	}
}

// firstTurn: conversations, each on the engine that it was routed to. Eight, or
// more when the ring happens to send eight in a row to one engine.
func firstTurn(r *rig) {
	r.home = nil
	used := map[string]bool{}
	for i := 0; i < 8 || i < 24 && len(used) < len(r.workers); i++ {
		t := newTalk(seed(r, 100+i), 250)
		before := r.steady()
		a := r.mustAsk(t.request)
		if a.cached > 0 || a.predicted > 0 {
			r.t.Errorf("conversation %d is new, and %d tokens were predicted to be cached, %d were", i, a.predicted, a.cached)
		}
		t.home = r.whoStored(before)
		if t.home != a.chosen {
			r.t.Errorf("conversation %d: %s was chosen, %s has stored it", i, a.chosen, t.home)
		}
		used[t.home] = true
		t.heard(a.text)
		r.home = append(r.home, t)
	}
	if len(used) != len(r.workers) {
		r.t.Errorf("%d conversations all went to %v", len(r.home), used)
	}
	r.agree(reported)
}

// seed tells the prompts of the fronts apart: both meet the same engines.
func seed(r *rig, n int) uint64 { return uint64(n)<<8 | uint64(len(r.front)) }

// counts is how many batches each engine has published.
func (r *rig) counts() []int {
	r.t.Helper()
	var out []int
	for _, w := range r.workers {
		batches, err := w.recorder.Batches()
		if err != nil {
			r.t.Fatal(err)
		}
		out = append(out, len(batches))
	}
	return out
}

// steady is counts once they stay the same: a recorder on a busy machine writes
// late, and what it writes then would be taken for the next request's.
func (r *rig) steady() []int {
	r.t.Helper()
	last := r.counts()
	r.eventually(20*time.Second, "engines have told what they stored", func() error {
		<-time.After(400 * time.Millisecond)
		before := last
		last = r.counts()
		if !slices.Equal(last, before) {
			return fmt.Errorf("%v batches, then %v", before, last)
		}
		return nil
	})
	return last
}

// whoStored is the address of the engine that has published since, by its own
// events.
func (r *rig) whoStored(before []int) (address string) {
	r.t.Helper()
	r.eventually(5*time.Second, "an engine tells what it has stored", func() error {
		for i, n := range r.counts() {
			if n > before[i] {
				address = r.workers[i].Address
				return nil
			}
		}
		return fmt.Errorf("none has published")
	})
	return address
}

// secondTurn: the conversations go on, as whole answers and as streams.
func secondTurn(r *rig) {
	for i, t := range r.home {
		t.question()
		q := t.request
		q.stream = i%2 == 0
		a := r.mustAsk(q)
		if a.chosen != t.home {
			r.t.Errorf("conversation %d is at %s, its second turn went to %s (%s)", i, t.home, a.chosen, a.explained)
		}
		if a.predicted < a.prompt/2 || a.cached < a.predicted {
			r.t.Errorf("conversation %d: %d of %d tokens were predicted to be cached, the engine says %d", i, a.predicted, a.prompt, a.cached)
		}
		t.heard(a.text)
	}
	r.eventually(5*time.Second, "the workers are trusted", func() error {
		c := r.control.Status().Counters
		if c.CameTrueTokens == 0 || c.CameTrueTokens < c.PredictedTokens*99/100 {
			return fmt.Errorf("of %d predicted tokens %d came true", c.PredictedTokens, c.CameTrueTokens)
		}
		return nil
	})
	r.agree(reported)
}

// sliceTokens is the least copy_slice_tokens.
const sliceTokens = 256

// slicesAreFound: the system prompt of a conversation reaches one engine as a gateway makes a copy, by
// requests for one token after its first 256, 512 and so on. Each computes what the one before didn't, the
// conversation finds every whole block, and the table knows it by the engine's events alone.
func slicesAreFound(r *rig) {
	for i, w := range r.workers {
		t := newTalk(seed(r, 250+i), 480)
		system := r.commonTokens(w, t)
		prefix := system[:len(system)/16*16]
		if len(prefix) < 2*sliceTokens {
			r.t.Fatalf("the system prompt has %d tokens: too few for three slices", len(prefix))
		}
		var hits []int
		for end := 0; end < len(prefix); {
			hit := end
			end = min(end+sliceTokens, len(prefix))
			reply, err := w.Post(r.t.Context(), "/v1/completions", map[string]any{"model": ModelName, "prompt": prefix[:end], "max_tokens": 1, "temperature": 0})
			var a answer
			if err == nil {
				err = a.take(reply)
			}
			if err != nil {
				r.t.Fatal(err)
			}
			if a.prompt != end || a.cached != hit {
				r.t.Errorf("a slice to %d tokens: the engine counts %d and finds %d of them, want %d", end, a.prompt, a.cached, hit)
			}
			hits = append(hits, a.cached)
		}
		whole := len(prefix) / BlockTokens * BlockTokens
		r.settled()
		a := r.mustAsk(t.request)
		if a.chosen != w.Address || a.cached != whole {
			r.t.Errorf("engine %s has %d tokens of slices; the chat went to %s and found %d of %d (%s)", w.Name, whole, a.chosen, a.cached, a.prompt, a.explained)
		}
		if a.predicted > a.cached || a.predicted < whole-64 { // one checkpoint
			r.t.Errorf("%d tokens were predicted to be cached, %d were", a.predicted, a.cached)
		}
		fmt.Printf("%-8s slices of a prefix of %d tokens found %v, the chat %d\n", r.front, len(prefix), hits, a.cached)
	}
	r.agree(reported)
}

// commonTokens are the tokens of a conversation that it has in common with another one of the same system
// prompt, by the engine's word.
func (r *rig) commonTokens(w *worker, t *talk) []uint32 {
	r.t.Helper()
	tokens := func(messages []message) []uint32 {
		reply, err := w.Post(r.t.Context(), "/tokenize", map[string]any{"model": ModelName, "messages": messages, "add_generation_prompt": true})
		var answer struct {
			Tokens []uint32 `json:"tokens"`
		}
		if err == nil {
			err = json.Unmarshal(reply, &answer)
		}
		if err != nil {
			r.t.Fatal(err)
		}
		return answer.Tokens
	}
	these, others := tokens(t.messages), tokens([]message{t.messages[0], {"user", "!"}})
	n := 0
	for n < min(len(these), len(others)) && these[n] == others[n] {
		n++
	}
	return these[:n]
}

// saltIsolates: one prompt under two salts and under none.
func saltIsolates(r *rig) {
	t := newTalk(seed(r, 200), 250)
	r.isolated([]request{
		{messages: t.messages, salt: "tenant-a"},
		{messages: t.messages, salt: "tenant-b"},
		{messages: t.messages},
	})
}

// adapterIsolates: one prompt for the model, its adapter, and the adapter under a
// salt.
func adapterIsolates(r *rig) {
	t := newTalk(seed(r, 201), 250)
	r.isolated([]request{
		{messages: t.messages},
		{messages: t.messages, model: AdapterName},
		{messages: t.messages, model: AdapterName, salt: "tenant-a"},
	})
}

// isolated asks each variant of a prompt twice: the first time nothing is found,
// by the table or by the engine, the second time both find it, and then the
// table agrees with the events.
func (r *rig) isolated(variants []request) {
	r.t.Helper()
	for i, v := range variants {
		a := r.mustAsk(v)
		if a.predicted > 0 || a.cached > 0 {
			r.t.Errorf("variant %d is new: %d tokens were predicted to be cached, %d were", i, a.predicted, a.cached)
		}
	}
	r.settled()
	for i, v := range variants {
		a := r.mustAsk(v)
		if a.predicted == 0 || a.cached < a.predicted {
			r.t.Errorf("variant %d again: %d of %d tokens were predicted to be cached, the engine says %d", i, a.predicted, a.prompt, a.cached)
		}
	}
	r.agree(reported)
}

// settled waits until what just happened is in every table.
func (r *rig) settled() { <-time.After(time.Second) }

// evictionRemoves: other prompts push the conversations out.
func evictionRemoves(r *rig) {
	r.flood()
	for _, w := range r.workers {
		h := r.holdings(w)
		if h.removed == 0 || h.Blocks() > blocks {
			r.t.Errorf("engine %s: %d of %d blocks, %d were evicted", w.Name, h.Blocks(), blocks, h.removed)
		}
	}
	r.agree(reported)
	for i, t := range r.home {
		q := t.request
		q.messages = append(q.messages[:len(q.messages):len(q.messages)], message{"user", "still there?"})
		if a := r.mustAsk(q); a.predicted > 0 || a.cached > 0 {
			r.t.Errorf("conversation %d was evicted: %d tokens were predicted to be cached, %d were", i, a.predicted, a.cached)
		}
	}
}

// flood fills each engine's cache with prompts that nobody asks for again.
func (r *rig) flood() {
	r.t.Helper()
	for range blocks*BlockTokens/longPrompt + 2 {
		for _, w := range r.workers {
			r.fill(w)
		}
	}
}

// longPrompt is the tokens of a prompt that pushes others out.
const longPrompt = 960

// fill has an engine store one.
func (r *rig) fill(w *worker) {
	r.t.Helper()
	if err := r.complete(w, ids(rand.New(rand.NewPCG(rand.Uint64(), 0)), longPrompt)); err != nil {
		r.t.Fatal(err)
	}
}

// copiesCount: the last block of a prompt that ends at its edge is computed each
// time. The engine goes on hitting the first copy and evicts the second.
func copiesCount(r *rig) {
	w := r.workers[0]
	prompt := ids(rand.New(rand.NewPCG(seed(r, 600), 0)), 3*BlockTokens)
	beyond := append(prompt[:len(prompt):len(prompt)], 5, 6, 7)
	for range 2 {
		if err := r.complete(w, prompt); err != nil {
			r.t.Fatal(err)
		}
	}
	last := ""
	copies := func() int {
		h := r.holdings(w)
		for hash, b := range h.known {
			if len(b.tokens) == len(prompt) && slices.Equal(b.tokens, prompt) {
				last = hash
			}
		}
		return h.present[last]
	}
	r.eventually(5*time.Second, "the last block is stored twice", func() error {
		if n := copies(); n != 2 {
			return fmt.Errorf("%d copies", n)
		}
		return nil
	})
	for n := 0; copies() == 2; n++ {
		if n > 2*blocks*BlockTokens/longPrompt {
			r.t.Fatal("the spare copy is never evicted")
		}
		r.fill(w)
		if err := r.complete(w, beyond); err != nil { // keeps what it hits
			r.t.Fatal(err)
		}
	}
	r.agree(reported)
	reply, err := w.Post(r.t.Context(), "/v1/completions", map[string]any{"model": ModelName, "prompt": beyond, "max_tokens": 1})
	var a answer
	if err == nil {
		err = a.take(reply)
	}
	if err != nil || copies() != 1 || a.cached != len(prompt) {
		r.t.Errorf("%d copies are left, the engine finds %d of %d tokens: %v", copies(), a.cached, len(prompt), err)
	}
}

// resetClears: the engine says so with its next step.
func resetClears(r *rig) {
	r.settled() // what gateways report of prompts before the reset would count for 30 s
	words := rand.New(rand.NewPCG(rand.Uint64(), 0))
	for _, w := range r.workers {
		clears := r.holdings(w).clears
		if _, err := w.Post(r.t.Context(), "/reset_prefix_cache", nil); err != nil {
			r.t.Fatal(err)
		}
		if err := r.complete(w, ids(words, 100)); err != nil {
			r.t.Fatal(err)
		}
		r.eventually(5*time.Second, "the engine tells of the reset", func() error {
			if h := r.holdings(w); h.clears == clears || h.Blocks() > 3 {
				return fmt.Errorf("%d clears, %d blocks", h.clears, h.Blocks())
			}
			return nil
		})
	}
	r.agree(5 * time.Second)
	for _, w := range r.workers {
		if n := r.status(w).Entries; n > 1 {
			r.t.Errorf("engine %s was cleared, and has %d entries for a prompt of 100 tokens", w.Name, n)
		}
	}
}
