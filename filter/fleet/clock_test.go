//go:build !wasm

package fleet

import (
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
)

// A clock that is set back must not freeze what was true before: what is remembered until a
// time that will only come again in an hour is forgotten at once.
func TestAClockThatIsSetBackFreezesNothing(t *testing.T) {
	host := proxy(t)
	publish(host, 2, 1, onePool)
	f, sibling := vm(t), vm(t)
	f.Refresh(start)
	sibling.EnsureRow(start)
	sibling.Own.Add(1, 7, 0)
	for i := range int64(16) { // all slots are looked at in eight looks
		now := start + i*int64(time.Second)
		sibling.Tick(now, false)
		f.Refresh(now)
	}
	if got := f.siblings.tally.Of(1).InFlight; got != 7 {
		t.Fatalf("a sibling's requests in flight: %d, want 7", got)
	}
	page := func(index uint32) []byte {
		p := make(table.Page, table.PageBytes)
		p.Init(6, index)
		return p
	}
	f.Pages.Use(6, f.now)
	if f.Pages.Get(3) != nil {
		t.Fatal("a page that isn't there")
	}
	f.Avoid(1, f.now, 0)
	f.Recent.Add(1, 1000, f.now)

	back := start - int64(time.Hour)
	host.Clock = back
	put(host, string(wire.NewKeys("default").AppendPage(nil, 6, 3)), page(3))
	sibling.Own.Sub(1, 7, 0)
	sibling.Tick(back, false)
	publish(host, 2, 2, onePool)
	f.Refresh(back)
	if got := f.siblings.tally.Of(1).InFlight; got != 0 {
		t.Errorf("%d requests of a sibling's are still in flight", got)
	}
	f.Pages.Use(6, f.now)
	if f.Pages.Get(3) == nil {
		t.Error("the page is still not there")
	}
	f.Recent.Add(2, 2000, back)
	if before, after := f.Recent.Of(1, back), f.Recent.Of(2, back); before != 1000 || after != 2000 {
		t.Errorf("recent work: %v and %v, want 1000 and 2000", before, after)
	}
	view := &f.pools[0].View
	if until := view.At + view.Workers[0].AvoidFor; until > f.Since(back)+avoidMost {
		t.Errorf("a worker is avoided for %v", until-f.Since(back))
	}
}
