package transcripts

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmpath/warmpath/hostsim"
	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
)

// base is a control service over real HTTP that has one big table.
type base struct {
	bits    uint8
	records []byte // roster, loads, policy sections
	ranges  [][]byte
	digests []byte
	fetched atomic.Int64
}

func newBase(bits uint8, entries int) *base {
	c := newControl()
	text, err := json.Marshal(c.policy)
	if err != nil {
		panic(err)
	}
	s := &base{bits: bits, ranges: make([][]byte, table.Ranges(bits))}
	s.records = c.records(nil)
	_ = text
	rng := rand.New(rand.NewPCG(1, 2))
	sums := make([]uint64, len(s.ranges))
	perPage := entries >> bits
	for index := range uint32(1) << bits {
		page := make(table.Page, table.PageBytes)
		page.Init(bits, index)
		for range perPage {
			fp := uint64(index)<<(64-bits) | rng.Uint64()>>bits
			page.Put(&table.Entry{Fingerprint: fp, Refs: [6]uint16{uint16(1 + rng.IntN(4))}})
		}
		r := table.RangeOf(index)
		sums[r] ^= page.Digest()
		s.ranges[r] = append(s.ranges[r], page...)
	}
	for _, sum := range sums {
		s.digests = wire.AppendDigest(s.digests, sum)
	}
	return s
}

func (s *base) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/v1/table":
		if r.URL.Query().Get("version") == "1" {
			select {
			case <-r.Context().Done():
			case <-time.After(10 * time.Second):
			}
			w.WriteHeader(http.StatusNoContent)
			return
		}
		b := wire.AppendHeader(nil, &wire.Header{Kind: wire.Update, Flags: wire.FlagResync, Epoch: 7, To: 1})
		b = wire.AppendSection(b, wire.SectionGeometry, wire.AppendGeometry(nil, wire.Geometry{Bits: s.bits}))
		b = append(b, s.records...)
		_, _ = w.Write(wire.AppendSection(b, wire.SectionDigests, s.digests))
	case "/v1/table/pages":
		var n int
		_, _ = fmt.Sscan(r.URL.Query().Get("range"), &n)
		b := wire.AppendHeader(nil, &wire.Header{Kind: wire.Pages, Epoch: 7, To: 1})
		_, _ = w.Write(wire.AppendSection(b, wire.SectionPages, s.ranges[n]))
		s.fetched.Add(1)
	default:
		_, _ = w.Write(wire.AppendHeader(nil, &wire.Header{Kind: wire.Ack, Epoch: 7, To: 1}))
	}
}

// loadBase lets a proxy with a real clock load a table and returns the time it
// took and the slices of work.
func loadBase(t testing.TB, bits uint8, entries int) (took time.Duration, slices hostsim.Metric, memory uint64) {
	s := newBase(bits, entries)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	calls, err := hostsim.NewHTTPDispatcher(map[string]string{"warmpath-control": server.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	host, err := hostsim.NewHost(ctx, hostsim.Options{Calls: calls, CacheDir: filepath.Join(os.TempDir(), "warmpath-wazero-cache"), LogLevel: hostsim.LogWarn})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close(ctx)
	module, err := host.Compile(ctx, "warmpath", modules.full)
	if err != nil {
		t.Fatal(err)
	}
	fleet, err := host.Deploy(ctx, hostsim.FleetConfig{
		VM: hostsim.VMConfig{Module: module, VMID: vmID}, Workers: 1, NoCanary: true, NoMain: true,
		Plugins: []hostsim.PluginConfig{{Name: "warmpath", Configuration: []byte(`{}`), AllowOnHeadersStopIteration: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer fleet.Close()
	keys := wire.NewKeys("default")
	began := time.Now()
	for {
		value, _, _ := host.SharedData(vmID, keys.Meta())
		if m, err := table.DecodeMeta(value); err == nil && m.Ready {
			break
		}
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("not loaded: %d ranges fetched", s.fetched.Load())
		}
		<-time.After(5 * time.Millisecond)
	}
	took = time.Since(began)
	slices, _ = host.Metric("warmpath.courier_slice_us")
	return took, slices, fleet.Workers[0].Stats().MemoryBytes
}

// TestABigBaseLoadsInSlices loads 60,000 entries with the real clock, in one
// slice a range at least. How long they take is BenchmarkBaseLoad's to say: a
// busy machine would fail any bound.
func TestABigBaseLoadsInSlices(t *testing.T) {
	_, slices, _ := loadBase(t, 10, 60_000)
	if slices.Count < 8 {
		t.Fatalf("%d slices", slices.Count)
	}
}

// BenchmarkBaseLoad loads a million entries.
func BenchmarkBaseLoad(b *testing.B) {
	for b.Loop() {
		took, slices, memory := loadBase(b, 14, 1_000_000)
		b.ReportMetric(took.Seconds(), "load-s")
		b.ReportMetric(float64(slices.Sum)/float64(slices.Count), "us/slice")
		b.ReportMetric(float64(slices.Count), "slices")
		b.ReportMetric(float64(memory>>20), "vm-MiB")
		for i, bound := range slices.Bounds {
			if slices.Buckets[i] == slices.Count {
				b.ReportMetric(bound/1000, "longest-below-ms")
				break
			}
		}
	}
}
