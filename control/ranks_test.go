package control

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/control/kvevents"
)

// Data-parallel ranks behind one port are workers of their own: gateways get the
// port and the rank of each, loads and entries are each one's own, and a restart
// knows them again.
func TestRanksBehindOnePortReachGatewaysAsWorkers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := newEngines(alpha, beta)
		e.measure(alpha, "vllm:num_requests_running{engine=\"0\"} 2\nvllm:num_requests_running{engine=\"1\"} 7\nvllm:num_requests_waiting{engine=\"1\"} 3\n")
		cfg := Config{Workers: specs(alpha, beta), StateFile: t.TempDir() + "/state.bin"}
		cfg.Workers[0].Ranks = 2
		b, g := serving(t, e, cfg)
		type worker struct {
			Address string
			Rank    uint8
		}
		refs, got := map[worker]uint16{}, map[worker]int{}
		for ref, w := range g.roster {
			at := worker{string(w.Address), w.Rank}
			refs[at] = ref
			got[at]++
		}
		first, second := worker{alpha, 1}, worker{alpha, 2}
		if diff := cmp.Diff(map[worker]int{first: 1, second: 1, {beta, 0}: 1}, got); diff != "" {
			t.Fatal(diff)
		}
		if a, z := g.loads[refs[first]], g.loads[refs[second]]; a.Waiting != 0 || z.Waiting != 3 || z.Running <= a.Running {
			t.Errorf("loads %+v and %+v", a, z)
		}
		path := prompt("system", "user")
		g.ask(refs[second], path, 0, 0)
		settle()
		g.catchUp()
		if got := g.holders(path[len(path)-1].Fingerprint); len(got) != 1 || got[0] != refs[second] {
			t.Errorf("held by %v, want %d", got, refs[second])
		}
		if b.worker(alpha+"@0").Entries != 0 || b.worker(alpha+"@1").Entries != len(path) {
			t.Errorf("%+v", b.s.Status().Workers)
		}
		b.stop()
		_, g = serving(t, e, cfg)
		g.catchUp()
		if got := g.holders(path[len(path)-1].Fingerprint); len(got) != 1 || got[0] != refs[second] {
			t.Errorf("after a restart held by %v, want %d", got, refs[second])
		}
	})
}

func TestARankFollowsItsOwnEvents(t *testing.T) {
	all := []kvevents.Endpoint{{Events: "tcp://a:5557", Rank: 0}, {Events: "tcp://a:5559", Rank: 2}}
	for address, want := range map[string][]kvevents.Endpoint{"10.0.0.7:8000": all, "10.0.0.7:8000@0": all[:1], "10.0.0.7:8000@2": all[1:], "10.0.0.7:8000@1": nil} {
		got, err := ofRank(all, discovery.RankOf(address))
		if diff := cmp.Diff(want, got); diff != "" || (err != nil) != (want == nil) {
			t.Errorf("%s: %v %s", address, err, diff)
		}
	}
}
