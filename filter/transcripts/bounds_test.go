package transcripts

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/hostsim"
	"github.com/warmpath/warmpath/shared/table"
)

// TestAThousandLongStreamsStayWithinMemory: what a stream keeps doesn't grow
// with its answer.
func TestAThousandLongStreamsStayWithinMemory(t *testing.T) {
	p := start(t, modules.full, `{}`, 1)
	p.advance(time.Second)
	event := []byte(`data: {"choices":[{"delta":{"content":"some words of an answer"}}]}` + "\n\n")
	var open []*exchange
	for i := range 1000 {
		x := p.send(0, post("/v1/chat/completions"), chat("m", 2000, fmt.Sprint(i)), 0)
		x.Info.UpstreamAddress = x.best()
		x.ResponseHeaders(hostsim.NewHeaderMap(":status", "200", "content-type", "text/event-stream"), false)
		open = append(open, x)
	}
	memory := func() uint64 { return p.fleet.Workers[0].Stats().MemoryBytes >> 20 }
	for range 3 {
		for _, x := range open {
			x.ResponseData(event, false)
		}
	}
	early := memory()
	for range 60 {
		for _, x := range open {
			x.ResponseData(event, false)
		}
	}
	if late := memory(); late > early || late > 48 {
		t.Errorf("%d MiB after 3 events of 1,000 streams, %d after 63", early, late)
	}
	for _, x := range open {
		x.ResponseData([]byte("data: {\"usage\":{\"prompt_tokens\":500,\"completion_tokens\":63,\"prompt_tokens_details\":{\"cached_tokens\":32}}}\n\ndata: [DONE]\n\n"), true)
	}
	p.idle()
	if got := p.counter("confirmed_tokens.lt1k"); got != 32_000 {
		t.Errorf("%d confirmed tokens of 1,000 streams with 32 each", got)
	}
}

// TestClientsCannotMakeMetrics: models, paths, headers and sessions from
// clients leave the number of metrics and of shared-data keys as they are.
func TestClientsCannotMakeMetrics(t *testing.T) {
	p := start(t, modules.full, `{}`, 1)
	p.control.doubts = true
	once := func(i int) {
		p.send(0, post(fmt.Sprintf("/team-%d/v1/chat/completions", i), "x-session-id", fmt.Sprint(i), fmt.Sprintf("x-warmpath-%d", i), "1"),
			chat(fmt.Sprintf("model-%d", i), 500, "a"), 0).Close()
	}
	p.advance(time.Second)
	for i := range 20 { // fills the ring of report chunks
		once(i)
		p.advance(100 * time.Millisecond)
	}
	metrics, keys := len(p.host.Metrics()), len(p.host.SharedDataKeys(vmID))
	for i := range 2000 {
		once(i)
	}
	p.idle()
	if n := len(p.host.Metrics()); n != metrics {
		t.Errorf("%d metrics became %d", metrics, n)
	}
	if n := len(p.host.SharedDataKeys(vmID)); n != keys {
		t.Errorf("%d keys became %d", keys, n)
	}
}

// TestMemoryIsFlatOverManyRequests: a VM's memory after 12,000 requests is what
// it was after 8,000, when the collector had found its pace.
func TestMemoryIsFlatOverManyRequests(t *testing.T) {
	p := start(t, modules.full, `{}`, 1)
	p.advance(time.Second)
	var early uint64
	for i := range 12_000 {
		x := p.send(0, post("/v1/chat/completions"), chat("m", 1000+i%20_000, fmt.Sprint(i)), 0)
		x.answer(x.best(), 200, 1, "application/json", `{"usage":{"prompt_tokens":500,"completion_tokens":3}}`)
		if i%50 == 0 {
			p.control.entries, p.control.log = map[uint64]table.Entry{}, nil // the test's table is small
			p.control.epoch++
			p.advance(50 * time.Millisecond)
		}
		if i == 8000 {
			early = p.fleet.Workers[0].Stats().MemoryBytes
		}
	}
	if late := p.fleet.Workers[0].Stats().MemoryBytes; late > early+1<<20 {
		t.Errorf("%d KiB after 8,000 requests, %d after 12,000", early>>10, late>>10)
	}
	p.idle()
}

// A configuration that is pushed again and again, large or not, under traffic: proxies keep the VM,
// and what the contexts before had goes with them.
func TestHundredsOfConfigurationsLeaveNothingBehind(t *testing.T) {
	p := start(t, modules.full, `{}`, 1)
	p.advance(time.Second)
	pools := make([]string, 100)
	for i := range pools {
		pools[i] = fmt.Sprintf(`{"name":"pool-%d","index":%d,"models":["model-%d","%s"]}`, i, i, i, strings.Repeat("m", 200)+fmt.Sprint(i))
	}
	var early uint64
	for i := range 160 {
		next := p.config
		next.Configuration = fmt.Appendf(nil, `{"tick_ms":%d,"static":{"pools":[%s]}}`, 100+i%2, strings.Join(pools, ","))
		if err := p.fleet.Reconfigure(t.Context(), []hostsim.PluginConfig{next}); err != nil {
			t.Fatal(err)
		}
		x := p.send(0, post("/v1/chat/completions"), chat("m", 1000, fmt.Sprint(i)), 0)
		p.advance(150 * time.Millisecond)
		x.answer(x.best(), 200, 1, "application/json", `{}`)
		if i == 80 {
			early = p.fleet.Workers[0].Stats().MemoryBytes
		}
	}
	stats := p.fleet.Workers[0].Stats()
	if stats.MemoryBytes > early+1<<20 || stats.Traps != 0 {
		t.Errorf("%d KiB after 80 configurations, %d after 160; %d traps", early>>10, stats.MemoryBytes>>10, stats.Traps)
	}
	p.idle()
}
