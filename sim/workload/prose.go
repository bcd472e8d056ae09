package workload

import (
	"math/rand/v2"
	"sort"
	"strings"

	"github.com/warmpath/warmpath/sim/text"
)

// A prose is a long text made once, of which any number of tokens can be cut
// at once from any word on. It needs no escaping in JSON.
type prose struct {
	text string
	// starts[i] is the byte at which the i-th sentence or word starts;
	// tokens[i] counts the tokens before it.
	starts []int
	tokens []int
}

var nouns = strings.Fields(`customer order invoice delivery account payment contract product service request
	ticket shipment warehouse balance statement reservation department manager policy procedure agreement database
	repository deployment function parameter response schedule calendar document attachment signature address
	currency discount subscription passenger itinerary symptom prescription appointment property tenant mortgage
	claim premium vehicle engine sensor device network firewall certificate password permission report dashboard
	forecast budget supplier component assembly inspection incident escalation survey feedback lesson exercise`)

var verbs = strings.Fields(`checks confirms updates returns contacts explains records approves rejects schedules
	transfers reviews translates summarizes verifies escalates closes opens forwards calculates compares prepares
	collects archives restores describes requests receives measures corrects`)

var adjectives = strings.Fields(`new valid open recent internal external monthly annual missing urgent regional
	temporary complete detailed incorrect additional original current available public private technical legal
	financial medical digital secure simple average specific`)

var openings = []string{
	"Always", "Never", "If", "When", "Before", "After", "Unless", "Whenever", "Although", "Because",
	"Please", "Note that", "In general", "As a rule", "For example", "However", "Otherwise", "At the end",
}

var joints = []string{" and ", ", but ", " so that ", ", which ", " while ", " until ", ", because "}

func clause(b *strings.Builder, rng *rand.Rand) {
	pick := func(list []string) string { return list[rng.IntN(len(list))] }
	b.WriteString("the ")
	if rng.IntN(2) == 0 {
		b.WriteString(pick(adjectives) + " ")
	}
	b.WriteString(pick(nouns) + " " + pick(verbs) + " the ")
	if rng.IntN(3) > 0 {
		b.WriteString(pick(adjectives) + " ")
	}
	b.WriteString(pick(nouns))
	if rng.IntN(3) == 0 {
		b.WriteString(" of the " + pick(nouns))
	}
}

func sentence(b *strings.Builder, rng *rand.Rand) {
	b.WriteString(openings[rng.IntN(len(openings))] + " ")
	clause(b, rng)
	for range rng.IntN(3) {
		b.WriteString(joints[rng.IntN(len(joints))])
		clause(b, rng)
	}
	if rng.IntN(8) == 0 {
		b.WriteString(" within ")
		b.WriteByte('1' + byte(rng.IntN(9)))
		b.WriteString("0 days")
	}
	b.WriteString(". ")
}

func newProse(rng *rand.Rand, tokens int) *prose {
	var b strings.Builder
	p := &prose{}
	count := 0
	for count < tokens {
		from := b.Len()
		sentence(&b, rng)
		// Words start after a space; a token never spans the end of a word.
		s := b.String()[from:]
		for at := 0; at < len(s); {
			end := at + 1
			for end < len(s) && s[end] != ' ' {
				end++
			}
			p.starts = append(p.starts, from+at)
			p.tokens = append(p.tokens, count)
			count += text.CountTokens(s[at:end])
			at = end
		}
	}
	p.text = b.String()
	return p
}

// cut returns a text of at least one word and about the given number of
// tokens, from a random word on.
func (p *prose) cut(rng *rand.Rand, tokens int) string {
	room := len(p.starts) - 1
	last := sort.SearchInts(p.tokens, p.tokens[room]-tokens)
	from := 0
	if last > 0 {
		from = rng.IntN(last)
	}
	to := from + sort.SearchInts(p.tokens[from:room], p.tokens[from]+tokens)
	to = max(to, from+1)
	return strings.TrimPrefix(p.text[p.starts[from]:p.starts[to]], " ")
}
