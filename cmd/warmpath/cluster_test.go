package main

import (
	"strings"
	"testing"

	"github.com/warmpath/warmpath/control/api"
)

func TestClusterSaysWhoLeadsAndWhatIsWrong(t *testing.T) {
	var out strings.Builder
	err := printCluster(&out, &api.Cluster{
		Name: "control-1", Leader: "control-0", Term: "7", Servers: "3 inside", Problem: "no majority of NATS servers", Unanswered: 4,
		Replicas: []api.Replica{
			{Name: "control-0", URL: "http://10.0.0.1:8780", Version: "v1", Age: 0.4, Present: true, Leads: true, Table: api.TableSame},
			{Name: "control-1", Present: true},
			{Name: "control-2", Age: 42},
		},
		Ledger: &api.LedgerDocument{Age: 3, Gateways: 8, Problem: "written by another"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `control-0 leads, term 7; asked: control-1; NATS servers: 3 inside
PROBLEM: the replicas can't agree: no majority of NATS servers
It hasn't read yet what all agree on, and serves nothing before.
ledger: 8 gateways to go on from, written 3 s ago
PROBLEM: it can't be written: written by another
leases by the leader: 0, unanswered: 4; messages dropped: 0

REPLICA    STATE    HEARD     TABLE  VERSION  API
control-0  leads    0 s ago   same   v1       http://10.0.0.1:8780
control-1  follows  0 s ago                   
control-2  missing  42 s ago                  
`
	if out.String() != want {
		t.Errorf("got\n%s", out.String())
	}
	out.Reset()
	if err := printCluster(&out, nil); err != nil || !strings.Contains(out.String(), "alone") {
		t.Errorf("%q %v", out.String(), err)
	}
}
