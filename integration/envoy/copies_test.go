//go:build envoy

package envoy

import (
	"testing"

	"github.com/warmpath/warmpath/integration/copies"
	"github.com/warmpath/warmpath/integration/envoybin"
	"github.com/warmpath/warmpath/integration/envoyrun"
)

// TestCopiesInSlices: Envoy makes the copies of a hot prefix by calls of the module to the pool's
// cluster as examples/envoy has it, in both ways of holding a request. Two worker threads, of which one
// makes each copy.
func TestCopiesInSlices(t *testing.T) {
	for _, version := range versions(t) {
		for _, m := range modes {
			t.Run(version+" "+m.name, func(t *testing.T) {
				scenario(t, "a hot prefix is copied in slices, and its requests find all of it", version+" "+m.name, func(t *testing.T) {
					copiesInSlices(t, version, m)
				})
			})
		}
	}
}

func copiesInSlices(t *testing.T, version string, m mode) {
	binary, err := envoybin.Install(t.Context(), version)
	if err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	f := copies.Start(t, address)
	ports := map[int]int{envoyrun.ControlPort: portOf(address)}
	for i, w := range f.Engines.Workers {
		ports[9001+i] = w.Port()
	}
	proxy, err := envoyrun.Start(t.Context(), envoyrun.Options{Binary: binary, Example: m.example, Module: built.filter, Ports: ports})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("envoy's last lines:\n%s", proxy.LogTail(15))
		}
		proxy.Stop()
	})
	made := f.Prove(proxy.ClientURL)
	stats, err := proxy.Stats(t.Context(), `^wasmcustom\.`)
	if err != nil {
		t.Fatal(err)
	}
	if told := stats[metric("copies_made")]; told != int64(made) {
		t.Errorf("the module says that it made %d copies, engines saw %d", told, made)
	}
}
