package copies

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/warmpath/warmpath/gateway"
	"github.com/warmpath/warmpath/hostsim/hosttest"
)

// TestEmbeddedGatewaysMakeCopiesInSlices: two of two VMs, and one VM of one of them makes each copy.
func TestEmbeddedGatewaysMakeCopiesInSlices(t *testing.T) {
	t.Parallel()
	f := Start(t, "127.0.0.1:0")
	gateways, urls := embedded(f, 2)
	made, told := f.Prove(urls...), uint64(0)
	for _, g := range gateways {
		m, _ := g.Host().Metric("warmpath.copies_made")
		told += m.Value
	}
	if told != uint64(made) {
		t.Errorf("the gateways say that they made %d copies, engines saw %d", told, made)
	}
}

// TestEnginesThatRefuseSlicesAreAskedOnce: as one that has no /v1/completions.
func TestEnginesThatRefuseSlicesAreAskedOnce(t *testing.T) {
	t.Parallel()
	f := Start(t, "127.0.0.1:0")
	f.RefuseSlices(http.StatusNotFound)
	_, urls := embedded(f, 1)
	f.ProveRefused(urls...)
}

// embedded runs gateways before a fleet until the end of the test.
func embedded(f *Fleet, n int) (gateways []*gateway.Gateway, urls []string) {
	f.t.Helper()
	module, err := os.ReadFile(hosttest.BuildGo(f.t, "github.com/warmpath/warmpath/filter"))
	if err != nil {
		f.t.Fatal(err)
	}
	var addresses []string
	for _, w := range f.Engines.Workers {
		addresses = append(addresses, w.Address)
	}
	endpoints, err := gateway.NewEndpoints(Pool, addresses...)
	if err != nil {
		f.t.Fatal(err)
	}
	for i := range n {
		name := fmt.Sprintf("gw-%d", i)
		plugin, err := json.Marshal(map[string]any{"gateway": name, "control": map[string]any{"cluster": "warmpath-control", "token": Token}})
		if err != nil {
			f.t.Fatal(err)
		}
		g, err := gateway.New(f.t.Context(), gateway.Config{
			Listen: "127.0.0.1:0", Module: module, Plugin: plugin, Endpoints: endpoints, VMs: 2,
			Clusters: map[string][]string{"warmpath-control": {f.Control.URL()}}, DrainTimeout: time.Second,
			CacheDir: filepath.Join(os.TempDir(), "warmpath-test-wazero"), Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			f.t.Fatal(err)
		}
		f.background(name, g.Run)
		gateways, urls = append(gateways, g), append(urls, g.URL())
	}
	return gateways, urls
}
