package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// within is a context for one call.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestDocumentsAreReplacedByCompareAndSetAndOutliveTheProcess(t *testing.T) {
	cfg := Config{Name: "a", Embedded: Embedded{StoreDir: filepath.Join(t.TempDir(), "store")}}
	c, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), "policy"); !errors.Is(err, ErrNoKey) {
		t.Errorf("%v for a key that doesn't exist", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	seen, watched := make(chan Entry, 8), make(chan error, 1)
	go func() { watched <- c.Watch(ctx, "policy", func(e Entry) { seen <- e }) }()
	first, err := c.Put(t.Context(), "policy", []byte("one"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(t.Context(), "policy", []byte("other"), 0); !errors.Is(err, ErrConflict) {
		t.Errorf("%v for a second one that creates it", err)
	}
	second, err := c.Put(t.Context(), "policy", []byte("two"), first)
	if err != nil || second <= first {
		t.Fatalf("revision %d after %d, %v", second, first, err)
	}
	if _, err := c.Put(t.Context(), "policy", []byte("late"), first); !errors.Is(err, ErrConflict) {
		t.Errorf("%v for one that comes late", err)
	}
	for e := range seen {
		if string(e.Value) == "two" && e.Revision == second {
			break
		}
	}
	cancel()
	<-watched
	c.Close()

	c, err = Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if e, err := c.Get(t.Context(), "policy"); err != nil || string(e.Value) != "two" || e.Revision != second {
		t.Errorf("%+v, %v after a restart", e, err)
	}
}

func TestWithoutAMajorityNothingIsAgreedAndNobodyLeads(t *testing.T) {
	rs := trio(t)
	until(t, 20*time.Second, "a leader", func() bool { i, _ := leaderOf(rs); return i >= 0 })
	var revision uint64
	until(t, 5*time.Second, "a document", func() bool {
		var err error
		revision, err = rs[2].Put(within(t, time.Second), "policy", []byte("one"), 0)
		return err == nil
	})
	for _, r := range rs[:2] {
		r.transport.(*natsTransport).server.Shutdown()
	}
	until(t, 5*time.Second, "an end of the lease", func() bool { i, _ := leaderOf(rs); return i < 0 })
	until(t, 5*time.Second, "a word about it", func() bool { return rs[2].Problem() != nil })
	if _, err := rs[2].Put(within(t, time.Second), "policy", []byte("two"), revision); !errors.Is(err, ErrNotReady) {
		t.Errorf("%v without a majority", err)
	}
	// One comes back, on its store.
	back := rs[0].cfg
	rs[0].end()
	rs[0] = start(t, back)
	t.Log("leads again", until(t, 15*time.Second, "a leader with two of three", func() bool { i, _ := leaderOf([]*replica{rs[0], rs[2]}); return i >= 0 }))
	until(t, 5*time.Second, "the end of the problem", func() bool { return rs[0].Problem() == nil && rs[2].Problem() == nil })
	// Nobody else wrote: a conflict can only be with the write above, carried out late.
	switch _, err := rs[0].Put(within(t, 3*time.Second), "policy", []byte("two"), revision); {
	case errors.Is(err, ErrConflict):
		if e, err := rs[0].Get(within(t, 3*time.Second), "policy"); err != nil || string(e.Value) != "two" {
			t.Errorf("%+v %v after a conflict", e, err)
		}
	case err != nil:
		t.Error(err)
	}
}

func TestAStoreThatCannotBeReadIsRefusedAndKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	cfg := Config{Name: "a", Embedded: Embedded{StoreDir: dir}}
	c, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(t.Context(), "policy", []byte("one"), 0); err != nil {
		t.Fatal(err)
	}
	c.Close()
	var meta []string
	err = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if filepath.Base(path) == "meta.inf" {
			meta = append(meta, path)
		}
		return err
	})
	if err != nil || len(meta) == 0 {
		t.Fatal(err, meta)
	}
	good, err := os.ReadFile(meta[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(meta[0], []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err = Open(t.Context(), cfg)
	if err == nil {
		c.Close()
		t.Fatal("taken, and what was in it is gone")
	}
	if !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "restore it from a copy") {
		t.Error(err)
	}
	// Nothing was changed: mended, it is as it was.
	if err := os.WriteFile(meta[0], good, 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err = Open(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if e, err := c.Get(t.Context(), "policy"); err != nil || string(e.Value) != "one" {
		t.Errorf("%+v %v", e, err)
	}
}

func TestAStoreOfSomethingElseIsRefused(t *testing.T) {
	dir := t.TempDir()
	c, err := Open(t.Context(), Config{Name: "a", Embedded: Embedded{StoreDir: dir}})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	routes := free(t, 3)
	for what, cfg := range map[string]Config{
		"written by a server alone":  {Name: "a", Embedded: Embedded{StoreDir: dir, ClusterListen: routes[0], Routes: routes}},
		`is the store of "warmpath"`: {Name: "a", Prefix: "other", Embedded: Embedded{StoreDir: dir}},
	} {
		if c, err := Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %s", err, what)
			if err == nil {
				c.Close()
			}
		}
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Config{Name: "a", Embedded: Embedded{StoreDir: file}}); err == nil {
		t.Error("a file was taken for a directory")
	}
}
