package route

import (
	"cmp"
	"slices"
)

// turn is where a message of the prompt ends.
type turn struct {
	end    uint32 // units
	number int32  // from the first message on; messages too short to tell apart share one
}

// readTurns lists the ends of the prompt's messages. Ends that are a unit apart count as one: of
// a word, or of the marks that begin an answer.
func (c *chooser) readTurns() {
	d := c.d
	d.turns = d.turns[:0]
	if c.req.Exact {
		return
	}
	number := int32(-1)
	for i := range c.req.Checkpoints {
		at := &c.req.Checkpoints[i]
		if !at.TurnEnd {
			continue
		}
		if n := len(d.turns); n == 0 || at.End > d.turns[n-1].end+1 {
			number++
		}
		d.turns = append(d.turns, turn{at.End, number})
	}
}

// withAnswer extends a match by the answer that follows it. A worker whose match ends where a
// prompt of this conversation ended has generated what came next, and engines keep what they
// generate; the table can't know, as nobody has asked for that position before. Between the end
// of such a prompt and that of this one lie an answer and a message for every turn since: an even
// number. Where messages don't take turns so, or are too short to tell apart, the error is one
// message: good enough for a guess by text, not for a promise in tokens.
func (c *chooser) withAnswer(units uint32) uint32 {
	turns := c.d.turns
	i, ok := slices.BinarySearchFunc(turns, units, func(t turn, units uint32) int { return cmp.Compare(t.end, units) })
	if !ok {
		return units
	}
	number := turns[i].number
	if later := turns[len(turns)-1].number - number; later == 0 || later%2 != 0 {
		return units
	}
	for turns[i].number == number {
		i++
	}
	return turns[i].end
}
