// Package heartbeat is what an engine without events, or an agent beside it,
// says of itself about once a second.
//
// A heartbeat's way through the package: Decode reads the body of POST
// /v1/heartbeat strictly, so that a mistake is an answer that names the field
// and never a number that nobody meant; the fleet takes load, state and notice
// from it; Prefix.Checkpoints turns the token lists of its cache part into the
// fingerprints that gateways ask about, with the salts that they use.
package heartbeat

import (
	"slices"
	"time"

	"github.com/warmpath/warmpath/shared/fingerprint"
)

// Heartbeat is one heartbeat, checked.
type Heartbeat struct {
	// Worker is ip:port, as the worker list has it.
	Worker string
	// Sequence rises from heartbeat to heartbeat of one process of the engine.
	Sequence uint64
	// StartedMillis is when the engine's process started, Unix milliseconds; 0
	// not told.
	StartedMillis uint64
	// Draining asks for no new requests.
	Draining bool
	Load     *Load
	Engine   Engine
	Cache    *Cache
	Eviction *Eviction
}

// Load is what the engine has to do.
type Load struct {
	Age     time.Duration // of the numbers
	Running int
	Waiting int
	// KVShare of the cache is held by running requests, 0..1: the watermark.
	KVShare float64
	// Utilization is the share of max_running that is in use, 0..1, for engines
	// that don't count requests.
	Utilization float64
}

// Engine is what seldom changes; zero is not told.
type Engine struct {
	MaxRunning, QueueLimit      int
	CapacityTokens, BlockTokens int
	PrefixCaching               *bool
}

// Cache is what the prefix cache holds.
type Cache struct {
	// Complete: what isn't listed here isn't held. Otherwise the lists add.
	Complete bool
	// Cleared: nothing was held before this heartbeat.
	Cleared  bool
	Prefixes []Prefix
	Paths    [][]fingerprint.Checkpoint
	// Removed fingerprints are held no more, nor anything beyond them.
	Removed []uint64
}

// Prefix is the beginning of a prompt that is held whole.
type Prefix struct {
	// Model is the name that clients use, of the base model or of an adapter;
	// empty stands for the base model.
	Model     string
	CacheSalt string
	Tokens    []uint32
}

// Eviction is the notice that a part of the cache will go at once.
type Eviction struct {
	In, For time.Duration // begins in, lasts; For 0 takes the notice back
	Share   float64       // of what is cached, above 0, at most 1
	Reason  string
}

// Checkpoints returns the path of checkpoints of the prefix as gateways have it
// for the pool. adapter and generation are what Model stands for
// (policy.Pool.Canonical), turnEnds the tokens that end a turn. Only whole blocks
// of the engine count.
func (p *Prefix) Checkpoints(pool, adapter string, generation uint64, turnEnds []uint32, blockTokens int) []fingerprint.Checkpoint {
	block := max(blockTokens, 1)
	tokens := p.Tokens[:len(p.Tokens)/block*block]
	var chain fingerprint.Chain
	chain.Reset(fingerprint.Salt(pool, adapter, generation, p.CacheSalt, fingerprint.Exact))
	from, after := 0, false
	for i, token := range tokens {
		ends := slices.Contains(turnEnds, token)
		// A line break behind the end of a turn may belong to it.
		if ends || after {
			chain.WriteTokens(tokens[from : i+1])
			chain.TurnEnd()
			from = i + 1
		}
		after = ends
	}
	chain.WriteTokens(tokens[from:])
	return slices.Clone(chain.Finish())
}
