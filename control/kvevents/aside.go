package kvevents

import "slices"

// aside keeps blocks whose parent isn't known yet: their turn comes when a
// replay brings it.
type aside struct {
	byParent map[uint64][]*Event
	parentOf map[uint64]uint64 // block -> key in byParent
	tokens   int
	blocks   int
}

// add copies e. It answers false when there is no room.
func (a *aside) add(e *Event, maxTokens int) bool {
	if a.tokens+len(e.Tokens) > maxTokens {
		return false
	}
	if a.byParent == nil {
		a.byParent, a.parentOf = map[uint64][]*Event{}, map[uint64]uint64{}
	}
	for _, h := range e.Hashes {
		if _, twice := a.parentOf[h]; twice {
			return true // told again
		}
	}
	copied := *e
	copied.Hashes, copied.Tokens = slices.Clone(e.Hashes), slices.Clone(e.Tokens)
	a.byParent[e.Parent] = append(a.byParent[e.Parent], &copied)
	for _, h := range copied.Hashes {
		a.parentOf[h] = e.Parent
	}
	a.tokens += len(copied.Tokens)
	a.blocks += len(copied.Hashes)
	return true
}

// take returns what waited for a block.
func (a *aside) take(parent uint64) []*Event {
	events := a.byParent[parent]
	delete(a.byParent, parent)
	for _, e := range events {
		a.forget(e, 0)
	}
	return events
}

// remove takes a block out, with those behind it in its event: what is removed
// while it waits must not come back.
func (a *aside) remove(hash uint64) bool {
	parent, ok := a.parentOf[hash]
	if !ok {
		return false
	}
	events := a.byParent[parent]
	for i, e := range events {
		at := slices.Index(e.Hashes, hash)
		if at < 0 {
			continue
		}
		a.forget(e, at)
		e.Hashes, e.Tokens = e.Hashes[:at], e.Tokens[:at*e.BlockSize]
		if at == 0 {
			a.byParent[parent] = slices.Delete(events, i, i+1)
		}
		break
	}
	if len(a.byParent[parent]) == 0 {
		delete(a.byParent, parent)
	}
	return true
}

func (a *aside) forget(e *Event, from int) {
	for _, h := range e.Hashes[from:] {
		delete(a.parentOf, h)
	}
	a.tokens -= len(e.Tokens) - from*e.BlockSize
	a.blocks -= len(e.Hashes) - from
}
