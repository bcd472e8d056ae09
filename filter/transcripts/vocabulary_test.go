package transcripts

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/hostsim"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/wire"
	"github.com/warmpath/warmpath/tokenizer/pretoken"
	"github.com/warmpath/warmpath/tokenizer/vocab"
)

// vocabulary compiles one of all bytes and so many tokens more, whose text is
// drawn from the seed.
func vocabulary(t testing.TB, seed uint64, tokens int) (file []byte, hash string) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	spec := vocab.Spec{ByRank: true, Kind: pretoken.Qwen2}
	seen := map[string]bool{}
	add := func(token []byte) {
		if !seen[string(token)] {
			seen[string(token)] = true
			spec.Tokens = append(spec.Tokens, token)
		}
	}
	for b := range 256 {
		add([]byte{byte(b)})
	}
	for len(spec.Tokens) < tokens {
		// Tokens that merging makes: an earlier one and a byte.
		earlier := spec.Tokens[rng.IntN(len(spec.Tokens))]
		if len(earlier) < 12 {
			add(append(append([]byte(nil), earlier...), byte('a'+rng.IntN(26))))
		}
	}
	for i, special := range []string{"<|im_start|>", "<|im_end|>"} {
		spec.Added = append(spec.Added, vocab.AddedSpec{ID: uint32(tokens + i), Content: special, Special: true})
	}
	file, err := spec.Compile()
	if err != nil {
		t.Fatal(err)
	}
	if hash, err = vocab.Hash(file); err != nil {
		t.Fatal(err)
	}
	return file, hash
}

// name makes control hand a vocabulary out and names it for the pool.
func (c *control) name(file []byte, hash string, active bool) {
	if c.vocabularies == nil {
		c.vocabularies = map[string][]byte{}
	}
	c.vocabularies[hash] = file
	c.exact = append(c.exact, map[string]any{
		"pool": "default", "vocab": hash, "bytes": len(file), "template": "qwen3", "engine": "vllm", "active": active,
	})
	c.changed()
}

// pieces counts the pieces of a vocabulary that lie in shared data.
func (p *proxy) pieces(hash string) (n int) {
	h, _ := policy.ParseHash(hash)
	for i := range 64 {
		if value, _, _ := p.host.SharedData(vmID, wire.NewKeys("default").Shard(h, i)); len(value) > 0 {
			n++
		}
	}
	return n
}

func TestEveryVMLoadsTheVocabulariesOfThePolicyAndSaysSo(t *testing.T) {
	p := start(t, modules.full, `{}`, 3)
	p.advance(time.Second)
	a, hashOfA := vocabulary(t, 1, 40_000)
	b, hashOfB := vocabulary(t, 2, 30_000)
	if wire.Shards(len(a)) < 3 {
		t.Fatalf("%d bytes: too small to show anything", len(a))
	}
	p.control.name(a, hashOfA, true)
	p.control.name(b, hashOfB, false)
	p.advance(8 * time.Second)
	for hash, file := range map[string][]byte{hashOfA: a, hashOfB: b} {
		r := p.control.ready[hash]
		if r.VMs != 4 || int(r.Pieces) != wire.Shards(len(file)) || p.pieces(hash) != int(r.Pieces) {
			t.Errorf("%d VMs have it, %d pieces of %d", r.VMs, r.Pieces, wire.Shards(len(file)))
		}
	}
	if n := p.counter("vocabulary_loads.loaded"); n != 8 {
		t.Errorf("%d loads", n)
	}
	want := wire.Shards(len(a)) + wire.Shards(len(b))
	if n := p.control.requests["/v1/vocabulary/"+hashOfA] + p.control.requests["/v1/vocabulary/"+hashOfB]; n != want {
		t.Errorf("%d calls for %d pieces", n, want)
	}
	// Named no longer: what they took is given back.
	p.control.exact = []map[string]any{}
	p.control.changed()
	p.advance(3 * time.Second)
	if p.pieces(hashOfA)+p.pieces(hashOfB) != 0 {
		t.Errorf("%d and %d pieces left", p.pieces(hashOfA), p.pieces(hashOfB))
	}
}

// TestAControlServiceFromBeforeVocabulariesIsNoTrouble: its policy comes without
// the section, also after one that had it.
func TestAControlServiceFromBeforeVocabulariesIsNoTrouble(t *testing.T) {
	p := start(t, modules.full, `{}`, 1)
	p.advance(time.Second)
	for _, key := range p.host.SharedDataKeys(vmID) {
		if strings.HasSuffix(key, ".exact") || strings.Contains(key, ".voc") {
			t.Errorf("%s was written", key)
		}
	}
	a, hash := vocabulary(t, 1, 20_000)
	p.control.name(a, hash, true)
	p.advance(5 * time.Second)
	if p.control.ready[hash].VMs != 2 {
		t.Fatalf("%+v", p.control.ready)
	}
	p.control.exact = nil
	p.control.changed()
	p.advance(5 * time.Second)
	if n := p.pieces(hash); n != 0 {
		t.Errorf("%d pieces left", n)
	}
	if err := p.sameTable(); err != nil {
		t.Error(err)
	}
}

func TestANewCourierGoesOnWhereTheOldOneStopped(t *testing.T) {
	p := start(t, modules.full, `{}`, 2)
	p.advance(time.Second)
	a, hash := vocabulary(t, 1, 120_000)
	whole := wire.Shards(len(a))
	p.control.name(a, hash, true)
	for p.pieces(hash) < whole/2 {
		p.advance(10 * time.Millisecond)
	}
	had := p.pieces(hash)
	// Another VM takes the lease for two seconds and is gone again.
	lease := wire.AppendCourier(nil, &wire.Courier{Slot: 99, Nonce: 12345, Epoch: 50, ExpiryUnixNanos: p.host.Now().Add(2 * time.Second).UnixNano()})
	if err := p.host.SetSharedData(vmID, wire.NewKeys("default").Courier(), lease); err != nil {
		t.Fatal(err)
	}
	p.advance(1900 * time.Millisecond)
	if now := p.pieces(hash); now > had+1 {
		t.Errorf("a former courier wrote %d pieces", now-had)
	}
	p.advance(8 * time.Second)
	if r := p.control.ready[hash]; r.VMs != 3 {
		t.Errorf("%+v", r)
	}
	if n := p.control.requests["/v1/vocabulary/"+hash]; n > whole+2 {
		t.Errorf("%d calls for %d pieces: begun anew", n, whole)
	}
}

func TestADamagedVocabularyIsFetchedAgainAndTheOldOneStays(t *testing.T) {
	p := start(t, modules.full, `{}`, 2)
	p.advance(time.Second)
	a, hashOfA := vocabulary(t, 1, 40_000)
	p.control.name(a, hashOfA, true)
	p.advance(6 * time.Second)
	b, hashOfB := vocabulary(t, 2, 40_000)
	damaged := append([]byte(nil), b...)
	damaged[wire.ShardBytes+7] ^= 0x10
	p.control.name(damaged, hashOfB, false)
	p.advance(8 * time.Second)
	if p.counter("vocabulary_loads.refused") == 0 || p.control.ready[hashOfB].VMs != 0 {
		t.Fatalf("%d refused, %+v", p.counter("vocabulary_loads.refused"), p.control.ready[hashOfB])
	}
	if p.control.ready[hashOfA].VMs != 3 {
		t.Errorf("the old one has gone: %+v", p.control.ready[hashOfA])
	}
	p.control.vocabularies[hashOfB] = b
	p.advance(2 * time.Minute)
	if r := p.control.ready[hashOfB]; r.VMs != 3 {
		t.Errorf("not loaded when it was good: %+v", r)
	}
	if n := p.counter("vocabulary_loads.refused"); n > 12 {
		t.Errorf("refused %d times", n)
	}
}

func TestAVocabularyThatControlDoesNotHaveIsAskedForSeldom(t *testing.T) {
	p := start(t, modules.full, `{}`, 1)
	p.advance(time.Second)
	a, hashOfA := vocabulary(t, 1, 20_000)
	b, hashOfB := vocabulary(t, 2, 20_000)
	p.control.name(a, hashOfA, true)
	delete(p.control.vocabularies, hashOfA)
	p.control.name(b, hashOfB, false)
	p.advance(time.Minute)
	if n := p.control.requests["/v1/vocabulary/"+hashOfA]; n < 5 || n > 40 {
		t.Errorf("%d calls in a minute", n)
	}
	if r := p.control.ready[hashOfB]; r.VMs != 2 {
		t.Errorf("another one waits for it: %+v", r)
	}
	told := 0
	for _, line := range p.logs {
		if strings.Contains(line, "doesn't hand out a vocabulary") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("told %d times: %v", told, p.logs)
	}
}

// TestAnExactSectionThatCannotBeReadCostsNothingElse: from a control service that
// is newer than this module.
func TestAnExactSectionThatCannotBeReadCostsNothingElse(t *testing.T) {
	p := start(t, modules.full, `{}`, 1)
	p.advance(time.Second)
	p.control.exact = []map[string]any{{"pool": "default", "shape": "new"}}
	p.control.pool(0)["mode"] = "observe"
	p.control.changed()
	p.advance(2 * time.Second)
	if n := p.counter("bad_data.exact"); n == 0 {
		t.Error("not counted")
	}
	x := p.send(0, post("/v1/chat/completions"), chat("m", 2000, "hello"), 0)
	if x.endpoint() != "" {
		t.Errorf("the policy beside it is not in force: sent to %q", x.endpoint())
	}
	x.Close()
	if err := p.sameTable(); err != nil {
		t.Error(err)
	}
}

func TestAVMThatIsReloadedLoadsAgainFromSharedData(t *testing.T) {
	p := start(t, modules.full, `{}`, 1)
	p.advance(time.Second)
	a, hash := vocabulary(t, 1, 40_000)
	p.control.name(a, hash, true)
	p.advance(6 * time.Second)
	calls := p.control.requests["/v1/vocabulary/"+hash]
	p.control.dead = "503"
	next, err := p.host.Deploy(t.Context(), hostsim.FleetConfig{
		VM: hostsim.VMConfig{Module: p.module, VMID: vmID}, Plugins: []hostsim.PluginConfig{p.config}, Workers: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	p.fleet.Drain()
	p.fleet = next
	p.advance(5 * time.Second)
	p.control.dead = ""
	p.advance(8 * time.Second)
	if r := p.control.ready[hash]; r.VMs != 2 {
		t.Errorf("%+v", r)
	}
	if n := p.control.requests["/v1/vocabulary/"+hash] - calls; n != 0 {
		t.Errorf("%d pieces were fetched again", n)
	}
}
