package control

import (
	"fmt"
	"math/bits"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/shared/wire"
)

// cpu is what this process has used.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// A hundred workers are scraped five times a second and checked once, and send a
// heartbeat a second with what they hold; every word counts, and a gateway that
// hears of it late hears all of it. The CPU time, that of the
// engines and senders of the test included, is logged (go test -v -run Hundred).
func TestAHundredWorkersAreHeardWithoutADrop(t *testing.T) {
	page, err := os.ReadFile("discovery/testdata/vllm-0.32-dp2.txt")
	if err != nil {
		t.Fatal(err)
	}
	// As long as a real page, which is mostly histograms.
	lines := string(page) + strings.Repeat("vllm:time_to_first_token_seconds_bucket{engine=\"0\",le=\"0.1\",model_name=\"tiny\"} 4.0\n", 600)
	bubble(t, func(t *testing.T) {
		const workers, seconds = 100, 20
		var addresses []string
		for i := range workers {
			addresses = append(addresses, fmt.Sprintf("10.0.1.%d:8000", i+1))
		}
		e := newEngines(addresses...)
		for _, a := range addresses {
			e.measure(a, lines)
		}
		b := start(t, e, Config{Workers: specs(addresses...)})
		<-b.s.Ready()
		fast, slow := b.gateway("fast"), b.gateway("slow")
		fast.catchUp()
		slow.catchUp()
		held := prompt("system", "documents", "question")
		began := cpu(t)
		var senders sync.WaitGroup
		for i, a := range addresses {
			senders.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				for s := range seconds {
					// Each second another part, in an order of its own, and the whole at last.
					n := 1 + (i+s)%len(held)
					if s == seconds-1 {
						n = len(held)
					}
					body := fmt.Appendf(nil, `{"worker":%q,"sequence":%d,"load":{"running":%d,"kv_share":0.5},"cache":{"paths":%s}}`,
						a, s+1, s%8, pathsJSON(held[:n]))
					if status, answer := b.do("POST", "/v1/heartbeat", body, "application/json"); status != http.StatusOK || !strings.Contains(string(answer), `"applied": true`) {
						t.Errorf("%s: %d %s", a, status, answer)
					}
					time.Sleep(time.Second)
				}
			})
		}
		polled := make(chan struct{})
		go func() {
			defer close(polled)
			for end := time.Now().Add(seconds * time.Second); time.Now().Before(end); {
				fast.poll(time.Second)
			}
		}()
		senders.Wait()
		<-polled
		used := cpu(t) - began
		synctest.Wait()
		settle()
		fast.catchUp()
		slow.catchUp()
		if c := b.s.Status().Counters; c.Heartbeats != workers*seconds || c.BeatsRepeated+c.BeatsBad+c.BeatCachesIgnored != 0 {
			t.Errorf("%+v", c)
		}
		for _, w := range b.s.Status().Workers {
			if w.LoadAge > 1 || w.LastSeen > 1.1 || w.Heartbeats.Count != seconds || w.Entries != len(held) {
				t.Errorf("%s: load %.2f s old, seen %.2f s ago, %d heartbeats, %d entries", w.Address, w.LoadAge, w.LastSeen, w.Heartbeats.Count, w.Entries)
			}
		}
		if diff := cmp.Diff(fast.entries, slow.entries); diff != "" || len(fast.entries) != len(held) || len(slow.loads) != workers {
			t.Errorf("%d entries, %d loads at the slow one: %s", len(slow.entries), len(slow.loads), diff)
		}
		for _, c := range held {
			if f := fast.entries[c.Fingerprint]; !f.Universal() && countSet(fast.sets, f.Overflow()) != workers {
				t.Errorf("unit %d has %d holders", c.End, countSet(fast.sets, f.Overflow()))
			}
		}
		share := used.Seconds() / seconds
		t.Logf("%.1f %% of a core for %d workers: %.2f ms a worker and second", 100*share, workers, 1000*share/workers)
		if share > hundredCores {
			t.Errorf("%.0f %% of a core", 100*share)
		}
	})
}

// countSet is how many holders a set lists.
func countSet(sets []byte, id uint32) (n int) {
	for _, b := range wire.FindSet(sets, id) {
		n += bits.OnesCount8(b)
	}
	return n
}
