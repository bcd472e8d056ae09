package main

import (
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
	"github.com/warmpath/warmpath/tokenizer/pretoken"
	"github.com/warmpath/warmpath/tokenizer/vocab"
)

// TestASmallSoakKeepsItsBooks plays everything once, smaller.
func TestASmallSoakKeepsItsBooks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "soak.json")
	var out, progress bytes.Buffer
	code := run([]string{
		"-vocabulary", smallVocabulary(t),
		"-requests", "2000", "-settled", "1000", "-entries", "20000", "-json", file,
		"-callback", "10s", "-growth", "100000000", // this machine may be busy with other tests
	}, &out, &progress)
	if code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, out.String(), progress.String())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	c := r.Counts
	if c.Requests != 2000 || c.Steered < 1500 || c.Aborted == 0 || c.Refused == 0 || c.Broken == 0 {
		t.Errorf("%+v", c)
	}
	if len(r.Vocabularies) != 1 || r.VocabularyTime <= 0 || r.mostMemory() == 0 {
		t.Errorf("vocabularies %v in %v, memory %d", r.Vocabularies, r.VocabularyTime, r.mostMemory())
	}
	if r.InFlight != 0 || uint64(c.Steered) > r.Dispatched || r.Reported == 0 || r.PagesWritten < 256 {
		t.Errorf("in flight %d, dispatched %d, reports %d, pages %d", r.InFlight, r.Dispatched, r.Reported, r.PagesWritten)
	}
	seen := map[string]bool{}
	for _, x := range append(r.Base, r.Traffic...) {
		seen[x.Export] = x.Count > 0 && x.CPUMaxMicros > 0
	}
	for _, export := range []string{"tick", "http_call_response", "request_headers", "request_body", "response_headers", "response_body", "log", "done"} {
		if !seen[export] {
			t.Errorf("no time of %s", export)
		}
	}
	if !strings.Contains(out.String(), "longest callback while the base loads") {
		t.Errorf("%s", out.String())
	}
}

// smallVocabulary writes one of two pieces.
func smallVocabulary(t *testing.T) string {
	t.Helper()
	spec := vocab.Spec{ByRank: true, Kind: pretoken.GPT2}
	for b := range 256 {
		spec.Tokens = append(spec.Tokens, []byte{byte(b)})
	}
	for i := range 20_000 {
		spec.Tokens = append(spec.Tokens, []byte{byte(i >> 8), byte(i)})
	}
	file, err := spec.Compile()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "small.wpv")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestBrokenPromisesAreTold(t *testing.T) {
	good := func() *report {
		return &report{
			SettledAt: 100, CallbackBudget: 10 * time.Millisecond, GrowthBudget: 1000, MemoryBudget: 7000, Lookups: 10, Hits: 6,
			Base: []callback{{CPUMaxMicros: 9999, WallMax: 50000}},
			Memory: []sample{
				{Requests: 0, VMBytes: []uint64{1, 1}},
				{Requests: 100, VMBytes: []uint64{5000, 7000}},
				{Requests: 200, VMBytes: []uint64{6000, 7000}},
			},
		}
	}
	for name, c := range map[string]struct {
		breakIt func(*report)
		want    string
	}{
		"none":     {func(*report) {}, ""},
		"callback": {func(r *report) { r.Base[0].CPUMaxMicros = 10001 }, "a callback took 10.0 ms"},
		"memory":   {func(r *report) { r.Memory[2].VMBytes[0] = 6001 }, "a VM grew by 1001 bytes"},
		"size":     {func(r *report) { r.Memory[1].VMBytes[1] = 7001 }, "a VM had 7001 bytes"},
		"trap":     {func(r *report) { r.Traps = 1 }, "1 traps"},
		"panic":    {func(r *report) { r.Panics = 2 }, "0 traps and 2 panics"},
		"books":    {func(r *report) { r.InFlight = -1 }, "-1 requests are still in the books"},
		"hits":     {func(r *report) { r.Hits = 2 }, "2 hits in 10 lookups"},
	} {
		r := good()
		c.breakIt(r)
		r.judge()
		if got := strings.Join(r.Missed, "\n"); !strings.HasPrefix(got, c.want) || (c.want == "") != (got == "") || len(r.Missed) > 1 {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestPromptsDifferOnlyInTheirNumber(t *testing.T) {
	p, err := newPrompts(400, rand.New(rand.NewPCG(1, 1)))
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for i := range p.small {
		x := &p.small[i]
		a, b := x.write(nil, 1), x.write(nil, 2)
		total += len(a)
		if !json.Valid(a) || bytes.Equal(a, b) || len(a) != len(b) {
			t.Fatalf("%.100s\n%.100s", a, b)
		}
		same := 0
		for same < len(a) && a[same] == b[same] {
			same++
		}
		if same != x.unique+uniqueDigits-1 || !bytes.Equal(a[same+1:], b[same+1:]) {
			t.Fatalf("they differ at %d, the number is at %d", same, x.unique)
		}
	}
	if mean := total / len(p.small); mean < 3<<10 || mean > 8<<10 {
		t.Errorf("%d bytes on average", mean)
	}
	if n := len(p.big[0].raw); n < bigBody/2 || n > 2*bigBody {
		t.Errorf("the big body has %d bytes", n)
	}
}

func TestTheBaseIsWhatItsDigestsSay(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	prefix := table.Entry{Fingerprint: 0xabcdef, Refs: [table.InlineRefs]uint16{3}}
	b, err := newBase(20_000, []table.Entry{prefix}, workers, 1000, rng)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(b)
	defer server.Close()
	frame := fetch(t, server, "/v1/table?epoch=0&version=0")
	header, err := wire.DecodeHeader(frame)
	if err != nil || !header.Resync() {
		t.Fatalf("%+v, %v", header, err)
	}
	found := false
	err = wire.ForEachSection(frame, func(s wire.Section) error {
		if s.Type != wire.SectionDigests {
			return nil
		}
		return wire.ForEachDigest(s.Payload, func(r int, digest uint64) error {
			for pages := b.ranges[r]; len(pages) > 0; pages = pages[table.PageBytes:] {
				p := table.Page(pages[:table.PageBytes])
				if err := p.Check(); err != nil {
					return err
				}
				if _, ok := p.Lookup(prefix.Fingerprint); ok {
					found = true
				}
				digest ^= p.Digest()
			}
			if digest != 0 {
				t.Errorf("range %d has another digest", r)
			}
			return nil
		})
	})
	if err != nil || !found {
		t.Errorf("prefix found %v, %v", found, err)
	}
	puts := 0
	err = wire.ForEachSection(fetch(t, server, "/v1/table?epoch=7&version=1"), func(s wire.Section) error {
		if s.Type != wire.SectionPuts {
			return nil
		}
		last := uint64(0)
		return wire.ForEachPut(s.Payload, func(e *table.Entry) error {
			if e.Fingerprint < last {
				t.Error("changes are not in order")
			}
			last = e.Fingerprint
			puts++
			return nil
		})
	})
	if err != nil || puts < 40 || puts > 60 {
		t.Errorf("%d changes in an interval, %v", puts, err)
	}
}

func fetch(t *testing.T, server *httptest.Server, path string) []byte {
	t.Helper()
	resp, err := server.Client().Get(server.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%s: %s, %v", path, resp.Status, err)
	}
	return body
}
