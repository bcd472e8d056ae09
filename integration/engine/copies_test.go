//go:build engine

package engine

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// crowdClients ask at once about one system prompt: a home for four requests under way, so two.
const crowdClients = 10

// hotPrefixIsCopied: clients crowd about one system prompt. The gateway makes a copy of it at the engine
// that has none, in slices, and from then on every request finds all whole blocks, at both.
func hotPrefixIsCopied(r *rig) {
	if err := r.control.SetPolicy(r.policy(map[string]any{"name": "cost", "copy_slice_tokens": sliceTokens})); err != nil {
		r.t.Fatal(err)
	}
	defer func() {
		if err := r.control.SetPolicy(r.policy(threshold)); err != nil {
			r.t.Error(err)
		}
		r.settled()
	}()
	const tries = 4
	for try := 1; !r.crowdIsCopied(seed(r, 260+try)); try++ {
		if try == tries {
			r.t.Fatalf("no copy was made by a gateway in %d crowds: %+v", tries, r.control.Status().Hot)
		}
	}
	r.agree(reported)
}

// crowdIsCopied returns false where a request computed the prefix at the second engine before a gateway
// had made the copy.
func (r *rig) crowdIsCopied(seed uint64) bool {
	r.t.Helper()
	first := newTalk(seed, 480)
	r.mustAsk(first.request)
	r.settled()
	made := r.copiesMade()
	var whole, judged, missed atomic.Int64 // whole: what each answer must have found, 0 for not yet
	var at sync.Map                        // of engines that answered since
	ctx, stop := context.WithCancel(r.t.Context())
	var crowd sync.WaitGroup
	for i := range crowdClients {
		crowd.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				t := newTalk(seed<<16+uint64(i)<<8+uint64(n), 1)
				t.messages[0] = first.messages[0]
				want := whole.Load()
				a, err := r.ask(t.request)
				if err != nil {
					r.t.Errorf("a client got %v", err)
					return
				}
				if want > 0 {
					at.Store(a.chosen, true)
					if judged.Add(1); int64(a.cached) < want {
						missed.Add(1)
					}
				}
			}
		})
	}
	defer func() { stop(); crowd.Wait() }()
	r.eventually(60*time.Second, "both engines are homes of the system prompt", func() error {
		hot := r.control.Status().Hot
		if len(hot) == 0 || len(hot[0].Homes) < len(r.workers) {
			return fmt.Errorf("hot is %+v", hot)
		}
		return nil
	})
	hot := r.control.Status().Hot[0]
	if r.copiesMade() == made {
		return false
	}
	whole.Store(int64(hot.Tokens / BlockTokens * BlockTokens))
	r.eventually(60*time.Second, "both engines have answered the crowd", func() error {
		both := 0
		at.Range(func(any, any) bool { both++; return true })
		if judged.Load() < 4*crowdClients || both < len(r.workers) {
			return fmt.Errorf("%d answers of %d engines", judged.Load(), both)
		}
		return nil
	})
	if n := missed.Load(); n > 0 {
		r.t.Errorf("%d of %d answers found less than the %d tokens of whole blocks of the copied prefix", n, judged.Load(), whole.Load())
	}
	fmt.Printf("%-8s a copy of %d tokens was made in slices of %d, and %d answers found it\n", r.front, hot.Tokens, sliceTokens, judged.Load())
	return true
}

var madeLine = regexp.MustCompile(`(?m)^warmpath_control_hot_copies_total\{[^}]*kind="made"[^}]*\} (\d+)`)

// copiesMade is how many copies gateways have told control of.
func (r *rig) copiesMade() int {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.control.URL()+"/metrics", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	m := madeLine.FindSubmatch(page)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(string(m[1]))
	return n
}
