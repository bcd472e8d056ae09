package control

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/control/discovery"
)

func TestAMassEvictionSinksTheWorthOfACacheUntilItIsOver(t *testing.T) {
	for name, c := range map[string]struct {
		spec   discovery.Spec
		second func(i int) string // lines of the metrics page
		notice bool
	}{
		"removals": {
			discovery.Spec{Address: alpha, CapacityTokens: 100_000},
			func(i int) string { return fmt.Sprintf("sglang:evicted_tokens_total %d\n", i*40_000) }, true,
		},
		"a capacity that the engine tells": {
			discovery.Spec{Address: alpha},
			func(i int) string {
				return fmt.Sprintf("sglang:max_total_num_tokens 100000\nsglang:evicted_tokens_total %d\n", i*40_000)
			}, true,
		},
		"growth": {
			discovery.Spec{Address: alpha, CapacityTokens: 100_000},
			func(i int) string { return fmt.Sprintf("sglang:token_usage %g\n", min(0.9, 0.3+0.15*float64(i))) }, true,
		},
		"a steady one": {
			discovery.Spec{Address: alpha, CapacityTokens: 100_000},
			func(i int) string {
				return fmt.Sprintf("sglang:evicted_tokens_total %d\nsglang:token_usage 0.6\n", i*10_000)
			}, false,
		},
		"of a size that nobody knows": {
			discovery.Spec{Address: alpha},
			func(i int) string { return fmt.Sprintf("sglang:evicted_tokens_total %d\n", i*200_000) }, false,
		},
	} {
		bubble(t, func(t *testing.T) {
			e := newEngines(alpha)
			b := start(t, e, Config{Workers: []discovery.Spec{c.spec}})
			<-b.s.Ready()
			g := b.gateway("g")
			var most float32
			for i := range 7 {
				e.measure(alpha, c.second(i))
				time.Sleep(time.Second)
				g.catchUp()
				most = max(most, g.loads[g.refOf(alpha)].EvictShare)
			}
			if (most > 0.5) != c.notice {
				t.Errorf("%s: at most %v announced", name, most)
			}
			if said := slices.ContainsFunc(b.worker(alpha).Degraded, func(s string) bool { return strings.Contains(s, "of its cache goes") }); c.notice && !said {
				t.Errorf("%s: %q", name, b.worker(alpha).Degraded)
			}
			e.measure(alpha, c.second(6))
			time.Sleep(12 * time.Second)
			g.catchUp()
			if l := g.loads[g.refOf(alpha)]; l.EvictShare != 0 {
				t.Errorf("%s: a notice that doesn't end: %+v", name, l)
			}
		})
	}
}
