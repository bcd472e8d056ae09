package route

import (
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/table"
)

// family is a pool of four idle workers of 10,000 tokens/s, the first of which was just sent a new
// prefix of 8,000 tokens.
func family(name policy.Name) *View {
	rule := policy.Default(name)
	rule.Sample = 1
	v := &View{Pool: &policy.Pool{Name: "p", Policy: rule}, Fresh: true}
	for i := range 4 {
		v.Workers = append(v.Workers, Worker{Ref: uint16(i + 1), State: Healthy, Address: string(rune('a' + i)), Trust: 1, MaxRunning: 256, PrefillRate: 10_000})
	}
	return v
}

// place sends n siblings of 8,000 shared and 200 own tokens and returns how many each worker gets.
func place(v *View, n int) (got [4]int) {
	var d Decision
	for range n {
		req := &Request{PromptTokens: 8200, RingKey: 1}
		var sent []Sent
		for i := range v.Workers {
			if v.Workers[i].InFlight > 0 {
				sent = append(sent, Sent{Ref: v.Workers[i].Ref, Units: 500, Ago: 40 * time.Millisecond, Ready: 600 * time.Millisecond})
			}
		}
		req.AddSent(sent)
		Choose(req, v, 0, NewRand(1), &d)
		w := &v.Workers[d.Best-1]
		w.InFlight++
		w.UncachedTokens += 8200 - d.MatchedTokens
		got[d.Best-1]++
	}
	return got
}

func TestSiblingsOfAPrefixThatIsBeingComputedLandTogether(t *testing.T) {
	for _, name := range []policy.Name{policy.Cost, policy.Weighted} {
		got := place(family(name), 10)
		used := 0
		for _, n := range got {
			if n > 0 {
				used++
			}
		}
		if used != 1 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestSiblingsWithoutEndGetASecondCopy: 8,000 tokens take 0.8 s. Once as much waits behind
// them, another worker begins: 40 siblings of 200 tokens, less for what they decode, and more as a
// copy costs more with each that is under way.
func TestSiblingsWithoutEndGetASecondCopy(t *testing.T) {
	first := 0
	for _, n := range place(family(policy.Cost), 150) {
		first = max(first, n)
	}
	if first < 16 || first > 48 {
		t.Errorf("a worker has %d siblings", first)
	}
}

func TestWhatIsReadyIsNotCopiedAtThePriceOfSiblings(t *testing.T) {
	v := family(policy.Cost)
	v.Workers[0].UncachedTokens = 22_000 // 2.2 s: more than the prefix's time beyond it
	ask := func(ready time.Duration) uint16 {
		var d Decision
		req := &Request{PromptTokens: 8200, RingKey: 1}
		req.AddSent([]Sent{{Ref: 1, Units: 500, Ready: ready}})
		Choose(req, v, 0, NewRand(1), &d)
		return d.Best
	}
	if ask(0) != 1 {
		t.Error("2.2 s of waiting is less than what a copy is worth")
	}
	if ask(time.Second) == 1 {
		t.Error("nobody begins a second copy")
	}
}

func TestSentIsPartOfTheMatchesAndOfTheReasons(t *testing.T) {
	v := family(policy.Cost)
	req := &Request{PromptTokens: 8200, Matches: []table.Match{{Ref: 1, Units: 100}, {Ref: 2, Units: 300}}}
	req.AddSent([]Sent{{Ref: 2, Units: 200}, {Ref: 1, Units: 500, Ago: 40 * time.Millisecond}, {Ref: 4, Units: 50}, {Ref: 99, Units: 500, Ready: 1}})
	d := Decision{Explain: true}
	Choose(req, v, 0, NewRand(1), &d)
	want := [4]int{500 * fingerprint.UnitTokens, 300 * fingerprint.UnitTokens, 0, 50 * fingerprint.UnitTokens}
	for i, c := range d.Candidates {
		if c.MatchedTokens != want[i] {
			t.Errorf("worker %d: %d tokens, want %d", i+1, c.MatchedTokens, want[i])
		}
	}
	if d.Candidates[0].SentAgo != 40*time.Millisecond || d.Candidates[2].SentAgo != 0 || d.Candidates[3].SentAgo == 0 {
		t.Errorf("%+v", d.Candidates)
	}
}

// TestWhatIsOnItsWayIsNoPromise: what the table knew of it is, in whole blocks of the worker. Each
// case in tokens: a worker with blocks of 32 of which the table knows a turn's end within a block.
func TestWhatIsOnItsWayIsNoPromise(t *testing.T) {
	for _, c := range []struct{ known, sent, matched, held uint32 }{
		{208, 256, 256, 192},
		{208, 208, 192, 192},
		{208, 192, 192, 192},
		{192, 208, 192, 192},
		{0, 256, 256, 0},
		{16, 256, 256, 0},
	} {
		v := family(policy.Cost)
		for i := range v.Workers[1:] {
			v.Workers[i+1].State = Down
		}
		v.Workers[0].BlockTokens = 32
		req := &Request{PromptTokens: 386, RingKey: 1, Exact: true}
		if c.known > 0 {
			req.Matches = []table.Match{{Ref: 1, Units: c.known / fingerprint.UnitTokens}}
		}
		req.AddSent([]Sent{{Ref: 1, Units: c.sent / fingerprint.UnitTokens, Ago: 40 * time.Millisecond}})
		var d Decision
		Choose(req, v, 0, NewRand(1), &d)
		if d.MatchedTokens != int(c.matched) || d.HeldTokens != int(c.held) || d.SlowTokens != 0 {
			t.Errorf("%d tokens known, %d sent: %d match, %d of them are held; want %d, %d", c.known, c.sent, d.MatchedTokens, d.HeldTokens, c.matched, c.held)
		}
	}
}
