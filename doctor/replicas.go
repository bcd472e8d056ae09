package doctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/warmpath/warmpath/control/api"
)

// replicas looks at the control services that act as one, as the one that was asked
// sees them. Nothing here compares the clocks of two of them: they needn't agree.
func (d *diagnosis) replicas(ctx context.Context, c *api.Cluster) {
	if c == nil || len(c.Replicas) < 2 && c.Servers == "1 inside" {
		return // there is one, and all of it is said elsewhere
	}
	d.agreement(c)
	there := slices.DeleteFunc(slices.Clone(c.Replicas), func(r api.Replica) bool { return !r.Present })
	d.missing(c, there)
	d.versions(there)
	d.tables(ctx, c.Name, there)
}

// agreement looks at what the replicas decide together.
func (d *diagnosis) agreement(c *api.Cluster) {
	const name = "control.agreement"
	switch {
	case c.Problem != "":
		d.fail(name, c.Name, "the replicas can't agree: "+c.Problem, "bring back a majority of the NATS servers ("+c.Servers+"); leases, puts and new workers wait for it, routing goes on")
	case !c.Agreed:
		d.fail(name, c.Name, "it has not read yet what all agree on, and serves no table", "wait some seconds; if it stays, see its log: a document may be of a newer version")
	case c.Leader == "":
		d.fail(name, c.Name, "nobody leads: no gateway gets a new lease", "wait five seconds; if it stays, see the logs of all replicas")
	default:
		d.ok(name, c.Name, "%s leads, term %s", c.Leader, c.Term)
	}
	if c.PolicyProblem != "" {
		d.fail("control.policy", c.Name, "what another replica was told isn't in force here: "+c.PolicyProblem, "give all replicas the same files, vocabularies and version")
	}
	if c.WorkersProblem != "" {
		d.fail("control.workers", c.Name, "the workers that another replica was told aren't in force here: "+c.WorkersProblem, "give all replicas the same sources and version")
	}
	if l := c.Ledger; l != nil && l.Problem != "" {
		d.warn(name, c.Name, "the ledger can't be written: "+l.Problem, "gateways that are new get no lease while it stays")
	}
}

// missing names who isn't there.
func (d *diagnosis) missing(c *api.Cluster, there []api.Replica) {
	const name = "control.replicas"
	names := map[string]int{}
	for _, r := range there {
		names[r.Name]++
	}
	for _, r := range there {
		if names[r.Name] > 1 {
			d.fail(name, r.Name, strconv.Itoa(names[r.Name])+" replicas have this name", "give each its own nats.name, store and state file")
			names[r.Name] = 0
		}
	}
	for _, r := range c.Replicas {
		if _, back := names[r.Name]; !r.Present && !back {
			d.warn(name, r.Name, fmt.Sprintf("silent for %.0f s", r.Age), "start it again, or see whether it reaches the others")
		}
	}
	// "3 inside": each server is in a replica.
	number, inside, _ := strings.Cut(c.Servers, " ")
	servers, err := strconv.Atoi(number)
	switch {
	case err != nil || inside != "inside":
		d.ok(name, "", "%d are there", len(there))
	case len(there) < servers:
		d.warn(name, "", fmt.Sprintf("%d of %d are there", len(there), servers), fmt.Sprintf("bring back who is missing: with fewer than %d nobody grants leases", servers/2+1))
	default:
		d.ok(name, "", "%d of %d are there", len(there), servers)
	}
}

// versions looks for an upgrade that was not finished.
func (d *diagnosis) versions(there []api.Replica) {
	const name = "control.versions"
	programs, wires := map[string][]string{}, map[int][]string{}
	for _, r := range there {
		programs[r.Version] = append(programs[r.Version], r.Name)
		wires[r.Wire] = append(wires[r.Wire], r.Name)
	}
	switch {
	case len(wires) > 1:
		d.warn(name, "", "wire versions differ: "+byValue(wires), "upgrade the rest soon: versions further apart than one don't understand each other")
	case len(programs) > 1:
		d.warn(name, "", "versions differ: "+byValue(programs), "finish the upgrade, the leader last")
	default:
		for version, names := range programs {
			d.ok(name, "", "%s at all %d", orUnknown(version), len(names))
		}
	}
}

// byValue lists who has what.
func byValue[V int | string](m map[V][]string) string {
	var out []string
	for v, names := range m {
		slices.Sort(names)
		out = append(out, orUnknown(fmt.Sprint(v))+" at "+strings.Join(names, ", "))
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

func orUnknown(version string) string {
	if version == "" || version == "0" {
		return "unknown"
	}
	return version
}

// tableLooks is how often the tables are looked at: what is on its way between
// replicas makes them differ for a moment.
const tableLooks = 5

// tables holds that all serve the same table.
func (d *diagnosis) tables(ctx context.Context, self string, there []api.Replica) {
	const name = "control.tables"
	differ := map[string]bool{}
	for _, r := range there {
		if r.Table == api.TableDiffers {
			differ[r.Name] = true
		}
	}
	for look := 1; look < tableLooks && len(differ) > 0; look++ {
		wait := time.NewTimer(d.o.Settle / tableLooks)
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-wait.C:
		}
		var s api.Status
		if err := d.get(ctx, d.o.Control, "/v1/status", d.o.Token, &s); err != nil || s.Cluster == nil || s.Cluster.Name != self {
			continue // no answer, or another replica's: a load balancer is between
		}
		for _, r := range s.Cluster.Replicas {
			if r.Table == api.TableSame {
				delete(differ, r.Name)
			}
		}
	}
	for _, r := range there {
		switch {
		case differ[r.Name]:
			d.warn(name, r.Name, "its table is another one than that of "+self, "warmpath table diff names the entries; a few of the oldest of engines without KV events may differ, more that stay are lost messages: see shared_total and index_merges_total")
		case r.Table != "":
			d.ok(name, r.Name, "its table is that of %s", self)
		}
	}
}
