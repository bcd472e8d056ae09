package policy

import (
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

const (
	// MaxBytes bounds the text of a policy.
	MaxBytes = 256 << 10
	// MaxPools is the number of pools a roster record can name.
	MaxPools = 256

	maxModels = 256
	maxName   = 256
	maxDepth  = 8
)

// Error says where a policy is wrong and what to write instead.
type Error struct {
	// Place is a path such as pools[1].policy.load_limit; "" is the whole text.
	Place string
	// Fault is what was found, Remedy what to do.
	Fault, Remedy string
}

func (e *Error) Error() string {
	place := e.Place
	if place == "" {
		place = "policy"
	}
	s := place + ": " + e.Fault
	if e.Remedy != "" {
		s += "; " + e.Remedy
	}
	return s
}

// Parse reads the POLICY JSON. Unknown and repeated keys, wrong types and values out of range
// are refused with an *Error.
func Parse(text []byte) (*Set, error) {
	if len(text) > MaxBytes {
		return nil, &Error{"", "longer than 256 KiB", "split the deployment or list fewer models"}
	}
	// Bounded before anything recursive looks at it: a VM's stack is small.
	if err := checkDepth(text); err != nil {
		return nil, err
	}
	if !gjson.ValidBytes(text) {
		return nil, &Error{"", "not valid JSON", "check commas, quotes and braces"}
	}
	p := parser{}
	set := &Set{}
	p.object("", gjson.ParseBytes(text), []field{
		{"off", func(at string, v gjson.Result) { set.Off = p.bool(at, v) }},
		{"pools", func(at string, v gjson.Result) { p.pools(at, v, set) }},
	})
	if p.err == nil {
		p.unique(set)
	}
	if p.err != nil {
		return nil, p.err
	}
	return set, nil
}

func checkDepth(text []byte) error {
	depth, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return &Error{"", "nested deeper than a policy can be at byte " + strconv.Itoa(i), "remove the inner object"}
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

// parser keeps the first error; everything after it is ignored.
type parser struct{ err error }

type field struct {
	name string
	set  func(at string, v gjson.Result)
}

func (p *parser) fail(place, fault, remedy string) {
	if p.err == nil {
		p.err = &Error{place, fault, remedy}
	}
}

func (p *parser) object(at string, v gjson.Result, fields []field) {
	if !v.IsObject() {
		p.fail(at, "not an object", "write {...}")
		return
	}
	var seen uint64
	v.ForEach(func(key, value gjson.Result) bool {
		place := key.String()
		if at != "" {
			place = at + "." + place
		}
		for i, f := range fields {
			if f.name != key.String() {
				continue
			}
			if seen&(1<<i) != 0 {
				p.fail(place, "given twice", "keep one of them")
				return false
			}
			seen |= 1 << i
			f.set(place, value)
			return p.err == nil
		}
		known := make([]string, len(fields))
		for i, f := range fields {
			known[i] = f.name
		}
		p.fail(place, "unknown key", "remove it or use one of "+strings.Join(known, ", "))
		return false
	})
}

func (p *parser) bool(at string, v gjson.Result) bool {
	if v.Type != gjson.True && v.Type != gjson.False {
		p.fail(at, "not a boolean", "write true or false")
	}
	return v.Type == gjson.True
}

func (p *parser) text(at string, v gjson.Result) string {
	if v.Type != gjson.String {
		p.fail(at, "not a string", "write it in quotes")
		return ""
	}
	return v.Str
}

func (p *parser) number(at string, v gjson.Result, low, high float64) float64 {
	if v.Type != gjson.Number || !(v.Num >= low && v.Num <= high) {
		p.fail(at, "out of range: "+shorten(v.Raw), "give a number from "+format(low)+" to "+format(high))
		return low
	}
	return v.Num
}

func (p *parser) integer(at string, v gjson.Result, low, high int) int {
	n := p.number(at, v, float64(low), float64(high))
	if n != float64(int(n)) {
		p.fail(at, "not a whole number: "+shorten(v.Raw), "give an integer from "+strconv.Itoa(low)+" to "+strconv.Itoa(high))
	}
	return int(n)
}

func (p *parser) pools(at string, v gjson.Result, set *Set) {
	if !v.IsArray() {
		p.fail(at, "not an array", "write [{...}]")
		return
	}
	v.ForEach(func(_, value gjson.Result) bool {
		place := at + "[" + strconv.Itoa(len(set.Pools)) + "]"
		if len(set.Pools) == MaxPools {
			p.fail(place, "more than 256 pools", "use several deployments")
			return false
		}
		set.Pools = append(set.Pools, p.pool(place, value, uint8(len(set.Pools))))
		return p.err == nil
	})
}

func (p *parser) pool(at string, v gjson.Result, index uint8) Pool {
	pool := Pool{Index: index, Policy: Default(DefaultRule), RingUnits: 16, UnitBytes: 64}
	p.object(at, v, []field{
		{"name", func(at string, v gjson.Result) {
			pool.Name = p.text(at, v)
			if !validName(pool.Name) {
				p.fail(at, "not a pool name: "+shorten(v.Raw), "use 1 to 40 of a-z, 0-9 and -")
			}
		}},
		{"index", func(at string, v gjson.Result) { pool.Index = uint8(p.integer(at, v, 0, MaxPools-1)) }},
		{"models", func(at string, v gjson.Result) { pool.Models = p.models(at, v) }},
		{"adapters", func(at string, v gjson.Result) { pool.Adapters = p.adapters(at, v) }},
		{"mode", func(at string, v gjson.Result) {
			switch p.text(at, v) {
			case "route":
				pool.Mode = Route
			case "observe":
				pool.Mode = Observe
			default:
				p.fail(at, "unknown mode: "+shorten(v.Raw), "use route or observe")
			}
		}},
		{"policy", func(at string, v gjson.Result) { pool.Policy = p.policy(at, v) }},
		{"control_group", func(at string, v gjson.Result) { pool.Control = p.control(at, v) }},
		{"ring_units", func(at string, v gjson.Result) { pool.RingUnits = p.integer(at, v, 1, 65536) }},
		{"slow_credit", func(at string, v gjson.Result) { pool.SlowCredit = p.number(at, v, 0, 1) }},
		{"unit_bytes", func(at string, v gjson.Result) { pool.UnitBytes = p.integer(at, v, 64, 64) }},
		{"cluster", func(at string, v gjson.Result) {
			pool.Cluster = p.text(at, v)
			if pool.Cluster == "" || len(pool.Cluster) > maxName {
				p.fail(at, "not a cluster name", "use 1 to 256 bytes")
			}
		}},
	})
	if pool.Name == "" {
		p.fail(at+".name", "missing", "name the pool")
	}
	if len(pool.Models) == 0 {
		p.fail(at+".models", "missing", `list model names, or ["*"] for all others`)
	}
	if pool.Cluster == "" {
		pool.Cluster = "pool-" + pool.Name
	}
	return pool
}

// control reads a control group.
func (p *parser) control(at string, v gjson.Result) ControlGroup {
	var g ControlGroup
	rule := false
	p.object(at, v, []field{
		{"share", func(at string, v gjson.Result) { g.Share = p.number(at, v, 0, 0.5) }},
		{"policy", func(at string, v gjson.Result) {
			rule = true
			if g.Policy = p.policy(at, v); firstValue(v, "virtual_nodes").Exists() {
				p.fail(at+".virtual_nodes", "not a setting of a control group", "remove it: both groups use the ring of the pool's policy")
			}
		}},
	})
	if !rule {
		p.fail(at+".policy", "missing", `name the rule to compare with, such as {"name": "least_load"}`)
	}
	return g
}

func (p *parser) models(at string, v gjson.Result) []string {
	if !v.IsArray() {
		p.fail(at, "not an array", `write ["name", ...]`)
		return nil
	}
	var models []string
	v.ForEach(func(_, value gjson.Result) bool {
		place := at + "[" + strconv.Itoa(len(models)) + "]"
		m := p.text(place, value)
		switch {
		case m == "" || len(m) > maxName:
			p.fail(place, "not a model name", "use 1 to 256 bytes")
		case len(models) == maxModels:
			p.fail(place, "more than 256 models", `use "*" or another pool`)
		}
		models = append(models, m)
		return p.err == nil
	})
	return models
}

// adapters reads generations by the names of adapters.
func (p *parser) adapters(at string, v gjson.Result) (adapters []Adapter) {
	if !v.IsObject() {
		p.fail(at, "not an object", `write {"name": generation, ...}, 0 where the workers tell`)
		return nil
	}
	v.ForEach(func(name, value gjson.Result) bool {
		place := at + "." + shorten(name.Str)
		switch {
		case name.Str == "" || name.Str == "*" || len(name.Str) > maxName:
			p.fail(place, "not the name of an adapter", "use 1 to 256 bytes")
		case len(adapters) == maxModels:
			p.fail(place, "more than 256 adapters", "use another pool")
		}
		adapters = append(adapters, Adapter{name.Str, uint64(p.integer(place, value, 0, MaxGeneration))})
		return p.err == nil
	})
	return adapters
}

// parameter is a setting of a policy and the rules that use it.
type parameter struct {
	name string
	used []Name
	set  func(p *parser, policy *Policy, at string, v gjson.Result)
}

const (
	smallest = 1e-6 // the open end of (0, 1]
	// A slice below some blocks of an engine is all overhead, one above a step of its batch is cut there.
	minCopySlice = 256
	maxCopySlice = 8192
)

var parameters = []parameter{
	{"load_limit", []Name{Threshold}, func(p *parser, o *Policy, at string, v gjson.Result) {
		o.LoadLimit = p.number(at, v, smallest, 1)
	}},
	{"min_match_tokens", []Name{Threshold}, func(p *parser, o *Policy, at string, v gjson.Result) {
		o.MinMatchTokens = p.integer(at, v, 0, 1<<20)
	}},
	{"watermark", []Name{Threshold, LeastLoad, CHWBL, Cost, Weighted, Custom}, func(p *parser, o *Policy, at string, v gjson.Result) {
		o.Watermark = p.number(at, v, smallest, 1)
	}},
	{"load_bound", []Name{Threshold, CHWBL}, func(p *parser, o *Policy, at string, v gjson.Result) {
		o.LoadBound = p.number(at, v, 1.01, 10)
	}},
	{"holder_bound", []Name{Threshold}, func(p *parser, o *Policy, at string, v gjson.Result) {
		o.HolderBound = p.number(at, v, 1.1, 100)
	}},
	{"virtual_nodes", []Name{Threshold, CHWBL, SessionHash}, func(p *parser, o *Policy, at string, v gjson.Result) {
		o.VirtualNodes = p.integer(at, v, 1, 1024)
	}},
	{"load_decay_ms", []Name{Threshold, LeastLoad, Weighted, Custom}, func(p *parser, o *Policy, at string, v gjson.Result) {
		o.LoadDecay = time.Duration(p.integer(at, v, 100, 600_000)) * time.Millisecond
	}},
	{"miss_weight", []Name{Cost}, func(p *parser, o *Policy, at string, v gjson.Result) {
		o.MissWeight = p.number(at, v, 0, 100)
	}},
	{"decode_weight", []Name{Cost}, func(p *parser, o *Policy, at string, v gjson.Result) {
		o.DecodeWeight = p.number(at, v, 0, 10)
	}},
	{"evict_weight", []Name{Cost}, func(p *parser, o *Policy, at string, v gjson.Result) {
		o.EvictWeight = p.number(at, v, 0, 100)
	}},
	{"tail_decay_ms", []Name{Cost}, func(p *parser, o *Policy, at string, v gjson.Result) {
		o.TailDecay = time.Duration(p.integer(at, v, 100, 3_600_000)) * time.Millisecond
	}},
	{"spread_weight_ms", []Name{Cost}, func(p *parser, o *Policy, at string, v gjson.Result) {
		o.SpreadWeight = time.Duration(p.integer(at, v, 0, 60_000)) * time.Millisecond
	}},
	{"sample", []Name{Cost}, func(p *parser, o *Policy, at string, v gjson.Result) {
		o.Sample = p.number(at, v, smallest, 1)
	}},
	{"output_tokens", []Name{Cost}, func(p *parser, o *Policy, at string, v gjson.Result) {
		o.OutputTokens = p.integer(at, v, 1, 1<<20)
	}},
	{"decode_step_us", []Name{Cost}, func(p *parser, o *Policy, at string, v gjson.Result) {
		o.DecodeStep = time.Duration(p.integer(at, v, 0, 1_000_000)) * time.Microsecond
	}},
	{"ramp_ms", []Name{Cost}, func(p *parser, o *Policy, at string, v gjson.Result) {
		o.Ramp = time.Duration(p.integer(at, v, 0, 600_000)) * time.Millisecond
	}},
	{"ramp_first_ms", []Name{Cost}, func(p *parser, o *Policy, at string, v gjson.Result) {
		o.RampFirst = time.Duration(p.integer(at, v, 1, 60_000)) * time.Millisecond
	}},
	{"copy_slice_tokens", []Name{Cost}, func(p *parser, o *Policy, at string, v gjson.Result) {
		o.CopySlice = p.integer(at, v, 0, maxCopySlice)
		if o.CopySlice > 0 && o.CopySlice < minCopySlice {
			p.fail(at, "out of range: "+shorten(v.Raw), "give 0, and a home's first request makes its copy, or an integer from 256 to 8192")
		}
	}},
	{"explore", []Name{Threshold, Cost, Weighted}, func(p *parser, o *Policy, at string, v gjson.Result) {
		o.Explore = p.number(at, v, 0, 0.5)
	}},
	{"cache_weight", []Name{Weighted}, func(p *parser, o *Policy, at string, v gjson.Result) {
		o.CacheWeight = p.number(at, v, 0, 100)
	}},
	{"max_queue", []Name{Weighted}, func(p *parser, o *Policy, at string, v gjson.Result) {
		o.MaxQueue = p.number(at, v, 0.01, 100)
	}},
	{"queue_breaker", []Name{Weighted}, func(p *parser, o *Policy, at string, v gjson.Result) {
		o.QueueBreaker = p.number(at, v, 0.01, 100)
	}},
	{"lease_ms", []Name{Threshold, RoundRobin, SessionHash, LeastLoad, Random, CHWBL, Cost, Weighted, Custom}, func(p *parser, o *Policy, at string, v gjson.Result) {
		o.Lease = time.Duration(p.integer(at, v, 1000, 3_600_000)) * time.Millisecond
	}},
}

func (p *parser) policy(at string, v gjson.Result) Policy {
	if !v.IsObject() {
		p.fail(at, "not an object", `write {"name": "cost"}`)
		return Policy{}
	}
	name := DefaultRule
	if given := firstValue(v, "name"); given.Exists() {
		var known bool
		text := p.text(at+".name", given)
		for i, n := range names {
			if n == text {
				name, known = Name(i), true
			}
		}
		if !known {
			p.fail(at+".name", "unknown policy: "+shorten(given.Raw), "use one of "+strings.Join(names[:], ", "))
		}
	}
	out := Default(name)
	fields := []field{{"name", func(string, gjson.Result) {}}}
	for _, q := range parameters {
		for _, user := range q.used {
			if user == name {
				fields = append(fields, field{q.name, func(at string, v gjson.Result) { q.set(p, &out, at, v) }})
			}
		}
	}
	p.object(at, v, fields)
	return out
}

// firstValue finds a key by exact name, without gjson's path syntax.
func firstValue(object gjson.Result, name string) gjson.Result {
	var found gjson.Result
	object.ForEach(func(key, value gjson.Result) bool {
		if key.String() == name {
			found = value
			return false
		}
		return true
	})
	return found
}

func (p *parser) unique(set *Set) {
	name, index, model := map[string]int{}, map[uint8]int{}, map[string]int{}
	for i := range set.Pools {
		pool := &set.Pools[i]
		at := "pools[" + strconv.Itoa(i) + "]"
		if first, twice := name[pool.Name]; twice {
			p.fail(at+".name", "the name of pools["+strconv.Itoa(first)+"] again", "pool names are unique")
		}
		if first, twice := index[pool.Index]; twice {
			p.fail(at+".index", "the index of pools["+strconv.Itoa(first)+"] again", "give every pool its own index")
		}
		name[pool.Name], index[pool.Index] = i, i
		for j, m := range pool.Models {
			if first, twice := model[m]; twice {
				p.fail(at+".models["+strconv.Itoa(j)+"]", "model "+strconv.Quote(m)+" is served by pools["+strconv.Itoa(first)+"] already", "name a model once")
			}
			model[m] = i
		}
		adapter := map[string]bool{}
		for _, a := range pool.Adapters {
			first, named := model[a.Name]
			if named && first != i || adapter[a.Name] {
				p.fail(at+".adapters."+shorten(a.Name), "is served by pools["+strconv.Itoa(first)+"] already", "name an adapter once")
			}
			model[a.Name], adapter[a.Name] = i, true
		}
	}
}

func validName(s string) bool {
	if s == "" || len(s) > 40 {
		return false
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

func shorten(raw string) string {
	if len(raw) > 60 {
		return raw[:60] + "..."
	}
	return raw
}

func format(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
