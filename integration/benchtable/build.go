package main

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/warmpath/warmpath/integration/envoybin"
	"github.com/warmpath/warmpath/integration/envoyrun"
	"github.com/warmpath/warmpath/integration/modules"
)

// Where the table is.
const (
	wayPages = "pages"
	wayCopy  = "copy"
)

const guestPackage = "integration/benchtable/testdata/guest"

// builder has the modules and the Envoy of a run.
type builder struct {
	root, dir string
	envoy     string
	built     map[string]string // by tags
}

// newBuilder installs Envoy if it will be needed.
func newBuilder(ctx context.Context, o options) (*builder, error) {
	root, err := envoyrun.Root()
	if err != nil {
		return nil, err
	}
	b := &builder{root: root, built: map[string]string{}}
	if slices.Contains(o.Hosts, hostEnvoy) {
		if b.envoy, err = envoybin.Install(ctx, o.Envoy); err != nil {
			return nil, err
		}
	}
	if b.dir, err = os.MkdirTemp("", "warmpath-benchtable-"); err != nil {
		return nil, fmt.Errorf("create a directory for the modules: %w", err)
	}
	return b, nil
}

func (b *builder) close() { os.RemoveAll(b.dir) }

// guest builds the module for a table of that many entries.
func (b *builder) guest(ctx context.Context, entries int) (path string, err error) {
	var tags []string
	if entries > 100_000 {
		tags = append(tags, "million")
	}
	name := fmt.Sprint(tags)
	if b.built[name] == "" {
		if b.built[name], err = modules.Build(ctx, b.root, b.dir, guestPackage, tags...); err != nil {
			return "", err
		}
	}
	return b.built[name], nil
}
