package conformance

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/warmpath/warmpath/integration/envoyrun"
	"github.com/warmpath/warmpath/integration/modules"
)

// built are the scripted modules, by the name that a scenario's "module:" gives.
var built = map[string]string{}

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "warmpath-conformance-modules-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	root, err := envoyrun.Root()
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if built["guest"], err = modules.Build(ctx, root, dir, "hostsim/testdata/guest"); err != nil {
		panic(err)
	}
	for _, name := range []string{"plain", "wasi", "early", "exit"} {
		if built[name], err = filepath.Abs("testdata/" + name + ".wasm"); err != nil {
			panic(err)
		}
	}
	built["corrupt"] = filepath.Join(dir, "corrupt.wasm")
	if err := os.WriteFile(built["corrupt"], []byte("no wasm"), 0o644); err != nil {
		panic(err)
	}
	return m.Run()
}

func newSim(t testing.TB) *Sim {
	t.Helper()
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir()
	}
	s := &Sim{Modules: map[string][]byte{}, CacheDir: filepath.Join(base, "warmpath-hostsim-test", "compiled")}
	if err := os.MkdirAll(s.CacheDir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, path := range built {
		if s.Modules[name], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func scenarios(t testing.TB) []*Scenario {
	t.Helper()
	all, err := Load(os.DirFS("testdata"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestHostsimDoesWhatEnvoyDoes compares hostsim with the transcripts that a real
// Envoy wrote.
func TestHostsimDoesWhatEnvoyDoes(t *testing.T) {
	sim := newSim(t)
	for _, sc := range scenarios(t) {
		t.Run(sc.Name, func(t *testing.T) {
			got, err := sim.Play(context.Background(), sc)
			if err != nil {
				t.Fatal(err)
			}
			if d := diff(sc, got); d != "" {
				t.Errorf("hostsim (+) differs from Envoy (-):\n%s", d)
			}
		})
	}
}
