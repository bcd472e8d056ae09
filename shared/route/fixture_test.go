package route

import (
	"strconv"
	"time"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/ring"
	"github.com/warmpath/warmpath/shared/table"
)

// fleet returns a fresh view of n idle, healthy, trusted workers with refs 1 to n.
func fleet(n int, rule policy.Name, change ...func(p *policy.Policy)) *View {
	p := &policy.Pool{Name: "default", Policy: policy.Default(rule)}
	for _, f := range change {
		f(&p.Policy)
	}
	v := &View{Pool: p, Fresh: true}
	for i := range n {
		address := "10.0." + strconv.Itoa(i/250) + "." + strconv.Itoa(i%250) + ":8000"
		v.Workers = append(v.Workers, Worker{
			Ref: uint16(i + 1), State: Healthy, Address: address, AddressKey: ring.Key(address),
			Trust: 1, MaxRunning: 100, QueueLimit: 50, BlockTokens: 16,
		})
	}
	v.Ring = ringOf(v)
	return v
}

func ringOf(v *View) *ring.Ring {
	m := make([]ring.Member, len(v.Workers))
	for i := range v.Workers {
		m[i] = ring.Member{Ref: v.Workers[i].Ref, Address: v.Workers[i].Address}
	}
	return ring.Build(m, v.Pool.Policy.VirtualNodes)
}

// worker returns the worker with a ref, for changing it.
func (v *View) worker(ref uint16) *Worker {
	for i := range v.Workers {
		if v.Workers[i].Ref == ref {
			return &v.Workers[i]
		}
	}
	panic("no such worker")
}

// long is a request of 4,096 tokens with a key.
func long(matches ...table.Match) *Request {
	return &Request{PromptTokens: 4096, RingKey: 0x5eed, SessionKey: 0x5e55, Matches: matches}
}

// holds is a match of some tokens.
func holds(ref uint16, tokens int) table.Match {
	return table.Match{Ref: ref, Units: uint32(tokens / 16)}
}

// choose runs one decision with a fixed seed.
func choose(req *Request, v *View) Decision { return chooseAt(req, v, v.At) }

func chooseAt(req *Request, v *View, now time.Duration) Decision {
	var d Decision
	d.Explain = true
	Choose(req, v, now, NewRand(1), &d)
	return d
}
