package heartbeat

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/warmpath/warmpath/shared/fingerprint"
)

// MarshalJSON writes the form that Decode reads.
func (h *Heartbeat) MarshalJSON() ([]byte, error) {
	b := body{Worker: &h.Worker, Sequence: &h.Sequence}
	if h.StartedMillis != 0 {
		b.StartedMS = &h.StartedMillis
	}
	if h.Draining {
		state := "draining"
		b.State = &state
	}
	if l := h.Load; l != nil {
		b.Load = &load{AgeMS: millisOf(l.Age), Running: l.Running, Waiting: l.Waiting, KVShare: l.KVShare, Utilization: l.Utilization}
	}
	if e := h.Engine; e != (Engine{}) {
		b.Engine = &engine{MaxRunning: e.MaxRunning, QueueLimit: e.QueueLimit, CapacityTokens: e.CapacityTokens, BlockTokens: e.BlockTokens, PrefixCaching: e.PrefixCaching}
	}
	if c := h.Cache; c != nil {
		b.Cache = &cache{Complete: c.Complete, Cleared: c.Cleared}
		for i := range c.Prefixes {
			p := &c.Prefixes[i]
			ids := make([]int64, len(p.Tokens))
			for j, id := range p.Tokens {
				ids[j] = int64(id)
			}
			b.Cache.Prefixes = append(b.Cache.Prefixes, prefix{p.Model, p.CacheSalt, ids})
		}
		for _, path := range c.Paths {
			b.Cache.Paths = append(b.Cache.Paths, checkpoints(path))
		}
		for _, fp := range c.Removed {
			b.Cache.Removed = append(b.Cache.Removed, fmt.Sprintf("%016x", fp))
		}
	}
	if e := h.Eviction; e != nil {
		length := millisOf(e.For)
		b.Eviction = &eviction{InMS: millisOf(e.In), ForMS: &length, Reason: e.Reason}
		if e.Share > 0 {
			b.Eviction.Share = &e.Share
		}
	}
	return json.Marshal(&b)
}

func checkpoints(path []fingerprint.Checkpoint) []checkpoint {
	out := make([]checkpoint, len(path))
	for i, c := range path {
		out[i] = checkpoint{fmt.Sprintf("%016x", c.Fingerprint), int64(c.End)}
	}
	return out
}

func millisOf(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
