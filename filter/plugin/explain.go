package plugin

import (
	"strconv"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/body"
	"github.com/warmpath/warmpath/filter/fleet"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/tokenizer/chat"
)

// explainedCheckpoints is how many checkpoints an explanation lists: the rest
// is counted.
const explainedCheckpoints = 48

// keepExplanation notes how the prompt was read, for the response to tell:
//
//	mode=exact tokens=812 fresh=310 memo=2810 at=64,128,192*,256,...,812*
//
// fresh and memo are bytes of text; at is the checkpoints in tokens, a star
// where a turn ends.
func (s *stream) keepExplanation(pool *fleet.Pool, p *prompt) {
	if !s.plugin.config.Explain {
		return
	}
	b := append(make([]byte, 0, 256), "mode="...)
	if p.reason != body.OK {
		s.explanation = append(append(b, "none reason="...), p.reason.String()...)
		return
	}
	if pool == nil { // nobody has read it
		s.explanation = append(b, "none"...)
		return
	}
	b = append(b, p.mode.String()...)
	b = append(b, " tokens="...)
	b = strconv.AppendInt(b, int64(p.tokens), 10)
	if p.exact() {
		b = append(b, " fresh="...)
		b = strconv.AppendInt(b, int64(p.encoded.Fresh), 10)
		b = append(b, " memo="...)
		b = strconv.AppendInt(b, int64(p.encoded.Memoised), 10)
	}
	if p.stopped != chat.Complete {
		b = append(append(b, " stopped="...), p.stopped.String()...)
	}
	if p.encoded.Exhausted {
		b = append(b, " capped"...)
	}
	separator := " at="
	for i, c := range p.checkpoints {
		if skip := len(p.checkpoints) - explainedCheckpoints; skip > 0 && i >= explainedCheckpoints/2 && i < explainedCheckpoints/2+skip {
			if i == explainedCheckpoints/2 {
				b = append(b, ",("...)
				b = strconv.AppendInt(b, int64(skip), 10)
				b = append(b, " more)"...)
			}
			continue
		}
		b = append(b, separator...)
		b = strconv.AppendUint(b, uint64(c.End)*fingerprint.UnitTokens, 10)
		if c.TurnEnd {
			b = append(b, '*')
		}
		separator = ","
	}
	s.explanation = b
}

// tellExplanation puts it on the response, with the choice that followed.
func (s *stream) tellExplanation() {
	if s.explanation != nil {
		s.explanation = s.explainAdmission(s.explanation)
		abi.SetHeader(abi.ResponseHeaders, explainHeader, text(s.explanation))
		s.explanation = nil
	}
}
