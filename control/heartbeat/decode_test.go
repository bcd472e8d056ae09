package heartbeat

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/shared/fingerprint"
)

const whole = `{
  "worker": "10.0.0.7:8000", "sequence": 17, "started_ms": 1796399800000, "state": "draining",
  "load": {"age_ms": 120, "running": 3, "waiting": 1, "kv_share": 0.25, "utilization": 0.5},
  "engine": {"max_running": 64, "queue_limit": 256, "capacity_tokens": 192000, "block_tokens": 32, "prefix_caching": false},
  "cache": {"cleared": true, "prefixes": [{"model": "m", "cache_salt": "s", "tokens": [1, 2, 4294967]}],
            "paths": [[{"fingerprint": "0123456789abcdef", "units": 4}, {"fingerprint": "FEDCBA9876543210", "units": 8}]],
            "removed": ["00000000000000ff"]},
  "eviction": {"in_ms": 3000, "for_ms": 5000.5, "share": 0.8, "reason": "a long document"}
}`

func TestAHeartbeatIsReadWhole(t *testing.T) {
	got, err := Decode([]byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	want := &Heartbeat{
		Worker: "10.0.0.7:8000", Sequence: 17, StartedMillis: 1796399800000, Draining: true,
		Load:   &Load{Age: 120 * time.Millisecond, Running: 3, Waiting: 1, KVShare: 0.25, Utilization: 0.5},
		Engine: Engine{MaxRunning: 64, QueueLimit: 256, CapacityTokens: 192000, BlockTokens: 32, PrefixCaching: new(bool)},
		Cache: &Cache{
			Cleared: true, Prefixes: []Prefix{{Model: "m", CacheSalt: "s", Tokens: []uint32{1, 2, 4294967}}},
			Paths:   [][]fingerprint.Checkpoint{{{Fingerprint: 0x0123456789abcdef, End: 4}, {Fingerprint: 0xfedcba9876543210, End: 8}}},
			Removed: []uint64{0xff},
		},
		Eviction: &Eviction{In: 3 * time.Second, For: 5000500 * time.Microsecond, Share: 0.8, Reason: "a long document"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	again, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := Decode(again); err != nil || !cmp.Equal(got, back) {
		t.Errorf("written and read again: %v %s", err, cmp.Diff(got, back))
	}
	least, err := Decode([]byte(`{"worker":"10.0.0.7:8000","sequence":0}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&Heartbeat{Worker: "10.0.0.7:8000"}, least); diff != "" {
		t.Error(diff)
	}
}

func TestAMistakeIsNamedByItsField(t *testing.T) {
	with := func(field string) string { return `{"worker":"w:1","sequence":1,` + field + `}` }
	path := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,{"fingerprint":"%016x","units":%d}`, i+1, i+1)
		}
		return "[" + b.String()[1:] + "]"
	}
	for name, c := range map[string]struct{ body, field, what string }{
		"nothing":               {``, "", "isn't complete"},
		"half":                  {`{"worker":"w:1"`, "", "isn't complete"},
		"no JSON":               {`{"worker":'w'}`, "", "not JSON at byte 11"},
		"two objects":           {`{"worker":"w:1","sequence":1}{}`, "", "something follows"},
		"a list":                {`[]`, "", "array doesn't fit"},
		"no worker":             {`{"sequence":1}`, "worker", "missing"},
		"empty worker":          {`{"worker":"","sequence":1}`, "worker", "missing"},
		"control characters":    {`{"worker":"a\u0000","sequence":1}`, "worker", "control characters"},
		"no sequence":           {`{"worker":"w:1"}`, "sequence", "missing"},
		"null sequence":         {`{"worker":"w:1","sequence":null}`, "sequence", "missing"},
		"negative sequence":     {`{"worker":"w:1","sequence":-1}`, "sequence", "doesn't fit"},
		"unknown field":         {with(`"cach":{}`), "cach", "no such field"},
		"unknown inner field":   {with(`"load":{"queue":1}`), "queue", "no such field"},
		"a string for a number": {with(`"load":{"running":"3"}`), "load.running", "doesn't fit"},
		"a fraction":            {with(`"load":{"running":1.5}`), "load.running", "doesn't fit"},
		"negative running":      {with(`"load":{"running":-1}`), "load.running", "outside 0..65535"},
		"percent":               {with(`"load":{"kv_share":50}`), "load.kv_share", "outside 0..1"},
		"old load":              {with(`"load":{"age_ms":60001}`), "load.age_ms", "outside 0..60000"},
		"start in seconds? no":  {with(`"started_ms":0`), "started_ms", "no time"},
		"start in nanoseconds":  {with(`"started_ms":1796399800000000000`), "started_ms", "no time"},
		"state":                 {with(`"state":"down"`), "state", `"down" is no state`},
		"huge capacity":         {with(`"engine":{"capacity_tokens":2147483649}`), "engine.capacity_tokens", "outside"},
		"no length":             {with(`"eviction":{"in_ms":1}`), "eviction.for_ms", "missing"},
		"long notice":           {with(`"eviction":{"for_ms":600001}`), "eviction.for_ms", "outside"},
		"nothing goes":          {with(`"eviction":{"for_ms":1,"share":0}`), "eviction.share", "no eviction"},
		"long reason":           {with(`"eviction":{"for_ms":1,"reason":"` + strings.Repeat("x", 201) + `"}`), "eviction.reason", "over 200"},
		"a token too large":     {with(`"cache":{"prefixes":[{"tokens":[1]},{"tokens":[5,2147483648]}]}`), "cache.prefixes[1].tokens[1]", "no token id"},
		"a negative token":      {with(`"cache":{"prefixes":[{"tokens":[-1]}]}`), "cache.prefixes[0].tokens[0]", "no token id"},
		"no tokens":             {with(`"cache":{"prefixes":[{"model":"m"}]}`), "cache.prefixes[0].tokens", "missing"},
		"long salt":             {with(`"cache":{"prefixes":[{"cache_salt":"` + strings.Repeat("x", 1025) + `","tokens":[1]}]}`), "cache.prefixes[0].cache_salt", "over 1024"},
		"many tokens":           {with(`"cache":{"prefixes":[{"tokens":[1` + strings.Repeat(",1", MaxTokens) + `]}]}`), "cache.prefixes[0].tokens", "over 1048576"},
		"many prefixes":         {with(`"cache":{"prefixes":[{}` + strings.Repeat(",{}", MaxPrefixes) + `]}`), "cache.prefixes", "the limit"},
		"empty path":            {with(`"cache":{"paths":[[]]}`), "cache.paths[0]", "1 to 256"},
		"long path":             {with(`"cache":{"paths":[` + path(257) + `]}`), "cache.paths[0]", "1 to 256"},
		"many checkpoints":      {with(`"cache":{"paths":[` + path(256) + strings.Repeat(","+path(256), 256) + `]}`), "cache.paths[256]", "over 65536"},
		"falling path":          {with(`"cache":{"paths":[[{"fingerprint":"0000000000000001","units":4},{"fingerprint":"0000000000000002","units":4}]]}`), "cache.paths[0][1].units", "4 after 4"},
		"unit 0":                {with(`"cache":{"paths":[[{"fingerprint":"0000000000000001"}]]}`), "cache.paths[0][0].units", "0 after 0"},
		"zero fingerprint":      {with(`"cache":{"paths":[[{"fingerprint":"0000000000000000","units":4}]]}`), "cache.paths[0][0].fingerprint", "no fingerprint"},
		"short fingerprint":     {with(`"cache":{"removed":["ff"]}`), "cache.removed[0]", "no fingerprint"},
		"signed fingerprint":    {with(`"cache":{"removed":["+0000000000000ff"]}`), "cache.removed[0]", "no fingerprint"},
		"fingerprint as number": {with(`"cache":{"removed":[255]}`), "cache.removed", "doesn't fit"},
		"complete and removed":  {with(`"cache":{"complete":true,"removed":["00000000000000ff"]}`), "cache.removed", "beside complete"},
		"too large":             {strings.Repeat(" ", MaxBytes+1), "", "the limit"},
	} {
		h, err := Decode([]byte(c.body))
		var at *Error
		if !errors.As(err, &at) || h != nil {
			t.Errorf("%s: %v %v", name, h, err)
			continue
		}
		if at.Field != c.field || !strings.Contains(at.What, c.what) {
			t.Errorf("%s: %q: %s", name, at.Field, at.What)
		}
		if c.field != "" && !strings.HasPrefix(at.Error(), c.field+": ") {
			t.Errorf("%s: %s", name, at)
		}
	}
}

// What is read stays within its bounds, whatever comes.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte(`{"worker":"10.0.0.7:8000","sequence":18446744073709551615,"cache":{"complete":true}}`))
	f.Add([]byte(`{"worker":"w","sequence":1,"eviction":{"for_ms":0}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := Decode(b)
		if err != nil {
			var at *Error
			if !errors.As(err, &at) || at.What == "" {
				t.Fatalf("%#v", err)
			}
			return
		}
		if h.Worker == "" {
			t.Error("no worker")
		}
		again, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(again); err != nil && len(again) <= MaxBytes {
			t.Errorf("%s: %v", again, err)
		}
		if l := h.Load; l != nil && (l.Running < 0 || l.Waiting < 0 || !(l.KVShare >= 0 && l.KVShare <= 1) || !(l.Utilization >= 0 && l.Utilization <= 1) || l.Age < 0) {
			t.Errorf("%+v", l)
		}
		if e := h.Eviction; e != nil && (!(e.Share > 0 && e.Share <= 1) || e.In < 0 || e.For < 0 || e.In+e.For > 2*MaxNotice) {
			t.Errorf("%+v", e)
		}
		if h.Cache == nil {
			return
		}
		for i := range h.Cache.Prefixes {
			h.Cache.Prefixes[i].Checkpoints("default", "m", 1, []uint32{1}, 16)
		}
		for _, path := range h.Cache.Paths {
			last := uint32(0)
			for _, c := range path {
				if c.Fingerprint == 0 || c.End <= last || c.End > 1<<24 {
					t.Errorf("%+v after %d", c, last)
				}
				last = c.End
			}
		}
	})
}
