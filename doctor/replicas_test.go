package doctor

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmpath/warmpath/control/api"
)

// three are replicas in good order.
func three() *api.Cluster {
	return &api.Cluster{
		Name: "control-0", Leads: true, Leader: "control-0", Term: "7", Agreed: true, Servers: "3 inside",
		Replicas: []api.Replica{
			{Name: "control-0", Version: "v2", Wire: 2, Present: true, Leads: true},
			{Name: "control-1", Version: "v2", Wire: 2, Present: true, Table: api.TableSame},
			{Name: "control-2", Version: "v2", Wire: 2, Present: true, Table: api.TableSame},
		},
	}
}

func TestReplicasAreLookedAt(t *testing.T) {
	for name, c := range map[string]struct {
		change         func(c *api.Cluster)
		check, target  string
		status         Status
		seen           string
		alsoInOrder    bool // the other checks of replicas are
		nothingIsThere bool
	}{
		"who leads":           {change: func(*api.Cluster) {}, check: "control.agreement", status: OK, seen: "control-0 leads, term 7", alsoInOrder: true},
		"all are there":       {change: func(*api.Cluster) {}, check: "control.replicas", status: OK, seen: "3 of 3", alsoInOrder: true},
		"the same version":    {change: func(*api.Cluster) {}, check: "control.versions", status: OK, seen: "v2 at all 3", alsoInOrder: true},
		"the same table":      {change: func(*api.Cluster) {}, check: "control.tables", target: "control-2", status: OK, seen: "control-0", alsoInOrder: true},
		"no majority":         {change: func(c *api.Cluster) { c.Problem, c.Leader = "no majority of NATS servers", "" }, check: "control.agreement", status: Fail, seen: "no majority"},
		"nothing read":        {change: func(c *api.Cluster) { c.Agreed = false }, check: "control.agreement", status: Fail, seen: "serves no table"},
		"nobody leads":        {change: func(c *api.Cluster) { c.Leader = "" }, check: "control.agreement", status: Fail, seen: "nobody leads"},
		"a policy refused":    {change: func(c *api.Cluster) { c.PolicyProblem = "no such vocabulary" }, check: "control.policy", status: Fail, seen: "no such vocabulary"},
		"a list refused":      {change: func(c *api.Cluster) { c.WorkersProblem = "too many" }, check: "control.workers", target: "control-0", status: Fail, seen: "too many"},
		"one is silent":       {change: func(c *api.Cluster) { c.Replicas[1].Present, c.Replicas[1].Age = false, 42 }, check: "control.replicas", target: "control-1", status: Warn, seen: "silent for 42 s"},
		"one never came":      {change: func(c *api.Cluster) { c.Replicas = c.Replicas[:2] }, check: "control.replicas", status: Warn, seen: "2 of 3"},
		"one name twice":      {change: func(c *api.Cluster) { c.Replicas[2].Name = "control-1" }, check: "control.replicas", target: "control-1", status: Fail, seen: "2 replicas"},
		"one is older":        {change: func(c *api.Cluster) { c.Replicas[1].Version = "v1" }, check: "control.versions", status: Warn, seen: "v1 at control-1; v2 at control-0, control-2"},
		"another wire":        {change: func(c *api.Cluster) { c.Replicas[2].Wire = 0 }, check: "control.versions", status: Warn, seen: "2 at control-0, control-1; unknown at control-2"},
		"another table":       {change: func(c *api.Cluster) { c.Replicas[2].Table = api.TableDiffers }, check: "control.tables", target: "control-2", status: Warn, seen: "another one"},
		"an external cluster": {change: func(c *api.Cluster) { c.Servers = "external" }, check: "control.replicas", status: OK, seen: "3 are there", alsoInOrder: true},
		"one alone":           {change: func(c *api.Cluster) { c.Servers, c.Replicas = "1 inside", c.Replicas[:1] }, nothingIsThere: true},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := three()
			c.change(cluster)
			checks := lookAt(t, func(int64) *api.Cluster { return cluster })
			if c.nothingIsThere {
				if i := slices.IndexFunc(checks, func(k Check) bool { return k.Name == "control.agreement" }); i >= 0 {
					t.Errorf("%+v", checks[i])
				}
				return
			}
			want(t, checks, c.check, c.target, c.status, c.seen)
			for _, k := range checks {
				if replicas := []string{"control.agreement", "control.replicas", "control.versions", "control.tables"}; c.alsoInOrder && slices.Contains(replicas, k.Name) && k.Status != OK {
					t.Errorf("%+v", k)
				}
			}
		})
	}
}

func TestTablesThatDifferForAMomentAreInOrder(t *testing.T) {
	checks := lookAt(t, func(look int64) *api.Cluster {
		c := three()
		c.Replicas[1+look%2].Table = api.TableDiffers // each in its turn
		return c
	})
	want(t, checks, "control.tables", "control-1", OK, "")
	want(t, checks, "control.tables", "control-2", OK, "")
}

// TestTablesAreLookedAtThroughALoadBalancer: every second look is another replica's.
func TestTablesAreLookedAtThroughALoadBalancer(t *testing.T) {
	checks := lookAt(t, func(look int64) *api.Cluster {
		c := three()
		switch look {
		case 1:
			c.Replicas[2].Table = api.TableDiffers
		case 2:
			c.Name = "control-1"
		}
		return c
	})
	want(t, checks, "control.tables", "control-2", OK, "")
}

// lookAt looks at a control service whose n-th status says that of its cluster.
func lookAt(t *testing.T, cluster func(look int64) *api.Cluster) []Check {
	t.Helper()
	var looks atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any = map[string]any{}
		if r.URL.Path == "/v1/status" {
			answer = api.Status{Cluster: cluster(looks.Add(1))}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer server.Close()
	return Run(t.Context(), Options{Control: server.URL, Settle: 50 * time.Millisecond})
}
