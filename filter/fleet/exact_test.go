//go:build !wasm

package fleet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/wire"
	"github.com/warmpath/warmpath/tokenizer/pretoken"
	"github.com/warmpath/warmpath/tokenizer/vocab"
)

// smallFile compiles a vocabulary of all bytes.
func smallFile(t *testing.T) (file []byte, hash policy.Hash) {
	t.Helper()
	spec := vocab.Spec{ByRank: true, Kind: pretoken.GPT2}
	for b := range 256 {
		spec.Tokens = append(spec.Tokens, []byte{byte(b)})
	}
	file, err := spec.Compile()
	if err != nil {
		t.Fatal(err)
	}
	name, err := vocab.Hash(file)
	if err != nil {
		t.Fatal(err)
	}
	hash, _ = policy.ParseHash(name)
	return file, hash
}

func TestAPoolIsExactWhenItIsActiveAndLoadedAndItsTemplateIsKnown(t *testing.T) {
	file, hash := smallFile(t)
	entry := func(template string, active bool) string {
		return fmt.Sprintf(`[{"pool":"default","vocab":%q,"bytes":%d,"template":%s,"engine":"vllm","active":%t}]`, hash.String(), len(file), template, active)
	}
	declared := `{"user":{"prefix":"U","suffix":""},"assistant":{"prefix":"A","suffix":""},"generation":"A"}`
	for name, c := range map[string]struct {
		exact string
		there bool // the vocabulary is in shared data
		want  metrics.Mode
	}{
		"no section":       {"", true, metrics.Approximate},
		"named":            {entry(`"qwen3"`, false), true, metrics.Approximate},
		"active":           {entry(`"qwen3"`, true), true, metrics.Exact},
		"spelled out":      {entry(declared, true), true, metrics.Exact},
		"not loaded":       {entry(`"qwen3"`, true), false, metrics.Missing},
		"template unknown": {entry(`"qwen99"`, true), true, metrics.Missing},
		"template odd":     {entry(`{"user":1}`, true), true, metrics.Missing},
	} {
		t.Run(name, func(t *testing.T) {
			host := proxy(t)
			keys := wire.NewKeys("default")
			if c.there {
				put(host, keys.Shard(hash, 0), file)
			}
			f, sibling := vm(t), vm(t)
			for round := range uint64(10) { // every slot is looked at within eight
				// The policy comes again and again, as learned ring positions do.
				put(host, keys.Exact(), []byte(c.exact))
				publish(host, 2, round+1, onePool)
				host.Clock += int64(time.Second)
				sibling.Tick(host.Clock, false)
				f.Tick(host.Clock, true)
			}
			_, loaded, mode := f.PoolOf("m").Exact()
			if mode != c.want || (loaded != nil) != (c.want == metrics.Exact) {
				t.Errorf("mode %v, want %v; loaded %v", mode, c.want, loaded)
			}
			want := 0
			if c.there && c.exact != "" {
				want = 2
			}
			host.Clock += int64(time.Second)
			sibling.Tick(host.Clock, false)
			f.Tick(host.Clock, true)
			host.Clock += int64(time.Second)
			f.Tick(host.Clock, true)
			if got := f.VMsReady(0); got != want {
				t.Errorf("%d VMs have it, want %d", got, want)
			}
			told := 0
			for _, line := range host.Logs {
				if strings.Contains(line.Message, "doesn't know the chat template") {
					told++
				}
			}
			if unknown := strings.HasPrefix(name, "template"); unknown != (told == 2) {
				t.Errorf("told %d times by two VMs", told)
			}
			f.PoolOf("m").CountMode(mode)
			f.metrics.Flush()
			if got := host.Metrics["warmpath.fingerprint_mode.default."+mode.String()].Value; got != 1 {
				t.Errorf("%d prompts counted", got)
			}
		})
	}
}
