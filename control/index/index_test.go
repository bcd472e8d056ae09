package index

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var epoch = time.Unix(1_700_000_000, 0)

// fleet returns an index with workers 1..n of one pool, 1,000 units each.
func fleet(n int) *Index {
	x := New(Config{})
	for ref := uint16(1); int(ref) <= n; ref++ {
		x.AddWorker(WorkerSpec{Ref: ref, Pool: "p", CapacityTokens: 16_000, BlockTokens: 16})
	}
	return x
}

var lastID uint64

func (x *Index) request(ref uint16, text string) RequestID {
	lastID++
	id := RequestID{Gateway: 7, ID: lastID}
	x.Dispatch(Dispatch{Request: id, Chosen: ref, PromptUnits: uint32(len(text)) * 4, Path: pathOf(text)}, epoch)
	return id
}

func complete(id RequestID, served uint16) Done {
	return Done{Request: id, Served: served, Outcome: Complete, CachedTokens: -1, PromptTokens: -1, OutputTokens: -1, TTFT: 100 * time.Millisecond, Total: time.Second}
}

func (x *Index) holders(text string) []uint16 {
	return x.store.appendHolders(nil, fingerprintOf(text))
}

func wantHolders(t *testing.T, x *Index, text string, want ...uint16) {
	t.Helper()
	if got := x.holders(text); !slices.Equal(got, want) {
		t.Errorf("holders of %q: %v, want %v", text, got, want)
	}
}

func TestAPredictionMovesToTheWorkerThatServed(t *testing.T) {
	x := fleet(2)
	id := x.request(1, "abc")
	wantHolders(t, x, "abc", 1)
	x.Done(complete(id, 2), epoch)
	wantHolders(t, x, "abc", 2)
	if c := x.Stats(); c.Moved != 1 || c.Undone != 1 || c.Pending != 0 {
		t.Errorf("%+v", c)
	}
}

func TestMovingLeavesWhatTheFirstWorkerHeldBefore(t *testing.T) {
	x := fleet(2)
	x.Done(complete(x.request(1, "ab"), 1), epoch)
	x.Done(complete(x.request(1, "abcd"), 2), epoch)
	wantHolders(t, x, "ab", 2, 1)
	wantHolders(t, x, "abc", 2)
}

func TestWhatIsUnderWayIsShownUntilItIsDone(t *testing.T) {
	x := fleet(2)
	shown := func() (all []string) {
		x.UnderWay(func(chosen uint16, path []Checkpoint) { all = append(all, fmt.Sprint(chosen, len(path))) })
		slices.Sort(all)
		return all
	}
	id := x.request(1, "abc")
	x.request(2, "xy")
	if got := shown(); !slices.Equal(got, []string{"1 3", "2 2"}) {
		t.Errorf("under way: %v", got)
	}
	x.Done(complete(id, 1), epoch)
	if got := shown(); !slices.Equal(got, []string{"2 2"}) {
		t.Errorf("once it is done: %v", got)
	}
}

func TestARefusedRequestPredictsNothing(t *testing.T) {
	for _, outcome := range []Outcome{Refused, UpstreamFailure, Local} {
		x := fleet(1)
		d := complete(x.request(1, "abc"), 1)
		d.Outcome = outcome
		x.Done(d, epoch)
		wantHolders(t, x, "a")
	}
}

func TestAnAbortAfterTheFirstTokenLeavesThePromptCached(t *testing.T) {
	x := fleet(1)
	d := complete(x.request(1, "abc"), 1)
	d.Outcome = ClientAbort
	x.Done(d, epoch)
	wantHolders(t, x, "abc", 1)
	d = complete(x.request(1, "xyz"), 1)
	d.Outcome, d.TTFT = ClientAbort, -1
	x.Done(d, epoch)
	wantHolders(t, x, "x")
}

func TestAnObservedChoicePredictsOnlyForWhoServed(t *testing.T) {
	x := fleet(2)
	id := RequestID{1, 1}
	x.Dispatch(Dispatch{Request: id, Chosen: 1, PromptUnits: 12, Path: pathOf("abc"), Observe: true}, epoch)
	wantHolders(t, x, "abc")
	x.Done(complete(id, 2), epoch)
	wantHolders(t, x, "abc", 2)
}

func TestReportsOfARetiredWorkerChangeNothing(t *testing.T) {
	x := fleet(2)
	id := x.request(1, "abc")
	x.RemoveWorker(1) // its process is another one now
	wantHolders(t, x, "abc")
	x.Done(complete(id, 1), epoch)
	x.request(1, "xyz")
	wantHolders(t, x, "abc")
	wantHolders(t, x, "xyz")
	x.Tick(epoch.Add(earlyFor + 1))
	if c := x.Stats(); c.UnknownRef != 2 || c.Nodes != 0 {
		t.Errorf("%+v", c)
	}
}

func TestTrustFollowsWhatTheEngineConfirms(t *testing.T) {
	x := fleet(1)
	text := "abcdefghij" // 40 units, 640 tokens
	x.Done(complete(x.request(1, text), 1), epoch)
	ask := func(cached int32) float64 {
		d := complete(x.request(1, text), 1)
		d.PredictedTokens, d.CachedTokens, d.PromptTokens = 640, cached, 640
		x.Done(d, epoch)
		s, _ := x.Worker(1, epoch)
		return s.Trust
	}
	if trust := ask(640); trust != 1 {
		t.Errorf("trust %v after a full hit", trust)
	}
	if trust := ask(900); trust != 1 {
		t.Errorf("trust %v: more than predicted is fine", trust)
	}
	if trust := ask(-1); trust != 1 {
		t.Errorf("trust %v without usage", trust)
	}
	bad := ask(0)
	if bad >= 0.9 || bad < 0.7 {
		t.Errorf("trust %v after one miss", bad)
	}
	for range 50 {
		bad = ask(0) // the prefix cache of this engine is off
	}
	if bad > 0.1 {
		t.Errorf("trust %v after fifty misses", bad)
	}
	good := bad
	for range 50 {
		good = ask(640)
	}
	if good < bad+0.4 {
		t.Errorf("trust %v after fifty hits", good)
	}
	if c := x.Stats(); c.UsageMissing != 2 || c.Shortfalls != 51 {
		t.Errorf("%+v", c.Counters)
	}
}

func TestASiblingOnTheWayIsNoProofAgainstTheWorker(t *testing.T) {
	x := fleet(1)
	first, second := x.request(1, "abcdefgh"), x.request(1, "abcdefgh")
	d := complete(second, 1)
	d.PredictedTokens, d.CachedTokens, d.PromptTokens = 512, 0, 512 // the first isn't computed yet
	x.Done(d, epoch)
	x.Done(complete(first, 1), epoch)
	if s, _ := x.Worker(1, epoch); s.Trust != 1 {
		t.Errorf("trust %v", s.Trust)
	}
	wantHolders(t, x, "abcdefgh", 1)
}

func TestAShortfallDropsWhatHangsBehindTheLoss(t *testing.T) {
	x := fleet(1)
	x.Done(complete(x.request(1, "abcdefXY"), 1), epoch)
	x.Done(complete(x.request(1, "abcdefgh"), 1), epoch)
	d := complete(x.request(1, "abcdefgh"), 1)
	d.PredictedTokens, d.CachedTokens, d.PromptTokens = 512, 128, 512 // "ab" was left
	x.Done(d, epoch)
	wantHolders(t, x, "abcdefgh", 1) // computed anew by this very request
	wantHolders(t, x, "abcdefX")
	wantHolders(t, x, "abcdefXY")
	if c := x.Stats(); c.StaleDropped != 2 {
		t.Errorf("dropped %d", c.StaleDropped)
	}
}

func TestGeneratedTextTakesRoomUntilTheNextTurnCoversIt(t *testing.T) {
	x := fleet(1)
	d := complete(x.request(1, "ab"), 1)
	d.OutputTokens = 160
	x.Done(d, epoch)
	if s, _ := x.Worker(1, epoch); s.CoveredTokens != 8*16+160 {
		t.Errorf("covers %v", s.CoveredTokens)
	}
	x.request(1, "abcdefgh")
	if s, _ := x.Worker(1, epoch); s.CoveredTokens != 32*16 {
		t.Errorf("covers %v after the next turn", s.CoveredTokens)
	}
}

func TestUniquePromptsReachAPlateau(t *testing.T) {
	const limit = 200 << 10
	x := New(Config{MaxBytes: limit, MaxPendingBytes: 64 << 10})
	for ref := uint16(1); ref <= 4; ref++ {
		x.AddWorker(WorkerSpec{Ref: ref, Pool: "p", CapacityTokens: 1 << 30, BlockTokens: 16})
	}
	rng := rand.New(rand.NewPCG(1, 2))
	live := 0
	for i := range 20_000 {
		path := make([]Checkpoint, 40)
		for j := range path {
			path[j] = Checkpoint{Fingerprint: rng.Uint64() | 1, End: uint32(j+1) * 4}
		}
		x.Dispatch(Dispatch{Request: RequestID{1, uint64(i)}, Chosen: uint16(i%4 + 1), PromptUnits: 160, Path: path}, epoch)
		x.Drain(func(c Change) {
			if len(c.Holders) > 0 {
				live++
			} else {
				live--
			}
		})
		if s := x.Stats(); s.Bytes > limit || s.PendingBytes > 64<<10 {
			t.Fatalf("request %d: %d bytes of index, %d pending", i, s.Bytes, s.PendingBytes)
		}
		if len(x.pending.queue) > 10_000 {
			t.Fatalf("pending queue of %d", len(x.pending.queue))
		}
	}
	s := x.Stats()
	if slabs := len(x.store.slabs) * slabNodes * 64; slabs > limit+slabNodes*64 {
		t.Errorf("slabs of %d bytes", slabs)
	}
	if live < 0 || s.EvictedBytes == 0 || s.Bytes < limit/2 {
		t.Errorf("%+v", s)
	}
	checkModels(t, x)
}

func TestDispatchesWithoutDoneExpire(t *testing.T) {
	x := fleet(1)
	x.request(1, "ab")
	x.Tick(epoch.Add(14 * time.Minute))
	if s := x.Stats(); s.Pending != 1 {
		t.Errorf("%+v", s)
	}
	x.Tick(epoch.Add(16 * time.Minute))
	if s := x.Stats(); s.Pending != 0 || s.PendingExpired != 1 || s.PendingBytes != 0 {
		t.Errorf("%+v", s)
	}
	wantHolders(t, x, "ab", 1)
}

func TestBadPathsAreCountedAndChangeNothing(t *testing.T) {
	x := fleet(1)
	x.request(1, "ab")
	for name, path := range map[string][]Checkpoint{
		"zero fingerprint": {{Fingerprint: 0, End: 4}},
		"not ascending":    {{Fingerprint: 9, End: 8}, {Fingerprint: 10, End: 8}},
		"other position":   {{Fingerprint: fingerprintOf("a"), End: 12}},
		"too far":          {{Fingerprint: 9, End: 1<<24 + 1}},
		"too many":         make([]Checkpoint, 257),
	} {
		before := x.Stats().Malformed
		lastID++
		x.Dispatch(Dispatch{Request: RequestID{7, lastID}, Chosen: 1, PromptUnits: 99, Path: path}, epoch)
		if s := x.Stats(); s.Malformed != before+1 || s.Nodes != 2 {
			t.Errorf("%s: %+v", name, s)
		}
	}
	checkModels(t, x)
}

// TestReportsOfOnePromptMayListDifferentPositions: whatever subset of positions
// a report lists, the model stays a forest in order of use and covers no more
// than the union.
func TestReportsOfOnePromptMayListDifferentPositions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := New(Config{})
		x.AddWorker(WorkerSpec{Ref: 1, Pool: "p", CapacityTokens: 1 << 20})
		deepest := map[string]bool{}
		for i := range rapid.IntRange(1, 40).Draw(t, "n") {
			text := rapid.StringMatching("[ab]{1,10}").Draw(t, "text")
			var path []Checkpoint
			for _, c := range pathOf(text) {
				if rapid.Bool().Draw(t, "keep") {
					path = append(path, c)
				}
			}
			if len(path) == 0 {
				continue
			}
			x.Dispatch(Dispatch{Request: RequestID{1, uint64(i)}, Chosen: 1, PromptUnits: 40, Path: path}, epoch)
			for _, c := range path {
				deepest[text[:c.End/4]] = true
			}
			checkModels(t, x)
			m := x.models[1]
			// Each listed position is an ancestor of the deepest one.
			at := m.at[path[len(path)-1].Fingerprint]
			ancestors := map[uint64]bool{}
			for ; at != 0; at = m.node(at).parent {
				ancestors[m.node(at).fingerprint] = true
			}
			for _, c := range path {
				if !ancestors[c.Fingerprint] {
					t.Fatalf("position %d of %q isn't on the way to its end", c.End, text)
				}
			}
		}
		if got := len(x.store.holders); got != len(deepest) {
			t.Fatalf("%d held, %d listed", got, len(deepest))
		}
	})
}

func TestRatesAreLearnedFromIdleWorkersOnly(t *testing.T) {
	x := fleet(1)
	ask := func(idle bool, ttft time.Duration) WorkerStats {
		lastID++
		id := RequestID{7, lastID}
		x.Dispatch(Dispatch{Request: id, Chosen: 1, PromptUnits: 125, Path: pathOf("abcdefgh"), Idle: idle}, epoch)
		d := complete(id, 1)
		d.PromptTokens, d.CachedTokens, d.OutputTokens, d.TTFT, d.Total = 2000, 0, 101, ttft, ttft+2*time.Second
		x.Done(d, epoch)
		s, _ := x.Worker(1, epoch)
		return s
	}
	if s := ask(false, 10*time.Second); s.PrefillRate != 0 || s.DecodeSeconds != 0.02 {
		t.Errorf("%+v", s)
	}
	if s := ask(true, 100*time.Millisecond); s.PrefillRate != 20_000 {
		t.Errorf("%+v", s)
	}
	if s := ask(true, 200*time.Millisecond); s.PrefillRate != 15_000 {
		t.Errorf("%+v", s)
	}
}

func TestTheRingPositionIsTheFirstThatHalfOfTheRequestsDoNotShare(t *testing.T) {
	x := fleet(1)
	send := func(n int, text func(i int) string) {
		for i := range n {
			x.request(1, text(i))
		}
	}
	if _, ok := x.RingUnits("p"); ok {
		t.Error("an answer from nothing")
	}
	// All share three letters (12 units), then there are ten tenants.
	tenant := func(i int) string { return "aaa" + string(rune('b'+i%10)) + "qqqq" + fmt.Sprint(i) }
	answers := 0
	for range 4 {
		send(64, tenant)
		if units, ok := x.RingUnits("p"); ok {
			answers++
			if units != 16 {
				t.Errorf("%d units", units)
			}
		}
	}
	if answers != 2 {
		t.Errorf("%d answers of 4 were stable", answers)
	}
}

func TestASnapshotBringsEverythingBackInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := fleet(3)
		for range rapid.IntRange(0, 40).Draw(t, "n") {
			ref := rapid.Uint16Range(1, 3).Draw(t, "ref")
			d := complete(x.request(ref, rapid.StringMatching("[ab]{1,8}").Draw(t, "text")), ref)
			d.OutputTokens = int32(rapid.IntRange(0, 100).Draw(t, "output"))
			x.Done(d, epoch)
		}
		y := New(Config{})
		if err := y.RestoreSnapshot(x.AppendSnapshot(nil), true); err != nil {
			t.Fatal(err)
		}
		for _, ref := range []uint16{3, 1, 2} { // in whatever order they are found
			y.AddWorker(WorkerSpec{Ref: ref, Pool: "p", CapacityTokens: 16_000, BlockTokens: 16})
		}
		checkModels(t, y)
		collect := func(x *Index) map[uint64]string {
			out := map[uint64]string{}
			x.Each(func(c Change) { out[c.Fingerprint] = fmt.Sprint(c.Holders, c.PoolSize) })
			return out
		}
		if a, b := fmt.Sprint(collect(x)), fmt.Sprint(collect(y)); a != b {
			t.Fatalf("before %s\nafter %s", a, b)
		}
		for ref, m := range x.models {
			for a, b := m.newest, y.models[ref].newest; a != 0 || b != 0; a, b = m.node(a).older, y.models[ref].node(b).older {
				p, q := *m.node(a), *y.models[ref].node(b)
				if p.fingerprint != q.fingerprint || p.touched != q.touched || p.tail != q.tail || p.confirmed != q.confirmed {
					t.Fatalf("ref %d: %+v\n%+v", ref, p, q)
				}
			}
		}
	})
}

func TestAnAnswerWithoutAKnownWorkerIsCountedForTheChosenOne(t *testing.T) {
	x := fleet(2)
	x.Done(complete(x.request(1, "abc"), 0), epoch)
	wantHolders(t, x, "abc", 1)
	// On paper only: then nobody knows.
	id := RequestID{1, 1}
	x.Dispatch(Dispatch{Request: id, Chosen: 1, PromptUnits: 12, Path: pathOf("xyz"), Observe: true}, epoch)
	x.Done(complete(id, 0), epoch)
	wantHolders(t, x, "xyz")
}

func TestAnOldSnapshotIsBelievedByHalf(t *testing.T) {
	x := fleet(1)
	x.Done(complete(x.request(1, "abcdefgh"), 1), epoch)
	y := New(Config{})
	if err := y.RestoreSnapshot(x.AppendSnapshot(nil), false); err != nil {
		t.Fatal(err)
	}
	y.AddWorker(WorkerSpec{Ref: 1, Pool: "p", CapacityTokens: 16_000})
	wantHolders(t, y, "abcdefgh", 1)
	d := complete(y.request(1, "abcdefgh"), 1)
	d.PredictedTokens, d.CachedTokens, d.PromptTokens = 512, 0, 512
	y.Done(d, epoch)
	if s, _ := y.Worker(1, epoch); s.Trust != 0.5 {
		t.Errorf("trust %v", s.Trust)
	}
}

func TestAPromptThatWasAnsweredIsHeldEvenIfItsPredictionGotLost(t *testing.T) {
	x := fleet(1)
	id := x.request(1, "abc")
	for i := range 100 { // others push it out while it runs
		x.request(1, string(rune('A'+i%26))+string(rune('A'+i/26))+"0123456789012345")
	}
	wantHolders(t, x, "abc")
	x.Done(complete(id, 1), epoch)
	wantHolders(t, x, "abc", 1)
}

func FuzzRestoreSnapshot(f *testing.F) {
	x := fleet(2)
	x.Done(complete(x.request(1, "abcd"), 1), epoch)
	x.Done(complete(x.request(2, "abX"), 2), epoch)
	f.Add(x.AppendSnapshot(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		y := New(Config{})
		if err := y.RestoreSnapshot(b, true); err != nil {
			return
		}
		for ref := uint16(1); ref <= 2; ref++ {
			y.AddWorker(WorkerSpec{Ref: ref, Pool: "p", CapacityTokens: 1 << 30})
		}
		checkModels(t, y)
	})
}

func BenchmarkDispatch(b *testing.B) {
	x := New(Config{})
	for ref := uint16(1); ref <= 16; ref++ {
		x.AddWorker(WorkerSpec{Ref: ref, Pool: "p", CapacityTokens: 200_000})
	}
	rng := rand.New(rand.NewPCG(1, 2))
	paths := make([][]Checkpoint, 1000)
	for i := range paths {
		system := uint64(i%32)*1000 + 1
		for j := range 40 {
			f := system + uint64(j)
			if j >= 20 {
				f = rng.Uint64()
			}
			paths[i] = append(paths[i], Checkpoint{Fingerprint: f | 1<<40, End: uint32(j+1) * 16})
		}
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		x.Dispatch(Dispatch{Request: RequestID{1, uint64(i)}, Chosen: uint16(i%16 + 1), PromptUnits: 640, Path: paths[i%1000]}, epoch)
		x.Done(Done{Request: RequestID{1, uint64(i)}, Served: uint16(i%16 + 1), Outcome: Complete, CachedTokens: -1, PromptTokens: -1, OutputTokens: -1}, epoch)
		i++
	}
}

// A copy is held and was work, as any request's prompt; it is no request of a client's.
func TestACopyThatAGatewayMadeIsHeldAndCountsForNoRequest(t *testing.T) {
	x := fleet(1)
	x.Done(complete(x.request(1, "ab"), 1), epoch)
	before, _ := x.Worker(1, epoch)
	missing, ring := x.Stats().UsageMissing, x.pools["p"].fresh
	heat := x.Value(fingerprintOf("ab"))
	for i := range uint64(3) {
		id := RequestID{Gateway: 8, ID: i}
		x.Dispatch(Dispatch{Request: id, Chosen: 1, PromptUnits: 12, Path: pathOf("abc"), Copy: true}, epoch)
		x.Done(complete(id, 1), epoch)
	}
	wantHolders(t, x, "abc", 1)
	after, _ := x.Worker(1, epoch)
	if after.RecentTokens != before.RecentTokens+3*12*16 {
		t.Errorf("recent work %v after %v, want three copies of 12 units more", after.RecentTokens, before.RecentTokens)
	}
	if after.Hits != before.Hits || x.Stats().UsageMissing != missing || x.pools["p"].fresh != ring || x.Value(fingerprintOf("ab")) != heat {
		t.Errorf("it counts as requests: %+v after %+v", after.Hits, before.Hits)
	}
	if x.Stats().Pending != 0 {
		t.Error("a copy is under way for ever")
	}
}
