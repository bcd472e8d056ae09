package control

import (
	"errors"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/warmpath/warmpath/shared/policy"
)

// located is the name of a source with line and column of what an error is about, where that can
// be found: policy.yaml:12:7. The places of the error begin with prefix, which the text itself
// hasn't.
func located(source, prefix string, text []byte, err error) string {
	var p *policy.Error
	var root yaml.Node
	if !errors.As(err, &p) || yaml.Unmarshal(text, &root) != nil || len(root.Content) == 0 {
		return source
	}
	line, column := position(root.Content[0], strings.TrimPrefix(p.Place, prefix))
	return source + ":" + strconv.Itoa(line) + ":" + strconv.Itoa(column)
}

// position finds the node of a place such as pools[1].policy.load_limit, or the nearest one
// around it. A key may have dots.
func position(n *yaml.Node, place string) (line, column int) {
	line, column = n.Line, n.Column
	for place != "" {
		place = strings.TrimPrefix(place, ".")
		var next, mark *yaml.Node
		rest := ""
		switch n.Kind {
		case yaml.MappingNode:
			longest := -1
			for i := 0; i+1 < len(n.Content); i += 2 {
				key := n.Content[i].Value
				if len(key) > longest && strings.HasPrefix(place, key) && ends(place[len(key):]) {
					longest, next, mark, rest = len(key), n.Content[i+1], n.Content[i], place[len(key):]
				}
			}
		case yaml.SequenceNode:
			number, after, ok := strings.Cut(strings.TrimPrefix(place, "["), "]")
			if i, err := strconv.Atoi(number); ok && err == nil && i < len(n.Content) {
				next, mark, rest = n.Content[i], n.Content[i], after
			}
		}
		if next == nil {
			return line, column
		}
		n, place, line, column = next, rest, mark.Line, mark.Column
	}
	return line, column
}

// ends tells whether a key may end before rest.
func ends(rest string) bool { return rest == "" || rest[0] == '.' || rest[0] == '[' }
