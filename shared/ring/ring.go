// Package ring is a consistent hash ring with virtual nodes and bounded loads.
//
// Workers are placed by a hash of their address, so every gateway that knows the same
// addresses has the same ring, whatever refs it gives them and in whatever order they came. A
// key walks from its place upwards; the first acceptable worker is its primary, the next one
// its backup. Adding or removing one of n workers moves about 1/n of the keys.
//
// Source: V. Mirrokni, M. Thorup, M. Zadimoghaddam, "Consistent Hashing with Bounded Loads",
// 2016.
package ring

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/warmpath/warmpath/shared/fingerprint"
)

const (
	// DefaultVirtualNodes places a worker's share within about 9 % (1/sqrt(128)) of the mean.
	DefaultVirtualNodes = 128
	// DefaultLoadBound lets a worker carry 25 % more than the mean before its keys walk on.
	// Mirrokni et al. and the users of it (HAProxy, Envoy) set 1.25 too: lower moves more keys,
	// higher lets a hot key queue.
	DefaultLoadBound = 1.25
	// MaxVirtualNodes and MaxMembers bound the memory of a ring.
	MaxVirtualNodes = 1024
	MaxMembers      = 4096
)

// Member is one worker on the ring.
type Member struct {
	Ref     uint16
	Address string // host:port
}

// Ring is immutable after Build and safe for concurrent use.
type Ring struct {
	// points ascend. The high 48 bits are the place, the low 16 the index of the member.
	points  []uint64
	members []member // ascending by address
}

type member struct {
	ref uint16
	key uint64
}

// Bound limits the load of the workers a Pick may choose. The zero Bound limits nothing.
type Bound struct {
	// Factor is the c of the paper: a worker may carry ceil(Factor x (total+1)/n) requests.
	// 0 turns the bound off.
	Factor float64
	// Load returns the number of requests at a worker now.
	Load func(ref uint16) int
	// Mean is the mean of Load over the workers that may be chosen, without the new request.
	Mean float64
	// Members is the number of those workers.
	Members int
}

// limit returns the number of requests a worker may have before it takes one more.
func (b *Bound) limit() float64 {
	n := float64(max(b.Members, 1))
	return math.Ceil(b.Factor * (b.Mean + 1/n))
}

// Build places members with virtualNodes points each (0: DefaultVirtualNodes; more than
// MaxVirtualNodes are cut). Members with ref 0 or an empty address are left out, of equal
// addresses the highest ref stays, and at most MaxMembers are kept, the first by address.
func Build(members []Member, virtualNodes int) *Ring {
	if virtualNodes <= 0 {
		virtualNodes = DefaultVirtualNodes
	}
	virtualNodes = min(virtualNodes, MaxVirtualNodes)

	sorted := slices.Clone(members)
	slices.SortFunc(sorted, func(a, b Member) int {
		if c := cmp.Compare(a.Address, b.Address); c != 0 {
			return c
		}
		return cmp.Compare(b.Ref, a.Ref)
	})
	sorted = slices.CompactFunc(sorted, func(a, b Member) bool { return a.Address == b.Address })
	sorted = slices.DeleteFunc(sorted, func(m Member) bool { return m.Ref == 0 || m.Address == "" })
	sorted = sorted[:min(len(sorted), MaxMembers)]

	r := &Ring{members: make([]member, len(sorted)), points: make([]uint64, 0, len(sorted)*virtualNodes)}
	for i, m := range sorted {
		key := Key(m.Address)
		r.members[i] = member{ref: m.Ref, key: key}
		place := key
		for range virtualNodes {
			place += 0x9e3779b97f4a7c15
			r.points = append(r.points, mix(place)&^0xffff|uint64(i))
		}
	}
	r.points = sortUniform(r.points)
	return r
}

// sortUniform sorts points that are spread evenly, which hashes are: into as many buckets as
// points by the high bits, then within each bucket. A ring of 512 workers takes 2 ms instead of
// the 8 of a comparison sort, which in a VM would be a callback too long.
func sortUniform(points []uint64) []uint64 {
	if len(points) < 64 {
		slices.Sort(points)
		return points
	}
	shift := 64 - bits.Len(uint(len(points)-1))
	ends := make([]uint32, 1<<(64-shift)+1)
	for _, p := range points {
		ends[p>>shift+1]++
	}
	for i := 1; i < len(ends); i++ {
		ends[i] += ends[i-1]
	}
	sorted := make([]uint64, len(points))
	for _, p := range points {
		sorted[ends[p>>shift]] = p
		ends[p>>shift]++
	}
	start := uint32(0)
	for _, end := range ends[:len(ends)-1] {
		if end-start > 1 {
			slices.Sort(sorted[start:end])
		}
		start = end
	}
	return sorted
}

// Key returns the ring's hash of a worker's address.
func Key(address string) uint64 { return fingerprint.Hash(address) }

// Rank orders workers for one key: among equals the lowest rank goes first (highest random
// weight hashing). Every gateway computes the same from the same address, and different keys
// order the same workers differently.
func Rank(key, addressKey uint64) uint64 { return mix(mix(key) ^ addressKey) }

// Len returns the number of members.
func (r *Ring) Len() int {
	if r == nil {
		return 0
	}
	return len(r.members)
}

// Pick walks from key and returns the first two different workers that ok accepts and whose
// load is within the bound. When too few are within the bound the first ones beyond it fill
// up: a ring never refuses while ok accepts anybody. 0 stands for none. ok may be nil.
func (r *Ring) Pick(key uint64, ok func(ref uint16) bool, bound Bound) (primary, backup uint16) {
	if r.Len() == 0 {
		return 0, 0
	}
	limit := math.Inf(1)
	if bound.Factor > 0 && bound.Load != nil {
		limit = bound.limit()
	}
	place := mix(key) &^ 0xffff
	at, _ := slices.BinarySearch(r.points, place)
	var seen [MaxMembers / 64]uint64
	var over [2]uint16 // the first two beyond the bound
	overCount, seenCount := 0, 0
	for range r.points {
		if at == len(r.points) {
			at = 0
		}
		i := r.points[at] & 0xffff
		at++
		if seen[i/64]&(1<<(i%64)) != 0 {
			continue
		}
		seen[i/64] |= 1 << (i % 64)
		seenCount++
		if ref := r.members[i].ref; ok == nil || ok(ref) {
			switch {
			case limit < math.Inf(1) && float64(bound.Load(ref))+1 > limit:
				if overCount < len(over) {
					over[overCount] = ref
					overCount++
				}
			case primary == 0:
				primary = ref
			default:
				return primary, ref
			}
		}
		if seenCount == len(r.members) {
			break
		}
	}
	for _, ref := range over[:overCount] {
		switch {
		case primary == 0:
			primary = ref
		case backup == 0:
			backup = ref
		}
	}
	return primary, backup
}

// mix is the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
