package policy

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const keyHash = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

func admission(t testing.TB, text string) *Admission {
	t.Helper()
	a, err := ParseAdmission([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAdmissionReadsEverySetting(t *testing.T) {
	a := admission(t, `{
		"identity": {"tenant_header": "X-Tenant-Id", "class_header": "x-class", "metadata": ["a", "b"], "api_keys": {"`+keyHash+`": "acme"}},
		"default_tenant": "other", "default_class": "p2",
		"classes": {"p0": {"share": 0.6, "floor": 0.2, "objective_ttft_ms": 1000, "queue": {"requests": 3, "bytes": 4, "deadline_ms": 5}}, "p2": {"share": 0.1}},
		"pools": {"chat": {"slots": 100, "tokens_per_second": 9000}, "code": {"prefill_ms": 0}},
		"tenants": {"acme": {"weight": 2, "concurrency": 3, "requests_per_minute": 4, "uncached_tokens_per_minute": 5, "burst_s": 7, "class": "p1", "max_class": "p0", "index": 7}, "b": {}},
		"tenant_defaults": {"weight": 0.5, "concurrency": 9, "max_class": "p1"},
		"lease_ms": 1000, "max_partition_ms": 20000, "max_stream_ms": 60000, "floor_share": 0.2, "retry_budget": 0.05,
		"bypass": {"secret_sha256": "`+keyHash+`", "max_concurrency": 2}, "engine_priority_header": true,
		"level2": {"slots": 6}, "enforce": ["chat"]
	}`)
	want := defaultAdmission()
	want.TenantHeader, want.ClassHeader, want.Metadata = "x-tenant-id", "x-class", []string{"a", "b"}
	sum, _ := parseSHA256(keyHash)
	want.Keys = map[[32]byte]uint16{sum: 7}
	want.DefaultClass = 2
	want.Classes[0] = Class{Share: 0.6, Floor: 0.2, ObjectiveTTFT: time.Second, Queue: ClassQueue{3, 4, 5 * time.Millisecond}}
	want.Classes[2].Share = 0.1
	want.Classes[1].Queue.Deadline, want.Classes[2].Queue.Deadline = 10*time.Second, 30*time.Second
	want.Pools = []AdmissionPool{{"chat", 100, time.Second * 7 / 20, 9000}, {"code", 0, 0, 0}}
	want.Tenants = make([]Tenant, 8)
	want.Tenants[0] = Tenant{Name: "other", Weight: 0.5, Concurrency: 9, Burst: time.Minute, Class: 2, MaxClass: 1}
	want.Tenants[1] = Tenant{Name: "b", Weight: 0.5, Concurrency: 9, Burst: time.Minute, Class: 2, MaxClass: 1}
	want.Tenants[7] = Tenant{Name: "acme", Weight: 2, Concurrency: 3, RequestsPerMinute: 4, UncachedTokensPerMinute: 5, Burst: 7 * time.Second, Class: 1, MaxClass: 0}
	want.Lease, want.MaxPartition, want.MaxStream, want.FloorShare = time.Second, 20*time.Second, time.Minute, 0.2
	want.RetryBudget, want.BypassSecret, want.BypassConcurrency, want.PriorityHeader = 0.05, &sum, 2, true
	want.Level2, want.Enforce = Level2{Slots: 6}, []string{"chat"}
	want.TenantsHash = a.TenantsHash
	want.byName = map[string]uint16{"other": 0, "b": 1, "acme": 7}
	if diff := cmp.Diff(want, a, cmp.AllowUnexported(Admission{})); diff != "" {
		t.Error(diff)
	}
	if i, ok := a.TenantIndex([]byte("acme")); i != 7 || !ok {
		t.Error(i, ok)
	}
	if i, ok := a.TenantIndex([]byte("nobody")); i != 0 || ok {
		t.Error(i, ok)
	}
	if !a.Enforced("chat") || a.Enforced("code") {
		t.Error(a.Enforce)
	}
	if p := a.Pool("rest"); p.Slots != 0 || p.PrefillHorizon != time.Second*7/20 {
		t.Errorf("%+v", p)
	}
}

func TestNoAdmissionSectionIsNoAdmission(t *testing.T) {
	if a, err := ParseAdmission(nil); a != nil || err != nil {
		t.Error(a, err)
	}
	a := admission(t, `{}`)
	if len(a.Tenants) != 1 || a.Tenants[0].Name != "default" || a.Tenants[0].Weight != 1 || a.Tenants[0].Class != 1 || a.Tenants[0].Limited() {
		t.Errorf("%+v", a.Tenants)
	}
}

func TestTenantsKeepTheirNumbersWhateverElseIsListed(t *testing.T) {
	a := admission(t, `{"tenants": {"b": {"index": 2}, "a": {"index": 1}, "default": {"weight": 3}}}`)
	b := admission(t, `{"tenants": {"new": {}, "a": {"index": 1}, "b": {"index": 2}}}`)
	for _, name := range []string{"a", "b", "default"} {
		x, _ := a.TenantIndex([]byte(name))
		y, _ := b.TenantIndex([]byte(name))
		if x != y {
			t.Errorf("%s: %d and %d", name, x, y)
		}
	}
	if i, _ := b.TenantIndex([]byte("new")); i != 3 || a.TenantsHash == b.TenantsHash || a.Tenants[0].Weight != 3 {
		t.Error(i, a.TenantsHash, b.TenantsHash, a.Tenants)
	}
}

func TestAdmissionRefusesWhatItDoesNotUnderstandAndSaysWhere(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:                  "admission: not an object",
		`{`:                   "admission: not valid JSON",
		`{"tenats": {}}`:      "tenats: unknown key",
		`{"lease_ms": 1}`:     "lease_ms: out of range",
		`{"lease_ms": 2.5e2}`: "",
		`{"lease_ms": 60000, "max_partition_ms": 59999}`:                                          "max_partition_ms: shorter",
		`{"identity": {"tenant_header": "x tenant"}}`:                                             "identity.tenant_header: not a header",
		`{"identity": {"api_keys": {"abc": "default"}}}`:                                          "identity.api_keys[0]: the key is no SHA-256",
		`{"identity": {"api_keys": {"` + keyHash + `": "who"}}}`:                                  "identity.api_keys[0]: no such tenant: who",
		`{"identity": {"api_keys": {"` + keyHash + `": "default","` + keyHash + `": "default"}}}`: "api_keys[1]: the key is given twice",
		`{"default_class": "p3"}`:                                                                 "admission.default_class: not a class",
		`{"classes": {"p0": {"share": 0.8}}}`:                                                     "classes: the shares are 1.1",
		`{"classes": {"p1": {"floor": 0.4}}}`:                                                     "classes.p1.floor: above the share",
		`{"classes": {"p4": {}}}`:                                                                 "classes.p4: unknown key",
		`{"classes": {"p2": {"queue": {"deadline_ms": -1}}}}`:                                     "classes.p2.queue.deadline_ms: out of range",
		`{"pools": {"Chat": {}}}`:                                                                 "admission.pools.Chat: not a pool name",
		`{"pools": {"a": {}, "a": {}}}`:                                                           "admission.pools.a: given twice",
		`{"tenants": {"a b": {}}}`:                                                                "admission.tenants.a b: not a tenant",
		`{"tenants": {"a": {"concurrency": 0}}}`:                                                  "admission.tenants.a.concurrency: out of range",
		`{"tenants": {"a": {"class": "p0", "max_class": "p1"}}}`:                                  "admission.tenants.a.class: above max_class",
		`{"tenants": {"a": {"index": 3}, "b": {"index": 3}}}`:                                     "admission.tenants.b.index: given twice",
		`{"tenants": {"a": {"index": 0}}}`:                                                        "admission.tenants.a.index: 0 is the default",
		`{"tenants": {"default": {"index": 1}}}`:                                                  "admission.tenants.default.index: the default tenant",
		`{"tenant_defaults": {"index": 1}}`:                                                       "admission.tenant_defaults.index: unknown key",
		`{"bypass": {"secret_sha256": "x"}}`:                                                      "bypass.secret_sha256: not a SHA-256",
		`{"level2": "block"}`:                                                                     "level2: unknown",
		`{"enforce": [1]}`:                                                                        "enforce[0]: not a string",
	} {
		a, err := ParseAdmission([]byte(text))
		if want == "" {
			if err != nil {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		var e *Error
		if a != nil || !errors.As(err, &e) || !strings.Contains(err.Error(), want) || e.Remedy == "" {
			t.Errorf("%.80s: %v, want %q with a remedy", text, err, want)
		}
	}
}

func TestTheLargestTableOfTenantsIsRead(t *testing.T) {
	var b strings.Builder
	for i := range MaxTenants - 1 {
		fmt.Fprintf(&b, `,"t%d":{"concurrency":3}`, i)
	}
	if a := admission(t, `{"tenants":{`+b.String()[1:]+`}}`); len(a.Tenants) != MaxTenants {
		t.Error(len(a.Tenants))
	}
	if _, err := ParseAdmission([]byte(`{"tenants":{"x":{}` + b.String() + `}}`)); err == nil || !strings.Contains(err.Error(), "more than 4095") {
		t.Error(err)
	}
}

func FuzzAdmission(f *testing.F) {
	f.Add([]byte(`{"tenants":{"a":{"index":3,"class":"p0"}},"classes":{"p0":{"share":0.5}},"enforce":["chat"],"level2":{"slots":3}}`))
	f.Add([]byte(`{"identity":{"api_keys":{"` + keyHash + `":"default"}},"tenant_defaults":{"max_class":"p2"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := ParseAdmission(text)
		if err != nil || a == nil {
			return
		}
		total := 0.0
		for _, c := range a.Classes {
			total += c.Share
		}
		if total > 1.001 || len(a.Tenants) == 0 || len(a.Tenants) > MaxTenants || a.Lease > a.MaxPartition || a.Tenants[0].Name == "" {
			t.Fatalf("%+v", a)
		}
		for i := range a.Tenants {
			tenant := &a.Tenants[i]
			if index, ok := a.TenantIndex([]byte(tenant.Name)); tenant.Name != "" && (!ok || int(index) != i || tenant.Class < tenant.MaxClass || tenant.Weight <= 0) {
				t.Fatalf("%d: %+v", i, tenant)
			}
		}
		for _, index := range a.Keys {
			if int(index) >= len(a.Tenants) {
				t.Fatalf("key of tenant %d", index)
			}
		}
	})
}
