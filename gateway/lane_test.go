package gateway

import "testing"

func TestABusyVMIsPassedBy(t *testing.T) {
	g := &Gateway{lanes: []*lane{{}, {}, {}}}
	seen := map[*lane]int{}
	for range 6 {
		seen[g.shortest()]++
	}
	if len(seen) != 3 || seen[g.lanes[0]] != 2 {
		t.Errorf("idle VMs are not taken in turn: %v", seen)
	}
	g.lanes[0].inside.Store(2)
	g.lanes[1].inside.Store(1)
	for range 6 {
		if g.shortest() != g.lanes[2] {
			t.Fatal("a busy VM is given more")
		}
	}
	g.lanes[2].inside.Store(3)
	if g.shortest() != g.lanes[1] {
		t.Error("all are busy, and not the least busy is taken")
	}
}
