// Command guest chooses workers by package route, natively or in a VM, and tells what it takes.
//
//	choose RULE WORKERS CALLS ROUNDS   CALLS decisions, ROUNDS times over
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/warmpath/warmpath/integration/guests/cputime"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/ring"
	"github.com/warmpath/warmpath/shared/route"
	"github.com/warmpath/warmpath/shared/table"
)

type answer struct {
	Error  string  `json:"error,omitempty"`
	Nanos  []int64 `json:"nanos"`  // CPU time of each round
	Allocs uint64  `json:"allocs"` // of all rounds
	Chosen int     `json:"chosen"` // different workers
}

func main() {
	debug.SetGCPercent(400) // as the module
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		text, err := json.Marshal(answerTo(in.Text()))
		if err != nil {
			panic(err) // only numbers and strings
		}
		fmt.Println(string(text))
	}
}

func answerTo(question string) answer {
	var rule string
	var workers, calls, rounds int
	if _, err := fmt.Sscanf(question, "choose %s %d %d %d", &rule, &workers, &calls, &rounds); err != nil {
		return answer{Error: fmt.Sprintf("asked %q: %v", question, err)}
	}
	set, err := policy.Parse(fmt.Appendf(nil, `{"pools":[{"name":"bench","models":["*"],"policy":{"name":%q}}]}`, rule))
	if err != nil {
		return answer{Error: err.Error()}
	}
	view := fleet(workers, &set.Pools[0])
	requests := prompts(workers)
	rng := route.NewRand(1)
	var d route.Decision
	seen := map[uint16]bool{}
	for i := range requests { // grows what the caller keeps
		route.Choose(&requests[i], view, 0, rng, &d)
		seen[d.Best] = true
	}
	a := answer{Chosen: len(seen), Nanos: make([]int64, 0, rounds)}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range rounds {
		began := cputime.Nanos()
		for i := range calls {
			route.Choose(&requests[i%len(requests)], view, 0, rng, &d)
		}
		a.Nanos = append(a.Nanos, cputime.Nanos()-began)
	}
	runtime.ReadMemStats(&after)
	a.Allocs = after.Mallocs - before.Mallocs
	return a
}

// fleet is a pool in the midst of its work: queues, caches and reports differ, one worker is young
// and three are the homes of a hot prefix.
func fleet(n int, pool *policy.Pool) *route.View {
	v := &route.View{Pool: pool, Fresh: true}
	members := make([]ring.Member, n)
	for i := range n {
		address := "10.0.0." + strconv.Itoa(i) + ":8000"
		w := route.Worker{
			Ref: uint16(i + 1), State: route.Healthy, Address: address, AddressKey: ring.Key(address), Trust: 1, BlockTokens: 16,
			Running: i % 30, MaxRunning: 256, Watermark: float64(i%60) / 100, InFlight: i % 32, UncachedTokens: i * 97 % 3000,
			PrefillRate: 10_000, DecodeSeconds: 0.02, TailAge: time.Duration(i%40) * time.Second, RecentTokens: float64(i * 31 % 900),
			Age: time.Duration(i%100) * time.Millisecond, EvictShare: 1,
		}
		w.Load = route.LoadOf(&w, w.Watermark, 0)
		v.Workers = append(v.Workers, w)
		members[i] = ring.Member{Ref: w.Ref, Address: address}
	}
	v.Workers[n/2].CacheAge = time.Second
	v.Homes = []route.Home{{Fingerprint: checkpoint(0, 128), Units: 128, Refs: []uint16{1, 2, 3}}}
	v.Ring = ring.Build(members, pool.Policy.VirtualNodes)
	return v
}

// prompts are 64 of 4,096 tokens, in conversations of three turns: their system prompt of 2,048 is
// held by four workers, the conversation by one.
func prompts(workers int) []route.Request {
	all := make([]route.Request, 64)
	for k := range all {
		r := &all[k]
		*r = route.Request{PromptTokens: 4096, SessionKey: uint64(k + 1), RingKey: uint64(k/4+1) * 0x9e3779b97f4a7c15, Sequence: uint64(k)}
		for at := 4; at <= 256; {
			r.Checkpoints = append(r.Checkpoints, fingerprint.Checkpoint{Fingerprint: checkpoint(k, at), End: uint32(at), TurnEnd: at == 128 || at == 160 || at == 192})
			if at < 64 {
				at += 4
			} else {
				at += 16
			}
		}
		for h := range 4 {
			r.Matches = append(r.Matches, table.Match{Ref: uint16((k/4*7+h*5)%workers + 1), Units: 128})
		}
		r.Matches[0].Units = 192
	}
	return all
}

// checkpoint names a position of prompt k: prompts share the first 128 units by four.
func checkpoint(k, at int) uint64 {
	if at <= 128 {
		k /= 4
	}
	return uint64(k)<<32 | uint64(at)
}
