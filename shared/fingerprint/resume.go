package fingerprint

// Resume continues a prompt from the fingerprint at a position of the schedule, where a segment
// starts: the chain goes on as if it had been fed everything before. Position 0 with a salt is
// Reset. Finish then tells only of what follows.
func (c *Chain) Resume(fingerprint uint64, units uint32) {
	c.Reset(fingerprint)
	c.units = units
	c.begin(fingerprint)
	c.next = NextScheduled(units)
}

// Fingerprint is that of the whole units so far; the salt before the first.
func (c *Chain) Fingerprint() uint64 { return c.fingerprint() }

// NextScheduled is the first position of the schedule, unthinned, beyond units. A segment ends
// there.
func NextScheduled(units uint32) uint32 {
	stride := uint32(sparseStride)
	switch {
	case units < denseEnd:
		stride = denseStride
	case units < middleEnd:
		stride = middleStride
	}
	return (units/stride + 1) * stride
}
