package plugin

import (
	"encoding/binary"
	"strconv"
	"strings"
	"time"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/body"
	"github.com/warmpath/warmpath/filter/books"
	"github.com/warmpath/warmpath/filter/config"
	"github.com/warmpath/warmpath/filter/fleet"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/filter/usage"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/wire"
	"github.com/warmpath/warmpath/tokenizer/bpe"
)

const (
	// copyTimeout ends a slice that the worker doesn't answer, and copyLost after that one whose answer
	// the proxy never gave.
	copyTimeout = 5 * time.Second
	copyLost    = 2 * time.Second
	// otherKey is how long a copy is left alone that the worker refused by the client's key: control
	// waits for 3 s, and one client with a bad key must not keep the others from making it.
	otherKey = time.Second
	// maxCopyTokens bounds the prefixes that a VM makes copies of at a time: a token's id takes 4 bytes,
	// and some 6 in a request's body.
	maxCopyTokens = 64 << 10
	// maxCopyName bounds the model's name and the salt.
	maxCopyName = 1 << 10
	// keptCopyBody is the body that stays allocated: 10,000 tokens.
	keptCopyBody = 64 << 10
)

// copies makes copies of hot prefixes. Control says which are this gateway's to make; the first
// request that begins with such a prefix brings its tokens. They go to the worker in slices: a series
// of requests, each with a bit more of the prefix than the one before and sent when that was answered,
// so that whoever lives there waits for a slice and not for all of it.
type copies struct {
	vm     *VM
	fleet  *fleet.Fleet
	list   []*copying
	body   []byte
	reader *usage.Reader
	told   string // the cluster that was said to be missing
}

// hotPrefix is a prefix of which copies are made.
type hotPrefix struct {
	copies        int    // that are being made
	root          uint32 // the plugin context that calls
	fingerprint   uint64
	pool          *policy.Pool
	cluster       string
	authorization string // of the request that brought the tokens
	before, after string // of a request's body, around the ids
	ids           []uint32
	checkpoints   []fingerprint.Checkpoint
}

// copying is a copy that is being made.
type copying struct {
	_        [0]func()
	prefix   *hotPrefix
	ref      uint16
	over     bool
	worker   uint32 // its name, which changes with its cache
	computed int    // tokens
	claim    books.Claim
	began    int64
	claimed  int64
	deadline int64
}

// makeCopies begins the copies that are this gateway's to make of a prefix that the request begins
// with. Calls belong to the plugin context, and that must be the one that ticks.
func (s *stream) makeCopies(pool *fleet.Pool, p *prompt) {
	d := s.plugin.deployment
	if s.plugin.config.WorkerCluster == "" || s.endpoint == body.Embeddings || d.plugins[len(d.plugins)-1] != s.plugin {
		return
	}
	if !s.keyKept && s.plugin.config.Hold == config.HoldBuffer {
		return // it came before there was a copy to make; the next one brings its key
	}
	c, f := &d.copies, s.plugin.fleet
	request := &s.plugin.vm.routeRequest
	var h *hotPrefix
	at := -1 // the prefix' last checkpoint
	for i := range pool.Copies {
		x := &pool.Copies[i]
		k := at
		if k < 0 {
			for k = len(p.checkpoints) - 1; k >= 0 && p.checkpoints[k].End > x.Units; k-- {
			}
		}
		if k < 0 || p.checkpoints[k].Fingerprint != x.Fingerprint || x.Ref == s.best || request.Gets(x.Ref, x.Units) ||
			at < 0 && c.tokens()+int(x.Units)*fingerprint.UnitTokens > maxCopyTokens ||
			!f.CopyWanted(x.Fingerprint, x.Ref) || !f.ClaimCopy(x.Fingerprint, x.Ref, false, fleet.ClaimTime) {
			continue
		}
		c.vm.metrics.Inc(metrics.CopiesBegun, 0)
		if at < 0 {
			at = k
			p.checkpoints = append([]fingerprint.Checkpoint(nil), p.checkpoints[:k+1]...) // the chain's own are overwritten
			h = s.hotPrefix(pool, p)
		}
		if h.ids == nil {
			c.vm.metrics.Inc(metrics.CopiesFailed, metrics.CopyNotExact)
			continue
		}
		h.copies++
		one := &copying{prefix: h, ref: x.Ref, worker: f.WorkerName(x.Ref), began: f.Clock(), claimed: f.Clock()}
		c.list = append(c.list, one)
		c.next(one, f.Clock())
	}
}

// tokens are those of all prefixes of which copies are being made.
func (c *copies) tokens() (n int) {
	for _, x := range c.list {
		n += len(x.prefix.ids) / x.prefix.copies
	}
	return n
}

// hotPrefix is what the slices of a prefix need, of the request that begins with it: up to the last of
// its checkpoints. Without ids the tokens can't be had.
func (s *stream) hotPrefix(pool *fleet.Pool, p *prompt) *hotPrefix {
	vm := s.plugin.vm
	req := &vm.request
	last := p.checkpoints[len(p.checkpoints)-1]
	h := &hotPrefix{root: s.plugin.id, fingerprint: last.Fingerprint, pool: pool.View.Pool, checkpoints: p.checkpoints}
	model, cacheSalt := req.RawModel(), req.RawCacheSalt()
	if len(model)+len(cacheSalt) > maxCopyName {
		return h
	}
	ids := vm.firstIDs(pool, p, int(last.End)*fingerprint.UnitTokens)
	vm.chain.Reset(salt(req, pool, fingerprint.Exact))
	vm.chain.WriteTokens(ids)
	if found := vm.chain.Finish(); len(found) == 0 || found[len(found)-1].Fingerprint != last.Fingerprint {
		return h
	}
	h.ids = ids
	h.cluster = clusterOf(s.plugin.config.WorkerCluster, h.pool.Name)
	h.before = `{"prompt":[`
	h.after = `],"max_tokens":1,"temperature":0` + field(`,"model":`, model) + field(`,"cache_salt":`, cacheSalt) + `}`
	if h.authorization = s.authorization; !s.keyKept {
		h.authorization, _ = abi.HeaderString(abi.RequestHeaders, "authorization")
	}
	return h
}

// field is one of a body whose string is given, and not empty: as good as none for a prefix' name, and
// engines refuse it.
func field(name string, value []byte) string {
	if len(value) <= len(`""`) {
		return ""
	}
	return name + string(value)
}

// clusterOf fills in the pool's name.
func clusterOf(setting, pool string) string {
	const place = "{pool}"
	for i := range setting {
		if strings.HasPrefix(setting[i:], place) {
			return setting[:i] + pool + setting[i+len(place):]
		}
	}
	return setting
}

// firstIDs are the first n tokens of the prompt, or others if they can't be had within the budget.
func (vm *VM) firstIDs(pool *fleet.Pool, p *prompt, n int) []uint32 {
	if p.text == nil {
		sink := idBytes{most: 4 * n}
		body.Render(&vm.request, &sink, renderCap)
		ids := make([]uint32, len(sink.bytes)/4)
		for i := range ids {
			ids[i] = binary.LittleEndian.Uint32(sink.bytes[4*i:])
		}
		return ids
	}
	_, v, mode := pool.Exact()
	if mode != metrics.Exact {
		return nil
	}
	text := p.text
	for _, end := range p.ends {
		if end > 2*bytesPerToken*n {
			text = text[:end] // none of them is in the turns beyond
			break
		}
	}
	all, _ := v.Encoder.Encode(nil, text, bpe.Options{AddSpecial: p.special, Budget: tokenBudget})
	return append([]uint32(nil), all[:min(n, len(all))]...)
}

// idBytes is the sink for the first bytes of a prompt that came as token ids.
type idBytes struct {
	bytes []byte
	most  int
	begun bool
}

// Text leaves the first mark out, as idSink does.
func (s *idBytes) Text(p []byte) {
	if !s.begun && len(p) > 0 {
		s.begun, p = true, p[1:]
	}
	s.bytes = append(s.bytes, p[:min(len(p), s.most-len(s.bytes))]...)
}

// TurnEnd does nothing.
func (*idBytes) TurnEnd() {}

// next sends the next slice, if the copy is still wanted.
func (c *copies) next(x *copying, now int64) {
	f, h := c.fleet, x.prefix
	if !f.CopyWanted(h.fingerprint, x.ref) || f.WorkerName(x.ref) != x.worker {
		c.end(x, metrics.CopyGone)
		return
	}
	if now-x.claimed > int64(fleet.ClaimTime/3) {
		x.claimed = now
		f.ClaimCopy(h.fingerprint, x.ref, true, fleet.ClaimTime)
	}
	tokens := min(x.computed+h.pool.Policy.CopySlice, len(h.ids))
	b := append(c.body[:0], h.before...)
	for _, id := range h.ids[:tokens] {
		b = append(strconv.AppendUint(b, uint64(id), 10), ',')
	}
	b = append(b[:len(b)-1], h.after...)
	if c.body = b; len(b) > keptCopyBody {
		c.body = nil
	}
	endpoint := f.EndpointOf(x.ref)
	headers := [...][2]string{
		{":method", "POST"},
		{":path", "/v1/completions"},
		{":authority", endpoint},
		{"content-type", "application/json"},
		{endpointHeader, endpoint},
		{poolHeader, h.pool.Name},
		{"authorization", h.authorization},
		{},
	}
	n := 6
	if h.authorization != "" {
		n++
	}
	if rank := f.RankOf(x.ref); rank >= 0 {
		headers[n] = [2]string{rankHeader, strconv.Itoa(rank)}
		n++
	}
	uncached := uint32(tokens - x.computed)
	x.deadline = now + int64(copyTimeout+copyLost)
	x.claim.Open(f.Own, x.ref, uncached)
	f.Recent.Add(x.ref, float64(uncached), now)
	f.Touched(x.ref)
	if _, status := abi.HTTPCallOf(h.root, h.cluster, headers[:n], b, copyTimeout, func(_, size, _ int) { c.answered(x, tokens, size) }); status == abi.InternalFailure {
		c.end(x, metrics.CopyRefused) // Envoy has answered it at once: nobody of the cluster is healthy, or it has too many
	} else if status != abi.OK {
		c.end(x, metrics.CopyNoCluster)
		if c.told != h.cluster {
			c.told = h.cluster
			abi.Log(abi.LogWarn, `warmpath: no copies of hot prefixes are made, as the proxy has no cluster "`+h.cluster+
				`": set worker_cluster in the plugin configuration to the cluster of the pool's workers ({pool} is the pool's name), or to "". `+
				`Requests go on as before`)
		}
	}
}

// answered goes on after a slice.
func (c *copies) answered(x *copying, tokens, size int) {
	if x.over {
		return
	}
	f, h, m, now := c.fleet, x.prefix, &c.vm.metrics, abi.Now()
	f.Refresh(now)
	c.close(x)
	status, _ := abi.HeaderString(abi.HTTPCallHeaders, ":status")
	u, known := c.usage(size)
	switch {
	case status == "504":
		c.end(x, metrics.CopyTimeout)
		return
	case status != "200":
		if status == "401" || status == "403" {
			f.ClaimCopy(h.fingerprint, x.ref, true, otherKey)
		}
		c.end(x, metrics.CopyRefused)
		return
	case known && u.PromptTokens != int64(tokens), known && u.CachedKnown && u.CachedTokens < int64(x.computed-h.pool.Policy.CopySlice):
		// Where the slices before this are gone, or went elsewhere, or nothing is kept, each computes all
		// that they did, once more. A slice is more than an engine's block, which may be cut off.
		c.end(x, metrics.CopyNotExact)
		return
	}
	before := x.computed
	x.computed = tokens
	m.Inc(metrics.CopySlices, 0)
	m.Add(metrics.CopyTokens, 0, uint64(tokens-before))
	if tokens < len(h.ids) {
		c.next(x, now)
		return
	}
	c.forget(x)
	m.Inc(metrics.CopiesMade, 0)
	made := wire.Report{
		Pool: h.pool.Index, Chosen: x.ref, Served: x.ref, Copy: true,
		PromptUnits: uint32(tokens) / fingerprint.UnitTokens, // all of it is work that the worker has had lately
		Status:      200, Outcome: wire.Complete, Attempts: 1, PredictedTokens: uint32(before),
		PromptTokens: int32(tokens), CachedTokens: wire.UnknownTokens, OutputTokens: 1,
		TTFTMillis: wire.NoTTFT, TotalMillis: uint32(max(0, now-x.began) / 1_000_000),
	}
	if known && u.CachedKnown {
		made.CachedTokens = clampSigned(u.CachedTokens)
	}
	made.ID = f.Reports.Dispatch(&made, h.checkpoints)
	f.Reports.Done(&made)
}

// usage is what the engine counted of a slice.
func (c *copies) usage(size int) (u usage.Usage, known bool) {
	if c.reader == nil {
		c.reader = new(usage.Reader)
	}
	c.reader.Reset(usage.JSON)
	want := c.reader.Want(size)
	tail, status := abi.Buffer(abi.HTTPCallBody, size-want, want, &c.vm.tail)
	if status != abi.OK || len(tail) != want {
		return u, false
	}
	c.reader.FeedTail(tail, size)
	return c.reader.Finish()
}

// close takes the slice that was under way out of the books.
func (c *copies) close(x *copying) {
	x.claim.Close(c.fleet.Own)
	c.fleet.Touched(x.ref)
}

// end ends a copy that failed. Its claim runs out by itself: it isn't begun again before.
func (c *copies) end(x *copying, reason int) {
	c.forget(x)
	c.vm.metrics.Inc(metrics.CopiesFailed, reason)
}

func (c *copies) forget(x *copying) {
	c.close(x)
	x.over = true
	last := len(c.list) - 1
	for i, o := range c.list {
		if o == x {
			c.list[i] = c.list[last]
			c.list[last] = nil
			c.list = c.list[:last]
			break
		}
	}
	x.prefix.copies--
}

// tick ends the copies whose answer never came.
func (c *copies) tick(now int64) {
	for i := len(c.list) - 1; i >= 0; i-- {
		if x := c.list[i]; now > x.deadline {
			c.end(x, metrics.CopyTimeout)
		}
	}
}

// abandon ends all copies: the plugin context that made them goes, and what answers with it.
func (c *copies) abandon() {
	for len(c.list) > 0 {
		c.end(c.list[0], metrics.CopyGone)
	}
}
