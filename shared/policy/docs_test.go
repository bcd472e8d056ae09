package policy

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// row is a line of the table of parameters in docs/policy.md.
var row = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([^|]+) \\| ([^|]+) \\| ([0-9.,]+) \\| (.+) \\|$")

func TestDocsHaveRulesUnitDefaultAndReasonOfEveryParameter(t *testing.T) {
	text, err := os.ReadFile("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Parameters\n")
	section, _, _ = strings.Cut(section, "\n`cost` in seconds")
	told := map[string][]string{}
	for _, m := range row.FindAllStringSubmatch(section, -1) {
		told[m[1]] = m[2:]
	}
	if lines := strings.Count(section, "\n| `"); lines != len(told) {
		t.Errorf("%d of %d rows can be read: a row is | `name` | rules | unit, range | default | why |", len(told), lines)
	}
	for _, q := range parameters {
		cells, ok := told[q.name]
		if !ok {
			t.Errorf("%s is in no row", q.name)
			continue
		}
		delete(told, q.name)
		var rules []string
		for _, name := range q.used {
			rules = append(rules, name.String())
		}
		slices.Sort(rules)
		want := strings.Split(cells[0], ", ")
		slices.Sort(want)
		if !slices.Equal(rules, want) && (cells[0] != "all" || len(rules) != len(names)) {
			t.Errorf("%s is used by %v, the docs say %s", q.name, rules, cells[0])
		}
		s, err := Parse([]byte(`{"pools":[{"name":"a","models":["*"],"policy":{"name":"` + rules[0] + `","` + q.name + `":` + strings.ReplaceAll(cells[2], ",", "") + `}}]}`))
		if err != nil {
			t.Errorf("%s: the default in the docs is refused: %v", q.name, err)
		} else if s.Pools[0].Policy != Default(s.Pools[0].Policy.Name) {
			t.Errorf("%s: the default isn't %s", q.name, cells[2])
		}
		if len(strings.Fields(cells[3])) < 5 {
			t.Errorf("%s: no reason: %q", q.name, cells[3])
		}
	}
	for name := range told {
		t.Errorf("%s is in the docs and no parameter", name)
	}
}
