package control

import (
	"bytes"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/quota"
	"github.com/warmpath/warmpath/shared/wire"
)

const quotaPolicy = `
pools:
  - {name: default, models: ["*"], mode: enforce}
  - {name: other, models: [x], mode: observe}
admission:
  classes: {p0: {share: 0.6}}
  tenants:
    acme: {concurrency: 3}
    zeta: {requests_per_minute: 60}
`

// renewer is a gateway's courier as far as admission goes.
type renewer struct {
	b        *bench
	name     string
	nonce    uint64
	sequence uint64
	lease    quota.Lease
	inUse    uint32
}

// renew sends a batch with the gateway's usage and installs the leases of the ack. It reports
// whether there were any.
func (r *renewer) renew() bool {
	r.b.t.Helper()
	now := time.Now().UnixNano()
	r.sequence++
	usage := wire.AppendUsage(nil, &wire.Usage{Nonce: r.nonce, Sequence: r.sequence, Term: r.lease.Term, Lease: r.lease.Sequence, Tenants: r.lease.Tenants})
	usage = wire.AppendUsed(usage, &wire.Used{Tenant: wire.WholeClass, Class: wire.AnyClass, InUse: r.inUse, Slots: r.lease.Held(0, now)})
	usage = wire.AppendUsed(usage, &wire.Used{Tenant: wire.WholeClass, Class: 0, InUse: r.inUse})
	frame := wire.AppendHeader(nil, &wire.Header{Kind: wire.Batch})
	frame = wire.AppendSection(frame, wire.SectionGateway, wire.AppendGateway(nil, &wire.Gateway{Nonce: r.nonce, LiveRows: 1, Name: r.name}))
	frame = wire.AppendSection(frame, wire.SectionUsage, usage)
	code, ack := r.b.do("POST", "/v1/batch", frame, "application/octet-stream")
	if code != http.StatusOK {
		r.b.t.Fatalf("batch: %d %s", code, ack)
	}
	installed := false
	err := wire.ForEachSection(ack, func(s wire.Section) error {
		if s.Type != wire.SectionLeases {
			return nil
		}
		var err error
		installed, err = r.lease.Install(s.Payload, r.nonce, r.sequence, now)
		return err
	})
	if err != nil {
		r.b.t.Fatal(err)
	}
	return installed
}

func (r *renewer) slots() uint32 { return r.lease.Held(0, time.Now().UnixNano()) }

// renewAll renews gateways until a fresh ledger has stopped learning.
func renewAll(gateways ...*renewer) {
	for range 16 {
		for _, g := range gateways {
			g.renew()
		}
		time.Sleep(250 * time.Millisecond)
	}
}

func TestGatewaysGetTheSettingsBesideAPolicyThatOldOnesCanRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := start(t, newEngines(alpha), Config{Workers: specs(alpha), Policy: []byte(quotaPolicy)})
		<-b.s.Ready()
		frame, ok := b.s.Table().Update(0, 0, wire.Version, time.Now())
		if !ok {
			t.Fatal("no frame")
		}
		sections := map[wire.SectionType][]byte{}
		if err := wire.ForEachSection(frame, func(s wire.Section) error { sections[s.Type] = s.Payload; return nil }); err != nil {
			t.Fatal(err)
		}
		set, err := policy.Parse(sections[wire.SectionPolicy])
		if err != nil || set.Pools[0].Mode != policy.Route || set.Pools[1].Mode != policy.Observe {
			t.Errorf("%v: %s", err, sections[wire.SectionPolicy])
		}
		a, err := policy.ParseAdmission(sections[wire.SectionAdmission])
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"default"}, a.Enforce); diff != "" || a.Classes[0].Share != 0.6 {
			t.Errorf("%s %+v", diff, a.Classes)
		}
		// What is shown can be written back, and changes nothing.
		before := b.s.Policy()
		if err := b.s.SetPolicy(before); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(before), string(b.s.Policy())); diff != "" || !strings.Contains(string(before), `"mode":"enforce"`) {
			t.Error(diff, string(before))
		}
	})
}

func TestTenantsKeepTheirNumbersOverEditsAndRestarts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	bubble(t, func(t *testing.T) {
		cfg := Config{Workers: specs(alpha), Policy: []byte(quotaPolicy), StateFile: file}
		numbers := func(b *bench) map[string]uint16 {
			out := map[string]uint16{}
			_, a, err := b.s.admissionSection(b.s.policy.Load())
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"acme", "zeta", "bravo"} {
				if n, ok := a.TenantIndex([]byte(name)); ok {
					out[name] = n
				}
			}
			return out
		}
		first := start(t, newEngines(alpha), cfg)
		<-first.s.Ready()
		before := numbers(first)
		if _, err := first.s.PutQuota([]byte(`tenants: {bravo: {}, zeta: {}}`), false); err != nil {
			t.Fatal(err)
		}
		after := numbers(first)
		first.stop()
		cfg.Policy = []byte(strings.Replace(quotaPolicy, "acme", "bravo", 1))
		second := start(t, newEngines(alpha), cfg)
		<-second.s.Ready()
		last := numbers(second)
		if before["zeta"] != after["zeta"] || before["zeta"] != last["zeta"] || after["bravo"] != last["bravo"] || after["bravo"] == before["acme"] {
			t.Error(before, after, last)
		}
	})
}

func TestLeasesStayWithinWhatWorkersTake(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := start(t, newEngines(alpha, beta), Config{Workers: specs(alpha, beta), Policy: []byte(quotaPolicy)})
		<-b.s.Ready()
		one, two := &renewer{b: b, name: "one", nonce: 1}, &renewer{b: b, name: "two", nonce: 2}
		renewAll(one, two)
		one.inUse = 6
		renewAll(one, two)
		// Two workers of 8.
		if total := one.slots() + two.slots(); total > 16 || total < 15 || one.slots() <= two.slots() || two.slots() == 0 {
			t.Errorf("%d and %d", one.slots(), two.slots())
		}
		q := b.s.Quota(true)
		if p := q.Pools[0]; !q.Enabled || q.Learning || p.Slots != 16 || !p.Enforced || p.Classes[0].InUse != 6 || len(p.History) == 0 || len(q.Gateways) != 2 {
			t.Errorf("%+v", q)
		}
	})
}

func TestARestartedLedgerGivesNobodyMoreUntilAllHaveReported(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	bubble(t, func(t *testing.T) {
		cfg := Config{Workers: specs(alpha, beta), Policy: []byte(quotaPolicy), StateFile: file}
		e := newEngines(alpha, beta)
		first := start(t, e, cfg)
		<-first.s.Ready()
		one, two := &renewer{b: first, name: "one", nonce: 1}, &renewer{b: first, name: "two", nonce: 2}
		renewAll(one, two)
		one.inUse, two.inUse = 2, 2
		renewAll(one, two)
		held := one.slots()
		first.stop()

		second := start(t, e, cfg)
		<-second.s.Ready()
		time.Sleep(300 * time.Millisecond) // its first look at the fleet
		one.b, two.b = second, second
		one.inUse = 8 // it would like more
		one.renew()
		if got := one.slots(); got > held {
			t.Errorf("%d slots, it held %d, and the other has not reported", got, held)
		}
		newcomer := &renewer{b: second, name: "three", nonce: 3}
		if newcomer.renew() || newcomer.lease.Level(time.Now().UnixNano()) != quota.Alone {
			t.Error("a lease for who had none, while the ledger learns")
		}
		if q := second.s.Quota(false); !q.Learning {
			t.Error("not learning")
		}
		renewAll(one, two)
		if got := one.slots(); got <= held {
			t.Errorf("%d slots after all have reported, it held %d", got, held)
		}
	})
}

func TestFaultsOfAPolicyAreToldWithLineAndColumn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := start(t, newEngines(alpha), Config{Workers: specs(alpha), Policy: []byte(quotaPolicy)})
		<-b.s.Ready()
		for text, want := range map[string]string{
			strings.Replace(quotaPolicy, "concurrency: 3", "concurrency: 0", 1):            "policy:8:12: admission.tenants.acme.concurrency: out of range",
			strings.Replace(quotaPolicy, "share: 0.6", "share: 0.6, shares: 1", 1):         "policy:6:30: admission.classes.p0.shares: unknown key",
			strings.Replace(quotaPolicy, "mode: observe", "mode: watch", 1):                "policy:4:32: pools[1].mode: unknown mode",
			strings.Replace(quotaPolicy, "acme:", `"a.b c":`, 1):                           "policy:8:5: admission.tenants.a.b c: not a tenant",
			strings.Replace(quotaPolicy, "concurrency: 3", "index: 3", 1):                  "policy:8:12: admission.tenants.acme.index: not a setting",
			strings.Replace(quotaPolicy, "  classes", "  pools: {nope: {}}\n  classes", 1): "policy:6:11: admission.pools.nope: no such pool",
			quotaPolicy[:strings.Index(quotaPolicy, "admission:")]:                         "policy: pools[0].mode: enforce without settings",
			quotaPolicy + "  enforce: [default]\n":                                         "policy:10:3: admission.enforce: not a setting",
		} {
			code, answer := b.do("PUT", "/v1/policy", []byte(text), "application/yaml")
			if code != http.StatusBadRequest || !bytes.Contains(answer, []byte(want)) || !bytes.Contains(answer, []byte(`"remedy"`)) {
				t.Errorf("want %q:\n%d %s", want, code, answer)
			}
		}
	})
}

func TestADryRunSaysWhatWouldChangeAndChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := start(t, newEngines(alpha), Config{Workers: specs(alpha), Policy: []byte(quotaPolicy)})
		<-b.s.Ready()
		body := []byte("classes: {p0: {share: 0.65}}\ntenants: {acme: {concurrency: 3}, bravo: {weight: 2}}\n")
		want := []api.QuotaSetting{
			{Place: "admission.classes.p0.share", Before: 0.6, After: 0.65},
			{Place: "admission.tenants.bravo.weight", After: 2},
			{Place: "admission.tenants.zeta.requests_per_minute", Before: 60},
		}
		before := b.s.Policy()
		dry, err := b.s.PutQuota(body, true)
		if err != nil || !bytes.Equal(before, b.s.Policy()) {
			t.Errorf("%v: changed to %s", err, b.s.Policy())
		}
		if diff := cmp.Diff(want, dry.Changes); diff != "" || !dry.DryRun {
			t.Error(diff)
		}
		done, err := b.s.PutQuota(body, false)
		if diff := cmp.Diff(dry.Changes, done.Changes); err != nil || diff != "" || bytes.Equal(before, b.s.Policy()) {
			t.Error(err, diff)
		}
		if again, err := b.s.PutQuota(body, true); err != nil || len(again.Changes) != 0 {
			t.Error(again, err)
		}
	})
}

func TestADryRunSaysSoWhenNothingWasSeenYet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := start(t, newEngines(alpha), Config{Workers: specs(alpha), Policy: []byte(quotaPolicy)})
		<-b.s.Ready()
		change, err := b.s.PutQuota([]byte("pools: {default: {slots: 2}}"), true)
		if err != nil || change.Effect == nil || change.Effect.Seconds != 0 || !strings.Contains(change.Effect.Problem, "just begun") {
			t.Errorf("%+v %v", change.Effect, err)
		}
	})
}

func TestADryRunAtAnyReplicaKnowsWhatTheLeaderSaw(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := startReplicas(t, 3, newEngines(alpha), Config{Workers: specs(alpha)})
		if code, answer := r.put(r.all[0], "/v1/policy", quotaPolicy); code != http.StatusOK {
			t.Fatalf("%d %s", code, answer)
		}
		leader := r.settle()
		one := &renewer{b: leader.bench, name: "one", nonce: 1, inUse: 6}
		renewAll(one, one)
		for _, b := range r.all {
			change, err := b.s.PutQuota([]byte("pools: {default: {slots: 2}}\ntenants: {acme: {concurrency: 3}, nova: {concurrency: 1}}"), true)
			if err != nil || change.Effect == nil {
				t.Fatal(change, err)
			}
			e := change.Effect
			if e.Problem != "" || e.Seconds < 3 || len(e.Classes) != 1 || e.Classes[0].Pool != "default" || e.Classes[0].Class != "p0" ||
				e.Classes[0].Asked != 6 || e.Classes[0].WasShort != 0 || !e.Classes[0].Enforced || e.Classes[0].Short == 0 {
				t.Errorf("leader: %v: %+v", b == leader, e)
			}
			if diff := cmp.Diff([]string{"nova"}, e.Unknown); diff != "" {
				t.Error(diff)
			}
		}
	})
}
