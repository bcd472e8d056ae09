package control

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/shared/fingerprint"
)

var beatSequence int

// beat sends a heartbeat of alpha with further fields.
func (b *bench) beat(fields string) api.HeartbeatAnswer {
	b.t.Helper()
	beatSequence++
	status, body := b.do("POST", "/v1/heartbeat", fmt.Appendf(nil, `{"worker":%q,"sequence":%d%s}`, alpha, beatSequence, fields), "application/json")
	if status != http.StatusOK {
		b.t.Fatalf("%d %s", status, body)
	}
	var a api.HeartbeatAnswer
	decode(b.t, body, &a)
	return a
}

// paths is the JSON of paths.
func pathsJSON(paths ...[]fingerprint.Checkpoint) string {
	var b strings.Builder
	for i, path := range paths {
		b.WriteString([]string{"[", ",["}[min(i, 1)])
		for j, c := range path {
			if j > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"fingerprint":"%016x","units":%d}`, c.Fingerprint, c.End)
		}
		b.WriteByte(']')
	}
	return "[" + b.String() + "]"
}

// follow makes a worker one whose events are followed, until the service looks
// again and nobody wants that.
func (b *bench) follow(ref uint16) *feed {
	ended := make(chan struct{})
	close(ended)
	f := &feed{key: feedKey{address: "another"}, cancel: func() {}, done: ended}
	b.s.feeds.mu.Lock()
	defer b.s.feeds.mu.Unlock()
	b.s.feeds.byRef[ref] = f
	return f
}

func TestWhatAHeartbeatTellsReachesGateways(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := start(t, newEngines(alpha), Config{Workers: []discovery.Spec{{Address: alpha}}, Health: discovery.HealthConfig{MetricsPath: "-"}})
		<-b.s.Ready()
		g := b.gateway("g")
		path := prompt("system", "user")
		a := b.beat(`,"load":{"running":7,"waiting":2,"kv_share":0.5,"age_ms":100},"engine":{"max_running":8,"queue_limit":16,"capacity_tokens":50000,"block_tokens":32},
			"cache":{"paths":` + pathsJSON(path) + `},"eviction":{"in_ms":1000,"for_ms":2000,"share":0.6,"reason":"a test"}`)
		if !a.Applied || a.Cache != "applied" || a.WantComplete {
			t.Errorf("%+v", a)
		}
		settle()
		g.catchUp()
		ref := g.refOf(alpha)
		if l := g.loads[ref]; l.Running != 7 || l.Waiting != 2 || l.KVShare != 0.5 || l.EvictShare != 0.6 || l.EvictMillis < 2800 || l.EvictMillis > 3000 || l.AgeMillis < 100 {
			t.Errorf("%+v", l)
		}
		if w := g.roster[ref]; w.MaxRunning != 8 || w.QueueLimit != 16 || w.BlockTokens != 32 {
			t.Errorf("%+v", w)
		}
		for _, c := range path {
			if !slices.Equal(g.holders(c.Fingerprint), []uint16{ref}) {
				t.Errorf("unit %d: %v", c.End, g.holders(c.Fingerprint))
			}
		}
		w := b.worker(alpha)
		if w.Truth != "predictions" || w.Heartbeats == nil || w.Heartbeats.Count != 1 || w.Capacity != 50000 || w.EvictShare != 0.6 ||
			len(w.Degraded) != 1 || !strings.Contains(w.Degraded[0], "60 % of its cache goes") {
			t.Errorf("%+v", w)
		}
		_, page := b.do("GET", "/metrics", nil, "")
		for _, line := range []string{
			`warmpath_control_heartbeats_total{kind="taken"} 1`,
			`warmpath_control_worker_truth{truth="predictions",worker="` + alpha + `"} 1`,
			`warmpath_control_worker_evicting_share{worker="` + alpha + `"} 0.6`,
			`warmpath_control_worker_degraded{worker="` + alpha + `"} 1`,
			`warmpath_control_worker_heartbeat_age_seconds{worker="` + alpha + `"} 0.15`,
		} {
			if !strings.Contains(string(page), line) {
				t.Errorf("the metrics lack %s", line)
			}
		}
		b.beat(fmt.Sprintf(`,"cache":{"removed":["%016x"]},"eviction":{"for_ms":0}`, path[1].Fingerprint))
		settle()
		g.catchUp()
		if l := g.loads[ref]; l.EvictShare != 0 || l.EvictMillis != 0 {
			t.Errorf("taken back: %+v", l)
		}
		if len(g.holders(path[0].Fingerprint)) != 1 || len(g.holders(path[1].Fingerprint)) != 0 || len(g.holders(path[len(path)-1].Fingerprint)) != 0 {
			t.Error("what is removed goes with all beyond, and nothing else")
		}
		b.beat(`,"cache":{"cleared":true}`)
		settle()
		g.catchUp()
		if len(g.entries) != 0 {
			t.Errorf("%d entries of a cleared cache", len(g.entries))
		}
		time.Sleep(10 * time.Second)
		if w := b.worker(alpha); !slices.ContainsFunc(w.Degraded, func(s string) bool { return strings.HasPrefix(s, "no heartbeat for 10 s") }) ||
			!slices.ContainsFunc(w.Degraded, func(s string) bool { return strings.HasPrefix(s, "load is 1") }) {
			t.Errorf("%q", w.Degraded)
		}
	})
}

func TestACompleteListIsTheTruthWhileItIsRenewed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := start(t, newEngines(alpha), Config{Workers: specs(alpha)})
		<-b.s.Ready()
		g := b.gateway("g")
		one, two := prompt("one"), prompt("two")
		g.catchUp()
		_, predicted := g.dispatch(g.refOf(alpha), prompt("three"))
		g.send(nil, predicted)
		b.beat(`,"cache":{"complete":true,"paths":` + pathsJSON(one, two) + `}`)
		b.beat(`,"cache":{"complete":true,"paths":` + pathsJSON(two) + `}`)
		held := func(path []fingerprint.Checkpoint) bool {
			settle()
			g.catchUp()
			return len(g.holders(path[0].Fingerprint)) == 1
		}
		if held(one) || !held(two) || !held(prompt("three")) {
			t.Errorf("one %v, two %v, three on its way %v", held(one), held(two), held(prompt("three")))
		}
		if w := b.worker(alpha); w.Truth != "heartbeats" {
			t.Errorf("%+v", w)
		}
		for range 15 { // renewed for longer than a prediction may lack its proof
			time.Sleep(10 * time.Second)
			b.beat(`,"cache":{"complete":true,"paths":` + pathsJSON(two) + `}`)
		}
		if !held(two) || held(prompt("three")) {
			t.Error("three was never told, two was")
		}
		time.Sleep(completeFor + 2*time.Second)
		if w := b.worker(alpha); w.Truth != "predictions" || !held(two) {
			t.Errorf("what was told last stays as a belief: %+v", w)
		}
		if a := b.beat(""); !a.WantComplete {
			t.Errorf("%+v", a)
		}
	})
}

func TestAnotherProcessTellsAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := newEngines(alpha)
		b := start(t, e, Config{Workers: specs(alpha)})
		<-b.s.Ready()
		g := b.gateway("g")
		old := e.startedAt(alpha) * 1000
		b.beat(fmt.Sprintf(`,"started_ms":%d,"cache":{"complete":true,"paths":%s}`, old, pathsJSON(prompt("one"))))
		e.set(alpha, 5000)
		a := b.beat(`,"started_ms":5000000`)
		settle()
		g.catchUp()
		if !a.Applied || !a.WantComplete || len(g.entries) != 0 {
			t.Errorf("%+v, %d entries", a, len(g.entries))
		}
		status, body := b.do("POST", "/v1/heartbeat", fmt.Appendf(nil, `{"worker":%q,"sequence":1000000,"started_ms":%d,"cache":{"paths":%s}}`, alpha, old, pathsJSON(prompt("one"))), "application/json")
		if status != http.StatusConflict || !strings.Contains(string(body), "old_generation") {
			t.Errorf("%d %s", status, body)
		}
		settle()
		g.catchUp()
		if len(g.entries) != 0 {
			t.Error("what names an old generation was taken")
		}
		if c := b.s.Status().Counters; c.Heartbeats != 2 || c.BeatsOld != 1 {
			t.Errorf("%+v", c)
		}
	})
}

func TestTokenListsCountInExactPoolsOnly(t *testing.T) {
	path, hash := wpv(t, t.TempDir(), "a.wpv", "Hello", "lo")
	bubble(t, func(t *testing.T) {
		doc := fmt.Appendf(nil, "pools:\n- {name: default, models: [tiny], tokenizer: {file: %q, template: chatml, engine: sglang, parity: off}}\n", path)
		b, g := serving(t, newEngines(alpha), Config{Workers: specs(alpha), Learn: -1, Policy: doc})
		// A turn ends with token 70, in the fifth unit; the list with a block begun.
		tokens := make([]uint32, 170)
		for i := range tokens {
			tokens[i] = uint32(i)
		}
		tokens[69] = 9001 // <|im_end|>
		list := strings.ReplaceAll(fmt.Sprint(tokens), " ", ",")
		tell := func(more string) api.HeartbeatAnswer {
			return b.beat(`,"cache":{"complete":true,"prefixes":[{` + more + `"cache_salt":"s","tokens":` + list + `}]}`)
		}
		if a := tell(""); a.Cache != "ignored" || !strings.Contains(a.Reason, "not in exact mode") || !a.WantComplete {
			t.Errorf("%+v", a)
		}
		if w := b.worker(alpha); w.Truth != "predictions" || !slices.ContainsFunc(w.Degraded, func(s string) bool { return strings.Contains(s, "not in exact mode") }) {
			t.Errorf("%q", w.Degraded)
		}
		g.report(hash, 1)
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		if a := tell(""); a.Cache != "applied" || a.Reason != "" {
			t.Fatalf("%+v", a)
		}
		var chain fingerprint.Chain
		chain.Reset(fingerprint.Salt("default", "", 0, "s", fingerprint.Exact))
		chain.WriteTokens(tokens[:70])
		chain.TurnEnd()
		chain.WriteTokens(tokens[70:160])
		settle()
		g.catchUp()
		want := chain.Finish()
		for _, c := range want {
			if len(g.holders(c.Fingerprint)) != 1 {
				t.Errorf("unit %d isn't in the table", c.End)
			}
		}
		if len(g.entries) != len(want) {
			t.Errorf("%d entries, want %d", len(g.entries), len(want))
		}
		// What is followed by its events needs no other word.
		b.follow(g.refOf(alpha))
		if a := b.beat(`,"cache":{"cleared":true}`); a.Cache != "ignored" || !strings.Contains(a.Reason, "KV events are followed") {
			t.Errorf("%+v", a)
		}
		time.Sleep(time.Second) // nobody wants that feed
		settle()
		g.catchUp()
		if len(g.entries) != len(want) {
			t.Errorf("%d entries after what was ignored", len(g.entries))
		}
		b.beat(`,"cache":{"complete":true,"paths":` + pathsJSON(want) + `}`)
		tell(`"model":"an-adapter",`)
		settle()
		g.catchUp()
		if len(g.entries) != len(want) || len(g.holders(want[0].Fingerprint)) != 0 {
			t.Error("an adapter's prefix is another one")
		}
		if c := b.s.Status().Counters; c.BeatCachesIgnored != 2 || c.Heartbeats != 5 {
			t.Errorf("%+v", c)
		}
	})
}

func TestABeatBeforeTheFirstProbeTellsItsLoadAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := newEngines(alpha)
		e.hang(alpha)
		b := start(t, e, Config{Workers: specs(alpha)})
		synctest.Wait()
		a := b.beat(`,"load":{"running":2},"cache":{"paths":` + pathsJSON(prompt("one")) + `}`)
		if !a.Applied || a.Cache != "ignored" || !strings.Contains(a.Reason, "not probed yet") || !a.WantComplete {
			t.Errorf("%+v", a)
		}
		<-b.s.Ready()
		if w := b.worker(alpha); w.Running != 2 || w.Entries != 0 {
			t.Errorf("%+v", w)
		}
	})
}

// Metrics that break make no worker silent: it answers, and counts as loaded as
// the others.
func TestAWorkerWhoseMetricsBreakIsNotSilent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := start(t, newEngines(alpha), Config{Workers: specs(alpha), Health: discovery.HealthConfig{MetricsPath: "-"}})
		<-b.s.Ready()
		g := b.gateway("g")
		b.beat(`,"load":{"running":1}`)
		time.Sleep(2 * time.Minute)
		g.catchUp()
		if l := g.loads[g.refOf(alpha)]; l.State != 1 || l.AgeMillis < 5000 || l.AgeMillis > 25_000 {
			t.Errorf("%+v", l)
		}
		if w := b.worker(alpha); w.LoadAge < 119 {
			t.Errorf("%+v", w)
		}
	})
}

// A worker that slept, or was down for long, holds nothing any more: its feed
// has to tell the new model from the start, not the changes only.
func TestAFeedBeginsAnewWithItsWorkersModel(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, g := serving(t, newEngines(alpha), Config{Workers: specs(alpha)})
		asleep := func(on bool) bool {
			f := b.follow(g.refOf(alpha))
			b.s.fleet.Observe(alpha, discovery.Observation{OK: true, Load: &discovery.Load{Known: true, Asleep: on}}, time.Now())
			return f.stale
		}
		if asleep(false) || !asleep(true) || asleep(true) || asleep(false) {
			t.Error("a feed begins anew when its worker falls asleep, and only then")
		}
	})
}
