package policy

import (
	"strconv"
	"strings"
	"time"

	"github.com/minio/highwayhash"
	"github.com/tidwall/gjson"
)

const (
	// Classes is the number of classes: P0 real-time, P1 standard, P2 idle capacity only.
	Classes = 3
	// MaxTenants bounds the tenants of a deployment; their numbers are below it. A gateway keeps
	// about 200 bytes for one that is active.
	MaxTenants = 4096
	// NoLimit is a tenant's limit that was not given.
	NoLimit = 0

	maxTenantName = 128
	maxAPIKeys    = 4096
	maxMetadata   = 8
)

// ClassQueue bounds the requests of a class that wait in one gateway.
type ClassQueue struct {
	// Requests (0 to 65,536) and Bytes (of bodies, 0 to 1 GiB) bound the queue. 0 requests: nobody
	// waits.
	Requests int
	Bytes    int64
	// Deadline (0 to 10 min, JSON deadline_ms): who would wait longer is refused, at once where the
	// wait can be told in advance. Default a fifth of the class's objective, or 10 s, and 30 s for P2.
	Deadline time.Duration
}

// Class is one of the three priority classes.
type Class struct {
	// Share of each pool's capacity that the class gets whenever it asks, [0, 1]; all together at
	// most 1. What it does not ask for is lent. Default 0.7, 0.3, 0.
	Share float64
	// Floor (share of the pool, at most Share): the controller never takes the class below it.
	// Default 0.3, 0.1, 0.
	Floor float64
	Queue ClassQueue
	// ObjectiveTTFT (0 none to 10 min, JSON objective_ttft_ms): the controller moves shares so that
	// the 99th percentile of the time to first token stays below it. Default 2 s for P0.
	ObjectiveTTFT time.Duration
}

// Tenant is who sends requests and is limited. Limits that were not given are NoLimit.
type Tenant struct {
	// Name is 1 to 128 visible ASCII bytes. "" is a number that nobody has.
	Name string
	// Weight (0.01 to 1,000, default 1) of the tenant's work against others' of its class.
	Weight float64
	// Concurrency is the number of requests at once, over all gateways and pools.
	Concurrency int
	// RequestsPerMinute and UncachedTokensPerMinute are rates over all gateways; cached tokens cost
	// the fleet next to nothing, so they are free.
	RequestsPerMinute, UncachedTokensPerMinute int
	// Burst (1 to 60 s, default 60 s, JSON burst_s): a rate's worth of so long may be used at once.
	Burst time.Duration
	// Class is that of requests that name none; MaxClass the highest (smallest number) they may
	// name.
	Class, MaxClass uint8
}

// Limited tells whether the tenant has any limit.
func (t *Tenant) Limited() bool {
	return t.Concurrency != NoLimit || t.RequestsPerMinute != NoLimit || t.UncachedTokensPerMinute != NoLimit
}

// AdmissionPool is what a pool can carry.
type AdmissionPool struct {
	Name string
	// Slots is the number of requests at once; 0: the sum of the live workers' max_running, and
	// no limit while a worker's is not known.
	Slots int
	// PrefillHorizon (JSON prefill_ms): the prefill work admitted and not yet answered is bounded
	// to this time of the fleet's rate; 0 doesn't bound it. Default 5/16 of P0's objective.
	PrefillHorizon time.Duration
	// TokensPerSecond is the prefill rate of one worker; 0: as learned from reports.
	TokensPerSecond int
}

// Level2 is what a gateway does that has heard nothing of control for max_partition, or not
// yet anything.
type Level2 struct {
	// Pass: everything is let through, and counted.
	Pass bool
	// Slots without Pass: requests at once per pool and gateway.
	Slots int
}

// Admission is the admission settings: who a request belongs to, and what may be admitted.
type Admission struct {
	// TenantHeader and ClassHeader, in lower case, are headers that the layer in front sets; "" for
	// none. Metadata is a path of the proxy's dynamic metadata with the tenant's name. Keys has the
	// tenant's number by the SHA-256 of the API key (the bearer token).
	TenantHeader, ClassHeader string
	Metadata                  []string
	Keys                      map[[32]byte]uint16

	// Tenants by number. Number 0 is who no other name fits.
	Tenants []Tenant
	// TenantsHash is a hash of the names with their numbers.
	TenantsHash uint32

	Classes [Classes]Class
	// DefaultClass is the class of a request whose tenant gives none.
	DefaultClass uint8
	// Enforce has the names of the pools that refuse; in all others refusals are only counted.
	Enforce []string
	Pools   []AdmissionPool

	// Lease (200 ms to 60 s, default 2 s, JSON lease_ms): how long a gateway may use what it was
	// granted. MaxPartition (1 s to 1 h, default 30 s, JSON max_partition_ms): how long its floor
	// stays when it is cut off. FloorShare ([0, 0.5], default 0.1): the part of a pool's slots that
	// all floors together may have.
	Lease, MaxPartition time.Duration
	FloorShare          float64
	// MaxStream (1 s to 24 h, default 10 min, JSON max_stream_ms): a request of a gateway that is
	// gone without a word counts as in use for this long, unless the workers show that it is not.
	MaxStream time.Duration

	// RetryBudget ([0, 1], default 0.1): the part of the traffic that may be sent a second time.
	RetryBudget float64
	// BypassSecret is the SHA-256 of the secret that lets probes and rescuers pass, nil for none;
	// BypassConcurrency (default 4) bounds them in each gateway.
	BypassSecret      *[32]byte
	BypassConcurrency int
	// PriorityHeader passes the class on to engines as X-Vllm-Priority.
	PriorityHeader bool
	Level2         Level2

	byName map[string]uint16
}

// TenantIndex returns the number of a tenant, and false with 0 for a name that is not listed.
func (a *Admission) TenantIndex(name []byte) (uint16, bool) {
	i, ok := a.byName[string(name)]
	return i, ok
}

// Enforced tells whether a pool refuses.
func (a *Admission) Enforced(pool string) bool {
	for _, name := range a.Enforce {
		if name == pool {
			return true
		}
	}
	return false
}

// Pool returns what a pool can carry; a pool that is not listed has the defaults.
func (a *Admission) Pool(name string) AdmissionPool {
	for _, p := range a.Pools {
		if p.Name == name {
			return p
		}
	}
	return AdmissionPool{Name: name, PrefillHorizon: a.defaultHorizon()}
}

// defaultHorizon is 7/20 of P0's objective: with 6/20 workers run dry (virtual time, 20 workers and 8
// gateways: 93 % of what they can instead of 97), with 9/20 P0 misses it in an overload.
func (a *Admission) defaultHorizon() time.Duration { return a.Classes[0].ObjectiveTTFT * 7 / 20 }

// defaultAdmission has the defaults of everything. They are explained in docs/policy.md.
func defaultAdmission() *Admission {
	a := &Admission{
		DefaultClass: 1,
		Lease:        2 * time.Second, MaxPartition: 30 * time.Second, FloorShare: 0.1, MaxStream: 10 * time.Minute,
		RetryBudget: 0.1, BypassConcurrency: 4, Level2: Level2{Pass: true},
	}
	for i := range a.Classes {
		a.Classes[i].Queue = ClassQueue{Requests: 256, Bytes: 64 << 20, Deadline: -1}
	}
	a.Classes[0].Share, a.Classes[0].Floor, a.Classes[0].ObjectiveTTFT = 0.7, 0.3, 2*time.Second
	a.Classes[1].Share, a.Classes[1].Floor = 0.3, 0.1
	return a
}

// ParseAdmission reads the ADMISSION section, strictly: unknown and repeated keys, wrong types
// and values out of range are refused with an *Error. An empty text is a deployment without
// admission: nil.
//
// It is a section of its own for the same reason as ParseExact's. A gateway that can't read it
// goes on with the settings before.
func ParseAdmission(text []byte) (*Admission, error) {
	if len(text) == 0 {
		return nil, nil
	}
	if len(text) > MaxBytes {
		return nil, &Error{"admission", "longer than 256 KiB", "name fewer tenants or keys"}
	}
	if err := checkDepth(text); err != nil {
		return nil, err
	}
	if !gjson.ValidBytes(text) {
		return nil, &Error{"admission", "not valid JSON", "check commas, quotes and braces"}
	}
	p := admissionParser{Admission: defaultAdmission(), defaults: Tenant{Weight: 1, Burst: time.Minute}, defaultTenant: "default"}
	p.all(gjson.ParseBytes(text))
	if p.err != nil {
		return nil, p.err
	}
	return p.Admission, nil
}

type admissionParser struct {
	parser
	*Admission
	defaults      Tenant
	defaultTenant string
	keys          []apiKey
}

type apiKey struct {
	place, tenant string
	hash          [32]byte
}

func (p *admissionParser) all(root gjson.Result) {
	const at = "admission"
	// What tenants inherit is read first, wherever it stands.
	if v := firstValue(root, "default_class"); v.Exists() {
		p.DefaultClass = p.class(at+".default_class", v)
	}
	p.defaults.Class = p.DefaultClass
	if v := firstValue(root, "tenant_defaults"); v.Exists() {
		p.defaults = p.tenant(at+".tenant_defaults", v, nil)
	}
	var tenants, pools gjson.Result
	duration := func(to *time.Duration, low, high int) func(string, gjson.Result) {
		return func(at string, v gjson.Result) { *to = p.millis(at, v, low, high) }
	}
	p.object(at, root, []field{
		{"identity", p.identity},
		{"default_tenant", func(at string, v gjson.Result) { p.defaultTenant = p.tenantName(at, v) }},
		{"default_class", func(string, gjson.Result) {}},
		{"classes", p.classes},
		{"pools", func(_ string, v gjson.Result) { pools = v }},
		{"tenants", func(_ string, v gjson.Result) { tenants = v }},
		{"tenant_defaults", func(string, gjson.Result) {}},
		{"lease_ms", duration(&p.Lease, 200, 60_000)},
		{"max_partition_ms", duration(&p.MaxPartition, 1000, 3_600_000)},
		{"max_stream_ms", duration(&p.MaxStream, 1000, 86_400_000)},
		{"floor_share", func(at string, v gjson.Result) { p.FloorShare = p.number(at, v, 0, 0.5) }},
		{"retry_budget", func(at string, v gjson.Result) { p.RetryBudget = p.number(at, v, 0, 1) }},
		{"bypass", p.bypass},
		{"engine_priority_header", func(at string, v gjson.Result) { p.PriorityHeader = p.bool(at, v) }},
		{"level2", p.level2},
		{"enforce", func(at string, v gjson.Result) { p.Enforce = p.names(at, v, MaxPools) }},
	})
	if p.Lease > p.MaxPartition {
		p.fail(at+".max_partition_ms", "shorter than lease_ms", "a floor outlives the lease: give at least "+strconv.FormatInt(p.Lease.Milliseconds(), 10))
	}
	for i := range p.Classes {
		p.Classes[i].defaultDeadline(i)
	}
	p.pools(at+".pools", pools)
	p.tenants(at+".tenants", tenants)
	p.giveKeys()
}

func (p *admissionParser) millis(at string, v gjson.Result, low, high int) time.Duration {
	return time.Duration(p.integer(at, v, low, high)) * time.Millisecond
}

func (p *admissionParser) class(at string, v gjson.Result) uint8 {
	c, ok := ParseClass(p.text(at, v))
	if !ok {
		p.fail(at, "not a class: "+shorten(v.Raw), "use p0, p1 or p2")
	}
	return c
}

// ParseClass reads p0, p1 or p2, in either case.
func ParseClass(s string) (class uint8, ok bool) {
	if len(s) != 2 || s[0]|0x20 != 'p' || s[1] < '0' || s[1] >= '0'+Classes {
		return 0, false
	}
	return s[1] - '0', true
}

func (p *admissionParser) tenantName(at string, v gjson.Result) string {
	s := p.text(at, v)
	if !validTenant(s) {
		p.fail(at, "not a tenant's name: "+shorten(v.Raw), "use 1 to 128 visible ASCII characters")
	}
	return s
}

func validTenant(s string) bool {
	if s == "" || len(s) > maxTenantName {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

func (p *admissionParser) names(at string, v gjson.Result, most int) []string {
	if !v.IsArray() {
		p.fail(at, "not an array", `write ["name", ...]`)
		return nil
	}
	var out []string
	v.ForEach(func(_, value gjson.Result) bool {
		place := at + "[" + strconv.Itoa(len(out)) + "]"
		if len(out) == most {
			p.fail(place, "more than "+strconv.Itoa(most), "shorten the list")
			return false
		}
		s := p.text(place, value)
		if s == "" || len(s) > maxName {
			p.fail(place, "empty or too long", "use 1 to 256 bytes")
		}
		out = append(out, s)
		return p.err == nil
	})
	return out
}

func (p *admissionParser) identity(at string, v gjson.Result) {
	header := func(to *string) func(string, gjson.Result) {
		return func(at string, v gjson.Result) {
			*to = strings.ToLower(p.text(at, v))
			if !validHeader(*to) {
				p.fail(at, "not a header's name: "+shorten(v.Raw), "use letters, digits and -")
			}
		}
	}
	p.object(at, v, []field{
		{"tenant_header", header(&p.TenantHeader)},
		{"class_header", header(&p.ClassHeader)},
		{"metadata", func(at string, v gjson.Result) { p.Metadata = p.names(at, v, maxMetadata) }},
		{"api_keys", p.apiKeys},
	})
}

func validHeader(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

func (p *admissionParser) apiKeys(at string, v gjson.Result) {
	if !v.IsObject() {
		p.fail(at, "not an object", `write {"<SHA-256 of the key in hex>": "tenant"}`)
		return
	}
	v.ForEach(func(key, value gjson.Result) bool {
		if len(p.keys) == maxAPIKeys {
			p.fail(at, "more than 4,096 keys", "let the layer in front name the tenant in a header")
			return false
		}
		// The key's hash is no secret, but it has no place in logs either.
		place := at + "[" + strconv.Itoa(len(p.keys)) + "]"
		k := apiKey{place: place, tenant: p.tenantName(place, value)}
		var ok bool
		if k.hash, ok = parseSHA256(key.String()); !ok {
			p.fail(place, "the key is no SHA-256", "write the 64 hex digits that sha256sum prints for the API key")
		}
		p.keys = append(p.keys, k)
		return p.err == nil
	})
}

func parseSHA256(s string) (sum [32]byte, ok bool) {
	if len(s) != 64 {
		return sum, false
	}
	high, okHigh := ParseHash(s[:32])
	low, okLow := ParseHash(s[32:])
	copy(sum[:], high[:])
	copy(sum[16:], low[:])
	return sum, okHigh && okLow
}

func (p *admissionParser) classes(at string, v gjson.Result) {
	fields := make([]field, Classes)
	for i := range p.Classes {
		fields[i] = field{"p" + strconv.Itoa(i), func(at string, v gjson.Result) { p.oneClass(at, v, &p.Classes[i]) }}
	}
	p.object(at, v, fields)
	total := 0.0
	for i := range p.Classes {
		c := &p.Classes[i]
		total += c.Share
		if c.Floor > c.Share {
			p.fail(at+".p"+strconv.Itoa(i)+".floor", "above the share", "give at most "+format(c.Share))
		}
	}
	if total > 1+1e-9 {
		p.fail(at, "the shares are "+format(total)+" together", "give shares whose sum is at most 1")
	}
}

// defaultDeadline is the deadline of a class that was given none.
func (c *Class) defaultDeadline(class int) {
	switch {
	case c.Queue.Deadline >= 0:
	case c.ObjectiveTTFT > 0:
		c.Queue.Deadline = c.ObjectiveTTFT / 5
	case class == Classes-1:
		c.Queue.Deadline = 30 * time.Second
	default:
		c.Queue.Deadline = 10 * time.Second
	}
}

func (p *admissionParser) oneClass(at string, v gjson.Result, c *Class) {
	p.object(at, v, []field{
		{"share", func(at string, v gjson.Result) { c.Share = p.number(at, v, 0, 1) }},
		{"floor", func(at string, v gjson.Result) { c.Floor = p.number(at, v, 0, 1) }},
		{"objective_ttft_ms", func(at string, v gjson.Result) { c.ObjectiveTTFT = p.millis(at, v, 0, 600_000) }},
		{"queue", func(at string, v gjson.Result) {
			p.object(at, v, []field{
				{"requests", func(at string, v gjson.Result) { c.Queue.Requests = p.integer(at, v, 0, 65_536) }},
				{"bytes", func(at string, v gjson.Result) { c.Queue.Bytes = int64(p.integer(at, v, 0, 1<<30)) }},
				{"deadline_ms", func(at string, v gjson.Result) { c.Queue.Deadline = p.millis(at, v, 0, 600_000) }},
			})
		}},
	})
}

func (p *admissionParser) pools(at string, v gjson.Result) {
	if !v.Exists() || p.err != nil {
		return
	}
	p.members(at, v, MaxPools, func(at, name string, v gjson.Result) {
		pool := AdmissionPool{Name: name, PrefillHorizon: p.defaultHorizon()}
		if !validName(name) {
			p.fail(at, "not a pool name", "use 1 to 40 of a-z, 0-9 and -")
		}
		p.object(at, v, []field{
			{"slots", func(at string, v gjson.Result) { pool.Slots = p.integer(at, v, 0, 1_000_000) }},
			{"prefill_ms", func(at string, v gjson.Result) { pool.PrefillHorizon = p.millis(at, v, 0, 600_000) }},
			{"tokens_per_second", func(at string, v gjson.Result) { pool.TokensPerSecond = p.integer(at, v, 0, 10_000_000) }},
		})
		p.Pools = append(p.Pools, pool)
	})
}

// members calls f for the members of an object whose keys are names.
func (p *admissionParser) members(at string, v gjson.Result, most int, f func(at, name string, v gjson.Result)) {
	if !v.IsObject() {
		p.fail(at, "not an object", "write {name: {...}}")
		return
	}
	seen := map[string]bool{}
	v.ForEach(func(key, value gjson.Result) bool {
		name := key.String()
		place := at + "." + shorten(name)
		switch {
		case seen[name]:
			p.fail(place, "given twice", "keep one of them")
		case len(seen) == most:
			p.fail(place, "more than "+strconv.Itoa(most), "remove some")
		default:
			seen[name] = true
			f(place, name, value)
		}
		return p.err == nil
	})
}

// tenant reads limits on top of the defaults. index is nil where no number can be given.
func (p *admissionParser) tenant(at string, v gjson.Result, index *int) Tenant {
	t, classGiven := p.defaults, false
	fields := []field{
		{"weight", func(at string, v gjson.Result) { t.Weight = p.number(at, v, 0.01, 1000) }},
		{"concurrency", func(at string, v gjson.Result) { t.Concurrency = p.integer(at, v, 1, 1_000_000) }},
		{"requests_per_minute", func(at string, v gjson.Result) { t.RequestsPerMinute = p.integer(at, v, 1, 1_000_000_000) }},
		{"uncached_tokens_per_minute", func(at string, v gjson.Result) {
			t.UncachedTokensPerMinute = p.integer(at, v, 1, 1_000_000_000_000)
		}},
		{"burst_s", func(at string, v gjson.Result) { t.Burst = time.Duration(p.integer(at, v, 1, 60)) * time.Second }},
		{"class", func(at string, v gjson.Result) { t.Class, classGiven = p.class(at, v), true }},
		{"max_class", func(at string, v gjson.Result) { t.MaxClass = p.class(at, v) }},
	}
	if index != nil {
		fields = append(fields, field{"index", func(at string, v gjson.Result) { *index = p.integer(at, v, 0, MaxTenants-1) }})
	}
	p.object(at, v, fields)
	if t.Class < t.MaxClass {
		if classGiven {
			p.fail(at+".class", "above max_class", "give max_class the same or a smaller number")
		}
		t.Class = t.MaxClass
	}
	return t
}

func (p *admissionParser) tenants(at string, v gjson.Result) {
	p.byName = map[string]uint16{}
	if p.err != nil {
		return
	}
	type listed struct {
		Tenant
		place string
		index int
	}
	var all []listed
	hasDefault := false
	if v.Exists() {
		p.members(at, v, MaxTenants-1, func(at, name string, v gjson.Result) {
			l := listed{place: at, index: -1}
			if !validTenant(name) {
				p.fail(at, "not a tenant's name", "use 1 to 128 visible ASCII characters")
			}
			l.Tenant = p.tenant(at, v, &l.index)
			l.Name = name
			if name == p.defaultTenant {
				hasDefault = true
				if l.index > 0 {
					p.fail(at+".index", "the default tenant is number 0", "remove it")
				}
				l.index = 0
			} else if l.index == 0 {
				p.fail(at+".index", "0 is the default tenant's number", "give another number")
			}
			all = append(all, l)
		})
	}
	if !hasDefault {
		l := listed{Tenant: p.defaults, index: 0}
		l.Name = p.defaultTenant
		all = append(all, l)
	}
	var taken [MaxTenants]bool
	highest := 0
	for i := range all {
		if n := all[i].index; n >= 0 {
			if taken[n] {
				p.fail(all[i].place+".index", "given twice", "give every tenant its own number")
			}
			taken[n], highest = true, max(highest, n)
		}
	}
	next := 1
	for i := range all {
		if all[i].index >= 0 {
			continue
		}
		for taken[next] {
			next++
		}
		all[i].index, taken[next], highest = next, true, max(highest, next)
	}
	if p.err != nil {
		return
	}
	p.Tenants = make([]Tenant, highest+1)
	for i := range all {
		p.Tenants[all[i].index] = all[i].Tenant
		p.byName[all[i].Name] = uint16(all[i].index)
	}
	p.TenantsHash = hashTenants(p.Tenants)
}

func hashTenants(tenants []Tenant) uint32 {
	var key [32]byte
	var b []byte
	for i := range tenants {
		b = append(append(b, tenants[i].Name...), 0)
	}
	return uint32(highwayhash.Sum64(b, key[:]))
}

// giveKeys resolves the names of the API keys' tenants, once all are known.
func (p *admissionParser) giveKeys() {
	if len(p.keys) == 0 || p.err != nil {
		return
	}
	p.Keys = make(map[[32]byte]uint16, len(p.keys))
	for _, k := range p.keys {
		index, known := p.byName[k.tenant]
		if _, twice := p.Keys[k.hash]; twice {
			p.fail(k.place, "the key is given twice", "keep one of them")
		}
		if !known {
			p.fail(k.place, "no such tenant: "+k.tenant, "list it under admission.tenants")
		}
		p.Keys[k.hash] = index
	}
}

func (p *admissionParser) bypass(at string, v gjson.Result) {
	p.object(at, v, []field{
		{"secret_sha256", func(at string, v gjson.Result) {
			sum, ok := parseSHA256(p.text(at, v))
			if !ok {
				p.fail(at, "not a SHA-256", "write the 64 hex digits that sha256sum prints for the secret")
			}
			p.BypassSecret = &sum
		}},
		{"max_concurrency", func(at string, v gjson.Result) { p.BypassConcurrency = p.integer(at, v, 1, 1000) }},
	})
}

func (p *admissionParser) level2(at string, v gjson.Result) {
	if v.Type == gjson.String {
		if v.Str != "pass" {
			p.fail(at, "unknown: "+shorten(v.Raw), `write "pass" or {"slots": n}`)
		}
		return
	}
	p.Level2.Pass = false
	p.object(at, v, []field{{"slots", func(at string, v gjson.Result) { p.Level2.Slots = p.integer(at, v, 0, 1_000_000) }}})
}
