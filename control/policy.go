package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/control/vocabulary"
	"github.com/warmpath/warmpath/shared/policy"
)

// maxPolicyBytes keeps the POLICY section a small part of a frame.
const maxPolicyBytes = 32 << 10

// document is the policy as written, with every default filled in. It is never
// changed: edits make another one.
type document struct {
	off     bool
	pools   []map[string]any
	fixed   map[string]bool // pools whose ring_units the author gave
	derived bool            // made from the worker list
	parsed  *policy.Set
	text    []byte // the POLICY section
	shown   []byte // text with the tokenizers, as operators read and write it

	tokenizers map[string]*tokenizer // by pool
	admission  map[string]any        // as written, nil for none
	settings   *policy.Admission     // likewise, parsed
}

// parsePolicy reads a policy in YAML or JSON and refuses it whole when anything
// is unknown or out of range.
//
// Files that it names are read: a relative path begins at dir.
func parsePolicy(source, dir string, data []byte, store *vocabulary.Store) (*document, error) {
	var doc any
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, policyFailure(source+": "+err.Error(), "write the policy as YAML or JSON with the keys off and pools")
	}
	found := takeTokenizers(doc)
	admission, enforce := takeAdmission(doc)
	text, err := json.Marshal(doc)
	if err != nil {
		return nil, policyFailure(source+": "+err.Error(), "write the policy as YAML or JSON with the keys off and pools")
	}
	// The strict reader of the shared package looks first: it knows every key
	// but those.
	set, err := policy.Parse(text)
	if err != nil {
		return nil, refusedPolicy(located(source, "", data, err), err)
	}
	settings, err := checkAdmission(admission, set)
	if err != nil {
		return nil, refusedPolicy(located(source, "", data, err), err)
	}
	tokenizers, err := loadTokenizers(source, dir, found, set, store)
	if err != nil {
		return nil, err
	}
	var raw struct {
		Off   bool             `json:"off"`
		Pools []map[string]any `json:"pools"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, policyFailure(source+": "+err.Error(), "pools is a list of objects")
	}
	d := &document{off: raw.Off, pools: raw.Pools, fixed: map[string]bool{}, tokenizers: tokenizers, admission: admission, settings: settings}
	for _, i := range enforce {
		d.pools[i]["mode"] = enforceMode
	}
	for _, pool := range d.pools {
		if _, ok := pool["ring_units"]; ok {
			d.fixed[fmt.Sprint(pool["name"])] = true
		}
	}
	return d.render(source)
}

// derivePolicy is the policy of a fleet without one: each pool serves the model
// of its name, a single pool or the one named default serves all others.
func derivePolicy(pools []string) (*document, error) {
	pools = slices.Clone(pools)
	slices.Sort(pools)
	pools = slices.Compact(pools)
	if len(pools) == 0 {
		pools = []string{"default"}
	}
	d := &document{fixed: map[string]bool{}, derived: true}
	for _, name := range pools {
		model := name
		if len(pools) == 1 || name == "default" {
			model = "*"
		}
		d.pools = append(d.pools, map[string]any{"name": name, "models": []any{model}})
	}
	return d.render("policy")
}

// render fills defaults in, writes the text and checks it once more.
func (d *document) render(source string) (*document, error) {
	set, err := policy.Parse(marshalPolicy(d.off, routed(d.pools)))
	if err != nil {
		return nil, refusedPolicy(source, err)
	}
	for i := range d.pools {
		p, pool := d.pools[i], &set.Pools[i]
		if p["mode"] != enforceMode {
			p["mode"] = pool.Mode.String()
		} else if d.admission == nil {
			return nil, policyFailure(fmt.Sprintf("%s: pools[%d].mode: enforce without settings for admission", source, i), "add the key admission, see docs/policy.md, or use route")
		}
		p["index"], p["cluster"] = pool.Index, pool.Cluster
		p["ring_units"], p["unit_bytes"] = pool.RingUnits, pool.UnitBytes
		if _, ok := p["policy"]; !ok {
			p["policy"] = map[string]any{}
		}
		nameRule(p["policy"], pool.Policy.Name)
		if group, ok := p["control_group"].(map[string]any); ok {
			nameRule(group["policy"], pool.Control.Policy.Name)
		}
	}
	d.parsed, d.text, d.shown = set, marshalPolicy(d.off, routed(d.pools)), d.show()
	if len(d.text) > maxPolicyBytes {
		return nil, policyFailure(fmt.Sprintf("%s: %d bytes, the limit is %d", source, len(d.text), maxPolicyBytes), `name fewer models; "*" takes the rest`)
	}
	return d, nil
}

// nameRule says which rule is meant where none is named: modules of other versions have other
// defaults.
func nameRule(rule any, name policy.Name) {
	if fields, ok := rule.(map[string]any); ok && fields["name"] == nil {
		fields["name"] = name.String()
	}
}

// withTokenizers returns the pools as the author wrote them.
func (d *document) withTokenizers() []map[string]any {
	if len(d.tokenizers) == 0 {
		return d.pools
	}
	out := slices.Clone(d.pools)
	for i, pool := range out {
		if t := d.tokenizers[fmt.Sprint(pool["name"])]; t != nil {
			out[i] = maps.Clone(pool)
			out[i]["tokenizer"] = t.written
		}
	}
	return out
}

// show is the policy as operators read and write it.
func (d *document) show() []byte {
	whole := map[string]any{"off": d.off, "pools": d.withTokenizers()}
	if d.admission != nil {
		whole["admission"] = d.admission
	}
	return marshal(whole)
}

func marshalPolicy(off bool, pools []map[string]any) []byte {
	return marshal(map[string]any{"off": off, "pools": pools})
}

func marshal(policy map[string]any) []byte {
	text, err := json.Marshal(policy)
	if err != nil {
		// Everything in it came out of a JSON decoder.
		panic(fmt.Sprintf("control: policy can't be written: %v", err))
	}
	return text
}

// edit returns a copy changed by f.
func (d *document) edit(f func(*document) error) (*document, error) {
	c := &document{off: d.off, pools: make([]map[string]any, 0, len(d.pools)), fixed: d.fixed, derived: d.derived, tokenizers: d.tokenizers, admission: d.admission, settings: d.settings}
	for _, pool := range d.pools {
		m := make(map[string]any, len(pool))
		for k, v := range pool {
			m[k] = v
		}
		c.pools = append(c.pools, m)
	}
	if err := f(c); err != nil {
		return nil, err
	}
	return c.render("policy")
}

func (d *document) withMode(pool, mode string) (*document, error) {
	return d.edit(func(c *document) error {
		for _, p := range c.pools {
			if p["name"] == pool {
				p["mode"] = mode
				return nil
			}
		}
		return &api.Failure{Status: http.StatusNotFound, Code: "no_such_pool", Message: fmt.Sprintf("no pool %q in the policy", pool), Remedy: "see GET /v1/policy for the pools"}
	})
}

func (d *document) withOff(off bool) (*document, error) {
	return d.edit(func(c *document) error { c.off = off; return nil })
}

// withRing takes discriminating positions over, except where the author fixed
// one. nil when nothing changes.
func (d *document) withRing(units map[string]int) (*document, error) {
	changes := false
	for i := range d.parsed.Pools {
		p := &d.parsed.Pools[i]
		if u, ok := units[p.Name]; ok && !d.fixed[p.Name] && u != p.RingUnits {
			changes = true
		}
	}
	if !changes {
		return nil, nil
	}
	return d.edit(func(c *document) error {
		for _, p := range c.pools {
			name := fmt.Sprint(p["name"])
			if u, ok := units[name]; ok && !d.fixed[name] {
				p["ring_units"] = u
			}
		}
		return nil
	})
}

// poolIndex returns the number of a pool in reports and roster.
func (d *document) poolIndex(name string) (uint8, bool) {
	if p := d.parsed.ByName(name); p != nil {
		return p.Index, true
	}
	return 0, false
}

// observing tells whether choices of a pool are only on paper.
func (d *document) observing(index uint8) bool {
	p := d.parsed.ByIndex(index)
	return p == nil || d.parsed.Mode(p) == policy.Observe
}

func refusedPolicy(source string, err error) error {
	var p *policy.Error
	if errors.As(err, &p) {
		place := p.Place
		if place != "" {
			place += ": "
		}
		return policyFailure(source+": "+place+p.Fault, p.Remedy)
	}
	return policyFailure(source+": "+err.Error(), "")
}

func policyFailure(message, remedy string) error {
	return &api.Failure{Status: http.StatusBadRequest, Code: "bad_policy", Message: message, Remedy: remedy}
}
