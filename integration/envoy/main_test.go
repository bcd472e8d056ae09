//go:build envoy

package envoy

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/warmpath/warmpath/integration/envoybin"
	"github.com/warmpath/warmpath/integration/envoyrun"
	"github.com/warmpath/warmpath/integration/modules"
)

var (
	minRequests = flag.Int64("requests", 2000, "requests that each load scenario sends at least")
	tableFile   = flag.String("table", "", "write the table of versions and scenarios here, as Markdown")
)

// built are the modules under test.
var built struct{ filter, faults, custom string }

var results = &board{cells: map[string]map[string]string{}}

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "warmpath-modules-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	root, err := envoyrun.Root()
	if err == nil {
		built.filter, err = modules.Build(context.Background(), root, dir, modules.Filter)
	}
	if err == nil {
		built.faults, err = modules.Build(context.Background(), root, dir, modules.Faults)
	}
	if err == nil {
		built.custom, err = modules.Build(context.Background(), root, dir, modules.Custom)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	table := results.markdown()
	fmt.Print(table)
	if *tableFile != "" {
		if err := os.WriteFile(*tableFile, []byte(table), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// versions is what ENVOY asks for.
func versions(t *testing.T) []string {
	t.Helper()
	list := os.Getenv("ENVOY")
	if list == "" {
		list = "1.40.0"
	}
	v, err := envoybin.ParseVersions(list)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// board is the table of results: scenario by version and way of holding.
type board struct {
	mu      sync.Mutex
	columns []string
	rows    []string
	cells   map[string]map[string]string
}

func (b *board) set(row, column string, failed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cells[row] == nil {
		b.cells[row] = map[string]string{}
		b.rows = append(b.rows, row)
	}
	cell := "ok"
	if failed {
		cell = "FAILED"
	}
	b.cells[row][column] = cell
	for _, c := range b.columns {
		if c == column {
			return
		}
	}
	b.columns = append(b.columns, column)
	sort.Strings(b.columns)
}

func (b *board) markdown() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.rows) == 0 {
		return ""
	}
	var s strings.Builder
	s.WriteString("\n| scenario | " + strings.Join(b.columns, " | ") + " |\n")
	s.WriteString("|---" + strings.Repeat("|---", len(b.columns)) + "|\n")
	for _, row := range b.rows {
		s.WriteString("| " + row)
		for _, column := range b.columns {
			cell := b.cells[row][column]
			if cell == "" {
				cell = "-"
			}
			s.WriteString(" | " + cell)
		}
		s.WriteString(" |\n")
	}
	return s.String()
}
