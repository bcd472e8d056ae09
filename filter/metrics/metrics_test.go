//go:build !wasm

package metrics

import (
	"os"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/filter/abi"
)

func TestEveryMetricHasANameOfItsOwn(t *testing.T) {
	host := abi.NewFake()
	t.Cleanup(abi.UseFake(host))
	s := &Set{}
	s.Define()
	if len(host.Metrics) > 160 {
		t.Errorf("%d metrics before anything is counted", len(host.Metrics))
	}
	for f := range table {
		for label := range max(1, len(table[f].labels)) {
			s.Inc(Family(f), label)
		}
	}
	s.Flush()
	if want := len(s.counters) + 3; len(host.Metrics) != want {
		t.Errorf("%d metrics under %d names", want, len(host.Metrics))
	}
	for name := range host.Metrics {
		if !strings.HasPrefix(name, "warmpath.") || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_.") != "" || strings.HasSuffix(name, ".") {
			t.Errorf("%q is no metric name", name)
		}
	}
	for f := range table {
		if table[f].name == "" {
			t.Errorf("family %d has no name", f)
		}
	}
}

func TestEveryMetricIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for f := range table {
		if name := table[f].name; !strings.Contains(string(doc), "`"+name+"`") && !strings.Contains(string(doc), "`"+name+".<") {
			t.Errorf("docs/metrics.md doesn't say what %s counts", name)
		}
	}
}

func TestCountsReachTheProxyAtTheFlushAndOnce(t *testing.T) {
	host := abi.NewFake()
	t.Cleanup(abi.UseFake(host))
	s := &Set{}
	s.Inc(Panics, 0) // before Define: lost, not a crash
	s.Define()
	s.Define()
	s.Add(MatchedTokens, TierOver16K, 20_000)
	s.Inc(Fallback, FallbackOff)
	s.Inc(Fallback, FallbackOff)
	if got := host.Metrics["warmpath.fallback.off"].Value; got != 0 {
		t.Errorf("%d before the flush", got)
	}
	s.Flush()
	s.Flush()
	if got := host.Metrics["warmpath.fallback.off"].Value; got != 2 {
		t.Errorf("fallback.off %d", got)
	}
	if got := host.Metrics["warmpath.matched_tokens.gt16k"].Value; got != 20_000 {
		t.Errorf("matched_tokens.gt16k %d", got)
	}
}

func TestTiersSplitAtTheirBounds(t *testing.T) {
	for tokens, want := range map[int]string{0: "lt1k", 1023: "lt1k", 1024: "1k_4k", 4095: "1k_4k", 4096: "4k_16k", 16383: "4k_16k", 16384: "gt16k", 1 << 30: "gt16k"} {
		if got := Label(Lookups, Tier(tokens)); got != want {
			t.Errorf("%d tokens: %s, want %s", tokens, got, want)
		}
	}
}
