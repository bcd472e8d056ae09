//go:build !wasm

package fleet

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
)

func TestWhatIsInSlowerMemoryIsAskedForWherePoolsGiveItCredit(t *testing.T) {
	host := proxy(t)
	publish(host, 2, 1, `{"pools":[{"name":"default","models":["*"],"slow_credit":0.5}]}`)
	prompt := []fingerprint.Checkpoint{{Fingerprint: 11, End: 4}, {Fingerprint: 22, End: 8}}
	entry := func(key uint64, ref uint16) {
		index := table.PageIndex(key, 6)
		page := make(table.Page, table.PageBytes)
		page.Init(6, index)
		e := table.Entry{Fingerprint: key, Refs: [table.InlineRefs]uint16{ref}}
		if !page.Put(&e) {
			t.Fatal("no room")
		}
		put(host, wire.NewKeys("default").Page(6, index), page)
	}
	entry(11, 1)
	entry(fingerprint.Slow(22), 2)
	f := vm(t)
	f.Tick(start, false)
	find := func() (fast, slow []table.Match) {
		pool := f.PoolOf("m")
		return f.Find(pool, prompt, 8, nil), f.FindSlow(pool, prompt, 8, nil)
	}
	fast, slow := find()
	if diff := cmp.Diff([]table.Match{{Ref: 1, Units: 4}}, fast) + cmp.Diff([]table.Match{{Ref: 2, Units: 8}}, slow); diff != "" {
		t.Error(diff)
	}
	if prompt[1].Fingerprint != 22 {
		t.Error("the prompt's own checkpoints were changed")
	}
	publish(host, 2, 2, onePool)
	f.Tick(start, false)
	if _, slow := find(); len(slow) != 0 {
		t.Errorf("without credit: %v", slow)
	}
}
