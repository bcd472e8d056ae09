package index

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func reportedPath(ends ...uint32) []Checkpoint {
	var out []Checkpoint
	for _, e := range ends {
		out = append(out, Checkpoint{Fingerprint: 1000 + uint64(e), End: e})
	}
	return out
}

func holds(x *Index, end uint32) bool {
	return !math.IsInf(x.Value(1000+uint64(end)), -1)
}

func TestReportsAreTheTruthBesidePredictions(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	x := New(Config{})
	x.AddWorker(WorkerSpec{Ref: 1, Pool: "p", CapacityTokens: 160})
	x.Report(1, reportedPath(4), at) // nobody said that it reports
	if holds(x, 4) {
		t.Error("a report counts before Reporting")
	}
	x.Reporting(1, true, at)
	x.Report(1, reportedPath(4, 8, 12, 16, 20), at)
	if !holds(x, 20) {
		t.Error("evicted on a guess, though the engine tells what it evicts")
	}
	// A turn ends at 10; beyond 20 the engine will store 24, not 28.
	x.Dispatch(Dispatch{Request: RequestID{1, 1}, Chosen: 1, PromptUnits: 28, Path: reportedPath(4, 8, 10, 12, 16, 20, 24, 28)}, at)
	x.Done(Done{Request: RequestID{1, 1}, Served: 1, Outcome: Complete, CachedTokens: -1, TTFT: -1}, at)
	x.Report(1, reportedPath(20, 24), at)
	x.Tick(at.Add(unreportedFor - time.Second))
	if !holds(x, 28) {
		t.Error("a prediction went before its time")
	}
	x.Tick(at.Add(unreportedFor))
	x.Tick(at.Add(unansweredFor))
	for end, want := range map[uint32]bool{4: true, 10: true, 20: true, 24: true, 28: false} {
		if holds(x, end) != want {
			t.Errorf("unit %d: held %v", end, !want)
		}
	}
	// What made 10 true goes; so does 10, a little later.
	later := at.Add(time.Hour)
	x.Withdraw(1, 1012, later)
	x.Withdraw(1, 1016, later) // gone with it
	if holds(x, 12) || holds(x, 24) || !holds(x, 8) {
		t.Error("12 and beyond should be gone, 8 not")
	}
	x.Tick(later.Add(unreportedFor))
	if holds(x, 10) || !holds(x, 8) {
		t.Error("10 is neither reported nor before anything reported")
	}
	if s := x.Stats(); s.Reported != 6 || s.Withdrawn != 4 || s.Unreported != 2 {
		t.Errorf("%+v", s.Counters)
	}
	x.WithdrawAll(1)
	if s := x.Stats(); s.Nodes != 0 || s.Fingerprints != 0 {
		t.Errorf("%+v", s)
	}
	x.Report(1, reportedPath(4, 8, 12, 16, 20), later)
	x.Reporting(1, false, later)
	if holds(x, 20) || !holds(x, 4) {
		t.Error("without reports the size of the cache counts again")
	}
}

// Prompts are long: what was predicted of one goes at once, not checkpoint by
// checkpoint.
func TestAPredictionThatNothingConfirmsGoesAsAWhole(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	x := New(Config{})
	x.AddWorker(WorkerSpec{Ref: 1, Pool: "p", CapacityTokens: 100_000})
	x.Reporting(1, true, at)
	x.Report(1, reportedPath(4, 8), at)
	x.Dispatch(Dispatch{Request: RequestID{1, 1}, Chosen: 1, PromptUnits: 24, Path: reportedPath(4, 8, 12, 16, 20, 24)}, at)
	x.Done(Done{Request: RequestID{1, 1}, Served: 1, Outcome: Complete, CachedTokens: -1, TTFT: -1}, at)
	x.Tick(at.Add(unreportedFor))
	if holds(x, 12) || holds(x, 24) || !holds(x, 8) {
		t.Errorf("12 held %v, 24 held %v, 8 held %v", holds(x, 12), holds(x, 24), holds(x, 8))
	}
}

// A block that was stored before anybody listened is only known by its hits, and
// hits emit no events.
func TestWhatAnswersProveOutlivesTheWaitForReports(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	x := New(Config{})
	x.AddWorker(WorkerSpec{Ref: 1, Pool: "p", CapacityTokens: 100_000, BlockTokens: 16})
	x.Reporting(1, true, now)
	hit := func(cached int32) {
		x.Dispatch(Dispatch{Request: RequestID{1, 1}, Chosen: 1, PromptUnits: 12, Path: reportedPath(4, 8, 12)}, now)
		x.Done(Done{Request: RequestID{1, 1}, Served: 1, Outcome: Complete, CachedTokens: cached, PromptTokens: 192, TTFT: -1}, now)
	}
	pass := func(d time.Duration) {
		for end := now.Add(d); now.Before(end); {
			now = now.Add(10 * time.Second)
			x.Tick(now)
		}
	}
	hit(128) // all but the last unit's block
	pass(5 * time.Minute)
	if !holds(x, 8) || holds(x, 12) {
		t.Errorf("8 held %v, 12 held %v", holds(x, 8), holds(x, 12))
	}
	hit(128) // renewed
	pass(8 * time.Minute)
	if !holds(x, 4) || !holds(x, 8) {
		t.Error("a hit didn't renew what it proved")
	}
	pass(4 * time.Minute)
	if holds(x, 4) {
		t.Error("believed for ever")
	}
	if m := x.models[1]; len(m.unproven) != 0 || len(m.proven) != 0 {
		t.Errorf("%d wait, %d proven", len(m.unproven), len(m.proven))
	}
	hit(0)
	pass(3 * time.Minute)
	if holds(x, 4) {
		t.Error("a miss proves nothing")
	}
}

func TestWhatWasBelievedBeforeReportsBeganHasItsTime(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	x := New(Config{})
	x.AddWorker(WorkerSpec{Ref: 1, Pool: "p", CapacityTokens: 100_000})
	x.Dispatch(Dispatch{Request: RequestID{1, 1}, Chosen: 1, PromptUnits: 8, Path: reportedPath(4, 8)}, at)
	x.Reporting(1, true, at)
	x.Report(1, reportedPath(4), at)
	x.Tick(at.Add(unknownFor - time.Second))
	if !holds(x, 8) {
		t.Error("gone too early")
	}
	x.Tick(at.Add(unknownFor))
	if holds(x, 8) || !holds(x, 4) {
		t.Error("8 was never reported, 4 was")
	}
}

// TestAMissTakesNothingThatTheEngineReports: an answer with fewer cached tokens
// than were proven is about the moment of its prefill. What was stored since, by
// whom ever, the engine has told, and it tells nothing twice.
func TestAMissTakesNothingThatTheEngineReports(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	for _, doubted := range []bool{false, true} {
		x := New(Config{})
		x.AddWorker(WorkerSpec{Ref: 1, Pool: "p", CapacityTokens: 100_000})
		x.Reporting(1, true, at)
		if doubted {
			x.Doubt(1)
		}
		x.Report(1, reportedPath(4, 8, 12, 16, 20), at)
		predict := func(n uint64, ends ...uint32) RequestID {
			id := RequestID{1, n}
			x.Dispatch(Dispatch{Request: id, Chosen: 1, PromptUnits: ends[len(ends)-1], Path: reportedPath(ends...)}, at)
			return id
		}
		// 22 hangs on 20, unreported; another prompt goes as far as 8 and finds nothing.
		x.Done(Done{Request: predict(1, 4, 8, 12, 16, 20, 22), Served: 1, Outcome: Complete, CachedTokens: -1, TTFT: -1}, at)
		x.Done(Done{Request: predict(2, 4, 8), Served: 1, Outcome: Complete, PromptTokens: 128, PredictedTokens: 128, CachedTokens: 0, TTFT: -1}, at)
		if s := x.Stats(); s.Shortfalls != 1 || holds(x, 22) || holds(x, 20) == doubted || holds(x, 12) == doubted || !holds(x, 8) {
			t.Errorf("doubted %v: %d shortfalls; held: 8 %v, 12 %v, 20 %v, 22 %v", doubted, s.Shortfalls, holds(x, 8), holds(x, 12), holds(x, 20), holds(x, 22))
		}
	}
}

// Of a worker with several caches, one of which a request meets by chance, only
// its own reports are believed; rates and trust are learned all the same.
func TestRequestsPredictNothingOfAWorkerThatSpreadsThem(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	x := New(Config{})
	x.AddWorker(WorkerSpec{Ref: 1, Pool: "p", CapacityTokens: 100_000})
	path := reportedPath(4, 8)
	ask := func(id uint64, cached int32) {
		x.Dispatch(Dispatch{Request: RequestID{1, id}, Chosen: 1, PromptUnits: 8, Path: path, Idle: true}, at)
		x.Done(Done{Request: RequestID{1, id}, Served: 1, Outcome: Complete, PredictedTokens: 128, CachedTokens: cached, PromptTokens: 128, OutputTokens: 100, TTFT: time.Second, Total: 2 * time.Second}, at)
	}
	x.Reporting(1, true, at)
	ask(1, 0)
	if x.IsSpread(1) {
		t.Error("spread before anybody said so")
	}
	if x.Spread(1); !x.IsSpread(1) || x.IsSpread(2) {
		t.Errorf("worker 1 spread: %v, and 2, which isn't there: %v", x.IsSpread(1), x.IsSpread(2))
	}
	if holds(x, 4) {
		t.Error("what was predicted before is still believed")
	}
	ask(2, 0)
	if st, _ := x.Worker(1, at); holds(x, 4) || st.Asked != 0 || st.DecodeSeconds == 0 || st.Hits.Answers != 2 {
		t.Errorf("held %v, %+v", holds(x, 4), st)
	}
	// Nobody says who answered: most likely who was chosen.
	x.Dispatch(Dispatch{Request: RequestID{1, 9}, Chosen: 1, PromptUnits: 8, Path: path}, at)
	x.Done(Done{Request: RequestID{1, 9}, Outcome: Complete, CachedTokens: 0, PromptTokens: 128, TTFT: -1}, at)
	if st, _ := x.Worker(1, at); st.Hits.Answers != 3 {
		t.Errorf("%+v: an answer is nobody's", st)
	}
	x.Report(1, path, at)
	ask(3, 0)
	if st, _ := x.Worker(1, at); !holds(x, 8) || st.Asked != 1 || st.Trust >= 1 {
		t.Errorf("held %v, %+v", holds(x, 8), st)
	}
	x.Reporting(1, false, at)
	x.Reporting(1, true, at)
	ask(4, 128)
	if path = reportedPath(4, 8, 12); holds(x, 12) {
		t.Fatal("not asked yet")
	}
	ask(5, 128)
	if !holds(x, 12) {
		t.Error("it is spread no longer, and nothing is predicted")
	}
}

// What waits for reports is bounded by what is held, whatever the traffic: of new prompts that push
// each other out, of one that is asked for again and again, and of those that were reported long ago.
func TestWhatWaitsForReportsReachesAPlateau(t *testing.T) {
	for name, c := range map[string]struct{ unique, reported bool }{
		"unique prompts": {unique: true}, "one prompt": {}, "reported at once": {unique: true, reported: true},
	} {
		t.Run(name, func(t *testing.T) {
			x := New(Config{MaxBytes: 200 << 10, MaxPendingBytes: 64 << 10})
			x.AddWorker(WorkerSpec{Ref: 1, Pool: "p", CapacityTokens: 1 << 30, BlockTokens: 16})
			x.Reporting(1, true, epoch)
			rng := rand.New(rand.NewPCG(1, 2))
			var path []Checkpoint
			most := 0
			for i := range 2500 {
				if i == 0 || c.unique {
					path = make([]Checkpoint, 40)
					for j := range path {
						path[j] = Checkpoint{Fingerprint: rng.Uint64() | 1, End: uint32(j+1) * 4}
					}
				}
				x.Dispatch(Dispatch{Request: RequestID{1, uint64(i)}, Chosen: 1, PromptUnits: 160, Path: path}, epoch)
				if i%2 == 0 { // a hit that no event told of, yet
					x.Done(Done{Request: RequestID{1, uint64(i)}, Served: 1, Outcome: Complete, CachedTokens: 2500, PromptTokens: 2560, OutputTokens: 1, TTFT: -1}, epoch)
				}
				if c.reported {
					x.Report(1, path, epoch)
				}
				m := x.models[1]
				most = max(most, len(m.at))
				if n, proven := len(m.unproven), len(m.proven); max(n, proven) > 2*most+tidyFrom+len(path) {
					t.Fatalf("request %d: %d notes and %d proofs, for at most %d checkpoints", i, n, proven, most)
				}
			}
			for minute := range 20 {
				x.Tick(epoch.Add(time.Duration(minute) * time.Minute))
			}
			m := x.models[1]
			if held := len(m.at); c.reported == (held == 0) || len(m.unproven)+len(m.proven) > 0 {
				t.Errorf("%d checkpoints are held after the time for reports, %d notes, %d proofs", held, len(m.unproven), len(m.proven))
			}
			checkModels(t, x)
		})
	}
}
