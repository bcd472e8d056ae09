package fingerprint

// State is a chain at one point of a prompt, without the checkpoints that belong to it: enough
// to go on from there with another continuation.
type State struct{ position }

// Save returns the chain's state, and its checkpoints appended to dst: at most
// MaxCheckpoints + 224 of them.
func (c *Chain) Save(dst []Checkpoint) (State, []Checkpoint) {
	s := State{c.position}
	dst = append(dst, c.scheduled[:c.schedule]...)
	s.turnCount = min(c.turnCount, maxTurnEnds)
	for turn := c.turnCount - s.turnCount; turn < c.turnCount; turn++ {
		dst = append(dst, c.turns[turn%maxTurnEnds])
	}
	return s, dst
}

// Restore makes the chain what it was when Save returned this state and, in two pieces, these
// checkpoints. The watched position is to be the same as it was then.
func (c *Chain) Restore(s *State, checkpoints, rest []Checkpoint) {
	c.position = s.position
	for _, to := range [...][]Checkpoint{c.scheduled[:c.schedule], c.turns[:c.turnCount]} {
		n := copy(to, checkpoints)
		checkpoints = checkpoints[n:]
		rest = rest[copy(to[n:], rest):]
	}
}
