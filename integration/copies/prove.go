package copies

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/integration/envoyrun"
	"github.com/warmpath/warmpath/sim/engine"
)

const (
	// clients at once: enough for the planner to want copies at every worker, a home for four requests
	// under way, and not so many that they pay for a copy of their own elsewhere.
	clients = 14
	// answerTokens of each request.
	answerTokens = 12
	// systemBytes of a hot prefix, which has nearly as many tokens: a price that nobody pays who can wait.
	systemBytes = 7000
	// settled is when what was dispatched is in every table.
	settled = time.Second
	// rounds of requests that must find a copy, of each client.
	rounds = 3

	authorization = "Bearer key-of-a-client"
)

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

var words = strings.Fields(`route every request to the worker that already holds its prefix in the cache and
	admit only what whole fleet can carry engines answer tokens blocks turns queues ticks pages rows leases weigh`)

func prose(random *rand.Rand, n int) string {
	var s strings.Builder
	for s.Len() < n {
		s.WriteString(words[random.IntN(len(words))])
		s.WriteByte(' ')
	}
	return s.String()
}

// Prove sends crowds to proxies at their URLs and judges what the engines were asked. It returns how
// many copies their slices made.
func (f *Fleet) Prove(urls ...string) (made int) {
	f.t.Helper()
	p := f.prover(urls)
	made = p.copiesAreMadeInSlices()
	p.nothingIsSentForACoolPrefix()
	p.without()
	return made
}

// ProveRefused is about engines that refuse slices (RefuseSlices): none is sent again, and the requests
// make the copies when the planner's patience is over, and see nothing of it.
func (f *Fleet) ProveRefused(urls ...string) {
	f.t.Helper()
	p := f.prover(urls)
	system, _ := p.system()
	p.Forget()
	stop := p.crowd(system, func(answer) {})
	p.waitHomes()
	stop()
	for worker, list := range slicesIn(p.Asked()) {
		if len(list) > 1 {
			p.t.Errorf("%s has refused a slice, and got %d more", worker, len(list)-1)
		}
	}
	if n := len(slicesIn(p.Asked())); n == 0 {
		p.t.Error("no slice was sent to any engine: nothing is proved")
	}
}

// prover returns once all proxies read prompts by their tokens.
func (f *Fleet) prover(urls []string) *prover {
	f.t.Helper()
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	f.t.Cleanup(client.CloseIdleConnections)
	p := &prover{Fleet: f, urls: urls, client: client}
	p.waitExact()
	return p
}

type prover struct {
	*Fleet
	urls    []string
	client  *http.Client
	turn    atomic.Uint64 // of the proxies
	systems uint64
}

// answer is what a client got.
type answer struct {
	worker         string
	prompt, cached int
}

// ask sends a chat.
func (p *prover) ask(ctx context.Context, messages []message) (answer, error) {
	body, err := json.Marshal(map[string]any{"model": "m", "messages": messages, "max_tokens": answerTokens, "ignore_eos": true})
	if err != nil {
		return answer{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.urls[p.turn.Add(1)%uint64(len(p.urls))]+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", authorization)
	resp, err := p.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	if resp.StatusCode != http.StatusOK {
		return answer{}, fmt.Errorf("status %d: %.200s", resp.StatusCode, text)
	}
	a := answer{worker: resp.Header.Get("X-Served-By")}
	a.prompt, a.cached = usageOf(text)
	return a, nil
}

// system is the system prompt of that number, and the tokens that every conversation with it begins with.
func (p *prover) system() (prompt message, prefix []uint32) {
	p.systems++
	prompt = message{"system", prose(rand.New(rand.NewPCG(p.systems, 1)), systemBytes)}
	one, other := p.tokens([]message{prompt, {"user", "one"}}), p.tokens([]message{prompt, {"user", "Other"}})
	n := 0
	for n < min(len(one), len(other)) && one[n] == other[n] {
		n++
	}
	return prompt, one[:n]
}

// waitExact returns once every VM of the proxy reads prompts by their tokens: it is asked over new
// connections, and control hears of them.
func (p *prover) waitExact() {
	p.t.Helper()
	random := rand.New(rand.NewPCG(7, 7))
	envoyrun.Eventually(p.t, 30*time.Second, "the pool's prompts are read exactly", func() error {
		for range 4 * len(p.urls) {
			if _, err := p.ask(p.t.Context(), []message{{"user", prose(random, 400)}}); err != nil {
				return err
			}
			p.client.CloseIdleConnections()
		}
		for _, tokenizer := range p.Control.Status().Tokenizers {
			if tokenizer.Mode == "exact" {
				return nil
			}
		}
		return fmt.Errorf("the tokenizers are %+v", p.Control.Status().Tokenizers)
	})
}

// crowd lets clients ask about one system prompt until stop. hear gets every answer. One of them comes
// first, so that all gateways know who holds the prompt.
func (p *prover) crowd(system message, hear func(answer)) (stop func()) {
	p.t.Helper()
	if _, err := p.ask(p.t.Context(), []message{system, {"user", "first"}}); err != nil {
		p.t.Fatal(err)
	}
	<-time.After(settled)
	ctx, cancel := context.WithCancel(p.t.Context())
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			random := rand.New(rand.NewPCG(p.systems, uint64(i)+100))
			for ctx.Err() == nil {
				a, err := p.ask(context.WithoutCancel(ctx), []message{system, {"user", prose(random, 60)}})
				if err != nil {
					p.t.Errorf("a client got %v", err)
					return
				}
				hear(a)
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// hot is the one hot prefix, nil for none.
func (p *prover) hot() *api.HotPrefix {
	list := p.Control.Status().Hot
	if len(list) == 0 {
		return nil
	}
	return &list[0]
}

// waitHomes waits until every worker is a home of the hot prefix.
func (p *prover) waitHomes() {
	p.t.Helper()
	envoyrun.Eventually(p.t, 30*time.Second, "every worker is a home", func() error {
		h := p.hot()
		if h == nil || len(h.Homes) < Workers {
			return fmt.Errorf("hot is %+v", h)
		}
		return nil
	})
}

// slicesIn are the slices among what engines were asked, by worker.
func slicesIn(asked []Asked) map[string][]Asked {
	out := map[string][]Asked{}
	for _, a := range asked {
		if a.Path == slicePath {
			out[a.Worker] = append(out[a.Worker], a)
		}
	}
	return out
}

// copiesAreMadeInSlices: a crowd comes; every worker becomes a home, all but the first by slices that
// compute no more than a slice each; and whoever asks then finds the whole prefix. Where the machine
// has no time for a copy within the planner's patience a request makes it: another prefix is tried.
func (p *prover) copiesAreMadeInSlices() (made int) {
	p.t.Helper()
	const tries = 3
	for try := 1; ; try++ {
		sliced := p.oneCrowd()
		if made += sliced; p.t.Failed() || sliced >= Workers-1 {
			return made
		}
		if try == tries {
			p.t.Fatalf("%d copies were made by slices, want %d", sliced, Workers-1)
		}
		p.t.Logf("%d copies were made by slices, the others by requests: once more", sliced)
	}
}

// oneCrowd returns how many copies were whole by slices alone.
func (p *prover) oneCrowd() (sliced int) {
	p.t.Helper()
	p.waitCool()
	system, prefix := p.system()
	p.Forget()
	var judged, missed atomic.Int64
	var tokens atomic.Int64 // that each answer must have found; 0: not yet
	stop := p.crowd(system, func(a answer) {
		if want := tokens.Load(); want > 0 {
			judged.Add(1)
			if int64(a.cached) < want {
				missed.Add(1)
			}
		}
	})
	defer stop()
	p.waitHomes()
	units := p.hot().Tokens
	if units > len(prefix) || units < len(prefix)-2*engine.BlockTokens {
		p.t.Fatalf("the hot prefix has %d tokens, conversations have %d in common", units, len(prefix))
	}
	// Requests that were on their way before are not judged.
	envoyrun.Eventually(p.t, 30*time.Second, "what was asked before is answered", func() error {
		return p.answered(2 * clients)
	})
	tokens.Store(int64(units))
	envoyrun.Eventually(p.t, 30*time.Second, "the crowd has asked again", func() error {
		if n := judged.Load(); n < clients*rounds {
			return fmt.Errorf("%d answers", n)
		}
		return nil
	})
	for worker, list := range slicesIn(p.Asked()) {
		if p.judge(worker, list, prefix[:units]) {
			sliced++
		}
	}
	if n := missed.Load(); n > 0 && sliced >= Workers-1 {
		p.t.Errorf("%d of %d answers found less than the %d tokens of the hot prefix, with a copy at every worker", n, judged.Load(), units)
	}
	return sliced
}

// answered waits for n more answers of engines.
func (p *prover) answered(n int) error {
	from := len(p.Asked())
	for range 100 {
		if len(p.Asked()) >= from+n {
			return nil
		}
		<-time.After(20 * time.Millisecond)
	}
	return fmt.Errorf("fewer than %d answers in 2 s", n)
}

// judge checks the slices that one worker got, and tells whether they made the whole copy.
func (p *prover) judge(worker string, list []Asked, prefix []uint32) (whole bool) {
	p.t.Helper()
	end := 0
	for i, a := range list {
		want := min(end+SliceTokens, len(prefix))
		switch {
		case a.Status != http.StatusOK:
			p.t.Errorf("%s answered slice %d with %d", worker, i, a.Status)
		case len(a.Body.Prompt) != want || !slices.Equal(a.Body.Prompt, prefix[:min(want, len(a.Body.Prompt))]):
			p.t.Errorf("slice %d at %s has %d tokens, want the prefix's first %d of %d", i, worker, len(a.Body.Prompt), want, len(prefix))
		case a.Body.MaxTokens != 1 || a.Body.Stream || a.Body.Temperature == nil || *a.Body.Temperature != 0 || a.Body.Model != "m":
			p.t.Errorf("slice %d at %s is for model %q, max_tokens %d, stream %v, temperature %v", i, worker, a.Body.Model, a.Body.MaxTokens, a.Body.Stream, a.Body.Temperature)
		case a.Prompt-a.Cached > SliceTokens+engine.BlockTokens:
			p.t.Errorf("slice %d at %s: %d of %d tokens were computed at once", i, worker, a.Prompt-a.Cached, a.Prompt)
		case a.Header.Get("Authorization") != authorization:
			p.t.Errorf("slice %d at %s bears %q", i, worker, a.Header.Get("Authorization"))
		}
		for key := range a.Header {
			if key = strings.ToLower(key); strings.HasPrefix(key, "x-warmpath-") || strings.HasPrefix(key, "x-gateway-") {
				p.t.Errorf("slice %d at %s has the header %s", i, worker, key)
			}
		}
		end = want
	}
	return end == len(prefix)
}

// waitCool waits until a prefix that nobody asks for any more has lost its homes.
func (p *prover) waitCool() {
	p.t.Helper()
	envoyrun.Eventually(p.t, 30*time.Second, "nothing is hot", func() error {
		if h := p.hot(); h != nil {
			return fmt.Errorf("hot is %+v", h)
		}
		return nil
	})
}

// nothingIsSentForACoolPrefix: the crowd has gone; so do the homes, and nobody sends slices.
func (p *prover) nothingIsSentForACoolPrefix() {
	p.t.Helper()
	p.waitCool()
	p.Forget()
	<-time.After(time.Second)
	if n := len(p.Asked()); n > 0 {
		p.t.Errorf("engines were asked %d times while no client asked", n)
	}
}

// without: with copy_slice_tokens 0 copies are made by requests, as ever.
func (p *prover) without() {
	p.t.Helper()
	if err := p.Control.SetPolicy(p.policy(0)); err != nil {
		p.t.Fatal(err)
	}
	system, _ := p.system()
	p.Forget()
	stop := p.crowd(system, func(answer) {})
	defer stop()
	p.waitHomes()
	if err := p.answered(clients); err != nil {
		p.t.Error(err)
	}
	if found := slicesIn(p.Asked()); len(found) > 0 {
		p.t.Errorf("%d workers got slices with copy_slice_tokens 0", len(found))
	}
}
