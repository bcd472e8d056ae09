//go:build !wasm

package fleet

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/config"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/route"
	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
)

const start = int64(1_700_000_000) * int64(time.Second)

// proxy is a fake host for the length of a test.
func proxy(t *testing.T) *abi.Fake {
	t.Helper()
	host := abi.NewFake()
	host.Clock = start
	t.Cleanup(abi.UseFake(host))
	return host
}

// vm is a fleet on the fake host; several are the VMs of one proxy.
func vm(t *testing.T) *Fleet {
	t.Helper()
	m := &metrics.Set{}
	m.Define()
	f := New("default", m, route.NewRand(1))
	f.Configure(config.Default())
	return f
}

const onePool = `{"pools":[{"name":"default","index":0,"models":["*"]}]}`

// publish puts a table with workers 1..n into shared data.
func publish(host *abi.Fake, n int, version uint64, policy string) {
	keys := wire.NewKeys("default")
	var roster, loads []byte
	for ref := range uint16(n) {
		roster = wire.AppendWorker(roster, &wire.Worker{Ref: ref + 1, Generation: 1, MaxRunning: 10, QueueLimit: 10, Address: []byte{'w', '0' + byte(ref+1)}})
		loads = wire.AppendLoad(loads, &wire.Load{Ref: ref + 1, State: 1, Trust: 1, FleetInFlight: 5, AgeMillis: 100})
	}
	put(host, keys.Roster(), roster)
	put(host, keys.Loads(), loads)
	put(host, keys.Policy(), []byte(policy))
	put(host, keys.Meta(), table.AppendMeta(nil, &table.Meta{
		Bits: 6, Ready: true, Epoch: 1, Version: version, UpdatedUnixNanos: host.Clock,
		RosterVersion: version, LoadsVersion: version, PolicyVersion: version,
	}))
}

func put(host *abi.Fake, key string, value []byte) {
	host.Shared[key] = abi.FakeShared{Value: value, CAS: host.Shared[key].CAS + 1}
}

// wait lets a VM tick for a time.
func wait(f *Fleet, from int64, d time.Duration) (now int64) {
	for now = from; now < from+int64(d); {
		now += int64(100 * time.Millisecond)
		f.Tick(now, false)
	}
	return now
}

func TestEveryVMFindsItsOwnSlot(t *testing.T) {
	host := proxy(t)
	taken := map[uint16]bool{}
	for range wire.MaxSlots {
		f := vm(t)
		f.Tick(start, false)
		slot, ok := f.Slot()
		if !ok || taken[slot] {
			t.Fatalf("slot %d, ok %v, taken before %v", slot, ok, taken[slot])
		}
		taken[slot] = true
	}
	late := vm(t)
	late.Tick(start, false)
	if slot, ok := late.Slot(); ok {
		t.Fatalf("the 129th VM got slot %d", slot)
	}
	// Its report waits, and goes out when a VM has gone.
	id := late.Reports.Dispatch(&wire.Report{Chosen: 1}, nil)
	late.Tick(start+int64(5*time.Second), false)
	if _, ok := late.Slot(); ok {
		t.Fatal("all are silent for five seconds, as this one was: perhaps the process stood still")
	}
	now := wait(late, start+int64(5*time.Second), 2*time.Second)
	slot, ok := late.Slot()
	if !ok {
		t.Fatal("no expired slot was taken over")
	}
	if id == 0 {
		t.Error("a request without a slot got no id")
	}
	late.Tick(now+int64(time.Second), false)
	if _, ok := host.Shared[wire.NewKeys("default").Report(slot, 1)]; !ok {
		t.Error("the waiting report was not written")
	}
}

func TestAVMThatStoodStillGivesItsSlotUp(t *testing.T) {
	proxy(t)
	slow, quick := vm(t), vm(t)
	slow.Tick(start, false)
	old, _ := slow.Slot()
	now := start + int64(2*time.Minute)
	quick.Tick(now, false)
	if got, _ := quick.Slot(); got != old {
		t.Fatalf("the expired slot %d was not taken: %d", old, got)
	}
	slow.Tick(now, false)
	if got, ok := slow.Slot(); !ok || got == old {
		t.Fatalf("the slow VM wrote to slot %d, which is another's", got)
	}
}

// TestAVMThatStoodStillWritesNoChunkToASlotThatIsAnothers, whether a dispatch is told at once or at
// the tick: it would stand where one of the successor's has not been read yet.
func TestAVMThatStoodStillWritesNoChunkToASlotThatIsAnothers(t *testing.T) {
	for _, told := range []bool{false, true} {
		host := proxy(t)
		slow, quick := vm(t), vm(t)
		slow.Tick(start, false)
		old, _ := slow.Slot()
		keys := wire.NewKeys("default")
		if told {
			put(host, keys.Taken(old), wire.AppendTaken(nil, &wire.Taken{Nonce: slow.Nonce, Courier: 5}))
			slow.Reports.Courier(5)
		}
		now := start + int64(2*time.Minute)
		for _, f := range []*Fleet{quick, slow} {
			f.Refresh(now)
			f.EnsureRow(now)
			f.Reports.Dispatch(&wire.Report{Chosen: 1}, []fingerprint.Checkpoint{{Fingerprint: 1, End: 1}})
			f.Tick(now, false)
			slot, _ := f.Slot()
			if chunk, _, err := wire.DecodeChunk(host.Shared[keys.Report(slot, 1)].Value); err != nil || chunk.Nonce != f.Nonce {
				t.Errorf("told %v: slot %d has no chunk of its VM", told, slot)
			}
		}
		if slot, _ := quick.Slot(); slot != old {
			t.Fatalf("the expired slot %d was not taken: %d", old, slot)
		}
		if chunk, _, _ := wire.DecodeChunk(host.Shared[keys.Report(old, 1)].Value); chunk.Nonce != quick.Nonce {
			t.Errorf("told %v: slot %d has a chunk of the VM before", told, old)
		}
	}
}

func TestSiblingsCountUntilTheirRowsExpire(t *testing.T) {
	host := proxy(t)
	publish(host, 2, 1, onePool)
	here, there := vm(t), vm(t)
	there.Refresh(start)
	there.Own.Add(1, 3, 700)
	there.Tick(start, false)
	load := func(now int64) route.Worker {
		here.Refresh(now)
		return here.PoolOf("m").View.Workers[0]
	}
	for now := start; now < start+int64(time.Second); now += int64(100 * time.Millisecond) {
		load(now)
		there.Tick(now, false)
	}
	if w := load(start + int64(time.Second)); w.InFlight != 5+3 || w.UncachedTokens != 700 {
		t.Errorf("%d in flight, %d uncached; the sibling has 3 and 700, others 5", w.InFlight, w.UncachedTokens)
	}
	now := start + int64(10*time.Second)
	if w := load(now); w.InFlight != 5+3 {
		t.Errorf("%d in flight: both have stood still", w.InFlight)
	}
	for range 20 {
		now = wait(here, now, 100*time.Millisecond)
		load(now)
	}
	if w := load(now); w.InFlight != 5 || w.UncachedTokens != 0 {
		t.Errorf("%d in flight, %d uncached after the sibling's row expired", w.InFlight, w.UncachedTokens)
	}
}

// TestADeadVMsRequestsAreReturnedAsOftenAsTheyWereDispatched: its row may have told of them before its tick did.
func TestADeadVMsRequestsAreReturnedAsOftenAsTheyWereDispatched(t *testing.T) {
	host := proxy(t)
	publish(host, 2, 1, onePool)
	here, there := vm(t), vm(t)
	now := start
	there.Refresh(now)
	there.Own.Add(1, 2, 0)
	there.Metrics().Add(metrics.Dispatched, 0, 2)
	there.Tick(now, false) // and dies before it has said anything else
	for range 40 {
		now = wait(here, now, 100*time.Millisecond)
		here.Refresh(now)
		here.Tick(now, true)
	}
	here.Metrics().Flush()
	dispatched, released := host.Metrics["warmpath.dispatched"].Value, host.Metrics["warmpath.released"].Value
	if dispatched != 2 || released != 2 {
		t.Errorf("%d dispatched, %d released of 2", dispatched, released)
	}
}

// For a batch with news the courier looks at the rows that it knows. That must not put off its look at
// the others, which comes with its ticks.
func TestANewVMIsFoundHoweverOftenTheCourierLooksForNews(t *testing.T) {
	host := proxy(t)
	courier := vm(t)
	courier.Tick(start, true)
	const far = wire.MaxSlots - 1
	for now, ticks := start, 0; courier.LiveRows() < 2; now += int64(25 * time.Millisecond) {
		put(host, courier.Keys.RowKey(far), wire.EndRow(wire.AppendRow(nil, &wire.Row{Slot: far, Nonce: 7, TickUnixNanos: now}), 0))
		courier.LookNow(now)
		if (now-start)%int64(100*time.Millisecond) == 0 {
			courier.Tick(now, true)
			ticks++
		}
		if ticks > wire.MaxSlots/scanPerRead+1 {
			t.Fatalf("not found in %d ticks", ticks)
		}
	}
}

func TestOwnDispatchesCountAtOnce(t *testing.T) {
	host := proxy(t)
	publish(host, 2, 1, onePool)
	f := vm(t)
	f.Refresh(start)
	before := f.PoolOf("").View.Workers[1].Load
	for range 4 {
		f.Own.Add(2, 1, 100)
	}
	f.Touched(2)
	after := f.PoolOf("").View.Workers[1]
	if after.Load <= before || after.InFlight != 9 {
		t.Errorf("load %v -> %v, %d in flight", before, after.Load, after.InFlight)
	}
}

func TestAMarkEndsByItselfAndTheLongestCounts(t *testing.T) {
	host := proxy(t)
	publish(host, 2, 1, onePool)
	f := vm(t)
	f.Refresh(start)
	view := &f.PoolOf("").View
	left := func() time.Duration { return view.Workers[0].AvoidFor - (f.Since(start) - view.At) }
	for _, c := range []struct {
		seconds int
		want    time.Duration
	}{{0, avoidDefault}, {4, 4 * time.Second}, {2, 4 * time.Second}, {3600, avoidMost}} {
		f.Avoid(1, start, c.seconds)
		if got := left(); got != c.want {
			t.Errorf("Retry-After %d: %v left, want %v", c.seconds, got, c.want)
		}
	}
	f.Avoid(77, start, 1) // nobody
	host.Clock = start + int64(time.Minute)
	publish(host, 2, 2, onePool)
	f.Refresh(host.Clock)
	if got := f.PoolOf("").View.Workers[0].AvoidFor; got > 0 {
		t.Errorf("a minute later %v are left", got)
	}
}

func TestUnreadableDataLeavesWhatWasKnown(t *testing.T) {
	host := proxy(t)
	publish(host, 3, 1, onePool)
	f := vm(t)
	f.Refresh(start)
	keys := wire.NewKeys("default")
	for i, key := range []string{keys.Meta(), keys.Roster(), keys.Loads(), keys.Policy(), keys.Sets()} {
		publish(host, 3, uint64(i+2), onePool)
		if key == keys.Sets() {
			value := host.Shared[keys.Meta()].Value
			m, _ := table.DecodeMeta(value)
			m.SetsVersion++
			put(host, keys.Meta(), table.AppendMeta(nil, &m))
		}
		put(host, key, []byte("garbage that is no record of any kind"))
		f.Refresh(start + int64(i+1)*int64(time.Second))
		if !f.Ready() || len(f.PoolOf("m").View.Workers) != 3 || f.RefOf("w2") != 2 {
			t.Errorf("%s damaged: ready %v, %d workers", key, f.Ready(), len(f.PoolOf("m").View.Workers))
		}
	}
	if len(host.Logs) != 5 {
		t.Errorf("%d log lines, want one a kind: %v", len(host.Logs), host.Logs)
	}
}

func TestANewPolicySortsTheWorkersAgain(t *testing.T) {
	host := proxy(t)
	publish(host, 3, 1, onePool)
	f := vm(t)
	f.Refresh(start)
	ring := f.PoolOf("m").View.Ring
	f.PoolOf("m").NextSequence()
	publish(host, 3, 2, `{"pools":[{"name":"default","index":0,"models":["m"],"policy":{"name":"round_robin"}},{"name":"other","index":1,"models":["n"]}]}`)
	f.Refresh(start + int64(time.Second))
	if pool := f.PoolOf("m"); len(pool.View.Workers) != 3 || pool.View.Ring != ring {
		t.Errorf("%d workers; ring built anew: %v", len(pool.View.Workers), pool.View.Ring != ring)
	}
	if pool := f.PoolOf("n"); pool == nil || len(pool.View.Workers) != 0 {
		t.Error("the second pool should be there and empty")
	}
	if f.PoolOf("unknown") != nil {
		t.Error("a model that no pool takes found one")
	}
	publish(host, 3, 3, `{"pools":[{"name":"default","index":0,"models":["m"],"policy":{"name":"chwbl","virtual_nodes":7}}]}`)
	f.Refresh(start + 2*int64(time.Second))
	if pool := f.PoolOf("m"); pool.View.Ring == ring {
		t.Error("with other virtual_nodes the ring is the one before")
	}
}

// TestRequestsWithoutAModelGoToTheOnlyPool, as the list of models and bodies that can't be read:
// any of its workers will do. Of several nobody can say which.
func TestRequestsWithoutAModelGoToTheOnlyPool(t *testing.T) {
	for policy, want := range map[string]string{
		`{"pools":[{"name":"a","index":0,"models":["m"]}]}`:                                       "a",
		`{"pools":[{"name":"a","index":0,"models":["m"]},{"name":"b","index":1,"models":["*"]}]}`: "b",
		`{"pools":[{"name":"a","index":0,"models":["m"]},{"name":"b","index":1,"models":["n"]}]}`: "",
	} {
		host := proxy(t)
		publish(host, 1, 1, policy)
		f := vm(t)
		f.Refresh(start)
		got := ""
		if pool := f.PoolOf(""); pool != nil {
			got = pool.View.Pool.Name
		}
		if got != want {
			t.Errorf("%s: pool %q, want %q", policy, got, want)
		}
		if pool := f.PoolOf("unknown"); pool != nil && want != "b" {
			t.Errorf("%s: an unknown model found pool %q", policy, pool.View.Pool.Name)
		}
	}
}

func TestAPageIsReadOnceInItsLifetime(t *testing.T) {
	host := proxy(t)
	f := vm(t)
	page := make(table.Page, table.PageBytes)
	page.Init(6, 5)
	page.Put(&table.Entry{Fingerprint: 5 << 58, Refs: [6]uint16{1}})
	put(host, f.Keys.Keys.Page(6, 5), page)
	read := func(now int64, index uint32) int {
		f.Pages.Use(6, now)
		return f.Pages.Get(index).Count()
	}
	if got := read(start, 5); got != 1 {
		t.Fatalf("%d entries", got)
	}
	put(host, f.Keys.Keys.Page(6, 5), nil)
	if got := read(start+int64(pageLifetime)-1, 5); got != 1 {
		t.Error("read again within its lifetime")
	}
	if got := read(start+int64(pageLifetime)+1, 5); got != 0 {
		t.Error("an emptied page lives for ever")
	}
	put(host, f.Keys.Keys.Page(6, 5), page)
	f.Pages.Forget(5)
	if got := read(start+int64(pageLifetime)+2, 5); got != 1 {
		t.Error("a forgotten page was not read")
	}
	wrong := make(table.Page, table.PageBytes)
	wrong.Init(6, 9)
	put(host, f.Keys.Keys.Page(6, 7), wrong)
	if got := f.Pages.Get(7); got != nil {
		t.Error("another page was taken for page 7")
	}
	put(host, f.Keys.Keys.Page(8, 5), page)
	f.Pages.Use(8, start)
	if got := f.Pages.Get(5); got != nil {
		t.Error("a page of another size class was used")
	}
}

func TestChunksHoldEveryRecordInOrder(t *testing.T) {
	host := proxy(t)
	f := vm(t)
	f.Tick(start, false)
	slot, _ := f.Slot()
	cps := make([]fingerprint.Checkpoint, 100)
	for i := range cps {
		cps[i] = fingerprint.Checkpoint{Fingerprint: uint64(i), End: uint32(i + 1)}
	}
	var ids []uint64
	for range 100 { // 120 KB: four chunks
		id := f.Reports.Dispatch(&wire.Report{Chosen: 1}, cps)
		f.Reports.Done(&wire.Report{ID: id, Outcome: wire.Complete})
		ids = append(ids, id, id)
	}
	f.Tick(start+int64(100*time.Millisecond), false)
	var got []uint64
	for seq := uint64(1); seq <= f.Reports.sequence; seq++ {
		chunk, records, err := wire.DecodeChunk(host.Shared[wire.NewKeys("default").Report(slot, seq)].Value)
		if err != nil || chunk.Sequence != seq || chunk.Nonce != f.Nonce {
			t.Fatalf("chunk %d: %+v %v", seq, chunk, err)
		}
		if err := wire.ForEachReport(records, func(r *wire.Report) error {
			got = append(got, r.ID)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if len(got) != len(ids) {
		t.Fatalf("%d of %d records", len(got), len(ids))
	}
	for i := range ids {
		if got[i] != ids[i] {
			t.Fatalf("record %d is of request %x, want %x", i, got[i], ids[i])
		}
	}
}

func TestWorkerNamesReadBack(t *testing.T) {
	name := workerName([]byte("10.0.0.1:9000"), 7)
	if name == workerName([]byte("10.0.0.1:9000"), 8) || name == workerName([]byte("10.0.0.2:9000"), 7) {
		t.Error("two generations or two workers share a name")
	}
	if got, ok := ParseWorkerName([]byte(FormatWorkerName(name))); !ok || got != name {
		t.Errorf("%q reads as %x, %v", FormatWorkerName(name), got, ok)
	}
	for _, bad := range []string{"", "1234567", "123456789", "1234567g", "ABCDEF00", "00000000"} {
		if _, ok := ParseWorkerName([]byte(bad)); ok {
			t.Errorf("%q is no worker name", bad)
		}
	}
}

func TestExcludedNamesBecomeRefs(t *testing.T) {
	host := proxy(t)
	publish(host, 3, 1, onePool)
	f := vm(t)
	f.Refresh(start)
	got := f.Excluded([2]uint32{f.WorkerName(3), f.WorkerName(1)}, nil)
	if len(got) != 2 || got[0] != 1 || got[1] != 3 {
		t.Errorf("%v", got)
	}
	if got := f.Excluded([2]uint32{}, nil); len(got) != 0 {
		t.Errorf("no names gave %v", got)
	}
}

// TestAViewHasWhatTheCostRuleReads: what control knows of caches and recent
// work, this VM's own work added as it is, and nothing of it when control says
// nothing or sends rubbish.
func TestAViewHasWhatTheCostRuleReads(t *testing.T) {
	host := proxy(t)
	f := vm(t)
	f.Refresh(host.Clock)
	keys := wire.NewKeys("default")
	view := func() route.Worker {
		host.Clock += int64(time.Second)
		version := uint64(host.Clock)
		publish(host, 2, version, onePool)
		put(host, keys.Loads(), wire.AppendLoad(nil, &wire.Load{Ref: 1, State: 1, Trust: 1, DecodeSecondsPerToken: 0.25, EvictShare: 1, EvictMillis: 700}))
		f.Refresh(host.Clock)
		return f.pools[0].View.Workers[0]
	}
	if w := view(); w.FreeTokens != 0 || w.TailAge != 0 || w.RecentTokens != 0 || w.DecodeSeconds != 0.25 || w.EvictShare != 1 || w.EvictFor != 700*time.Millisecond {
		t.Errorf("without a caches section: %+v", w)
	}
	put(host, keys.Caches(), wire.AppendCache(nil, &wire.Cache{Ref: 1, FreeTokens: 500, TailAgeMillis: 9000, RecentTokens: 3000, EmptyAgeMillis: 1500}))
	if w := view(); w.FreeTokens != 500 || w.CacheAge != 1500*time.Millisecond || w.TailAge != 9*time.Second || w.RecentTokens != 3000 {
		t.Errorf("as control says: %+v", w)
	}
	f.Recent.Add(1, 2000, host.Clock)
	f.Touched(1)
	if w := f.pools[0].View.Workers[0]; w.RecentTokens != 5000 {
		t.Errorf("others' 3000 and own 2000 are %v", w.RecentTokens)
	}
	// Control's next word contains the own part.
	if w := view(); w.RecentTokens != 3000 {
		t.Errorf("control has learned of the own work, and the sum is %v", w.RecentTokens)
	}
	put(host, keys.Caches(), []byte("rubbish"))
	if w := view(); w.FreeTokens != 0 || w.TailAge != 0 || w.CacheAge != 0 || w.State != route.Healthy {
		t.Errorf("with a damaged section: %+v", w)
	}
}

func TestAViewHasTheHomesThatCameWithTheLoads(t *testing.T) {
	host := proxy(t)
	f := vm(t)
	key := wire.NewKeys("default").Homes()
	homes := func(payload []byte) []route.Home {
		host.Clock += int64(time.Second)
		publish(host, 2, uint64(host.Clock), onePool)
		put(host, key, payload)
		f.Refresh(host.Clock)
		return f.pools[0].View.Homes
	}
	if got := homes(nil); len(got) != 0 {
		t.Errorf("without a section: %+v", got)
	}
	two := wire.AppendHome(wire.AppendHome(nil, &wire.Home{Fingerprint: 5, Units: 128, Bitmap: []byte{0x06, 0x01}}), &wire.Home{Fingerprint: 6, Units: 9, Pool: 77, Bitmap: []byte{2}})
	want := []route.Home{{Fingerprint: 5, Units: 128, Refs: []uint16{1, 2, 8}}} // the other pool is none of ours
	if diff := cmp.Diff(want, homes(two)); diff != "" {
		t.Error(diff)
	}
	one := wire.AppendHome(nil, &wire.Home{Fingerprint: 7, Units: 64, Bitmap: []byte{0x02}})
	if diff := cmp.Diff([]route.Home{{Fingerprint: 7, Units: 64, Refs: []uint16{1}}}, homes(one)); diff != "" {
		t.Error(diff)
	}
	if got := homes([]byte("rubbish")); len(got) != 0 {
		t.Errorf("rubbish: %+v", got)
	}
	f.metrics.Flush()
	if n := host.Metrics["warmpath.bad_data.homes"].Value; n != 1 {
		t.Errorf("rubbish is counted %d times", n)
	}
}

func TestAPolicyThatWantsAScoreIsTakenAndToldOnce(t *testing.T) {
	const custom = `{"pools":[{"name":"default","models":["*"],"policy":{"name":"custom"}}]}`
	for _, with := range []bool{false, true} {
		host := proxy(t)
		f := vm(t)
		if with {
			f.Score = func(*route.Request, *route.Worker, *route.Facts) float64 { return 0 }
		}
		for version, policy := range []string{custom, custom, onePool, custom} {
			publish(host, 2, uint64(version+1), policy)
			f.Tick(start+int64(version), false)
			if name := f.PoolOf("m").View.Pool.Policy.Name.String(); (name == "custom") != (policy == custom) {
				t.Fatalf("version %d: the rule is %s", version+1, name)
			}
			if f.PoolOf("m").View.Score != nil != with {
				t.Errorf("the view's score, with one in the module: %v", with)
			}
		}
		f.metrics.Flush()
		counted := host.Metrics["warmpath.no_score"].Value
		logs, count := 2, uint64(3)
		if with {
			logs, count = 0, 0
		}
		if len(host.Logs) != logs || counted != count {
			t.Errorf("%d counted, want %d; logged %v", counted, count, host.Logs)
		}
	}
}
