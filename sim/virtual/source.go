package virtual

import (
	"cmp"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/warmpath/warmpath/sim/engine"
)

// Request is one request on its way.
type Request struct {
	ID      uint64
	Session uint64 // names the conversation
	Tenant  int
	Group   string // of a mixed workload, for separate figures; empty otherwise
	Turn    int    // 0 for the first of its conversation
	Prompt  int    // tokens
	Output  int    // tokens

	blocks []engine.BlockHash // full blocks of prompt and answer
	ring   uint64             // key of the prompt's beginning, for the ring
	ends   []int              // blocks before the end of each turn of the prompt
	talk   *talk

	// Filled in on the way.
	arrived    time.Duration
	gateway    int
	worker     int
	predicted  int // tokens that the gateway believed to be cached
	uncached   int // as the gateway booked it, until the first token
	firstToken time.Duration
	retried    bool
	held       int  // blocks that the best worker held when it came, soon after a fault
	part       int  // of a mix
	pinned     int  // one more than the worker that it has to go to, 0 for any
	waits      bool // for its first token, in the gateway's book
	onTheWay   bool // between the gateway and the engine
}

// promptBlocks are the full blocks of the prompt alone.
func (r *Request) promptBlocks() []engine.BlockHash { return r.blocks[:r.Prompt/engine.BlockTokens] }

// A Source makes the requests of a workload. Open returns the next request that
// arrives by itself, in order of time; After the one that follows an answer.
type Source interface {
	Open() (at time.Duration, r *Request, ok bool)
	After(r *Request, now time.Duration) (at time.Duration, next *Request, ok bool)
}

// Lengths is a log-normal number of tokens.
type Lengths struct {
	Mean, CV float64
	Min, Max int
}

func (l Lengths) draw(rng *rand.Rand) int {
	n := l.Mean
	if l.CV > 0 {
		n = logNormal(rng, l.Mean, l.CV)
	}
	return min(max(int(n+0.5), max(l.Min, 1)), max(l.Max, max(l.Min, 1)))
}

func logNormal(rng *rand.Rand, mean, cv float64) float64 {
	sigma2 := math.Log(1 + cv*cv)
	return math.Exp(math.Log(mean) - sigma2/2 + math.Sqrt(sigma2)*rng.NormFloat64())
}

// Chat is a workload of conversations: sessions arrive as a Poisson process,
// each belongs to a tenant whose system prompt it shares, and every answer is
// followed by another question until its turns are used up.
type Chat struct {
	Tenants  int
	Zipf     float64 // tenant k has weight k^-Zipf
	System   Lengths // drawn once per tenant
	MinTurns int
	MaxTurns int
	First    Lengths // first question
	User     Lengths // later ones: a question, or what a tool returned
	Document Lengths // pasted into the first question of a share of sessions
	Share    float64 // of sessions with a document
	Answer   Lengths
	Think    time.Duration // mean between an answer and the next question, log-normal
	ThinkCV  float64
	Burst    Burst
	Fan      Fan
}

// Fan makes sessions begin in groups, as an agent that hands its task to several others does: each
// gets the same new text after the system prompt, then its own question. The zero value: no groups.
type Fan struct {
	MinWidth, MaxWidth int // sessions of a group
	Within             time.Duration
	Brief              Lengths // the new text that the group shares
}

// width is the mean number of sessions that begin together.
func (f Fan) width() float64 { return max(1, float64(f.MinWidth+f.MaxWidth)/2) }

// Burst multiplies the rate of sessions and of their later turns during part of
// each period, and lowers it in the rest so that the mean stays.
type Burst struct {
	Period, Length time.Duration
	Factor         float64
}

// quiet is the rate outside of bursts.
func (b Burst) quiet() float64 {
	return max((float64(b.Period)-b.Factor*float64(b.Length))/float64(b.Period-b.Length), 0.05)
}

// even is the time on a clock that runs as fast as requests come: a second of
// it brings a second's mean.
func (b Burst) even(t time.Duration) time.Duration {
	if b.Period <= 0 {
		return t
	}
	periods, part := float64(t/b.Period), t%b.Period
	in := min(part, b.Length)
	return time.Duration(periods*float64(b.evenPeriod()) + float64(in)*b.Factor + float64(part-in)*b.quiet())
}

// real is the inverse of even.
func (b Burst) real(even time.Duration) time.Duration {
	if b.Period <= 0 {
		return even
	}
	before, part := time.Duration(int64(even/b.evenPeriod())*int64(b.Period)), even%b.evenPeriod()
	in := time.Duration(float64(b.Length) * b.Factor)
	if part <= in {
		return before + time.Duration(float64(part)/b.Factor)
	}
	return before + b.Length + time.Duration(float64(part-in)/b.quiet())
}

func (b Burst) evenPeriod() time.Duration {
	return time.Duration(float64(b.Length)*b.Factor + float64(b.Period-b.Length)*b.quiet())
}

// Settle is how long it takes until the sessions that begin at time 0 have
// ended: before, fewer requests come than later.
func (c *Chat) Settle() time.Duration {
	const token = 25 * time.Millisecond // of an answer, roughly
	return time.Duration(c.MaxTurns) * (c.Think + time.Duration(c.Answer.Mean)*token)
}

// MeanTurns is the mean number of requests of a session.
func (c *Chat) MeanTurns() float64 { return float64(c.MinTurns+c.MaxTurns) / 2 }

// Source returns the workload's requests at so many a second, n in all.
func (c *Chat) Source(seed uint64, rate float64, n int) Source {
	s := &chatSource{Chat: c, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), rate: rate / c.MeanTurns() / c.Fan.width(), left: n}
	sum := 0.0
	for k := range c.Tenants {
		sum += math.Pow(float64(k+1), -c.Zipf)
		s.weights = append(s.weights, sum)
		s.systems = append(s.systems, c.System.draw(s.rng))
	}
	return s
}

type chatSource struct {
	*Chat
	seed    uint64
	rng     *rand.Rand
	rate    float64       // sessions a second
	left    int           // requests still to begin
	even    time.Duration // on the clock of Burst.even
	weights []float64
	systems []int
	next    uint64 // session
	id      uint64
	soon    []sibling     // sessions of groups that have begun, in order of time
	group   time.Duration // when the next group begins; 0 for not drawn
}

// sibling is a session of a group that is about to begin.
type sibling struct {
	at     time.Duration
	tenant int
	name   uint64 // of the text that the group shares
	brief  int    // its tokens
}

// talk is one conversation: its tokens so far and the names of their blocks.
type talk struct {
	rng     *rand.Rand
	session uint64
	tenant  int
	shared  uint64 // names the tokens of the system prompt
	own     uint64 // names those after it
	system  int    // tokens
	group   uint64 // names the tokens of the brief
	brief   int    // tokens that the session's group shares after the system prompt
	turns   int
	turn    int
	tokens  int
	blocks  []engine.BlockHash
	ring    uint64 // names the first ringUnits blocks
	ends    []int
}

// extend makes the conversation longer and names the blocks that fill up.
func (t *talk) extend(n int) {
	t.tokens += n
	for i := len(t.blocks); i < t.tokens/engine.BlockTokens; i++ {
		content := t.own
		switch end := (i + 1) * engine.BlockTokens; {
		case end <= t.system:
			content = t.shared
		case end <= t.system+t.brief:
			content = t.group
		}
		t.blocks = append(t.blocks, block(content, i))
		if i < ringUnits {
			t.ring = chain(t.ring, content+uint64(i))
		}
	}
}

// chain goes on from what is named by previous.
func chain(previous, content uint64) uint64 { return mixHash(previous+0x9e3779b97f4a7c15, content) }

// endTurn notes that a message ends here.
func (t *talk) endTurn() {
	if b := t.tokens / engine.BlockTokens; b > 0 && (len(t.ends) == 0 || t.ends[len(t.ends)-1] < b) {
		t.ends = append(t.ends, b)
	}
}

func mixHash(h, v uint64) uint64 {
	hi, lo := bits.Mul64(h^0xa0761d6478bd642f, v^0xe7037ed1a0b428db)
	return hi ^ lo
}

// Open begins a session.
func (s *chatSource) Open() (time.Duration, *Request, bool) {
	if s.left <= 0 {
		return 0, nil, false
	}
	if s.Fan.MaxWidth > 0 {
		at, r := s.openSibling()
		return at, r, true
	}
	now := s.arrival()
	t := s.begin(s.tenant)
	question := s.First.draw(t.rng)
	if s.Share > 0 && t.rng.Float64() < s.Share {
		question += s.Document.draw(t.rng)
	}
	return now, s.ask(t, question), true
}

// arrival draws the time of the next session or group.
func (s *chatSource) arrival() time.Duration {
	s.even += time.Duration(s.rng.ExpFloat64() / s.rate * float64(time.Second))
	return s.Burst.real(s.even)
}

// openSibling begins the next session of a group, whichever group it is of.
func (s *chatSource) openSibling() (time.Duration, *Request) {
	if s.group == 0 {
		s.group = s.arrival()
	}
	for len(s.soon) == 0 || s.group <= s.soon[0].at {
		width := s.Fan.MinWidth + s.rng.IntN(s.Fan.MaxWidth-s.Fan.MinWidth+1)
		one := sibling{tenant: s.tenant(), name: s.rng.Uint64(), brief: s.Fan.Brief.draw(s.rng)}
		for i := range width {
			one.at = s.group + s.Fan.Within*time.Duration(i)/time.Duration(width)
			s.soon = append(s.soon, one)
		}
		slices.SortStableFunc(s.soon, func(a, b sibling) int { return cmp.Compare(a.at, b.at) })
		s.group = s.arrival()
	}
	one := s.soon[0]
	s.soon = s.soon[1:]
	t := s.begin(func() int { return one.tenant })
	t.group, t.brief = one.name, one.brief
	return one.at, s.ask(t, one.brief+s.First.draw(t.rng))
}

// begin makes a conversation that has its system prompt.
func (s *chatSource) begin(tenant func() int) *talk {
	s.next++
	t := &talk{
		rng: rand.New(rand.NewPCG(s.seed, s.next<<8|2)), session: mixHash(s.seed, s.next),
		tenant: tenant(), turns: s.MinTurns + s.rng.IntN(s.MaxTurns-s.MinTurns+1),
	}
	t.shared, t.own = mixHash(s.seed, uint64(t.tenant)<<32|7), mixHash(t.session, 9)
	t.system = s.systems[t.tenant]
	t.extend(t.system)
	t.endTurn()
	return t
}

func (s *chatSource) tenant() int {
	x := s.rng.Float64() * s.weights[len(s.weights)-1]
	low, high := 0, len(s.weights)-1
	for low < high {
		if mid := (low + high) / 2; s.weights[mid] < x {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// ask makes the request of one turn. Its answer is drawn and becomes part of
// the conversation, as an engine caches what it decodes.
func (s *chatSource) ask(t *talk, question int) *Request {
	t.extend(question)
	t.endTurn()
	s.id++
	s.left--
	r := &Request{
		ID: s.id, Session: t.session, Tenant: t.tenant, Turn: t.turn,
		Prompt: t.tokens, Output: s.Answer.draw(t.rng), ends: t.ends[:len(t.ends):len(t.ends)], talk: t, ring: t.ring,
	}
	t.extend(r.Output)
	t.endTurn()
	r.blocks = t.blocks[:len(t.blocks):len(t.blocks)]
	t.turn++
	return r
}

// After returns the next turn of r's conversation.
func (s *chatSource) After(r *Request, now time.Duration) (time.Duration, *Request, bool) {
	t := r.talk
	if t == nil || t.turn >= t.turns || s.left <= 0 {
		return 0, nil, false
	}
	think := time.Duration(logNormal(t.rng, float64(s.Think), max(s.ThinkCV, 0.1)))
	return s.Burst.real(s.Burst.even(now) + think), s.ask(t, s.User.draw(t.rng)), true
}
