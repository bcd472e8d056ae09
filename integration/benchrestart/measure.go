package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/warmpath/warmpath/control"
	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
	"github.com/warmpath/warmpath/tokenizer/pretoken"
	"github.com/warmpath/warmpath/tokenizer/vocab"
)

// followFor bounds the wait for the service to follow its engines.
const followFor = 15 * time.Minute

// service is a control service that runs.
type service struct {
	*control.Service
	stop func() error
}

func start(ctx context.Context, cfg control.Config) (*service, error) {
	s, err := control.New(cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return &service{s, sync.OnceValue(func() error { cancel(); return <-done })}, nil
}

// measure plays the story that the package comment tells.
func measure(ctx context.Context, o options, progress io.Writer) (*figures, error) {
	dir, err := os.MkdirTemp("", "benchrestart-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	engines, err := newEngines(o)
	defer func() {
		for _, e := range engines {
			e.close()
		}
	}()
	if err != nil {
		return nil, err
	}
	cfg, err := config(dir, engines)
	if err != nil {
		return nil, err
	}
	f := &figures{Workers: o.Workers, Blocks: o.Blocks, Batches: o.Batches, Missed: o.Missed}
	if err := f.fill(ctx, o, cfg, engines, progress); err != nil {
		return nil, err
	}
	f.DiskBytes, err = sizeOf(cfg.StateFile)
	if err != nil {
		return nil, err
	}
	f.DiskPerBlock = float64(f.DiskBytes) / float64(o.Workers*o.Blocks)
	if err := each(engines, func(e *engine) error { return e.steps(ctx, o.Missed) }); err != nil {
		return nil, err
	}
	fmt.Fprintln(progress, "starting again")
	return f, f.restart(ctx, cfg, engines)
}

func newEngines(o options) (engines []*engine, err error) {
	for i := range o.Workers {
		e, err := newEngine(i, o.Blocks)
		if err != nil {
			return engines, err
		}
		engines = append(engines, e)
	}
	return engines, nil
}

// config is a service for the engines, in a pool whose fingerprints are over
// tokens without anybody being asked for them.
func config(dir string, engines []*engine) (control.Config, error) {
	spec := vocab.Spec{ByRank: true, Kind: pretoken.GPT2}
	for b := range 256 {
		spec.Tokens = append(spec.Tokens, []byte{byte(b)})
	}
	spec.Added = []vocab.AddedSpec{{ID: 9000, Content: "<|im_start|>", Special: true}, {ID: 9001, Content: "<|im_end|>", Special: true}}
	compiled, err := spec.Compile()
	if err != nil {
		return control.Config{}, fmt.Errorf("compile a vocabulary: %w", err)
	}
	path := filepath.Join(dir, "tiny.wpv")
	if err := os.WriteFile(path, compiled, 0o600); err != nil {
		return control.Config{}, err
	}
	cfg := control.Config{
		Listen: "127.0.0.1:0", StateFile: filepath.Join(dir, "state"), Logger: slog.New(slog.DiscardHandler), Learn: -1,
		Policy: fmt.Appendf(nil, "pools:\n- {name: default, models: [tiny], tokenizer: {file: %q, template: chatml, engine: sglang, parity: off, exact_grace_ms: 0}}\n", path),
	}
	for _, e := range engines {
		cfg.Workers = append(cfg.Workers, discovery.Spec{Address: e.address(), KVEvents: discovery.KVEvents{Auto: true}})
	}
	return cfg, nil
}

func (e *engine) steps(ctx context.Context, n int) error {
	for range n {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := e.step(); err != nil {
			return err
		}
	}
	return nil
}

func each(engines []*engine, f func(*engine) error) error {
	var group errgroup.Group
	for _, e := range engines {
		group.Go(func() error { return f(e) })
	}
	return group.Wait()
}

// fill lets a service follow all batches, and stops it.
func (f *figures) fill(ctx context.Context, o options, cfg control.Config, engines []*engine, progress io.Writer) error {
	s, err := start(ctx, cfg)
	if err != nil {
		return err
	}
	for _, e := range engines {
		e.waitForClient()
	}
	fmt.Fprintf(progress, "%d engines publish %d batches each\n", o.Workers, o.Batches)
	began := time.Now()
	err = each(engines, func(e *engine) error { return e.steps(ctx, o.Batches) })
	var status api.Status
	if err == nil {
		status, err = follow(ctx, s, o.Batches)
	}
	took := time.Since(began)
	ended := time.Now()
	if err = errors.Join(err, s.stop()); err != nil {
		return err
	}
	f.SaveSeconds = time.Since(ended).Seconds()
	stored := o.Workers * (min(o.Batches, o.Blocks/promptLen)*promptLen + max(0, o.Batches-o.Blocks/promptLen)*churnLen)
	f.IngestedPerSecond = float64(stored) / took.Seconds()
	blocks, bytes := 0, int64(0)
	for i := range status.Workers {
		blocks += status.Workers[i].Events.Blocks
		bytes += status.Workers[i].Events.Bytes
	}
	f.MapBytesPerBlock = float64(bytes) / float64(blocks)
	f.ResidentPerBlock = float64(bytes+status.Index.Bytes) / float64(blocks)
	return nil
}

// follow waits until the service has seen so many batches of every worker.
func follow(ctx context.Context, s *service, batches int) (api.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, followFor)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		status := s.Status()
		if !slices.ContainsFunc(status.Workers, func(w api.Worker) bool { return w.Events == nil || w.Events.Batches < uint64(batches) }) {
			return status, nil
		}
		select {
		case <-ctx.Done():
			return status, fmt.Errorf("follow the engines: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// sizeOf is the size of the state file and of what lies beside it.
func sizeOf(state string) (total int64, err error) {
	files, err := filepath.Glob(state + "*/*")
	for _, name := range append(files, state) {
		info, statErr := os.Stat(name)
		if err = errors.Join(err, statErr); statErr == nil {
			total += info.Size()
		}
	}
	return total, err
}

// restart starts the service again and compares its table with the truth until
// both agree, and at least once after 5 s.
func (f *figures) restart(ctx context.Context, cfg control.Config, engines []*engine) error {
	for _, e := range engines {
		f.Entries += len(e.truth.now)
		f.PrefixEntries += len(e.truth.first)
	}
	began := time.Now()
	s, err := start(ctx, cfg)
	if err != nil {
		return err
	}
	defer s.stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		asked := time.Since(began)
		seen, err := entries(s)
		if err != nil {
			return err
		}
		found, prefix := seen.count(s, engines)
		if share := float64(found) / float64(f.Entries); share >= 0.99 && f.Restart99Seconds == 0 {
			f.Restart99Seconds = asked.Seconds()
		}
		if asked <= 5*time.Second {
			f.UsableIn5, f.PrefixUsable = float64(found)/float64(f.Entries), float64(prefix)/float64(f.PrefixEntries)
		}
		all := 0
		for _, refs := range seen {
			all += len(refs)
		}
		f.Untrue = all - found
		if found == f.Entries && f.Untrue == 0 || asked > 15*time.Second {
			return s.stop()
		}
	}
}

// published is what the table says, by fingerprint.
type published map[uint64][]uint16

func entries(s *service) (published, error) {
	stats := s.Table().Stats()
	out := make(published, stats.Entries)
	for r := range table.Ranges(stats.Bits) {
		frame, err := s.Table().Pages(stats.Epoch, stats.Bits, r)
		if err != nil {
			return published{}, nil //nolint:nilerr // it has just grown: the next look shows it
		}
		err = wire.ForEachSection(frame, func(sec wire.Section) error {
			return wire.ForEachPage(sec.Payload, func(p table.Page) error {
				for i := range p.Count() {
					e := p.At(i)
					for _, ref := range e.Refs {
						if ref != 0 {
							out[e.Fingerprint] = append(out[e.Fingerprint], ref)
						}
					}
				}
				return nil
			})
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// count tells how many of the true pairs are published, and how many of the
// prefixes of the first batches.
func (p published) count(s *service, engines []*engine) (found, prefix int) {
	refs := map[string]uint16{}
	for _, w := range s.Status().Workers {
		refs[w.Address] = w.Ref
	}
	for _, e := range engines {
		ref := refs[e.address()]
		for fp := range e.truth.now {
			if slices.Contains(p[fp], ref) {
				found++
			}
		}
		for _, fp := range e.truth.first {
			if slices.Contains(p[fp], ref) {
				prefix++
			}
		}
	}
	return found, prefix
}
