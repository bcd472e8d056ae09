package ring

import (
	"math"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

func members(n int) []Member {
	m := make([]Member, n)
	for i := range m {
		m[i] = Member{Ref: uint16(i + 1), Address: "10.0." + strconv.Itoa(i/250) + "." + strconv.Itoa(i%250) + ":8000"}
	}
	return m
}

const keys = 20_000

// addresses returns the primary's address of every test key.
func addresses(m []Member, virtualNodes int) []string {
	r := Build(m, virtualNodes)
	byRef := map[uint16]string{}
	for _, x := range m {
		byRef[x.Ref] = x.Address
	}
	out := make([]string, keys)
	for i := range out {
		primary, _ := r.Pick(mix(uint64(i)), nil, Bound{})
		out[i] = byRef[primary]
	}
	return out
}

func moved(a, b []string) float64 {
	n := 0
	for i := range a {
		if a[i] != b[i] {
			n++
		}
	}
	return float64(n) / float64(len(a))
}

func TestAddingOrRemovingAWorkerMovesItsShareOnly(t *testing.T) {
	for _, n := range []int{2, 8, 16, 64} {
		before, after := members(n), members(n+1)
		a, b := addresses(before, 0), addresses(after, 0)
		share := 1 / float64(n+1)
		if m := moved(a, b); m < share/2 || m > share*1.6 {
			t.Errorf("%d -> %d workers moved %.3f of the keys, a fair share is %.3f", n, n+1, m, share)
		}
		for i := range a {
			if a[i] != b[i] && b[i] != after[n].Address {
				t.Fatalf("key %d moved between workers that both stayed", i)
			}
		}
	}
}

func TestSharesAreEven(t *testing.T) {
	count := map[string]int{}
	for _, a := range addresses(members(16), 0) {
		count[a]++
	}
	for a, n := range count {
		if ratio := float64(n) * 16 / keys; ratio < 0.7 || ratio > 1.3 {
			t.Errorf("%s has %.2f of its fair share", a, ratio)
		}
	}
}

// vllm-project/router #253: the setting had no effect.
func TestVirtualNodesEvenOutTheShares(t *testing.T) {
	spread := func(virtualNodes int) float64 {
		count := map[string]int{}
		for _, a := range addresses(members(16), virtualNodes) {
			count[a]++
		}
		sum := 0.0
		for _, m := range members(16) {
			d := float64(count[m.Address])*16/keys - 1
			sum += d * d
		}
		return math.Sqrt(sum / 16)
	}
	one, many := spread(1), spread(160)
	if one < 3*many {
		t.Errorf("spread of shares %.3f with 1 virtual node, %.3f with 160", one, many)
	}
	if len(Build(members(4), 1).points) != 4 || len(Build(members(4), 160).points) != 640 {
		t.Error("number of points")
	}
}

func TestEveryGatewayAgreesWhateverRefsAndOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "workers")
		a := members(n)
		b := rapid.Permutation(members(n)).Draw(t, "order")
		address := map[uint16]string{}
		for i := range b {
			b[i].Ref = uint16(1000 + i*7)
			address[b[i].Ref] = b[i].Address
		}
		r, s := Build(a, 16), Build(b, 16)
		for range 50 {
			key := rapid.Uint64().Draw(t, "key")
			p, q := r.Pick(key, nil, Bound{})
			u, v := s.Pick(key, nil, Bound{})
			if a[p-1].Address != address[u] {
				t.Fatalf("primary %s and %s", a[p-1].Address, address[u])
			}
			if n > 1 && a[q-1].Address != address[v] {
				t.Fatalf("backup %s and %s", a[q-1].Address, address[v])
			}
		}
	})
}

func TestPrimaryAndBackupAreDifferentAndAccepted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 20).Draw(t, "workers")
		accepted := map[uint16]bool{}
		for i := range n {
			accepted[uint16(i+1)] = rapid.Bool().Draw(t, "accepted")
		}
		load := make([]int, n+1)
		total, count := 0, 0
		for ref, ok := range accepted {
			if ok {
				load[ref] = rapid.IntRange(0, 30).Draw(t, "load")
				total += load[ref]
				count++
			}
		}
		bound := Bound{}
		if rapid.Bool().Draw(t, "bounded") && count > 0 {
			bound = Bound{Factor: 1.25, Load: func(r uint16) int { return load[r] }, Mean: float64(total) / float64(count), Members: count}
		}
		p, b := Build(members(n), 8).Pick(rapid.Uint64().Draw(t, "key"), func(r uint16) bool { return accepted[r] }, bound)
		switch {
		case count == 0 && (p != 0 || b != 0), count == 1 && (!accepted[p] || b != 0):
			t.Fatalf("%d of %d accepted, picked %d and %d", count, n, p, b)
		case count > 1 && (!accepted[p] || !accepted[b] || p == b):
			t.Fatalf("%d of %d accepted, picked %d and %d", count, n, p, b)
		}
		if bound.Factor > 0 && float64(load[p]+1) > math.Ceil(1.25*float64(total+1)/float64(count)) {
			t.Fatalf("primary carries %d of %d at %d workers", load[p], total, count)
		}
	})
}

// PrimeIntellect-ai/prime-rl PR #3255: pure consistent hashing kept a saturated engine
// saturated. Bounded, one hot key spreads: no worker gets more than 1.25 times the mean.
func TestOneHotKeyNeverLoadsAWorkerBeyondTheBound(t *testing.T) {
	for _, factor := range []float64{1.1, 1.25, 2} {
		r := Build(members(16), 0)
		load := make([]int, 17)
		for total := range 1600 {
			p, _ := r.Pick(42, nil, Bound{Factor: factor, Load: func(ref uint16) int { return load[ref] }, Mean: float64(total) / 16, Members: 16})
			load[p]++
			if limit := int(math.Ceil(factor * float64(total+1) / 16)); load[p] > limit {
				t.Fatalf("factor %v: %d requests at one worker after %d, bound %d", factor, load[p], total+1, limit)
			}
		}
		slices.Sort(load)
		if hottest := float64(load[16]) / 100; hottest < factor*0.95 {
			t.Errorf("factor %v: the hottest worker has %.2f of the mean: the key doesn't stick", factor, hottest)
		}
	}
}

func TestKeysStayWhileLoadsAreWithinTheBound(t *testing.T) {
	r := Build(members(16), 0)
	for i := range 1000 {
		key := mix(uint64(i))
		free, _ := r.Pick(key, nil, Bound{})
		bounded, _ := r.Pick(key, nil, Bound{Factor: 1.25, Load: func(uint16) int { return 10 }, Mean: 10, Members: 16})
		if free != bounded {
			t.Fatalf("key %d moved from %d to %d under an even load", i, free, bounded)
		}
	}
}

func TestBuildDropsWhatCannotBeRouted(t *testing.T) {
	r := Build([]Member{{0, "a:1"}, {1, ""}, {2, "b:1"}, {5, "b:1"}, {3, "c:1"}}, 4)
	if r.Len() != 2 {
		t.Fatalf("%d members", r.Len())
	}
	got := map[uint16]bool{}
	for i := range 100 {
		p, b := r.Pick(mix(uint64(i)), nil, Bound{})
		got[p], got[b] = true, true
	}
	if len(got) != 2 || !got[5] || !got[3] {
		t.Errorf("refs %v, want 5 (the newer of the same address) and 3", got)
	}
	var none *Ring
	if p, b := none.Pick(1, nil, Bound{}); p != 0 || b != 0 {
		t.Error("a nil ring picks")
	}
}

func TestRankOrdersTheSameWorkersDifferentlyByKey(t *testing.T) {
	first := map[int]int{}
	for i := range 1600 {
		best, rank := 0, uint64(math.MaxUint64)
		for j, m := range members(16) {
			if r := Rank(uint64(i), Key(m.Address)); r < rank {
				best, rank = j, r
			}
		}
		first[best]++
	}
	for i := range 16 {
		if first[i] < 60 || first[i] > 140 {
			t.Errorf("worker %d is first for %d of 1,600 keys", i, first[i])
		}
	}
}

func TestPickDoesNotAllocate(t *testing.T) {
	r := Build(members(64), 0)
	load := make([]int, 65)
	if n := testing.AllocsPerRun(100, func() {
		r.Pick(7, func(ref uint16) bool { return ref != 3 }, Bound{Factor: 1.25, Load: func(ref uint16) int { return load[ref] }, Mean: 0, Members: 64})
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestPointsAreSorted(t *testing.T) {
	for _, n := range []int{1, 2, 3, 40, 512} {
		r := Build(members(n), 33)
		if !slices.IsSorted(r.points) || len(r.points) != 33*n {
			t.Errorf("%d members: %d points, sorted %v", n, len(r.points), slices.IsSorted(r.points))
		}
		count := map[uint64]int{}
		for _, p := range r.points {
			count[p&0xffff]++
		}
		for i := range n {
			if count[uint64(i)] != 33 {
				t.Errorf("%d members: member %d has %d points", n, i, count[uint64(i)])
			}
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	for _, n := range []int{16, 512} {
		m := members(n)
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for b.Loop() {
				Build(m, 0)
			}
		})
	}
}

func BenchmarkPick(b *testing.B) {
	for _, n := range []int{16, 512} {
		r := Build(members(n), 0)
		key := uint64(0)
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for b.Loop() {
				key++
				r.Pick(key, nil, Bound{Factor: 1.25, Load: func(ref uint16) int { return int(ref & 3) }, Mean: 1.5, Members: n})
			}
		})
	}
}
