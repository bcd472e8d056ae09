package wire

import (
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/table"
)

var update = flag.Bool("update", false, "rewrite the examples of docs/formats.md")

const examplePolicy = `{
  "off": false,
  "pools": [{
    "name": "default", "index": 0, "models": ["*"], "mode": "route",
    "policy": {"name": "cost", "miss_weight": 3, "sample": 0.5, "watermark": 0.98},
    "ring_units": 16, "unit_bytes": 64, "cluster": "pool-default"
  }]
}
`

const exampleExact = `[{
  "pool": "default", "vocab": "00112233445566778899aabbccddeeff", "bytes": 3000000,
  "template": "qwen3", "engine": "vllm", "active": true
}]
`

const exampleAdmission = `{
  "identity": {"tenant_header": "x-tenant-id"},
  "classes": {"p0": {"share": 0.7, "floor": 0.3, "objective_ttft_ms": 2000}},
  "tenants": {"acme": {"index": 1, "weight": 2, "concurrency": 64, "max_class": "p0"}},
  "enforce": ["default"]
}
`

// examples returns the text of every example of docs/formats.md by name.
func examples() map[string]string {
	page := table.Page(make([]byte, table.PageBytes))
	page.Init(6, table.PageIndex(exampleEntry.Fingerprint, 6))
	page.Put(&exampleEntry)
	meta := table.Meta{
		Bits: 12, Ready: true, Epoch: 7, Version: 44, UpdatedUnixNanos: 1_800_000_000_000_000_000,
		RosterVersion: 40, LoadsVersion: 44, PolicyVersion: 1, SetsVersion: 38,
	}
	return map[string]string{
		"courier":  dump(AppendCourier(nil, &exampleCourier)),
		"meta":     dump(table.AppendMeta(nil, &meta)),
		"page":     dump(page[:48]),
		"entry":    dump(table.AppendEntry(nil, &exampleEntry)),
		"taken":    dump(AppendTaken(nil, &exampleTaken)),
		"news":     dump(AppendNews(nil, &exampleNews)),
		"row":      dump(exampleRowBytes(nil)),
		"sent":     dump(exampleSentBytes(nil)),
		"dispatch": dump(AppendDispatch(nil, &exampleDispatch, exampleCPs)),
		"done":     dump(AppendDone(nil, &exampleDone)),
		"header":   dump(AppendHeader(nil, &exampleHeader)),
		"worker":   dump(AppendWorker(nil, &exampleWorker)),
		"load":     dump(AppendLoad(nil, &exampleLoad)),
		"cache":    dump(AppendCache(nil, &exampleCache)),
		"home":     dump(AppendHome(nil, &exampleHome)),
		"copy":     dump(AppendCopy(nil, &exampleCopy)),
		"set":      dump(AppendSet(nil, 5, []byte{0x18, 0x01})),
		"gateway":  dump(AppendGateway(nil, &exampleGateway)),
		"acked":    dump(AppendAcked(nil, exampleAcked)),
		"stored":   dump(AppendVocabularies(nil, []Stored{exampleStored})),
		"ready":    dump(AppendReady(nil, exampleReady)),
		"policy":   examplePolicy,
		"exact":    exampleExact,

		"leases":    dump(AppendLeases(nil, &exampleLeases)),
		"lease":     dump(AppendLease(AppendLease(AppendLease(nil, &examplePoolLease), &exampleLease), &exampleTenantLease)),
		"usage":     dump(AppendUsage(nil, &exampleUsage)),
		"used":      dump(AppendUsed(AppendUsed(nil, &exampleUsed), &exampleTenantUsed)),
		"latency":   dump(AppendLatency(nil, &exampleLatency)),
		"admission": exampleAdmission,
	}
}

// dump is 16 bytes a line behind their offset.
func dump(b []byte) string {
	var out strings.Builder
	for at := 0; at < len(b); at += 16 {
		line := b[at:min(at+16, len(b))]
		out.WriteString(hex.EncodeToString([]byte{byte(at >> 8), byte(at)}))
		for _, c := range line {
			out.WriteString(" " + hex.EncodeToString([]byte{c}))
		}
		out.WriteByte('\n')
	}
	return out.String()
}

func TestFormatsPageShowsTheBytesTheEncodersWrite(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "formats.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := examples()
	block := regexp.MustCompile("(?s)<!-- example: ([a-z]+) -->\n```[a-z]*\n(.*?)```")
	rewritten := block.ReplaceAllStringFunc(string(page), func(match string) string {
		part := block.FindStringSubmatch(match)
		text, known := want[part[1]]
		if !known {
			t.Errorf("no such example: %s", part[1])
			return match
		}
		delete(want, part[1])
		return strings.TrimSuffix(match, part[2]+"```") + text + "```"
	})
	for name := range want {
		t.Errorf("example %s is not on the page", name)
	}
	if *update {
		if err := os.WriteFile(path, []byte(rewritten), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if diff := cmp.Diff(string(page), rewritten); diff != "" {
		t.Errorf("run the test with -update (-page +encoders):\n%s", diff)
	}
	set, err := policy.Parse([]byte(examplePolicy))
	if err != nil {
		t.Fatal(err)
	}
	if err := policy.ParseExact([]byte(exampleExact), set); err != nil || set.Pools[0].Exact == nil {
		t.Error(err)
	}
	if _, err := policy.ParseAdmission([]byte(exampleAdmission)); err != nil {
		t.Error(err)
	}
}
