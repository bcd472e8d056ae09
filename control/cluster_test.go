package control

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/control/cluster"
	"github.com/warmpath/warmpath/control/cluster/clustertest"
	"github.com/warmpath/warmpath/shared/quota"
)

// replicas are services that act as one over a network of the test's.
type replicas struct {
	t       *testing.T
	net     *clustertest.Net
	engines *engines
	cfg     Config
	all     []*replicaBench
}

type replicaBench struct {
	*bench
	node *clustertest.Node
}

func startReplicas(t *testing.T, n int, e *engines, cfg Config) *replicas {
	t.Helper()
	r := &replicas{t: t, net: clustertest.NewNet(), engines: e, cfg: cfg}
	for range n {
		r.add("")
	}
	for _, b := range r.all {
		<-b.s.Ready()
	}
	return r
}

func (r *replicas) add(stateFile string) *replicaBench {
	cfg := r.cfg
	node := r.net.Join(func() clustertest.Fault { return clustertest.Fault{There: time.Millisecond, Back: time.Millisecond} })
	cfg.NATS, cfg.transport, cfg.StateFile = &cluster.Config{Name: fmt.Sprintf("control-%d", len(r.all))}, node, stateFile
	b := &replicaBench{start(r.t, r.engines, cfg), node}
	r.all = append(r.all, b)
	return b
}

// leader is the replica that leads, nil for none. More than one is a fault.
func (r *replicas) leader() *replicaBench {
	r.t.Helper()
	var out *replicaBench
	for _, b := range r.all {
		if !b.ended && b.s.cluster.Leads() {
			if out != nil {
				r.t.Fatal("two leaders")
			}
			out = b
		}
	}
	return out
}

// settle waits until somebody leads and has the ledger.
func (r *replicas) settle() *replicaBench {
	r.t.Helper()
	for range 200 {
		if b := r.leader(); b != nil && b.s.admission.Enabled() {
			time.Sleep(500 * time.Millisecond)
			synctest.Wait()
			return b
		}
		time.Sleep(50 * time.Millisecond)
	}
	r.t.Fatal("nobody leads within 10 s")
	return nil
}

func (r *replicas) put(b *replicaBench, path, body string) (int, []byte) {
	kind := "application/yaml"
	if strings.HasPrefix(body, "{") {
		kind = "application/json"
	}
	return b.do(http.MethodPut, path, []byte(body), kind)
}

func TestWhatIsSwitchedAtOneReplicaIsInForceAtAll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := startReplicas(t, 3, newEngines(alpha), Config{Workers: specs(alpha)})
		same := func(what string) {
			t.Helper()
			time.Sleep(200 * time.Millisecond)
			for _, b := range r.all[1:] {
				if diff := gocmp.Diff(string(r.all[0].s.Policy()), string(b.s.Policy())); diff != "" {
					t.Errorf("%s: %s", what, diff)
				}
			}
		}
		if code, answer := r.put(r.all[1], "/v1/policy", quotaPolicy); code != http.StatusOK {
			t.Fatalf("%d %s", code, answer)
		}
		same("a policy")
		if !strings.Contains(string(r.all[2].s.Policy()), "acme") {
			t.Error("not the policy that was put")
		}
		if code, answer := r.all[2].do(http.MethodPost, "/v1/mode", []byte(`{"off":true}`), "application/json"); code != http.StatusOK {
			t.Fatalf("%d %s", code, answer)
		}
		same("off")
		if !r.all[0].s.table.Stats().Off {
			t.Error("not off at another replica")
		}
		if err := r.all[0].s.SetMode("default", "observe"); err != nil {
			t.Fatal(err)
		}
		same("a mode")
		if code, answer := r.put(r.all[0], "/v1/quota", `{"tenants": {"acme": {"concurrency": 7}, "new": {"concurrency": 1}}}`); code != http.StatusOK {
			t.Fatalf("%d %s", code, answer)
		}
		same("quotas")
		for _, b := range r.all {
			if n := b.s.quota.numbers; n["acme"] != r.all[0].s.quota.numbers["acme"] || n["new"] == 0 || n["new"] != r.all[0].s.quota.numbers["new"] {
				t.Errorf("numbers of tenants: %v and %v", n, r.all[0].s.quota.numbers)
			}
		}
		// One that comes later has all of it.
		late := r.add("")
		<-late.s.Ready()
		same("one that came later")
		if code, answer := r.put(r.all[1], "/v1/policy", `{"pools": [{"name": "default", "polcy": {}}]}`); code != http.StatusBadRequest {
			t.Errorf("%d %s for a bad policy", code, answer)
		}
		// Without a majority nothing changes, except off, which says what it did.
		r.net.SetDown(true)
		if code, answer := r.put(r.all[1], "/v1/policy", quotaPolicy); code != http.StatusServiceUnavailable || !strings.Contains(string(answer), "no_majority") {
			t.Errorf("%d %s without a majority", code, answer)
		}
		if err := r.all[1].s.SetOff(false); err == nil || r.all[1].s.table.Stats().Off || !r.all[0].s.table.Stats().Off {
			t.Errorf("%v: off without a majority", err)
		}
	})
}

func TestAWorkerHasOneReferenceAtAllReplicas(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := newEngines(alpha, beta)
		r := startReplicas(t, 3, e, Config{Workers: specs(alpha, beta)})
		check := func() {
			t.Helper()
			time.Sleep(3 * time.Second)
			want := map[string]uint16{}
			for i, b := range r.all {
				for _, w := range b.s.fleet.Workers() {
					switch {
					case i == 0:
						want[w.Address] = w.Ref
					case want[w.Address] != w.Ref:
						t.Errorf("%s is %d at replica %d and %d at the first", w.Address, w.Ref, i, want[w.Address])
					}
					if w.Ref == 0 || w.Generation != e.generation(w.Address) {
						t.Errorf("%s at replica %d: reference %d, generation %d", w.Address, i, w.Ref, w.Generation)
					}
				}
			}
		}
		check()
		before := r.all[0].s.fleet.Refs()
		e.set(alpha, 5000) // it starts again
		check()
		after := r.all[2].s.fleet.Refs()
		if len(after) != len(before)+1 {
			t.Errorf("references %v after %v: the one of the process before must rest", after, before)
		}
		// While the replicas can't agree, a new process has no reference anywhere.
		r.net.SetDown(true)
		e.set(beta, 6000)
		time.Sleep(5 * time.Second)
		for i, b := range r.all {
			for _, w := range b.s.fleet.Workers() {
				if w.Address == beta && w.Ref != 0 {
					t.Errorf("reference %d at replica %d", w.Ref, i)
				}
			}
		}
		r.net.SetDown(false)
		check()
	})
}

func TestAStateFileOfOneAloneGoesOverToTheReplicas(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	var refs, numbers string
	bubble(t, func(t *testing.T) {
		b := start(t, newEngines(alpha, beta), Config{Workers: specs(alpha, beta), Policy: []byte(quotaPolicy), StateFile: file})
		<-b.s.Ready()
		g := &renewer{b: b, name: "gw", nonce: 7}
		renewAll(g)
		refs, numbers = fmt.Sprint(b.s.fleet.Refs()), fmt.Sprint(b.s.quota.numbers)
		b.stop()
	})
	bubble(t, func(t *testing.T) {
		r := &replicas{t: t, net: clustertest.NewNet(), engines: newEngines(alpha, beta), cfg: Config{Workers: specs(alpha, beta), Policy: []byte(quotaPolicy)}}
		first := r.add(file)
		<-first.s.Ready()
		r.settle()
		if got := fmt.Sprint(first.s.fleet.Refs()); got != refs {
			t.Errorf("references %s, were %s", got, refs)
		}
		if got := fmt.Sprint(first.s.quota.numbers); got != numbers {
			t.Errorf("tenants' numbers %s, were %s", got, numbers)
		}
		st, _ := first.s.admission.Status(time.Now())
		if len(st.Gateways) != 1 || !st.Learning {
			t.Errorf("%d gateways, learning %v: the one of before must be waited for", len(st.Gateways), st.Learning)
		}
	})
}

// handover is a fleet of gateways at replicas that come and go.
type handover struct {
	*replicas
	random   *rand.Rand
	gateways []*renewer
	nonce    uint64 // given last
	most     uint32 // in use together
	limit    uint32
}

func (h *handover) inUse() (sum uint32) {
	for _, g := range h.gateways {
		sum += g.inUse
	}
	return sum
}

// step is what happens within 50 ms.
func (h *handover) step() {
	now := time.Now().UnixNano()
	for _, g := range h.gateways {
		if h.random.IntN(4) == 0 && g.inUse > 0 {
			g.inUse -= uint32(h.random.IntN(int(g.inUse)/2 + 1))
		}
		grant, ok := g.lease.Pool(0, now)
		for ok && h.random.IntN(4) > 0 && grant.MaySlot(&quota.Use{Class: [3]quota.Part{{Slots: g.inUse}}}, 0) {
			g.inUse++
		}
		if h.random.IntN(400) == 0 {
			// It starts again, as another process: its streams end with it.
			h.nonce++
			*g = renewer{b: g.b, name: g.name, nonce: h.nonce}
		}
		if h.random.IntN(5) == 0 {
			if b := h.all[h.random.IntN(len(h.all))]; !b.ended {
				g.b = b.bench
				g.renew()
			}
		}
	}
	sum := h.inUse()
	h.most = max(h.most, sum)
	if sum > h.limit {
		h.t.Fatalf("%d in use, the limit is %d", sum, h.limit)
	}
	time.Sleep(50 * time.Millisecond)
}

// TestTheLimitHoldsWhoeverLeads: leaders are cut off while they lead, and go on to answer the
// gateways that reach them; replicas die and come back; the store has no majority for a while.
func TestTheLimitHoldsWhoeverLeads(t *testing.T) {
	policy := `
pools: [{name: default, models: ["*"], mode: enforce}]
admission: {pools: {default: {slots: 100}}, max_partition_ms: 5000}
`
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h := &handover{
					replicas: startReplicas(t, 3, newEngines(alpha), Config{Workers: specs(alpha), Policy: []byte(policy)}),
					random:   rand.New(rand.NewPCG(seed, 1)), limit: 100, nonce: 1000,
				}
				h.settle()
				for i := range 5 {
					h.gateways = append(h.gateways, &renewer{b: h.all[i%3].bench, name: fmt.Sprintf("gw-%d", i), nonce: uint64(100 + i)})
				}
				terms, leaders := map[uint64]bool{}, map[string]bool{}
				for range 10 {
					for range h.random.IntN(120) + 40 {
						h.step()
					}
					if b := h.leader(); b != nil {
						_, term, _ := b.s.cluster.Leader()
						terms[term], leaders[b.s.cluster.Self().Name] = true, true
						b.node.SetCut(true)
						for range h.random.IntN(120) {
							h.step()
						}
						b.node.SetCut(false)
					}
					if h.random.IntN(3) == 0 {
						h.net.SetDown(true)
						for range h.random.IntN(100) {
							h.step()
						}
						h.net.SetDown(false)
					}
				}
				for range 300 {
					h.step()
				}
				if len(terms) < 3 || len(leaders) < 2 || h.most < 60 {
					t.Errorf("%d terms of %d leaders, at most %d in use: nothing was handed over, or nothing granted", len(terms), len(leaders), h.most)
				}
			})
		})
	}
}

// TestGatewaysThatComeTogetherAllGetALease: between the report with which a gateway
// asks to be remembered and its next one, others ask, too.
func TestGatewaysThatComeTogetherAllGetALease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := startReplicas(t, 3, newEngines(alpha), Config{Workers: specs(alpha), Policy: []byte(quotaPolicy)})
		r.settle()
		var gateways []*renewer
		for i := range 8 {
			gateways = append(gateways, &renewer{b: r.all[i%3].bench, name: fmt.Sprintf("gw-%d", i), nonce: uint64(100 + i)})
		}
		for range 20 { // half a second each, one gateway after the other
			for _, g := range gateways {
				g.renew()
				time.Sleep(500 * time.Millisecond / 8)
			}
		}
		for _, g := range gateways {
			if _, ok := g.lease.Pool(0, time.Now().UnixNano()); !ok {
				t.Errorf("%s has no lease after 10 s", g.name)
			}
		}
	})
}

func TestAFollowerShowsTheLeadersQuotas(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := startReplicas(t, 3, newEngines(alpha), Config{Workers: specs(alpha), Policy: []byte(quotaPolicy)})
		leader := r.settle()
		var follower *replicaBench
		for _, b := range r.all {
			if b != leader {
				follower = b
			}
		}
		renewAll(&renewer{b: follower.bench, name: "gw", nonce: 7})
		show := func() (q api.Quota) {
			t.Helper()
			code, answer := follower.do(http.MethodGet, "/v1/quota", nil, "")
			if code != http.StatusOK {
				t.Fatalf("%d %s", code, answer)
			}
			if err := json.Unmarshal(answer, &q); err != nil {
				t.Fatal(err)
			}
			return q
		}
		if q := show(); !q.Enabled || len(q.Gateways) != 1 || q.Gateways[0].Pools[0].Granted == 0 || q.Problem != "" {
			t.Errorf("%+v", q)
		}
		leader.node.SetCut(true)
		if q := show(); !q.Enabled || q.Problem == "" {
			t.Errorf("%+v without a leader", q)
		}
	})
}
