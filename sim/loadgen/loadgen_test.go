package loadgen

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/warmpath/warmpath/sim/live"
	"github.com/warmpath/warmpath/sim/workload"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// small is a workload of a second or two.
func small(t testing.TB, requests int) *workload.Workload {
	t.Helper()
	spec := workload.Demo()
	spec.Requests = requests
	spec.Tenants.Count = 8
	spec.RequestsPerSecond = 40
	spec.ThinkSeconds.Mean = 1
	spec.SystemPrompt.MeanTokens = 400
	spec.Documents.Share = 0.1
	spec.Fleet.TimeScale = 50
	w, err := workload.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func fleet(t testing.TB, n int, w *workload.Workload) (*live.Fleet, []string) {
	t.Helper()
	f, err := live.StartFleet(n, live.Config{
		Engine: w.Spec.Fleet.EngineParams(1), TimeScale: w.Spec.Fleet.TimeScale,
		EventTokens: -1, Models: []string{w.Spec.Model},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	var targets []string
	for _, address := range f.Addresses() {
		targets = append(targets, "http://"+address)
	}
	return f, targets
}

func TestClientAndEngineCountTheSameTokens(t *testing.T) {
	w := small(t, 300)
	f, targets := fleet(t, 3, w)
	var last Progress
	results := 0
	res, err := Run(context.Background(), Config{
		Targets: targets, Workload: w,
		Progress: func(p Progress) { last = p },
		OnResult: func(Outcome) { results++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	if res.Completed != 300 || res.ErrorCount() != 0 || res.UsageLost != 0 || last.Done != 300 || results != 300 {
		t.Fatalf("%+v, last progress %+v, %d outcomes", res, last, results)
	}
	var queried, hit, generated uint64
	for _, s := range f.Stats() {
		queried += s.QueriedTokens
		hit += s.HitTokens
		generated += s.GeneratedTokens
	}
	if uint64(res.All.PromptTokens) != queried || uint64(res.All.CachedTokens) != hit {
		t.Errorf("client saw %d prompt and %d cached tokens, the engines %d and %d", res.All.PromptTokens, res.All.CachedTokens, queried, hit)
	}
	output, byWorker, tiers := 0, 0, 0
	for name, s := range res.ByWorker {
		if !strings.HasPrefix(name, "worker-") {
			t.Errorf("worker %q", name)
		}
		output += s.OutputTokens
		byWorker += s.Requests
	}
	for _, s := range res.Tiers {
		tiers += s.Requests
	}
	if uint64(output) != generated || byWorker != 300 || tiers != 300 || res.FirstTurn.Requests+res.FollowUp.Requests != 300 {
		t.Errorf("%d output tokens of %d; %d requests by worker, %d by tier", output, generated, byWorker, tiers)
	}
	for target, n := range res.ByTarget {
		if n != 100 {
			t.Errorf("%s got %d of 300 requests", target, n)
		}
	}
	if res.TTFT.P50 <= 0 || res.TTFT.P99 < res.TTFT.P50 || res.Total.Mean <= res.TTFT.Mean || res.TimePerToken.P50 < 15 {
		t.Errorf("TTFT %+v, total %+v, TPOT %+v", res.TTFT, res.Total, res.TimePerToken)
	}
}

func TestSameRequestsWhateverTheRouting(t *testing.T) {
	w := small(t, 200)
	prompts := func(workers int) map[string]int {
		_, targets := fleet(t, workers, w)
		seen := map[string]int{}
		if _, err := Run(context.Background(), Config{Targets: targets, Workload: w, OnResult: func(o Outcome) {
			seen[fmt.Sprint(o.Session, ".", o.Turn)] = o.PromptTokens
		}}); err != nil {
			t.Fatal(err)
		}
		return seen
	}
	one, four := prompts(1), prompts(4)
	if len(one) != 200 {
		t.Fatalf("%d requests", len(one))
	}
	for turn, tokens := range one {
		if four[turn] != tokens {
			t.Errorf("turn %s: %d prompt tokens with one worker, %d with four", turn, tokens, four[turn])
		}
	}
}

func TestFailuresAreCountedByKindAndEndTheirSession(t *testing.T) {
	for fault, want := range map[live.Fault]string{
		live.Refuse:             "status 503",
		live.InternalError:      "status 500",
		live.ResetBeforeHeaders: "connection",
		live.ResetAfterHeaders:  "broken stream",
		live.Stall:              "timeout",
	} {
		w := small(t, 40)
		f, targets := fleet(t, 1, w)
		if err := f.Workers[0].SetFault(fault); err != nil {
			t.Fatal(err)
		}
		res, err := Run(context.Background(), Config{Targets: targets, Workload: w, Timeout: 100 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		sessions := len(w.Sessions)
		if res.Errors[want] != sessions || res.Requests != sessions || res.Completed != 0 || res.SkippedTurns != 40-sessions {
			t.Errorf("%v: errors %v of %d sessions, %d turns skipped", fault, res.Errors, sessions, res.SkippedTurns)
		}
	}
}

func TestCancelledRunReturnsWhatWasDone(t *testing.T) {
	w := small(t, 2000)
	_, targets := fleet(t, 1, w)
	ctx, cancel := context.WithCancel(context.Background())
	n := 0
	res, err := Run(ctx, Config{Targets: targets, Workload: w, OnResult: func(Outcome) {
		if n++; n == 20 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if res == nil || res.Completed < 20 || res.Completed > 1000 {
		t.Errorf("%+v", res)
	}
}

func TestConfigMistakesAreNamed(t *testing.T) {
	w := small(t, 10)
	for want, c := range map[string]Config{
		"no workload": {Targets: []string{"http://x"}},
		"no targets":  {Workload: w},
		"want a base": {Workload: w, Targets: []string{"127.0.0.1:80"}},
		"TimeScale":   {Workload: w, Targets: []string{"http://x"}, TimeScale: -1},
	} {
		if _, err := Run(context.Background(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestRerouteIsReadFromTheGatewaysHeader(t *testing.T) {
	w := small(t, 12)
	f, _ := fleet(t, 1, w)
	gateway := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("x-warmpath-attempts", "2")
		if !strings.HasPrefix(r.Header.Get("x-session-id"), "s-") || r.Header.Get("Authorization") != "Bearer k" {
			t.Errorf("headers %v", r.Header)
		}
		f.Workers[0].ServeHTTP(rw, r)
	})}
	l := listen(t)
	go func() { _ = gateway.Serve(l) }()
	defer gateway.Close()
	res, err := Run(context.Background(), Config{
		Targets: []string{"http://" + l.Addr().String() + "/"}, Workload: w,
		Header: http.Header{"Authorization": {"Bearer k"}},
	})
	if err != nil || res.Reroutes != 12 || res.Completed != 12 {
		t.Errorf("%v %+v", err, res)
	}
}
