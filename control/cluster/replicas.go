package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

const (
	presence      = "replicas"
	presenceEvery = time.Second
	// presentFor is how long after its last word a replica counts as there.
	presentFor = 3500 * time.Millisecond
	// shownFor is how long it is shown as missing.
	shownFor    = 10 * time.Minute
	maxReplicas = 256
)

// heard is what a replica said of itself last.
type heard struct {
	Replica
	at time.Time
}

// Peer is a replica that was heard.
type Peer struct {
	Replica
	// Age since it was heard last.
	Age time.Duration
	// Present: heard lately.
	Present bool
}

// present says every second that this replica is there, and hears the others.
func (c *Cluster) present(ctx context.Context) error {
	stop, err := c.Subscribe(presence, c.heard)
	if err != nil {
		return fmt.Errorf("hear the other replicas: %w", err)
	}
	defer stop()
	word, err := json.Marshal(c.self)
	if err != nil {
		return fmt.Errorf("write who this replica is: %w", err)
	}
	tick := time.NewTicker(presenceEvery)
	defer tick.Stop()
	for {
		if err := c.Publish(presence, word); err != nil {
			c.log.Debug("the other replicas don't hear of this one", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (c *Cluster) heard(data []byte) {
	var r Replica
	if err := json.Unmarshal(data, &r); err != nil {
		c.log.Debug("word of a replica not understood", "err", err)
		return
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for nonce, other := range c.replicas {
		if now.Sub(other.at) > shownFor || other.Name == r.Name && nonce != r.Nonce && now.Sub(other.at) > presentFor {
			delete(c.replicas, nonce)
		}
	}
	if c.replicas[r.Nonce] == nil && len(c.replicas) >= maxReplicas {
		return
	}
	c.replicas[r.Nonce] = &heard{r, now}
}

// Peers returns the replicas that were heard, this one among them, by name.
func (c *Cluster) Peers() []Peer {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Peer, 0, len(c.replicas))
	for _, r := range c.replicas {
		age := now.Sub(r.at)
		out = append(out, Peer{r.Replica, age, age <= presentFor})
	}
	slices.SortFunc(out, func(a, b Peer) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Nonce, b.Nonce)) })
	return out
}
