package control

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/wire"
)

var hotWorkers = []string{"10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000", "10.0.0.4:8000"}

// hotPool is a pool of four workers in exact mode, with a prefix that becomes hot.
type hotPool struct {
	*bench
	t      *testing.T
	g      *gateway
	hash   policy.Hash
	hot    fingerprint.Checkpoint
	prefix []fingerprint.Checkpoint
	seq    uint64
	log    bytes.Buffer
}

// vocabularyFor is a vocabulary and engines that have the same tokens, made outside of the bubble.
func vocabularyFor(t *testing.T) (path string, hash policy.Hash, e *engines) {
	path, hash = wpv(t, t.TempDir(), "a.wpv", "Hello", "lo")
	e = newEngines(hotWorkers...)
	e.tokenize = honest(t, path)
	return path, hash, e
}

// startHot runs a service until its pool is in exact mode, for a gateway that makes copies.
func startHot(t *testing.T, path string, hash policy.Hash, e *engines, more string) *hotPool {
	p := &hotPool{t: t, hash: hash, prefix: prompt("everybody's system prompt")}
	p.hot = p.prefix[len(p.prefix)-1]
	cfg := Config{
		Workers: specs(hotWorkers...), Logger: slog.New(slog.NewTextHandler(&p.log, nil)),
		Policy: fmt.Appendf(nil, "pools:\n- name: default\n  models: ['*']\n  tokenizer: {file: %q, template: chatml, engine: sglang}\n%s", path, more),
	}
	p.bench = start(t, e, cfg)
	<-p.s.Ready()
	p.g = p.gateway("gateway-1")
	p.g.makes = true
	p.ready(p.g)
	time.Sleep(12*time.Second + planEvery/5) // then it has learned what there is, and no plan is due at the same moment
	p.ready(p.g)
	p.g.catchUp()
	if active, _ := p.g.exactEntries(); active != hash.String() {
		t.Fatal("the pool isn't in exact mode")
	}
	return p
}

func (p *hotPool) ready(g *gateway) { g.report(p.hash, 1) }

// makesAll claims that there are n copies to make, all for the pool's gateway.
func (p *hotPool) makesAll(t *testing.T, n int) {
	t.Helper()
	if len(p.g.copies) != n {
		t.Fatalf("copies %+v", p.g.copies)
	}
	for _, c := range p.g.copies {
		if c.Maker != wire.MakerOf(p.g.name) {
			t.Errorf("%+v isn't %s's", c, p.g.name)
		}
	}
}

// play has a gateway send 40 requests a second to one worker, all with the prefix and none soon done,
// and take the table. It ends well before a plan is due.
func (p *hotPool) play(d time.Duration, g *gateway, worker string) {
	p.t.Helper()
	for range d / (500 * time.Millisecond) {
		g.catchUp()
		ref := g.refOf(worker)
		var records [][]byte
		for range 20 {
			p.seq++
			_, r := g.dispatch(ref, slices.Concat(p.prefix, []fingerprint.Checkpoint{{Fingerprint: p.seq, End: p.hot.End + 40}}))
			records = append(records, r)
		}
		g.send([]wire.InFlight{{Ref: ref, Requests: 60, UncachedTokens: 100}}, records...)
		time.Sleep(planEvery)
	}
	g.catchUp()
}

// made has a gateway tell of a copy.
func (p *hotPool) made(g *gateway, ref uint16) {
	g.counter++
	id := wire.ReportID(0, g.counter)
	record := wire.AppendDispatch(nil, &wire.Report{Chosen: ref, ID: id, PromptUnits: p.hot.End, Copy: true}, p.prefix)
	g.send([]wire.InFlight{{Ref: g.refOf(hotWorkers[0]), Requests: 60}}, record, done(id, ref, ref, func(r *wire.Report) {
		r.PromptTokens, r.CachedTokens, r.TTFTMillis = int32(p.hot.End*16), int32(p.hot.End*16-256), wire.NoTTFT
	}))
}

func (p *hotPool) status() (st api.Status) {
	p.t.Helper()
	code, body := p.do("GET", "/v1/status", nil, "")
	if code != 200 {
		p.t.Fatalf("%d %s", code, body)
	}
	decode(p.t, body, &st)
	return st
}

func (p *hotPool) metric(line string) {
	p.t.Helper()
	if _, page := p.do("GET", "/metrics", nil, ""); !strings.Contains(string(page), "\nwarmpath_control_"+line+"\n") {
		for l := range strings.SplitSeq(string(page), "\n") {
			if strings.HasPrefix(l, "warmpath_control_hot") {
				p.t.Log(l)
			}
		}
		p.t.Errorf("no metric %s", line)
	}
}

// TestAGatewayIsGivenCopiesToMakeAndTheirWorkersBecomeHomes: from dispatch reports to what gateways
// read, and from their reports of copies to homes, status and metrics.
func TestAGatewayIsGivenCopiesToMakeAndTheirWorkersBecomeHomes(t *testing.T) {
	path, hash, e := vocabularyFor(t)
	bubble(t, func(t *testing.T) {
		p := startHot(t, path, hash, e, "")
		g := p.g
		p.play(time.Second, g, hotWorkers[0])
		first := g.refOf(hotWorkers[0])
		if len(g.homes) != 1 || !slices.Equal(g.homes[p.hot.Fingerprint], []uint16{first}) || len(g.copies) != 3 {
			t.Fatalf("homes %v, copies %+v; want a home where the prefix is, and three copies", g.homes, g.copies)
		}
		for _, c := range g.copies {
			if want := (wire.Copy{Fingerprint: p.hot.Fingerprint, Units: p.hot.End, Ref: c.Ref, Maker: wire.MakerOf("gateway-1")}); c != want || c.Ref == first {
				t.Errorf("%+v, want %+v", c, want)
			}
		}
		hot := p.status().Hot
		want := []api.HotPrefix{{Pool: "default", Tokens: int(p.hot.End) * 16, Fingerprint: fmt.Sprintf("%x", p.hot.Fingerprint), Homes: hotWorkers[:1]}}
		for _, a := range hotWorkers[1:] {
			want[0].Copies = append(want[0].Copies, api.HotCopy{Worker: a, Gateway: "gateway-1"})
		}
		if len(hot) == 1 {
			slices.SortFunc(hot[0].Copies, func(a, b api.HotCopy) int { return strings.Compare(a.Worker, b.Worker) })
			want[0].Share = hot[0].Share
		}
		if diff := gocmp.Diff(want, hot); diff != "" {
			t.Error(diff)
		}
		p.metric(`hot_homes{pool="default"} 1`)
		p.metric(`hot_copies{pool="default"} 3`)
		before, hits := p.status().Counters, p.s.index.Stats()
		second := g.refOf(hotWorkers[1])
		p.made(g, second)
		after := p.status().Counters
		if got := p.s.index.Stats(); got.UsageMissing != hits.UsageMissing || after.CachedTokens != before.CachedTokens {
			t.Errorf("a copy counts as a client's request: %+v, then %+v", before, after)
		}
		time.Sleep(planEvery)
		g.catchUp()
		both := []uint16{first, second}
		slices.Sort(both)
		if !slices.Equal(g.homes[p.hot.Fingerprint], both) || len(g.copies) != 2 || !slices.Contains(g.holders(p.hot.Fingerprint), second) {
			t.Errorf("homes %v, copies %+v, holders %v after a copy was made at %d", g.homes, g.copies, g.holders(p.hot.Fingerprint), second)
		}
		// The others don't come in time: their workers are homes, and requests make the copies.
		p.play(3*time.Second, g, hotWorkers[0])
		if len(g.homes[p.hot.Fingerprint]) != 4 || len(g.copies) != 0 {
			t.Errorf("homes %v, copies %+v after three seconds", g.homes, g.copies)
		}
		for _, m := range []string{`hot_copies_total{kind="begun",pool="default"} 3`, `hot_copies_total{kind="made",pool="default"} 1`, `hot_copies_total{kind="failed",pool="default"} 2`, `hot_copies_left_alone{pool="default"} 0`} {
			p.metric(m)
		}
		time.Sleep(20 * time.Second)
		if g.catchUp(); len(g.homes) != 0 || len(g.copies) != 0 {
			t.Errorf("cooled for 20 s: %v, %+v", g.homes, g.copies)
		}
	})
}

// TestCopiesAreGivenOnlyToWhoCanMakeThem: everybody else's copies are made by requests, as ever.
func TestCopiesAreGivenOnlyToWhoCanMakeThem(t *testing.T) {
	path, hash, e := vocabularyFor(t)
	for _, c := range []struct {
		what, policy string
		change       func(p *hotPool)
	}{
		{"a module from before copies, or without the name of the workers' cluster", "", func(p *hotPool) { p.g.makes = false }},
		{"one whose VMs don't have the vocabulary", "", func(p *hotPool) { p.g.report(p.hash, 0) }},
		{"a pool without slices", "  policy: {name: cost, copy_slice_tokens: 0}\n", nil},
		{"a rule without slices", "  policy: {name: threshold}\n", nil},
		{"a pool that observes", "  mode: observe\n", nil},
		{"a fleet that is off", "", func(p *hotPool) {
			if err := p.s.SetOff(true); err != nil {
				p.t.Fatal(err)
			}
		}},
	} {
		bubble(t, func(t *testing.T) {
			p := startHot(t, path, hash, e, c.policy)
			if c.change != nil {
				c.change(p)
			}
			for range 6 {
				p.play(500*time.Millisecond, p.g, hotWorkers[0])
				if len(p.g.copies) != 0 {
					t.Fatalf("%s: copies %+v", c.what, p.g.copies)
				}
			}
			if len(p.g.homes[p.hot.Fingerprint]) != 4 {
				t.Errorf("%s: homes %v, want all four", c.what, p.g.homes)
			}
			if p.metric(`hot_copies_total{kind="begun",pool="default"} 0`); strings.Contains(p.log.String(), "left to requests") {
				t.Errorf("%s: %s", c.what, p.log.String())
			}
		})
	}
}

// TestTheBusyGatewayMakesTheCopies: one without requests of the pool knows the tokens of none.
func TestTheBusyGatewayMakesTheCopies(t *testing.T) {
	path, hash, e := vocabularyFor(t)
	bubble(t, func(t *testing.T) {
		p := startHot(t, path, hash, e, "")
		quiet := p.gateway("quiet")
		quiet.makes = true
		quiet.catchUp()
		p.ready(quiet)
		p.play(500*time.Millisecond, p.g, hotWorkers[0])
		p.makesAll(t, 3)
		// When it falls silent the other one, which gets its requests, takes over.
		p.play(2500*time.Millisecond, quiet, hotWorkers[0])
		for _, c := range quiet.copies {
			if c.Maker != wire.MakerOf(quiet.name) {
				t.Errorf("%+v isn't %s's", c, quiet.name)
			}
		}
		if len(quiet.copies) != 3 {
			t.Errorf("copies %+v", quiet.copies)
		}
	})
}

// TestTheGatewayThatHasTheClientsMakesTheCopies: others never get a request that begins with the prefix.
func TestTheGatewayThatHasTheClientsMakesTheCopies(t *testing.T) {
	path, hash, e := vocabularyFor(t)
	bubble(t, func(t *testing.T) {
		p := startHot(t, path, hash, e, "")
		var others []*gateway
		for i := range 4 {
			other := p.gateway(fmt.Sprintf("other-%d", i))
			other.makes = true
			other.catchUp()
			p.ready(other)
			others = append(others, other)
		}
		for range 3 {
			for _, other := range others {
				_, r := other.dispatch(other.refOf(hotWorkers[1]), prompt(other.name))
				other.send(nil, r)
			}
			p.play(500*time.Millisecond, p.g, hotWorkers[0])
		}
		p.makesAll(t, 3)
	})
}

// TestCopiesThatNeverComeAreToldOnce: the log says what to look at.
func TestCopiesThatNeverComeAreToldOnce(t *testing.T) {
	path, hash, e := vocabularyFor(t)
	bubble(t, func(t *testing.T) {
		p := startHot(t, path, hash, e, "")
		other := prompt("another one's system prompt")
		for range 2 { // two prefixes, three copies each
			p.play(6*time.Second, p.g, hotWorkers[0])
			p.prefix, p.hot = other, other[len(other)-1]
			time.Sleep(10 * time.Second)
			p.ready(p.g)
		}
		p.metric(`hot_copies_left_alone{pool="default"} 1`)
		p.metric(`hot_copies_total{kind="failed",pool="default"} 4`)
		if text := p.log.String(); strings.Count(text, "left to requests") != 1 || !strings.Contains(text, "worker_cluster") {
			t.Errorf("the log says %s", text)
		}
	})
}

// TestReplicasPublishTheLeadersPlan: a gateway reads at any replica what it is to make, and a leader
// that goes leaves its plan to the next.
func TestReplicasPublishTheLeadersPlan(t *testing.T) {
	path, hash, e := vocabularyFor(t)
	bubble(t, func(t *testing.T) {
		r := startReplicas(t, 3, e, Config{Workers: specs(hotWorkers...), Policy: policyWith(path, "")})
		r.led()
		leader := r.leader()
		p := &hotPool{t: t, hash: hash, bench: leader.bench, prefix: prompt("everybody's system prompt")}
		p.hot = p.prefix[len(p.prefix)-1]
		p.g = p.gateway("gateway-1")
		p.g.makes = true
		p.ready(p.g)
		time.Sleep(12 * time.Second)
		p.ready(p.g)
		p.play(time.Second, p.g, hotWorkers[0])
		if len(p.g.copies) != 3 || len(p.g.homes) != 1 {
			t.Fatalf("the leader's table: homes %v, copies %+v", p.g.homes, p.g.copies)
		}
		same := func(b *replicaBench, homes map[uint64][]uint16, copies []wire.Copy) {
			t.Helper()
			there := b.gateway("elsewhere")
			there.catchUp()
			if diff := gocmp.Diff(homes, there.homes); diff != "" {
				t.Errorf("homes at another replica: %s", diff)
			}
			if diff := gocmp.Diff(copies, there.copies); diff != "" {
				t.Errorf("copies at another replica: %s", diff)
			}
		}
		var others []*replicaBench
		for _, b := range r.all {
			if b != leader {
				others = append(others, b)
				same(b, p.g.homes, p.g.copies)
				if hot := b.s.Status().Hot; len(hot) != 1 || len(hot[0].Homes) != 1 || len(hot[0].Copies) != 3 {
					t.Errorf("status at another replica: %+v", hot)
				}
			}
		}
		homes := p.g.homes
		leader.stop()
		time.Sleep(300 * time.Millisecond)
		same(others[0], homes, p.g.copies) // for a moment it counts
		// Nobody tells the others of requests in this test, so the next leader sees none and the prefix
		// cools with it.
		r.led()
		time.Sleep(10 * time.Second)
		for _, b := range others {
			same(b, map[uint64][]uint16{}, nil)
		}
	})
}

// TestWithoutALeadersWordReplicasPlanTheirOwn: as all did before leaders told, and copies are left to
// requests then.
func TestWithoutALeadersWordReplicasPlanTheirOwn(t *testing.T) {
	path, hash, e := vocabularyFor(t)
	bubble(t, func(t *testing.T) {
		r := startReplicas(t, 3, e, Config{Workers: specs(hotWorkers...), Policy: policyWith(path, "")})
		r.led()
		leader := r.leader()
		i := slices.IndexFunc(r.all, func(b *replicaBench) bool { return b != leader })
		p := &hotPool{t: t, hash: hash, bench: r.all[i].bench, prefix: prompt("everybody's system prompt")}
		p.hot = p.prefix[len(p.prefix)-1]
		p.g = p.gateway("gateway-1")
		p.g.makes = true
		p.ready(p.g)
		time.Sleep(12 * time.Second)
		p.ready(p.g)
		p.play(time.Second, p.g, hotWorkers[0])
		if len(p.g.homes) != 0 {
			t.Errorf("homes %v, and the leader has heard of no request", p.g.homes)
		}
		r.all[i].node.SetCut(true)
		p.play(4*time.Second, p.g, hotWorkers[0])
		if len(p.g.homes[p.hot.Fingerprint]) != 4 || len(p.g.copies) != 0 {
			t.Errorf("homes %v, copies %+v four seconds after it was cut off; want all, and no copies", p.g.homes, p.g.copies)
		}
		r.all[i].node.SetCut(false)
		time.Sleep(5 * time.Second)
		if p.g.catchUp(); len(p.g.homes) != 0 {
			t.Errorf("homes %v when the leader is heard again", p.g.homes)
		}
	})
}
