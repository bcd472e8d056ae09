package ingest

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/wire"
)

const (
	// LiveFor is how long a gateway's books count after its last batch. It sends
	// one at least every 2 s.
	LiveFor = 7 * time.Second
	// MakerFor is how long after its last batch, and after its last dispatch to a pool, a gateway may
	// be given copies to make there: one that has just a request now and then begins too late.
	MakerFor = 2 * time.Second
	// forgetAfter is how long a silent gateway is shown in the status.
	forgetAfter = 10 * time.Minute
	maxGateways = 1024
)

// Gateway is a copy of what is known about one gateway process.
type Gateway struct {
	Name          string
	Nonce         uint64 // of the VM that is its courier
	Epoch         uint64 // of the table it has
	Version       uint64
	LiveRows      int
	FailedBatches uint64
	LastSeen      time.Time
	InFlight      int
	// Copies: it makes copies of hot prefixes.
	Copies bool
	// Elsewhere: it reports to another replica of control, and has its table.
	Elsewhere bool
	// Ready is how far it has the vocabularies of its policy; read only.
	Ready map[policy.Hash]wire.Ready
}

// Has tells whether all VMs of the gateway have a vocabulary loaded.
func (g *Gateway) Has(hash policy.Hash) bool {
	return g.LiveRows > 0 && int(g.Ready[hash].VMs) >= g.LiveRows
}

type gatewayKey struct {
	name  string
	nonce uint64
}

type gateway struct {
	Gateway
	inFlight   map[uint16]wire.InFlight
	superseded bool // a younger courier speaks for the gateway now
}

type chunkKey struct {
	name  string
	nonce uint64 // of the VM that wrote the chunk
}

type chunkMark struct {
	sequence uint64
	at       time.Time
}

// Gateways is the registry of gateways. A gateway is known by name and the
// nonce of its courier: when another VM takes the courier's office over, its
// books replace those of the one before; when two processes share a name by
// mistake and keep talking, both count.
type Gateways struct {
	mu     sync.Mutex
	byKey  map[gatewayKey]*gateway
	chunks map[chunkKey]chunkMark
	last   map[poolKey]time.Time // dispatch of a client's request
}

// poolKey is a gateway by name and a pool by index.
type poolKey struct {
	name string
	pool uint8
}

// poolSet is a set of pools by index.
type poolSet [4]uint64

func (s *poolSet) add(pool uint8) { s[pool/64] |= 1 << (pool % 64) }

func (s *poolSet) has(pool uint8) bool { return s[pool/64]>>(pool%64)&1 != 0 }

// NewGateways returns an empty registry.
func NewGateways() *Gateways {
	return &Gateways{byKey: map[gatewayKey]*gateway{}, chunks: map[chunkKey]chunkMark{}, last: map[poolKey]time.Time{}}
}

// saw records a batch, which another replica took where elsewhere is set. inFlight
// nil leaves the books as they were.
func (g *Gateways) saw(w *wire.Gateway, inFlight map[uint16]wire.InFlight, ready map[policy.Hash]wire.Ready, elsewhere bool, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := gatewayKey{w.Name, w.Nonce}
	gw := g.byKey[key]
	if gw == nil {
		if len(g.byKey) >= maxGateways {
			g.forget(now, LiveFor)
		}
		if len(g.byKey) >= maxGateways {
			return
		}
		for k, other := range g.byKey {
			if k.name == w.Name {
				other.superseded = true
			}
		}
		gw = &gateway{}
		g.byKey[key] = gw
	}
	gw.superseded = false
	gw.Gateway = Gateway{
		Name: w.Name, Nonce: w.Nonce, Epoch: w.Epoch, Version: w.Version, LiveRows: int(w.LiveRows),
		FailedBatches: gw.FailedBatches + uint64(w.FailedBatches), LastSeen: now, Ready: ready,
		Copies: w.Copies, Elsewhere: elsewhere,
	}
	if inFlight != nil {
		gw.inFlight = inFlight
	}
}

// fresh reports whether the chunk is one that wasn't processed yet, and
// remembers that it is now.
func (g *Gateways) fresh(name string, c wire.Chunk, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := chunkKey{name, c.Nonce}
	last, known := g.chunks[key]
	if known && c.Sequence <= last.sequence {
		return false
	}
	if !known && len(g.chunks) >= maxGateways*wire.MaxSlots {
		return true // better counted twice than unbounded
	}
	g.chunks[key] = chunkMark{c.Sequence, now}
	return true
}

// dispatched records to which pools a gateway has just dispatched.
func (g *Gateways) dispatched(name string, pools *poolSet, now time.Time) {
	if *pools == (poolSet{}) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for pool := range 256 {
		if key := (poolKey{name, uint8(pool)}); pools.has(key.pool) {
			g.last[key] = now
		}
	}
}

// Makers names the gateways that can make copies of a pool's prefixes: those that say so, whose VMs
// all have the vocabulary, and that have dispatched to the pool within MakerFor. A VM knows the
// tokens of a prefix when it has a request that begins with it.
func (g *Gateways) Makers(pool uint8, vocabulary policy.Hash, now time.Time) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []string
	for _, gw := range g.byKey {
		last, ok := g.last[poolKey{gw.Name, pool}]
		if ok && gw.Copies && !gw.superseded && now.Sub(gw.LastSeen) <= MakerFor && now.Sub(last) <= MakerFor && gw.Has(vocabulary) {
			out = append(out, gw.Name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Totals sums what live gateways have in flight, by ref.
func (g *Gateways) Totals(now time.Time) map[uint16]wire.InFlight {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := map[uint16]wire.InFlight{}
	for _, gw := range g.byKey {
		if gw.superseded || now.Sub(gw.LastSeen) > LiveFor {
			continue
		}
		for ref, f := range gw.inFlight {
			t := out[ref]
			t.Ref = ref
			t.Requests = uint16(min(int(t.Requests)+int(f.Requests), 65535))
			t.UncachedTokens = uint32(min(uint64(t.UncachedTokens)+uint64(f.UncachedTokens), 1<<32-1))
			out[ref] = t
		}
	}
	return out
}

// Passed returns the version that every gateway which may still use a table of
// this epoch has; the largest number when there is no gateway. One that has gone
// silent counts as it last reported until it is forgotten, one that has a table
// of another epoch as having none. Those of another replica are that one's.
func (g *Gateways) Passed(epoch uint64, now time.Time) (version uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget(now, forgetAfter)
	version = math.MaxUint64
	for _, gw := range g.byKey {
		switch {
		case gw.superseded, gw.Elsewhere:
		case gw.Epoch != epoch:
			return 0
		default:
			version = min(version, gw.Version)
		}
	}
	return version
}

// List returns the gateways, by name.
func (g *Gateways) List(now time.Time) []Gateway {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget(now, forgetAfter)
	out := make([]Gateway, 0, len(g.byKey))
	for _, gw := range g.byKey {
		if gw.superseded {
			continue
		}
		copied := gw.Gateway
		for _, f := range gw.inFlight {
			copied.InFlight += int(f.Requests)
		}
		out = append(out, copied)
	}
	slices.SortFunc(out, func(a, b Gateway) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Nonce, b.Nonce))
	})
	return out
}

// forget drops who was silent for longer than age. Requires mu.
func (g *Gateways) forget(now time.Time, age time.Duration) {
	for key, gw := range g.byKey {
		if now.Sub(gw.LastSeen) > age {
			delete(g.byKey, key)
		}
	}
	for key, last := range g.last {
		if now.Sub(last) > LiveFor {
			delete(g.last, key)
		}
	}
	for key, c := range g.chunks {
		if now.Sub(c.at) > forgetAfter {
			delete(g.chunks, key)
		}
	}
}
