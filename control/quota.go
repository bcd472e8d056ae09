package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/warmpath/warmpath/control/admission"
	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/quota"
)

const (
	// maxAdmissionBytes keeps the ADMISSION section a part of a frame, beside the fleet.
	maxAdmissionBytes = 96 << 10
	enforceMode       = "enforce"
	// admissionFile is what the name of the state file gets for what the ledger must remember.
	admissionFile = ".admission"
	// loadFresh is how old a worker's load may be to count as seen just now.
	loadFresh = time.Second
)

// admissionMemory is the file beside the state file. It is written whole before a gateway gets its
// first lease, so that a ledger after a restart knows of everybody who may hold one.
type admissionMemory struct {
	Version  int                 `json:"version"`
	Gateways []admission.Process `json:"gateways"`
	// Tenants are the numbers that gateways know them by.
	Tenants map[string]int `json:"tenants"`
}

// quotaBook is what the service keeps for admission.
type quotaBook struct {
	numbers map[string]int // of tenants, by name. Under policyMu

	fileMu sync.Mutex
	known  map[string]int // a copy of numbers. Under fileMu

	forwarded, unanswered atomic.Uint64 // batches whose usage went to the leader, and those it didn't answer
}

// startAdmission starts the ledger with what one before it left.
func (s *Service) startAdmission(now time.Time) {
	memory := s.recall()
	s.quota.numbers, s.quota.known = memory.Tenants, maps.Clone(memory.Tenants)
	cfg := admission.Config{Now: now, Remembered: memory.Gateways, Remember: s.remember}
	if !s.alone() {
		cfg.Follows, cfg.Remember = true, s.keep
	}
	s.admission = admission.New(cfg)
	s.ingest.Admission = s.admit
}

// publishAdmission puts a document's settings in force. Requires policyMu.
func (s *Service) publishAdmission(d *document, now time.Time) error {
	section, settings, err := s.admissionSection(d)
	if err != nil {
		return err
	}
	if settings != nil && s.alone() {
		s.quota.fileMu.Lock()
		s.quota.known = maps.Clone(s.quota.numbers)
		s.quota.fileMu.Unlock()
		if err := s.remember(s.admission.Processes()); err != nil {
			return err
		}
	}
	s.table.SetAdmission(section)
	pools := make([]quota.Pool, 0, len(d.parsed.Pools))
	for i := range d.parsed.Pools {
		pools = append(pools, quota.Pool{Index: d.parsed.Pools[i].Index, Name: d.parsed.Pools[i].Name})
	}
	s.admission.Configure(settings, pools, now)
	return nil
}

// takeAdmission cuts the key admission out of a policy, and puts route in the place of enforce:
// older gateways refuse a policy with either. It returns the settings, nil for none, and the
// positions of the pools that enforce.
func takeAdmission(doc any) (settings map[string]any, enforce []int) {
	root, _ := doc.(map[string]any)
	if given, ok := root["admission"]; ok {
		settings, ok = given.(map[string]any)
		if !ok && given != nil {
			return nil, nil // the strict reader says what is wrong
		}
		if settings == nil {
			settings = map[string]any{}
		}
		delete(root, "admission")
	}
	pools, _ := root["pools"].([]any)
	for i, p := range pools {
		if pool, ok := p.(map[string]any); ok && pool["mode"] == enforceMode {
			pool["mode"] = policy.Route.String()
			enforce = append(enforce, i)
		}
	}
	return settings, enforce
}

// checkAdmission reads settings as gateways will.
func checkAdmission(settings map[string]any, set *policy.Set) (*policy.Admission, error) {
	if settings == nil {
		return nil, nil
	}
	if _, ok := settings["enforce"]; ok {
		return nil, &policy.Error{Place: "admission.enforce", Fault: "not a setting of a policy", Remedy: "write mode: enforce at the pools"}
	}
	tenants, _ := settings["tenants"].(map[string]any)
	for name, t := range tenants {
		if t, ok := t.(map[string]any); ok && t["index"] != nil {
			return nil, &policy.Error{Place: "admission.tenants." + name + ".index", Fault: "not a setting of a policy", Remedy: "remove it: tenants are numbered by the control service"}
		}
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return nil, &policy.Error{Place: "admission", Fault: err.Error(), Remedy: "use strings as keys"}
	}
	a, err := policy.ParseAdmission(text)
	if err != nil {
		var fault *policy.Error
		if errors.As(err, &fault) {
			// What control adds for gateways is nobody's to write.
			fault.Remedy = strings.NewReplacer(", index", "", "enforce, ", "", ", enforce", "").Replace(fault.Remedy)
		}
		return nil, err
	}
	for _, p := range a.Pools {
		if set.ByName(p.Name) == nil {
			return nil, &policy.Error{Place: "admission.pools." + p.Name, Fault: "no such pool", Remedy: "use a name of pools"}
		}
	}
	return a, nil
}

// enforced are the names of the pools that enforce.
func (d *document) enforced() []string {
	out := []string{}
	for _, p := range d.pools {
		if p["mode"] == enforceMode {
			out = append(out, fmt.Sprint(p["name"]))
		}
	}
	return out
}

// routed returns the pools as gateways' readers of the policy know them: whoever enforces,
// routes.
func routed(pools []map[string]any) []map[string]any {
	out := slices.Clone(pools)
	for i, p := range out {
		if p["mode"] == enforceMode {
			out[i] = maps.Clone(p)
			out[i]["mode"] = policy.Route.String()
		}
	}
	return out
}

// admissionSection is the ADMISSION section: the settings with the tenants' numbers and the pools
// that enforce. Requires policyMu.
func (s *Service) admissionSection(d *document) ([]byte, *policy.Admission, error) {
	if d.admission == nil {
		return nil, nil, nil
	}
	settings := maps.Clone(d.admission)
	settings["enforce"] = d.enforced()
	given, _ := settings["tenants"].(map[string]any)
	tenants := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		t, _ := given[name].(map[string]any)
		numbered := maps.Clone(t)
		if numbered == nil {
			numbered = map[string]any{}
		}
		if number, ok := tenantNumber(s.quota.numbers, name, d.settings, given); ok {
			numbered["index"] = number
		}
		tenants[name] = numbered
	}
	settings["tenants"] = tenants
	text, err := json.Marshal(settings)
	if err != nil {
		return nil, nil, fmt.Errorf("write admission settings: %w", err)
	}
	if len(text) > maxAdmissionBytes {
		return nil, nil, policyFailure(fmt.Sprintf("admission: %d bytes with the tenants' numbers, the limit is %d", len(text), maxAdmissionBytes), "name fewer tenants, or give limits by tenant_defaults")
	}
	a, err := policy.ParseAdmission(text)
	if err != nil {
		return nil, nil, refusedPolicy("policy", err)
	}
	return text, a, nil
}

// tenantNumber is the number of a tenant, for as long as this deployment lives: gateways count by
// it. The default tenant has none given. A new one is added to numbers.
func tenantNumber(numbers map[string]int, name string, a *policy.Admission, given map[string]any) (int, bool) {
	if a.Tenants[0].Name == name {
		return 0, false
	}
	if n, ok := numbers[name]; ok {
		return n, true
	}
	taken := map[int]bool{0: true}
	for _, n := range numbers {
		taken[n] = true
	}
	n := 1
	for taken[n] {
		n++
	}
	if n >= policy.MaxTenants {
		// All numbers have been given: those of tenants that are gone are free.
		for other := range numbers {
			if _, ok := given[other]; !ok {
				n = numbers[other]
				delete(numbers, other)
				break
			}
		}
	}
	numbers[name] = n
	return n, true
}

// admissionLoop tells the ledger the time and what the fleet can carry.
func (s *Service) admissionLoop(ctx context.Context) {
	tick := time.NewTicker(admission.TickInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			s.tellFleet(now)
			s.admission.Tick(now)
		}
	}
}

// tellFleet sums up what the workers of each pool can carry.
func (s *Service) tellFleet(now time.Time) {
	if ready, _ := s.fleet.Ready(); !ready || !s.admission.Enabled() {
		return
	}
	pools := s.policy.Load().parsed.Pools
	fleets := make(map[string]*fleetSum, len(pools))
	for i := range pools {
		fleets[pools[i].Name] = &fleetSum{}
	}
	for _, w := range s.fleet.Workers() {
		f := fleets[w.Pool]
		if f == nil {
			continue
		}
		rate := 0.0
		if st, ok := s.index.Worker(w.Ref, now); ok {
			rate = st.PrefillRate
		}
		f.add(&w, rate, now)
	}
	for i := range pools {
		s.admission.SetFleet(pools[i].Index, fleets[pools[i].Name].fleet(), now)
	}
}

// fleetSum adds workers up.
type fleetSum struct {
	workers, unlimited, rated int
	maxRunning                int
	rate                      float64
	requests                  int
	blind                     bool
}

func (f *fleetSum) add(w *discovery.Worker, rate float64, now time.Time) {
	switch {
	case now.Sub(w.LoadAt) < loadFresh && w.Load.Counted:
		f.requests += w.Load.Running + w.Load.Waiting
	case w.State == discovery.Down && w.Gone:
		// Its process has ended, and what it had with it.
	default:
		// It doesn't say, or doesn't answer: streams may be there that nobody else knows of.
		f.blind = true
	}
	if w.State != discovery.Healthy {
		return
	}
	f.workers++
	if w.MaxRunning == 0 {
		f.unlimited++
	}
	f.maxRunning += w.MaxRunning
	if rate > 0 {
		f.rated++
		f.rate += rate
	}
}

func (f *fleetSum) fleet() admission.Fleet {
	out := admission.Fleet{Workers: f.workers, MaxRunning: f.maxRunning, Requests: f.requests}
	if f.unlimited > 0 {
		out.MaxRunning = 0
	}
	if f.rated > 0 {
		// Those whose rate nobody knows yet count as the others do.
		out.TokensPerSecond = f.rate / float64(f.rated) * float64(f.workers)
	}
	if f.blind {
		out.Requests = -1
	}
	return out
}

// recall reads what a ledger before this one left. Nil gateways: nothing is known.
func (s *Service) recall() admissionMemory {
	m := admissionMemory{Tenants: map[string]int{}}
	if s.cfg.StateFile == "" {
		return m
	}
	data, err := os.ReadFile(s.cfg.StateFile + admissionFile)
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil || m.Version != 1:
		s.log.Warn("what the ledger remembers is ignored, it learns anew", "file", s.cfg.StateFile+admissionFile, "err", err)
		return admissionMemory{Tenants: map[string]int{}}
	case m.Gateways == nil:
		m.Gateways = []admission.Process{}
	}
	if m.Tenants == nil {
		m.Tenants = map[string]int{}
	}
	return m
}

// remember writes what the ledger after this one must know.
func (s *Service) remember(gateways []admission.Process) error {
	if s.cfg.StateFile == "" {
		return nil
	}
	s.quota.fileMu.Lock()
	defer s.quota.fileMu.Unlock()
	data, err := json.Marshal(admissionMemory{Version: 1, Gateways: gateways, Tenants: s.quota.known})
	if err == nil {
		err = writeWhole(s.cfg.StateFile+admissionFile, data)
	}
	if err != nil {
		return fmt.Errorf("remember the gateways in %s: %w", s.cfg.StateFile+admissionFile, err)
	}
	return nil
}

// PutQuota replaces the admission settings of the policy, in YAML or JSON. With dry nothing is
// changed, and the answer is what would be.
func (s *Service) PutQuota(body []byte, dry bool) (api.QuotaChange, error) {
	if s.cfg.PolicyFile != "" && !dry {
		return api.QuotaChange{}, &api.Failure{Status: http.StatusConflict, Code: "policy_from_file", Message: "the policy comes from " + s.cfg.PolicyFile, Remedy: "edit its key admission: the file is watched; --dry-run checks an edit"}
	}
	var doc any
	if err := yaml.Unmarshal(body, &doc); err != nil {
		return api.QuotaChange{}, policyFailure("admission: "+err.Error(), "write the settings as YAML or JSON")
	}
	settings, ok := doc.(map[string]any)
	if !ok && doc != nil {
		return api.QuotaChange{}, policyFailure("admission: not an object", "write the settings that a policy has under admission")
	}
	// What is under the key admission of a whole policy is meant, too.
	if inner, ok := settings["admission"].(map[string]any); ok {
		settings = inner
	}
	if s.alone() {
		s.policyMu.Lock()
		defer s.policyMu.Unlock()
	}
	before := s.policy.Load()
	next, err := before.edit(func(c *document) error {
		a, err := checkAdmission(settings, before.parsed)
		if err != nil {
			return refusedPolicy(located("admission", "admission.", body, err), err)
		}
		c.admission, c.settings = settings, a
		return nil
	})
	if err != nil {
		return api.QuotaChange{}, err
	}
	change := api.QuotaChange{DryRun: dry, Changes: append([]api.QuotaSetting{}, differences("admission", before.admission, next.admission)...)}
	switch {
	case dry:
		change.Effect = s.foresee(before, next)
		return change, nil
	case s.alone():
		return change, s.setDocument(next)
	}
	return change, s.agree(func(a *agreement) { a.put(next.written()) })
}

// differences lists what is another in b than in a, by place.
func differences(at string, a, b any) []api.QuotaSetting {
	left, leftOK := a.(map[string]any)
	right, rightOK := b.(map[string]any)
	// A tenant without settings of its own is something, too.
	if !leftOK && !rightOK || len(left)+len(right) == 0 && leftOK != rightOK {
		x, _ := json.Marshal(a)
		y, _ := json.Marshal(b)
		if bytes.Equal(x, y) {
			return nil
		}
		return []api.QuotaSetting{{Place: at, Before: a, After: b}}
	}
	var out []api.QuotaSetting
	keys := map[string]bool{}
	for k := range left {
		keys[k] = true
	}
	for k := range right {
		keys[k] = true
	}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		out = append(out, differences(at+"."+k, left[k], right[k])...)
	}
	return out
}
