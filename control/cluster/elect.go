package cluster

import (
	"context"
	"errors"
	"time"
)

const (
	leaseKey = "leader"
	// looks is how often within a lease its key is looked at or rewritten.
	looks = 5
	// givenUp is the subject on which a leader says that it has given the lease up.
	givenUp = "leader.gone"
)

// elect looks at the lease until ctx ends.
func (c *Cluster) elect(ctx context.Context, h Handlers) {
	every := c.cfg.Lease / looks
	stop, err := c.Subscribe(givenUp, func([]byte) {
		select {
		case c.hurry <- struct{}{}:
		default:
		}
	})
	if err != nil {
		c.log.Warn("a leader that ends is noticed late", "err", err)
	} else {
		defer stop()
	}
	soon := firstLook
	for {
		next := every
		if !c.look(ctx, every) {
			next = min(soon, every)
			soon *= 2
		} else if c.seat.alone && c.Leads() {
			next = aloneLook
		} else {
			// Not a moment later than another's lease may be taken.
			next = min(next, c.claimable())
		}
		c.tell(h)
		again := time.NewTimer(next)
		select {
		case <-ctx.Done():
			again.Stop()
			c.resign(context.WithoutCancel(ctx), every)
			c.tell(h)
			return
		case <-again.C:
		case <-c.hurry:
			again.Stop()
		}
	}
}

// claimable is when the lease of another may be taken, if it isn't renewed.
func (c *Cluster) claimable() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(c.seat.claimable(time.Now()), firstLook)
}

// firstLook is how long after a look that failed the second one is; from then on it takes longer.
const firstLook = 10 * time.Millisecond

// aloneLook is how often a replica looks at a lease that nobody else can take.
const aloneLook = time.Minute

// look reads the key and writes it where this replica may, each within a time. It tells whether the
// key has been seen at all.
func (c *Cluster) look(ctx context.Context, within time.Duration) (seen bool) {
	err := c.read(ctx, within)
	if err == nil {
		err = c.claim(ctx, within)
	}
	if errors.Is(err, ErrConflict) {
		err = c.read(ctx, within) // somebody was faster
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.problem = err; err == nil {
		c.lookedAt = time.Now()
	}
	return c.seat.seen
}

func (c *Cluster) read(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	e, err := c.transport.Get(ctx, leaseKey)
	if err != nil && !errors.Is(err, ErrNoKey) {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seat.saw(e.Revision, e.Value, time.Now())
}

func (c *Cluster) claim(ctx context.Context, within time.Duration) error {
	c.mu.Lock()
	sent := time.Now()
	value, ok := c.seat.claim(sent)
	revision := c.seat.revision
	c.mu.Unlock()
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	next, err := c.transport.Put(ctx, leaseKey, value, revision)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seat.wrote(next, value, sent, time.Now())
}

// resign gives the lease up, so that the next leader doesn't wait for its end.
func (c *Cluster) resign(ctx context.Context, within time.Duration) {
	c.mu.Lock()
	value, ok := c.seat.resign()
	revision := c.seat.revision
	c.mu.Unlock()
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	_, err := c.transport.Put(ctx, leaseKey, value, revision)
	if err == nil {
		err = c.Publish(givenUp, nil)
	}
	if err != nil {
		c.log.Warn("the lease was not given up, the others wait for its end", "err", err)
	}
}

// tell calls the handlers when the leadership has changed.
func (c *Cluster) tell(h Handlers) {
	c.mu.Lock()
	term, before := c.seat.term, c.led
	c.led = term
	c.mu.Unlock()
	if term == before {
		return
	}
	if before != 0 {
		c.log.Info("doesn't lead any more", "replica", c.self.Name, "term", before)
		if h.Follow != nil {
			h.Follow()
		}
	}
	if term != 0 {
		c.log.Info("leads", "replica", c.self.Name, "term", term)
		if h.Lead != nil {
			h.Lead(term)
		}
	}
}

// Leads tells whether this replica is the leader now. What was decided before it said so may be
// sent: whoever leads next begins after the end of this lease.
func (c *Cluster) Leads() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seat.leads(time.Now())
}

// Leader is who held the lease when it was last looked at; ok is false when nobody did, or nobody
// has renewed it for its length.
func (c *Cluster) Leader() (r Replica, term uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.seat
	if !s.seen || s.holder.Term == 0 || time.Since(s.since) > s.wait() {
		return Replica{}, 0, false
	}
	return s.holder.Replica, s.holder.Term, true
}
