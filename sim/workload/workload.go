package workload

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/warmpath/warmpath/sim/text"
)

// A Workload is a planned set of sessions and the texts they use. It is not
// changed after New and may be shared.
type Workload struct {
	Spec     Spec
	Sessions []Session // by Start
	tenants  []tenant
	prose    *prose
}

// A Session is one conversation of one user of a tenant.
type Session struct {
	Tenant int
	// Start is when the first question is sent, on the engine's clock.
	Start time.Duration
	Turns []Turn
}

// A Turn is one request.
type Turn struct {
	UserTokens   int
	AnswerTokens int
	// Think is the pause between the previous answer and this question.
	Think time.Duration
}

type tenant struct {
	systemPrompt string // as written between quotes in JSON
	tokens       int
}

// Purposes of the random streams.
const (
	streamPlan = iota + 1
	streamSystemLengths
	streamSystemPrompt
	streamProse
	streamMessage
)

// poolTokens of prose are shared by all user messages: long enough that two
// messages of 100 tokens hardly ever start alike, short enough for the cache
// of a CPU.
const poolTokens = 60_000

// New plans the workload that the spec describes.
func New(s Spec) (*Workload, error) {
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("workload: %w", err)
	}
	w := &Workload{Spec: s, prose: newProse(stream(s.Seed, streamProse, 0), poolTokens)}
	popularity := newZipf(s.Tenants.Count, s.Tenants.ZipfS)
	lengths := s.SystemPrompt.quantiles(s.Tenants.Count)
	shuffleFairly(stream(s.Seed, streamSystemLengths, 0), lengths, popularity)
	for i, tokens := range lengths {
		w.tenants = append(w.tenants, newTenant(stream(s.Seed, streamSystemPrompt, uint64(i)), i, tokens))
	}

	rng := stream(s.Seed, streamPlan, 0)
	sessionsPerSecond := s.RequestsPerSecond / (float64(s.Turns.Min+s.Turns.Max) / 2)
	var at time.Duration
	for left := s.Requests; left > 0; {
		at += seconds(rng.ExpFloat64() / sessionsPerSecond)
		session := Session{Tenant: popularity.draw(rng), Start: at}
		turns := s.Turns.Min + rng.IntN(s.Turns.Max-s.Turns.Min+1)
		document := 0
		if rng.Float64() < s.Documents.Share {
			document = s.Documents.draw(rng)
		}
		for i := range min(turns, left) {
			var turn Turn
			if i == 0 {
				turn.UserTokens = s.FirstMessage.draw(rng)
			} else {
				turn.UserTokens = s.UserMessage.draw(rng)
				turn.Think = seconds(logNormal(rng, s.ThinkSeconds.Mean, s.ThinkSeconds.CV))
			}
			if i == 1 {
				turn.UserTokens += document
			}
			turn.AnswerTokens = s.Answer.draw(rng)
			session.Turns = append(session.Turns, turn)
		}
		left -= len(session.Turns)
		w.Sessions = append(w.Sessions, session)
	}
	return w, nil
}

var firms = strings.Fields(`Amber Birch Cedar Delta Ember Falcon Garnet Harbor Indigo Juniper Kestrel Lagoon Maple
	Nimbus Onyx Pioneer Quartz Rowan Summit Tundra`)

var trades = strings.Fields(`Logistics Insurance Clinics Software Travel Energy Retail Banking Legal Schools`)

func newTenant(rng *rand.Rand, i, tokens int) tenant {
	name := firms[i%len(firms)] + " " + trades[i/len(firms)%len(trades)]
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d: you are the assistant of this company. Follow these rules.", name, i+1)
	body := newProse(rng, tokens)
	sentences := strings.SplitAfter(body.text, ". ")
	count := text.CountTokens(b.String())
	for n := 0; count < tokens && n < len(sentences); n++ {
		part := " " + strings.TrimSuffix(sentences[n], " ")
		if n%6 == 0 {
			part = "\n\n" + strconv.Itoa(n/6+1) + "." + part
		}
		if over := count + text.CountTokens(part) - tokens; over > 0 {
			// Words of the last sentence, as far as there is room.
			for words := strings.SplitAfter(part, " "); len(words) > 1 && text.CountTokens(part) > tokens-count; {
				words = words[:len(words)-1]
				part = strings.TrimSuffix(strings.Join(words, ""), " ")
			}
			b.WriteString(part)
			break
		}
		count += text.CountTokens(part)
		b.WriteString(part)
	}
	plain := b.String()
	return tenant{
		systemPrompt: strings.ReplaceAll(plain, "\n", `\n`),
		tokens:       text.CountTokens(plain),
	}
}

// SystemPromptTokens of a tenant, as the simulated engine counts them.
func (w *Workload) SystemPromptTokens(tenant int) int { return w.tenants[tenant].tokens }

// SystemPrompt of a tenant.
func (w *Workload) SystemPrompt(tenant int) string {
	return strings.ReplaceAll(w.tenants[tenant].systemPrompt, `\n`, "\n")
}

// Requests planned in total.
func (w *Workload) Requests() int {
	n := 0
	for i := range w.Sessions {
		n += len(w.Sessions[i].Turns)
	}
	return n
}
