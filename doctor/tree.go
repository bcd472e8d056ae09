package doctor

import (
	"strconv"
	"strings"
	"time"
)

// tree is a JSON object. Its methods answer with nothing where the path leads
// nowhere or to another kind of value.
type tree map[string]any

func (t tree) at(path ...string) any {
	var v any = map[string]any(t)
	for _, key := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[key]
	}
	return v
}

func (t tree) tree(path ...string) tree {
	m, _ := t.at(path...).(map[string]any)
	return m
}

func (t tree) text(path ...string) string {
	s, _ := t.at(path...).(string)
	return s
}

func (t tree) flag(path ...string) bool {
	b, _ := t.at(path...).(bool)
	return b
}

// number reads 64-bit integers too, which protobuf writes as text.
func (t tree) number(path ...string) (float64, bool) {
	switch v := t.at(path...).(type) {
	case float64:
		return v, true
	case string:
		n, err := strconv.ParseFloat(v, 64)
		return n, err == nil
	}
	return 0, false
}

func (t tree) list(path ...string) (out []tree) {
	items, _ := t.at(path...).([]any)
	for _, item := range items {
		if m, ok := item.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// duration is a protobuf duration as JSON writes it; ok is false where none is
// set.
func (t tree) duration(path ...string) (d time.Duration, ok bool) {
	d, err := time.ParseDuration(t.text(path...))
	return d, err == nil
}

// isType tells whether a typed_config is of a message, by the last parts of its
// name.
func (t tree) isType(suffix string) bool { return strings.HasSuffix(t.text("@type"), suffix) }

// every calls f for each object in v, outermost first.
func every(v any, f func(tree)) {
	switch v := v.(type) {
	case map[string]any:
		f(v)
		for _, child := range v {
			every(child, f)
		}
	case []any:
		for _, child := range v {
			every(child, f)
		}
	}
}
