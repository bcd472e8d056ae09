//go:build admission

package admission

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmpath/warmpath/integration/envoyrun"
)

var (
	streamFor = flag.Duration("stream", 40*time.Second, "length of the streams that run while replicas of control fail; whatever fails stays so for a sixth of it")
	busy      = flag.Int("busy", 100, "clients with short requests beside the 30 streams, for 100 slots")
)

const (
	streams   = 30
	newLeader = 5 * time.Second
)

// load is what clients do while things fail: streams that outlast it all, and
// short requests, together more than there are slots.
type load struct {
	fleet                  *fleet
	served, failed, ended  atomic.Int64
	mu                     sync.Mutex
	wrong                  map[string]int
	short                  context.CancelFunc
	shortDone, streamsDone sync.WaitGroup
}

func startLoad(f *fleet) *load {
	l := &load{fleet: f, wrong: map[string]int{}}
	ctx, cancel := context.WithCancel(context.Background())
	l.short = cancel
	for i := range streams {
		l.streamsDone.Go(func() {
			status, err := f.send(context.Background(), f.gateways[i%gateways], "", 200, streamHeader, streamFor.String())
			if l.count("stream", status, err) {
				l.ended.Add(1)
			}
		})
	}
	for range *busy {
		l.shortDone.Go(func() {
			for ctx.Err() == nil {
				status, err := f.send(context.Background(), f.gateways[rand.IntN(gateways)], "", 200)
				if l.count("request", status, err) {
					l.served.Add(1)
				}
			}
		})
	}
	return l
}

func (l *load) count(what string, status int, err error) bool {
	if err == nil && status == http.StatusOK {
		return true
	}
	l.failed.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrong[fmt.Sprint(what, " ", status, " ", err)]++
	return false
}

// phase waits while something is as it is, and reports.
func (l *load) phase(what string, d time.Duration) {
	l.fleet.t.Helper()
	before := l.served.Load()
	<-time.After(d)
	l.fleet.floor.mu.Lock()
	most := l.fleet.floor.most
	l.fleet.floor.mu.Unlock()
	l.fleet.t.Logf("%s: %d requests served in %v, %d failed so far, at most %d at the workers", what, l.served.Load()-before, d, l.failed.Load(), most)
}

// TestReplicasOfControlFailUnderLoad: the leader is killed, each follower is, one
// gateway is cut off from all of control, all of control is killed. Streams that
// outlast it run all the time. The limit is never exceeded at the workers, and no
// request fails: those that find no slot wait.
func TestReplicasOfControlFailUnderLoad(t *testing.T) {
	floor, specs, addresses := startWorkers(t, 1)
	r := startReplicas(t, 3, specs)
	r.leads(1, 30*time.Second)
	var cables []*cable
	var cut []string
	for _, url := range r.urls {
		c := newCable(t, strings.TrimPrefix(url, "http://"))
		cables, cut = append(cables, c), append(cut, c.url())
	}
	f := join(t, floor, func(i int) []string {
		if i == 0 {
			return cut
		}
		return r.urls
	}, addresses)
	f.client.Timeout = *streamFor + 2*time.Minute
	f.floor.mark()
	step := *streamFor / 6
	l := startLoad(f)
	l.phase("undisturbed", step/2)

	n := r.elections()
	leader, _ := r.leads(1, time.Second)
	killed := time.Now()
	r.kill(leader)
	_, since := r.leads(n+1, 4*newLeader)
	took := since.Sub(killed)
	l.phase(fmt.Sprintf("the leader killed, the next one leads after %v", took.Round(10*time.Millisecond)), step)
	if took > newLeader {
		t.Errorf("a new leader after %v, it should be there in %v", took, newLeader)
	}
	r.start(leader)
	l.phase("it is back", step/2)

	leader, _ = r.leads(1, time.Second)
	n = r.elections()
	for other := 1; other < len(r.urls); other++ { // one of them has the server that leads the documents, perhaps
		follower := (leader + other) % len(r.urls)
		r.kill(follower)
		l.phase("a follower killed, and its NATS server", step/2)
		r.start(follower)
		l.phase("it is back", step/4)
	}
	// Where the server that leads the documents goes, they can't be written for longer
	// than a lease now and then.
	if got := r.elections() - n; got > len(r.urls)-1 {
		t.Errorf("the leader changed %d times though it was not touched", got)
	}

	for _, c := range cables {
		c.set(true)
	}
	l.phase("one gateway without control", step)
	for _, c := range cables {
		c.set(false)
	}
	l.phase("it is back", step/2)

	n = r.elections()
	for i := range r.urls {
		r.kill(i)
	}
	l.phase("all of control killed", step/2)
	for i := range r.urls {
		r.start(i)
	}
	r.leads(n+1, 30*time.Second)
	l.phase("it is back", step)

	l.short()
	l.shortDone.Wait()
	l.streamsDone.Wait()
	f.idle()
	t.Logf("%d short requests and %d streams of %v served, %d failed; at most %d at the workers", l.served.Load(), l.ended.Load(), *streamFor, l.failed.Load(), floor.most)
	if floor.most > slots {
		t.Errorf("%d requests at the workers at once, the limit is %d", floor.most, slots)
	}
	if floor.most < slots*8/10 {
		t.Errorf("only %d requests at once: the limit was never near", floor.most)
	}
	if l.failed.Load() > 0 || l.ended.Load() != streams {
		t.Errorf("%d requests failed, %d streams ended well: %v", l.failed.Load(), l.ended.Load(), l.wrong)
	}
	if n := f.total("warmpath_dispatched") - f.total("warmpath_released"); n != 0 {
		t.Errorf("%v requests are still booked at workers", n)
	}
	if n := f.total("warmpath_panics"); n != 0 {
		t.Errorf("%v panics", n)
	}
	sameTables(t, r)
}

// sameTables holds that `warmpath table diff` finds nothing between the replicas.
func sameTables(t *testing.T, r *replicas) {
	t.Helper()
	for _, url := range r.urls[1:] {
		envoyrun.Eventually(t, 20*time.Second, "replicas with the same table", func() error {
			cmd := exec.Command(r.program, "table", "diff", r.urls[0], url)
			cmd.Env = append(os.Environ(), "WARMPATH_TOKEN="+token)
			if text, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%w\n%s", err, text)
			}
			return nil
		})
	}
}
