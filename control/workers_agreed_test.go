package control

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warmpath/warmpath/control/discovery"
)

const gamma = "10.0.0.7:8000"

// seen is every replica's workers, with a mark for those that drain.
func (r *replicas) seen() (out []string) {
	time.Sleep(3 * time.Second)
	synctest.Wait()
	for _, b := range r.all {
		if b.ended {
			continue
		}
		var list []string
		for _, w := range b.s.fleet.Workers() {
			mark := ""
			if w.State == discovery.Draining {
				mark = " drains"
			}
			list = append(list, w.Address+mark)
		}
		out = append(out, strings.Join(list, ", "))
	}
	return out
}

// allSee holds that every replica has these workers.
func (r *replicas) allSee(what string, want ...string) {
	r.t.Helper()
	for i, got := range r.seen() {
		if got != strings.Join(want, ", ") {
			r.t.Errorf("%s: replica %d has %q, want %q", what, i, got, want)
		}
	}
}

// again ends all replicas and starts as many.
func (r *replicas) again(cfg Config) {
	n := 0
	for _, b := range r.all {
		if !b.ended {
			b.stop()
			n++
		}
	}
	r.cfg = cfg
	var fresh []*replicaBench
	for range n {
		fresh = append(fresh, r.add(""))
	}
	for _, b := range fresh {
		<-b.s.Ready()
	}
}

// led waits for a leader.
func (r *replicas) led() {
	r.t.Helper()
	for range 200 {
		if r.leader() != nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	r.t.Fatal("nobody leads within 10 s")
}

func listOf(addresses ...string) string {
	var b strings.Builder
	b.WriteString("workers:\n")
	for _, a := range addresses {
		fmt.Fprintf(&b, "- {address: %q, max_running: 8, queue_limit: 16}\n", a)
	}
	return b.String()
}

func (r *replicas) drain(b *replicaBench, address string, on bool) (int, []byte) {
	return b.do(http.MethodPost, "/v1/workers/drain", []byte(fmt.Sprintf(`{"address": %q, "drain": %v}`, address, on)), "application/json")
}

func TestWorkersThatArePutAtOneReplicaAreAllReplicas(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := Config{Workers: specs(alpha)}
		r := startReplicas(t, 3, newEngines(alpha, beta, gamma), cfg)
		r.allSee("configured", alpha)
		if code, answer := r.put(r.all[1], "/v1/workers", listOf(alpha, beta)); code != http.StatusOK {
			t.Fatalf("%d %s", code, answer)
		}
		r.allSee("put", alpha, beta)
		for _, w := range r.all[2].s.fleet.Workers() {
			if w.Address == beta && (!w.CapacityAssumed || w.Ref == 0) {
				t.Errorf("%+v: not what was put", w)
			}
		}
		late := r.add("")
		<-late.s.Ready()
		r.allSee("one that comes later", alpha, beta)
		r.again(cfg)
		r.allSee("after a restart of all", alpha, beta)
		// Two at a time: one of both counts, everywhere.
		n := len(r.all)
		done := make(chan int, 2)
		for i, list := range []string{listOf(beta), listOf(gamma)} {
			go func() {
				code, _ := r.put(r.all[n-1-i], "/v1/workers", list)
				done <- code
			}()
		}
		if a, b := <-done, <-done; a != http.StatusOK || b != http.StatusOK {
			t.Errorf("%d and %d", a, b)
		}
		got := r.seen()
		if len(slices.Compact(slices.Clone(got))) != 1 || got[0] != beta && got[0] != gamma {
			t.Errorf("after two at a time: %q", got)
		}
		if code, _ := r.put(r.all[n-1], "/v1/workers", "workers: [{address: nonsense}]"); code != http.StatusBadRequest {
			t.Errorf("%d for a bad list", code)
		}
		// Quotation marks take two bytes each in the document.
		if code, answer := r.put(r.all[n-1], "/v1/workers", listOf(alpha)+"#"+strings.Repeat(`"`, maxAgreedList/2)); code != http.StatusRequestEntityTooLarge {
			t.Errorf("%d %s for a list that makes too long a document", code, answer)
		}
		r.net.SetDown(true)
		if code, answer := r.put(r.all[n-1], "/v1/workers", listOf(alpha)); code != http.StatusServiceUnavailable || !strings.Contains(string(answer), "no_majority") {
			t.Errorf("%d %s without a majority", code, answer)
		}
		r.allSee("without a majority", got[0])
		r.net.SetDown(false)
		// Who edits the configuration has the last word.
		r.again(Config{Workers: specs(alpha, gamma)})
		r.allSee("another configured list", alpha, gamma)
		r.again(cfg)
		r.allSee("the one before", alpha)
	})
}

func TestAWorkerThatIsDrainedAtOneReplicaDrainsAtAll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := Config{Workers: specs(alpha, beta)}
		r := startReplicas(t, 3, newEngines(alpha, beta), cfg)
		r.led()
		if code, answer := r.drain(r.all[0], beta, true); code != http.StatusOK {
			t.Fatalf("%d %s", code, answer)
		}
		r.allSee("drained", alpha, beta+" drains")
		late := r.add("")
		<-late.s.Ready()
		r.allSee("one that comes later", alpha, beta+" drains")
		r.again(cfg)
		r.allSee("after a restart of all", alpha, beta+" drains")
		last := r.all[len(r.all)-1]
		if code, _ := r.drain(last, beta, false); code != http.StatusOK {
			t.Error(code)
		}
		r.allSee("lifted", alpha, beta)
		if code, _ := r.drain(last, gamma, true); code != http.StatusBadRequest {
			t.Errorf("%d for a worker that isn't listed", code)
		}
		// It ends when the worker leaves the list.
		r.led()
		for _, list := range []string{listOf(alpha), listOf(alpha, beta)} {
			if code, _ := r.drain(last, beta, true); list == listOf(alpha) && code != http.StatusOK {
				t.Error(code)
			}
			if code, answer := r.put(last, "/v1/workers", list); code != http.StatusOK {
				t.Fatalf("%d %s", code, answer)
			}
			time.Sleep(2 * pruneEvery)
		}
		r.allSee("back in the list", alpha, beta)
		r.net.SetDown(true)
		if code, _ := r.drain(last, beta, true); code != http.StatusServiceUnavailable {
			t.Errorf("%d without a majority", code)
		}
		r.allSee("without a majority", alpha, beta)
	})
}

// TestADrainAtAReplicaWithAnotherConfigurationLeavesTheListAlone: configurations
// differ while they are rolled out.
func TestADrainAtAReplicaWithAnotherConfigurationLeavesTheListAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := startReplicas(t, 2, newEngines(alpha, beta), Config{Workers: specs(alpha)})
		r.led()
		r.cfg = Config{Workers: specs(alpha, gamma)}
		other := r.add("")
		<-other.s.Ready()
		if code, answer := r.put(r.all[0], "/v1/workers", listOf(alpha, beta)); code != http.StatusOK {
			t.Fatalf("%d %s", code, answer)
		}
		if code, answer := r.drain(other, alpha, true); code != http.StatusOK {
			t.Fatalf("%d %s", code, answer)
		}
		if got, want := fmt.Sprint(r.seen()), fmt.Sprint([]string{alpha + " drains, " + beta, alpha + " drains, " + beta, alpha + " drains, " + gamma}); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	})
}

// TestADrainOfAWorkerThatNobodyListsEnds: it left while no replica was there, and
// whoever gets its address later isn't drained.
func TestADrainOfAWorkerThatNobodyListsEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := startReplicas(t, 3, newEngines(alpha, beta), Config{Workers: specs(alpha, beta)})
		r.led()
		if code, _ := r.drain(r.all[0], beta, true); code != http.StatusOK {
			t.Fatal(code)
		}
		r.again(Config{Workers: specs(alpha)})
		r.led()
		time.Sleep(pruneAfter + 2*pruneEvery)
		r.again(Config{Workers: specs(alpha, beta)})
		r.allSee("listed again", alpha, beta)
	})
}

// TestADrainLastsWhileAnyReplicaListsItsWorker: the leader's own list may be an
// older one.
func TestADrainLastsWhileAnyReplicaListsItsWorker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := startReplicas(t, 2, newEngines(alpha, beta), Config{Workers: specs(alpha)})
		r.led()
		r.cfg = Config{Workers: specs(alpha, beta)}
		other := r.add("")
		<-other.s.Ready()
		if code, answer := r.drain(other, beta, true); code != http.StatusOK {
			t.Fatalf("%d %s", code, answer)
		}
		time.Sleep(3 * pruneAfter)
		if other.s.cluster.Leads() {
			t.Fatal("who lists it leads")
		}
		if got, want := fmt.Sprint(r.seen()), fmt.Sprint([]string{alpha, alpha, alpha + ", " + beta + " drains"}); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
		// Nobody lists it any more.
		other.stop()
		time.Sleep(2*pruneAfter + 2*pruneEvery)
		for _, b := range r.all[:2] {
			if drained := b.s.fleet.Drained(); len(drained) > 0 {
				t.Errorf("%v", drained)
			}
		}
	})
}
