package control

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/warmpath/warmpath/shared/wire"
)

// TestAGatewayOfTheVersionBeforeIsServed: it polls without a word of its version,
// fetches whole ranges, and its batch, as its release wrote it, is taken and
// answered in its version.
func TestAGatewayOfTheVersionBeforeIsServed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, _ := serving(t, newEngines("10.0.0.1:8000"), Config{Workers: specs("10.0.0.1:8000")})
		batch, err := os.ReadFile(filepath.Join("..", "shared", "wire", "testdata", "v1", "batch.bin"))
		if err != nil {
			t.Fatal(err)
		}
		before := b.s.ingest.Counters.Chunks.Load()
		for _, c := range []struct {
			what, method, path string
			body               []byte
			want               uint8
		}{
			{"a poll", "GET", "/v1/table?epoch=0&version=0&wait_ms=0", nil, wire.OldestVersion},
			{"a poll of now", "GET", "/v1/table?epoch=0&version=0&wait_ms=0&wire=2", nil, 2},
			{"a batch", "POST", "/v1/batch", batch, wire.OldestVersion},
		} {
			status, frame := b.do(c.method, c.path, c.body, "application/octet-stream")
			h, err := wire.DecodeHeader(frame)
			if status != 200 || err != nil || h.Wire != c.want {
				t.Errorf("%s: status %d, version %d, want %d: %v", c.what, status, h.Wire, c.want, err)
			}
		}
		if n := b.s.ingest.Counters.Chunks.Load() - before; n != 1 {
			t.Errorf("%d chunks taken", n)
		}
		if bad := b.s.ingest.Counters.BadChunks.Load(); bad != 0 {
			t.Errorf("%d chunks damaged", bad)
		}
	})
}
